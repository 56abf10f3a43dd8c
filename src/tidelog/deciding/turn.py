"""One event being decided: who asks, the decision under construction, and the way to turn a request down.

A handler receives a `Turn`, adds records, replies and timers to it, and the room hands it out as the decision.

What happens when the append fails
    A decision with records that cannot be appended is never replayed and its timers are never set, so everything
    durable stays as it was. A handler that moves soft state together with records leaves an `undo` behind, which the
    room's `append_failed` runs before it answers the tickets with the error. A timer that led to the decision (`fired`)
    is set again, so that what was due happens as soon as the log accepts records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tidelog.deciding.decision import CoordinatorRecord, Decision, Ticket, TimerKey, reply
from tidelog.wire.errors import CodedError, ErrorCode


class Refusal(CodedError):
    """A request that the coordinator turns down.

    `detail` is what the client is told beside the code, where there is more to say.
    """

    def __init__(self, code: ErrorCode, detail: str | None = None) -> None:
        super().__init__(detail or code.name)
        self.code = code
        self.detail = detail


#: what takes soft state back when the records beside it could not be appended
Undo: TypeAlias = Callable[["Turn", ErrorCode], None]


class Turn(Decision):
    """`now_ms` is monotonic, `wall_ms` is what records are stamped with.

    `fired` is the timer that led here, if any: it is set again where the records cannot be appended.

    `ordered` marks replies and effects that tell of records appended before: they must not leave before those are
    committed, even if this turn has no records of its own. Such a turn carries its partition; all others without
    records carry -1.
    """

    __slots__ = ("fired", "now_ms", "ordered", "undo", "wall_ms")

    def __init__(self, now_ms: int = 0, wall_ms: int = 0, fired: TimerKey | None = None) -> None:
        super().__init__()
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.fired = fired
        self.ordered = False
        self.undo: list[Undo] = []

    def reply(self, ticket: Ticket, message: Any) -> None:
        self.replies.append(reply((ticket, message)))

    def append(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
