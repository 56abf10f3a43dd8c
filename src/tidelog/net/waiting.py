"""How the loop waits for the next event: asleep, or awake for a moment first.

Sleeping costs nothing while it lasts, but waking up costs both sides: the kernel has to bring back a processor that it
had put to rest. That takes tens of microseconds, more in a virtual machine, and the sender pays for it too. A single
client that waits for each answer before it sends the next request pays that price every time, while nobody else needs
the processor. So after a run of short waits that all ended with the same single descriptor, the loop polls for a moment
before it goes to sleep, and yields the processor between polls.

With several clients the loop does not stay awake: the processor that it would spend on polling is the one that a client
would run on. After a moment spent in vain the run has to begin anew, so a broker with nothing to do, or with a request
now and then, sleeps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

Events = list[tuple[int, int]]

#: the longest time that is spent awake
AWAKE_NS: Final = 150_000
#: a wait of no more than this would have been met by staying awake: being woken is a part of it
SHORT_NS: Final = 2 * AWAKE_NS
#: so many short waits in a row, for the same descriptor alone, are the reason to stay awake
RUN: Final = 8
_EVENTS_PER_TURN: Final = 256
_NOBODY: Final = -1


class Waiting:
    __slots__ = ("_may_stay_awake", "_now_ns", "_poll", "_run", "_who")

    def __init__(
        self,
        poll: Callable[[float, int], Events],
        now_ns: Callable[[], int] = time.perf_counter_ns,
        processors: int | None = None,
    ) -> None:
        """`poll(seconds, count)` as that of `select.epoll`: no limit where the time is negative."""
        self._poll = poll
        self._now_ns = now_ns
        #: whom the last waits were for, and how many of them in a row were short
        self._who = _NOBODY
        self._run = 0
        # On a single processor the one that is waited for could not run meanwhile.
        self._may_stay_awake = (processors or len(os.sched_getaffinity(0))) > 1

    def wait(self, wait_ms: int) -> Events:
        """What is ready, at most `wait_ms` from now, or without limit if that is negative."""
        poll, now_ns = self._poll, self._now_ns
        if wait_ms == 0:
            return poll(0, _EVENTS_PER_TURN)
        began_ns = now_ns()
        if self._run >= RUN and self._may_stay_awake:
            while True:
                events = poll(0, _EVENTS_PER_TURN)
                if events:
                    if len(events) > 1 or events[0][0] != self._who:
                        self._run = 0
                    return events
                if now_ns() - began_ns >= AWAKE_NS:
                    break
                os.sched_yield()
            self._run = 0
        events = poll(wait_ms / 1000 if wait_ms > 0 else wait_ms, _EVENTS_PER_TURN)
        who = events[0][0] if len(events) == 1 else _NOBODY
        if who == self._who and who != _NOBODY and now_ns() - began_ns <= SHORT_NS:
            self._run += 1
        else:
            self._who = who
            self._run = 0
        return events
