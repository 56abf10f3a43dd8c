"""What waits for its time in one partition: (due time, offset) pairs in hierarchical timing wheels.

A tick is 1024 ms, and each level of wheels counts in units 64 times as long as the one below. A pair is kept in the
bucket of the highest digit, to the base of 64, in which its tick differs from the present one; there are a few hundred
buckets at most, whatever waits. When the time of a bucket comes, what it holds moves to lower levels, and in the end to
`_near`, where one tick's pairs are a heap. The present tick follows what was taken out, not the clock: after a long
stop, what is overdue comes second by second as well. It goes back only with a clock that was set back (`follow`).

    present tick 0 ── level 0: ticks 1 to 63 ── level 1: 64 to 4095, in buckets of 64 ── level 2: in buckets of 4096 …

Buckets are arrays of sixteen bytes a pair. If all of them together grow too large, the largest go to `Scratch`, and are
read piece by piece when their time comes. Scratch does not outlive the process: the log tells everything again.
Whoever wants to know what waits looks at a `WaitingView`, on another thread: there may be millions.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush, nsmallest
from typing import Final, Protocol, TypeAlias

#: due time and offset
Key: TypeAlias = tuple[int, int]

TICK_BITS: Final = 10
DIGIT_BITS: Final = 6
#: pairs in the memory of a partition's buckets, above which the largest go to scratch
MOST_IN_MEMORY: Final = 1 << 16
#: pairs that move from one bucket to others in one go: a few milliseconds
MOST_POURED: Final = 1 << 13
PAIR_BYTES: Final = 16
_NONE_WAITS: Final = (1 << 63) - 1


class ScratchFile(Protocol):
    """It can be read when it was removed, too."""

    def pread(self, size_bytes: int, position: int) -> bytes: ...


class Scratch(Protocol):
    """Room on disk that nobody needs after the process has ended. All of it may raise OSError."""

    def write(self, name: str, data: bytes, position: int) -> None: ...

    def open(self, name: str) -> ScratchFile: ...

    def remove(self, name: str) -> None: ...


class _Bucket:
    __slots__ = ("least_offset", "pairs", "spilled")

    def __init__(self) -> None:
        self.pairs = array("q")
        #: pairs in scratch
        self.spilled = 0
        self.least_offset = _NONE_WAITS


class _Content:
    """What a bucket holds at some moment: pairs in scratch, then pairs in memory."""

    __slots__ = ("_file", "_name", "_pairs", "_spilled")

    def __init__(self, bucket: _Bucket, name: str, scratch: Scratch) -> None:
        self._name = name
        self._spilled = bucket.spilled
        self._file = scratch.open(name) if bucket.spilled else None
        self._pairs = bucket.pairs[:]

    def __len__(self) -> int:
        return self._spilled + len(self._pairs) // 2

    def piece(self, at: int) -> array[int]:
        """Some pairs, from this one on."""
        if self._file is None or at >= self._spilled:
            first = 2 * (at - self._spilled)
            return self._pairs[first : first + 2 * MOST_POURED]
        count = min(MOST_POURED, self._spilled - at)
        pairs = array("q")
        pairs.frombytes(self._file.pread(PAIR_BYTES * count, PAIR_BYTES * at))
        assert len(pairs) == 2 * count, f"{self._name} holds {at + len(pairs) // 2} of {self._spilled} pairs"
        return pairs


class WaitingView:
    """What waits at some moment, to be looked at on any thread."""

    def __init__(self, near: Sequence[Key], contents: Sequence[tuple[int, _Content, int]]) -> None:
        """`contents`: the earliest due time, what holds it, and from which pair on; in the order of the first."""
        self._near = near
        self._contents = contents

    def first(self, most: int, left_out: Container[int] = ()) -> list[Key]:
        """The first that are due, in order, without those of these offsets."""
        found = nsmallest(most, (key for key in self._near if key[1] not in left_out))
        for start_ms, content, at in self._contents:
            if len(found) >= most and found[-1][0] < start_ms:
                break
            while at < len(content):
                pairs = content.piece(at)
                at += len(pairs) // 2
                keys = zip(pairs[::2], pairs[1::2], strict=True)
                last = found[-1] if len(found) >= most else (_NONE_WAITS, 0)
                found += [key for key in keys if key < last and key[1] not in left_out]
                found = nsmallest(most, found)
        return found


class Wheels:
    def __init__(self, scratch: Scratch, most_in_memory: int = MOST_IN_MEMORY) -> None:
        self._scratch = scratch
        self._most_in_memory = most_in_memory
        self._tick = 0
        #: (level, number of the bucket at this level)
        self._buckets: dict[tuple[int, int], _Bucket] = {}
        self._in_memory = 0
        self._near: list[Key] = []
        #: at or below the least offset in `_near`
        self._near_least = _NONE_WAITS
        self._taken = 0
        #: a bucket whose time has come, how many of its pairs have moved on, and an offset at or below all of it
        self._poured: _Content | None = None
        self._poured_at = 0
        self._poured_least = _NONE_WAITS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def near(self) -> int:
        """How many are in memory as objects."""
        return len(self._near)

    def follow(self, now_ms: int) -> None:
        """It is so late: what comes is counted from here on, unless something before waits.

        A clock that was ahead and was set back is followed as well: until it is there again, whatever comes would be
        kept as objects. No bucket begins before the present tick, so only what is near has another place then.
        """
        tick = now_ms >> TICK_BITS
        if tick < self._tick and self._poured is not None:
            self._pour()  # one piece, not all at once: it is asked again with whatever is read next
        if self._poured is not None:
            return
        if tick < self._tick:
            self._tick = tick
            near, self._near, self._near_least = self._near, [], _NONE_WAITS
            self._place(near)
            return
        first = self._first()
        if first is None or _start(first) > tick:
            self._tick = tick

    def add(self, due_ms: int, offset: int) -> None:
        self.add_all(((due_ms, offset),))

    def add_all(self, keys: Sequence[Key]) -> None:
        self._count += len(keys)
        self._place(keys)

    def _place(self, keys: Iterable[Key]) -> None:
        present, buckets = self._tick, self._buckets
        placed = 0
        for due_ms, offset in keys:
            tick = due_ms >> TICK_BITS
            if tick <= present:
                heappush(self._near, (due_ms, offset))
                if offset < self._near_least:
                    self._near_least = offset
                continue
            level = ((tick ^ present).bit_length() - 1) // DIGIT_BITS
            key = (level, tick >> (DIGIT_BITS * level))
            bucket = buckets.get(key)
            if bucket is None:
                bucket = buckets[key] = _Bucket()
            pairs = bucket.pairs
            pairs.append(due_ms)
            pairs.append(offset)
            if offset < bucket.least_offset:
                bucket.least_offset = offset
            placed += 1
        self._in_memory += placed
        if self._in_memory > self._most_in_memory:
            self._spill()

    def _spill(self) -> None:
        by_size = sorted(self._buckets.items(), key=lambda item: len(item[1].pairs), reverse=True)
        for key, bucket in by_size:
            if self._in_memory <= self._most_in_memory // 2:
                break
            try:
                self._scratch.write(_name(key), bucket.pairs.tobytes(), PAIR_BYTES * bucket.spilled)
            except OSError:
                self._most_in_memory *= 2  # a full disk, say: it stays in memory
                return
            pairs = len(bucket.pairs) // 2
            bucket.spilled += pairs
            self._in_memory -= pairs
            bucket.pairs = array("q")

    # --- what comes next ----------------------------------------------------------------------------

    def _first(self) -> tuple[int, int] | None:
        """The bucket whose time comes first; of those that begin together, the one of the highest level."""
        return min(self._buckets, key=lambda key: (_start(key), -key[0]), default=None)

    def next_ms(self) -> int | None:
        """When to look again: the first due time, or an earlier moment; None where nothing waits."""
        if self._poured is not None:
            # What is near may be due long before, where the clock was set back meanwhile.
            return min(self._tick << TICK_BITS, self._near[0][0] if self._near else _NONE_WAITS)
        if self._near:
            return self._near[0][0]
        first = self._first()
        return None if first is None else _start(first) << TICK_BITS

    def take(self, until_ms: int, most: int) -> list[Key]:
        """The first that are due by then, in order, and no longer waiting.

        Fewer than there are, or none, where that would take long: `is_pouring` says that it is to be asked again.
        """
        taken: list[Key] = []
        while len(taken) < most:
            if self._poured is None and not self._near:
                first = self._first()
                if first is None or _start(first) << TICK_BITS > until_ms:
                    break
                self._begin_to_pour(first)
            if self._poured is not None:
                if self._pour():
                    break
            elif self._near[0][0] > until_ms:
                break
            else:
                taken.append(heappop(self._near))
        self._count -= len(taken)
        self._taken += len(taken)
        if self._taken > len(self._near):
            self._taken = 0
            self._near_least = min((offset for _, offset in self._near), default=_NONE_WAITS)
        return taken

    @property
    def is_pouring(self) -> bool:
        return self._poured is not None

    def _begin_to_pour(self, key: tuple[int, int]) -> None:
        """The time of a bucket has come."""
        self._tick = max(self._tick, _start(key))
        bucket = self._buckets.pop(key)
        self._in_memory -= len(bucket.pairs) // 2
        self._poured = _Content(bucket, _name(key), self._scratch)
        self._poured_at = 0
        self._poured_least = bucket.least_offset
        if bucket.spilled:
            self._scratch.remove(_name(key))

    def _pour(self) -> bool:
        """Moves pairs of a bucket whose time has come to lower levels, some at a time; whether there are more."""
        content = self._poured
        assert content is not None, "nothing is poured"
        pairs = content.piece(self._poured_at)
        self._poured_at += len(pairs) // 2
        self._place(zip(pairs[::2], pairs[1::2], strict=True))
        if self._poured_at == len(content):
            self._poured = None
            first = self._first()
            if first is not None and _start(first) <= self._tick:
                self._begin_to_pour(first)  # the same tick, put there when the present was another
        return self._poured is not None and len(pairs) > MOST_POURED

    # --- looking on -----------------------------------------------------------------------------------

    def least_offset(self) -> int | None:
        """At or below all offsets that wait; None where nothing waits."""
        least = min((bucket.least_offset for bucket in self._buckets.values()), default=_NONE_WAITS)
        least = min(least, self._near_least) if self._near else least
        least = min(least, self._poured_least) if self._poured is not None else least
        return None if least == _NONE_WAITS else least

    def view(self) -> WaitingView:
        poured = [] if self._poured is None else [(0, self._poured, self._poured_at)]
        contents = [
            (_start(key) << TICK_BITS, _Content(self._buckets[key], _name(key), self._scratch), 0)
            for key in sorted(self._buckets, key=_start)
        ]
        return WaitingView(self._near[:], [*poured, *contents])

    def clear(self) -> None:
        """Gives the scratch back."""
        for key, bucket in self._buckets.items():
            if bucket.spilled:
                self._scratch.remove(_name(key))
        self._buckets = {}
        self._near = []
        self._poured = None
        self._count = self._in_memory = 0


def _start(key: tuple[int, int]) -> int:
    """The tick with which a bucket begins."""
    return key[1] << (DIGIT_BITS * key[0])


def _name(key: tuple[int, int]) -> str:
    return f"waiting-{key[0]}-{key[1]}"
