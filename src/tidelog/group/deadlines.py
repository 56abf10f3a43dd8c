"""Deadlines of one coordinator partition, kept so that moving one later costs nothing.

A heartbeat or a commit moves a session deadline; a group of thousands does so thousands of times a second. The
deadline is therefore a number here, and the broker's timer is left where it was: when it fires too early it is set
again for what remains. Only a deadline that moves to an earlier time replaces the timer at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.deciding.decision import CancelTimer, SetTimer, TimerKey
from tidelog.deciding.turn import Turn


class Deadlines:
    __slots__ = ("_due",)

    def __init__(self) -> None:
        # timer key -> [deadline_ms, when the broker's timer fires]; the second is never later than the first.
        self._due: dict[TimerKey, list[int]] = {}

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._due

    def __iter__(self) -> Iterator[TimerKey]:
        return iter(self._due)

    def set(self, turn: Turn, key: TimerKey, deadline_ms: int) -> None:
        due = self._due.get(key)
        if due is None:
            self._due[key] = [deadline_ms, deadline_ms]
            turn.timers.append(SetTimer(key, deadline_ms))
            return
        due[0] = deadline_ms
        if deadline_ms < due[1]:
            due[1] = deadline_ms
            turn.timers.append(SetTimer(key, deadline_ms))

    def cancel(self, turn: Turn, key: TimerKey) -> None:
        if self._due.pop(key, None) is not None:
            turn.timers.append(CancelTimer(key))

    def fired(self, turn: Turn, key: TimerKey) -> bool:
        """True if the deadline has passed (it is then forgotten); otherwise the timer is set again."""
        due = self._due.get(key)
        if due is None:
            return False
        if due[0] > turn.now_ms:
            due[1] = due[0]
            turn.timers.append(SetTimer(key, due[0]))
            return False
        del self._due[key]
        return True
