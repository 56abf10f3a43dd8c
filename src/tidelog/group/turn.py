"""One event being decided: the decision under construction, with the time it is decided at.

A handler receives a `Turn`, adds records, replies and timers to it, and the door hands it out as the decision.

What happens when the append fails
    A decision with records that cannot be appended is never replayed, so everything durable stays as it was. Two
    kinds of soft state may have moved already: the membership of a classic group (who has joined, who waits for an
    answer) and the deadlines. Each handler that moves soft state together with records leaves an `undo` behind, and
    `Groups.append_failed` runs it and answers the tickets with the error. A timer that fired for a decision that could
    not be stored is set again, so that an expired member is fenced as soon as the log accepts records.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog.deciding.decision import CoordinatorRecord, Decision, Reply
from tidelog.wire.classes import Message
from tidelog.wire.errors import ErrorCode

# (coordinator partition, what is due, group id, member id or ""): the identity of a timer.
TimerKey: TypeAlias = tuple[int, str, str, str]
# What a reply is sent with; the room only keeps it.
Ticket: TypeAlias = Hashable


class RequestContext(NamedTuple):
    """Who asks: `client_host` in Kafka's form, a slash before the address (`/127.0.0.1`)."""

    client_id: str
    client_host: str
    api_version: int


class Parked(NamedTuple):
    """A request that waits for the group (`ticket` None: its connection has gone); the version shapes the answer."""

    ticket: Ticket | None
    api_version: int


class Refusal(Exception):
    """A request that the coordinator turns down; the door shapes it as an answer of the right API."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


@dataclass(slots=True)
class Turn(Decision):
    """`now_ms` is monotonic, `wall_ms` is what records are stamped with.

    `fired` is the timer that led here, if any.

    `ordered` marks replies that tell of records appended before: they must not leave before those are committed, even
    if this turn has no records of its own. Such a turn carries its partition; all others without records carry -1.
    """

    now_ms: int = 0
    wall_ms: int = 0
    fired: TimerKey | None = None
    ordered: bool = False
    undo: list[Callable[[Turn, ErrorCode], None]] = field(default_factory=list)

    def reply(self, ticket: Ticket, message: Message) -> None:
        self.replies.append(Reply(ticket, message))

    def append(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
