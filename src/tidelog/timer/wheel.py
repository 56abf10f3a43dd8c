"""Hierarchical timing wheels, moved forward by a delay queue of their buckets.

A wheel is a ring of 64 buckets. In the lowest wheel a bucket is one millisecond wide, and each wheel above has
buckets as wide as the whole wheel below: 1 ms, 64 ms, 4 s, 4.4 min, 4.7 h, 12 d, … A wheel is made when the
first deadline needs it. A task stands in the lowest wheel that reaches its deadline, so finding its bucket is a
shift and a mask, and a bucket is a set: adding and cancelling cost the same with ten tasks and with a million.

What a plain wheel lacks is a way to sleep: someone must turn it every millisecond. Here the buckets that hold
tasks stand in a heap by the time they begin (a bucket enters it once, with its first task), and `next_deadline_ms`
is its head. Nothing to do means an empty heap, and the caller may sleep for ever. The heap is bounded by the number
of buckets, not of tasks.

Worked example, at time 0, with tasks A at 5 ms, B at 70 ms and C at 5,000 ms:

    wheel 0 (1 ms wide)     bucket 5: A                                   begins at 5
    wheel 1 (64 ms wide)    bucket 1: B     (64..127)                     begins at 64
    wheel 2 (4096 ms wide)  bucket 1: C     (4096..8191)                  begins at 4096

    next_deadline_ms() == 5
    advance(5)      runs A; the next deadline is 64
    advance(64)     B is 6 ms away now: it moves down to wheel 0, bucket 70 & 63; the next deadline is 70
    advance(70)     runs B; the next deadline is 4096
    advance(4096)   C is 904 ms away: it moves to wheel 1, bucket (5000 >> 6) & 63, which begins at 4992
    advance(4992)   C moves to wheel 0;   advance(5000) runs C;   next_deadline_ms() is None

A task moves down at most once per wheel, so its cost is bounded by the number of wheels. Tasks that are due in one
`advance` run in the order of their deadlines and, within one, of their addition: the wheels decide nothing that a
sorted list would not, which is how they are tested.

The wheels never read a clock. Tasks live in memory only: whoever needs a deadline after a crash adds it again.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

_BITS = 6
_SIZE = 1 << _BITS
_MASK = _SIZE - 1
_BY_DEADLINE = attrgetter("deadline_ms", "_number")

Callback = Callable[[], object]
ErrorHook = Callable[[Callback, Exception], None]


class TimerTask:
    """One callback with its deadline. `pending` until it has run or was cancelled."""

    __slots__ = ("_callback", "_home", "_number", "_timer", "deadline_ms")

    def __init__(self, timer: Timer, deadline_ms: int, callback: Callback, number: int) -> None:
        self.deadline_ms = deadline_ms
        self._callback: Callback | None = callback
        self._timer = timer
        self._number = number
        self._home: set[TimerTask] | None = None  # the bucket that holds it; None once it is due

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> bool:
        """True if it had not run yet, and now never will."""
        if self._callback is None:
            return False
        self._callback = None
        self._timer._pending -= 1
        if self._home is not None:
            self._home.discard(self)
            self._home = None
        return True


class _Bucket:
    """The tasks of one slot of a wheel. `begins_ms` is its key in the delay queue, -1 while it is not queued."""

    __slots__ = ("begins_ms", "tasks")

    def __init__(self) -> None:
        self.begins_ms = -1
        self.tasks: set[TimerTask] = set()


class Timer:
    """`now_ms` may be any non-negative time; deadlines are on the same clock.

    Without `on_error`, an exception of a callback is raised from `advance` after all that was due has run.
    """

    __slots__ = ("_due", "_now_ms", "_number", "_on_error", "_pending", "_queue", "_wheels")

    def __init__(self, now_ms: int, on_error: ErrorHook | None = None) -> None:
        self._now_ms = now_ms
        self._on_error = on_error
        self._wheels: list[list[_Bucket]] = []
        # The delay queue: (begins_ms, wheel, bucket). No two entries share the first two, so buckets are not compared.
        self._queue: list[tuple[int, int, _Bucket]] = []
        self._due: list[TimerTask] = []  # added with a deadline that had already come
        self._number = 0
        self._pending = 0

    def __len__(self) -> int:
        """How many tasks are pending."""
        return self._pending

    def add(self, deadline_ms: int, callback: Callback) -> TimerTask:
        """A deadline that has passed is run by the next `advance`, never from here."""
        self._number = number = self._number + 1
        task = TimerTask(self, deadline_ms, callback, number)
        self._pending += 1
        if deadline_ms <= self._now_ms:
            self._due.append(task)
        else:
            self._place(task)
        return task

    def next_deadline_ms(self) -> int | None:
        """When to call `advance` next; None if nothing is pending. It may be earlier than the first deadline."""
        if self._due:
            self._due = [task for task in self._due if task.pending]
            if self._due:
                return self._now_ms
        queue = self._queue
        while queue:
            begins_ms, _, bucket = queue[0]
            if bucket.tasks:
                return begins_ms
            # All of its tasks were cancelled: waking up for it would be for nothing.
            heappop(queue)
            bucket.begins_ms = -1
        return None

    def advance(self, now_ms: int) -> None:
        """Run what is due at `now_ms`. A task that a callback adds runs in the next call, even if it is due already."""
        if now_ms > self._now_ms:
            self._now_ms = now_ms
        queue = self._queue
        if queue and queue[0][0] <= now_ms:
            self._collect(now_ms)
        if self._due:
            self._run_due()

    def _collect(self, now_ms: int) -> None:
        """Empty the buckets that have begun into `_due` and the lower wheels."""
        queue = self._queue
        begun: list[set[TimerTask]] = []
        # All of them leave the queue before a task is placed again, since its new bucket may be one of them.
        while queue and queue[0][0] <= now_ms:
            bucket = heappop(queue)[2]
            bucket.begins_ms = -1
            if bucket.tasks:
                begun.append(bucket.tasks)
                bucket.tasks = set()
        for tasks in begun:
            for task in tasks:
                if task.deadline_ms <= now_ms:
                    task._home = None
                    self._due.append(task)
                else:
                    self._place(task)

    def _run_due(self) -> None:
        due, self._due = self._due, []
        if len(due) > 1:
            due.sort(key=_BY_DEADLINE)
        error: Exception | None = None
        ran = 0
        try:
            for task in due:
                ran += 1
                callback = task._callback
                if callback is None:  # cancelled by one that ran before it
                    continue
                task._callback = None
                self._pending -= 1
                try:
                    callback()
                except Exception as exception:
                    if self._on_error is not None:
                        self._on_error(callback, exception)
                    elif error is None:
                        error = exception
        finally:
            # Only an interrupt or a failing hook leaves the loop early; the rest is still due then.
            if ran < len(due):
                self._due[:0] = due[ran:]
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it would hold this frame, and this frame it

    def _place(self, task: TimerTask) -> None:
        """Put a task that is not due into the bucket of the lowest wheel that reaches it."""
        now_ms, deadline_ms, wheels = self._now_ms, task.deadline_ms, self._wheels
        shift = 0
        level = 0
        # In units of this wheel's buckets, the deadline must be fewer than a whole turn away.
        while (deadline_ms >> shift) - (now_ms >> shift) >= _SIZE:
            shift += _BITS
            level += 1
        while level >= len(wheels):
            wheels.append([_Bucket() for _ in range(_SIZE)])
        slot = deadline_ms >> shift
        bucket = wheels[level][slot & _MASK]
        task._home = tasks = bucket.tasks
        tasks.add(task)
        if bucket.begins_ms < 0:
            bucket.begins_ms = slot << shift
            heappush(self._queue, (bucket.begins_ms, level, bucket))
