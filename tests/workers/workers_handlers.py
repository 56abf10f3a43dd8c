"""Handlers for processes, which import them."""

from __future__ import annotations

import os
import sys
import time

from tidelog.workers import Message, Reject, Send


class Untold(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise SystemExit(1)

    __repr__ = __str__


class UntoldReject(Untold, Reject):
    pass


def raise_untold(message: Message) -> None:
    if message.value != b"good":
        raise UntoldReject if message.value == b"reject" else Untold


async def raise_untold_async(message: Message) -> None:
    raise_untold(message)


def unruly(message: Message) -> Send | None:
    """Does what the value says, and sends its process id to the topic that the key names."""
    match message.value:
        case b"die":
            os._exit(3)
        case b"exit":
            sys.exit(4)
        case b"hang":
            time.sleep(600)
        case b"reject":
            raise Reject("of no use")
        case b"fork":
            os.fork()
    assert message.key is not None
    return Send(message.key.decode(), message.value, str(os.getpid()))
