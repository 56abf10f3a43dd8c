"""A message whose attempts are used up, as a record of the dead-letter topic.

Key, value and headers are the message's own; what happened stands in headers before and behind them:

    tidelog-dead-topic, -partition, -offset, -timestamp   where the message was, and its time in ms
    tidelog-dead-group                                    who could not handle it
    tidelog-dead-attempts                                 how often it was tried
    tidelog-dead-error, tidelog-dead-reason               the type of the last error, and what it said
"""

from __future__ import annotations

import time
from typing import Final

from tidelog.workers.message import Message, Send, said_by

PREFIX: Final = "tidelog-dead-"
#: a reason is read by people; a traceback of a megabyte is not
_LONGEST_REASON: Final = 4096


def dead_letter(topic: str, message: Message, error: BaseException, group: str) -> Send:
    reason = said_by(error) or f"{type(error).__name__}()"
    told = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "group": group,
        "attempts": message.attempt,
        "error": type(error).__name__,
        "reason": reason[:_LONGEST_REASON],
        "at": int(time.time() * 1000),
    }
    # A letter that has died before keeps its story: the newest comes last.
    headers = tuple((PREFIX + name, str(value).encode("utf-8", "replace")) for name, value in told.items())
    return Send(topic, message.value, message.key, (*message.headers, *headers))
