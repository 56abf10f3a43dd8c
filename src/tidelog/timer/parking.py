"""Requests that wait for something to happen, each with a deadline: acks=all, long polls, joins.

A parked request watches keys: any hashable things, such as the partitions it reads. Whoever changes one of them calls
`wake(key)`, which asks each request parked there to try again; the first `True` ends its wait and takes it off all of
its keys. A request that nobody completes in time expires through the timer. So a request leaves in one of three
ways, exactly once: completed, expired, or cancelled (its connection went, or someone else answered it).

    parking = Parking(timer)
    parked = parking.park([("orders", 0), ("orders", 1)], now_ms + 500, try_complete=answer, on_expire=answer_empty)
    parking.wake(("orders", 1))     # answer() -> False: not enough bytes yet, it stays
    parking.wake(("orders", 0))     # answer() -> True: it has replied, both keys forget it, its timer is cancelled
    parking.wake(("orders", 1))     # nobody is there

Waking inside a wake (an answer that appends, which wakes others) does not nest: the key waits in line until the
request at hand has been asked. So `try_complete` is never entered twice at once and a chain of wakes cannot exhaust
the stack; a request that always wakes its own key without completing would, however, go on for ever.

The cost of parking and of leaving is one dictionary operation a key. Most keys are watched by a single request (the
follower's fetch watches thousands), so a key that has one holds the request itself, and a dictionary of them, in
the order in which they came, only from the second on. A key that nobody watches is not kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable

from tidelog.timer.wheel import Timer, TimerTask

TryComplete = Callable[[], bool]
OnExpire = Callable[[], object]
ErrorHook = Callable[["Parked", Exception], None]


def _has_left() -> bool:
    """Nobody calls it: what has left is not asked."""
    return False


class Parked:
    """One waiting request. `waiting` until it completed, expired or was cancelled."""

    __slots__ = ("_keys", "_on_expire", "_parking", "_task", "_try_complete", "waiting")

    def __init__(
        self, parking: Parking, keys: tuple[Hashable, ...], try_complete: TryComplete, on_expire: OnExpire
    ) -> None:
        self.waiting = True
        self._parking = parking
        self._keys = keys
        self._try_complete = try_complete
        self._on_expire = on_expire
        self._task: TimerTask | None = None

    def cancel(self) -> bool:
        """End the wait and call nothing; False if it has ended already."""
        if not self.waiting:
            return False
        self._parking._leave(self)
        self._parking.cancelled += 1
        return True

    def _expire(self) -> None:
        on_expire = self._on_expire
        self._parking._leave(self)
        self._parking.expired += 1
        on_expire()


class Parking:
    """Without `on_error`, an exception of a `try_complete` is raised from `wake` after all others were asked.

    Either way the request stays parked, so that its client gets the answer of its deadline rather than none.
    An exception of an `on_expire` is the timer's to report.
    """

    __slots__ = ("_on_error", "_timer", "_waking", "_watched", "cancelled", "completed", "expired", "waiting")

    def __init__(self, timer: Timer, on_error: ErrorHook | None = None) -> None:
        self._timer = timer
        self._on_error = on_error
        self._watched: dict[Hashable, Parked | dict[Parked, None]] = {}
        self._waking: deque[Hashable] | None = None  # keys to wake, while a wake is under way
        self.waiting = 0
        self.completed = 0
        self.expired = 0
        self.cancelled = 0

    def __len__(self) -> int:
        return self.waiting

    def park(
        self, keys: Iterable[Hashable], deadline_ms: int, try_complete: TryComplete, on_expire: OnExpire
    ) -> Parked:
        """The caller has tried and could not complete: `try_complete` is called by `wake` only."""
        parked = Parked(self, tuple(keys), try_complete, on_expire)
        watched = self._watched
        for key in parked._keys:
            there = watched.get(key)
            if there is None:
                watched[key] = parked
            elif isinstance(there, dict):
                there[parked] = None
            elif there is not parked:
                watched[key] = {there: None, parked: None}
        parked._task = self._timer.add(deadline_ms, parked._expire)
        self.waiting += 1
        return parked

    def wake(self, key: Hashable) -> None:
        """Ask everyone parked at `key` to try again, in the order in which they came."""
        if key not in self._watched:
            return
        if self._waking is not None:
            self._waking.append(key)
            return
        self._waking = deque((key,))
        error: Exception | None = None
        try:
            while self._waking:
                error = self._ask(self._waking.popleft()) or error
        finally:
            self._waking = None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it would hold this frame, and this frame it

    def _ask(self, key: Hashable) -> Exception | None:
        there = self._watched.get(key)
        if there is None:
            return None
        error: Exception | None = None
        # A copy: completing takes requests off this key, and an answer may park new ones at it.
        for parked in tuple(there) if isinstance(there, dict) else (there,):
            if not parked.waiting:
                continue
            try:
                if not parked._try_complete():
                    continue
            except Exception as exception:
                if self._on_error is not None:
                    self._on_error(parked, exception)
                else:
                    error = exception
                continue
            # It may have been cancelled from within its own answer, by a connection that failed to take it.
            if parked.waiting:
                self._leave(parked)
                self.completed += 1
        try:
            return error
        finally:
            del error

    def _leave(self, parked: Parked) -> None:
        parked.waiting = False
        self.waiting -= 1
        watched = self._watched
        for key in parked._keys:
            there = watched.get(key)
            if there is parked:
                del watched[key]
            elif isinstance(there, dict):
                there.pop(parked, None)
                if not there:
                    del watched[key]
        parked._keys = ()
        # Whoever waited holds this, and would be held by it: only the cyclic collector could free the two, and it stops
        # the broker for as long as it takes to look at tens of thousands of them.
        parked._try_complete = parked._on_expire = _has_left
        if parked._task is not None:
            parked._task.cancel()
