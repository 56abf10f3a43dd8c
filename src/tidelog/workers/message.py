"""What a handler gets and gives: a `Message` that was read, and what to `Send`."""

from __future__ import annotations

from collections.abc import Iterable
from types import GeneratorType
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A record of a topic. A null key or value is None, which is not the same as an empty one."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    #: milliseconds since 1970; -1 where the record has none
    timestamp_ms: int = -1
    #: 1 the first time that it is handled by this process, 2 the second …
    attempt: int = 1

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}"


class Send(NamedTuple):
    """A record to write, returned by a handler: the message is finished once it is acknowledged."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers = ()
    #: None leaves it to the producer: by the hash of the key
    partition: int | None = None


class Reject(Exception):
    """Raised by a handler for a message that no further attempt can help: it becomes a dead letter at once."""


def said_by(error: BaseException) -> str:
    """What an error says of itself: handlers raise errors of all kinds, and some of them cannot even be told."""
    try:
        return str(error).strip()
    except BaseException as broken:
        return f"what it says cannot be told: its __str__ raised {type(broken).__name__}"


def sends_of(returned: Any) -> tuple[Send, ...]:
    """What a handler returned, as records to write: a Send, or a list, tuple or generator of them. Else nothing."""
    if returned is None:
        return ()
    if isinstance(returned, Send):
        return (returned,)
    if isinstance(returned, list | tuple | GeneratorType):
        return _all_sends(returned)
    if hasattr(returned, "__await__"):
        close = getattr(returned, "close", None)
        if close is not None:
            close()  # or Python warns that nobody awaited it
        raise TypeError("the handler returned something to await: define it with `async def`")
    return ()


def _all_sends(returned: Iterable[Any]) -> tuple[Send, ...]:
    sends = tuple(returned)
    for send in sends:
        if not isinstance(send, Send):
            raise TypeError(
                f"the handler returned {type(send).__name__} among the records to send: use tidelog.workers.Send"
            )
    return sends
