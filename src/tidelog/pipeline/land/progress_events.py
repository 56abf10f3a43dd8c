"""What a runner tells while it works. Listeners are called in the runner's thread, one event after the other.

StepReached      a batch has come to a step; a crash after it finds everything before it done
BatchCommitted   a batch is in the table
Notice           something a person should know: a broker that does not answer, records that are gone
RunProgress      where every partition stands, after every step that changes it

planned -> landed -> letters_committed -> committed -> group_committed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from tidelog.pipeline.offset_ranges import Ends
from tidelog.wire.partitions import TopicPartition

#: over how many seconds the rate is measured
WINDOW_S: Final = 30.0


class Step(StrEnum):
    PLANNED = "planned"
    LANDED = "landed"
    LETTERS_COMMITTED = "letters_committed"
    COMMITTED = "committed"
    GROUP_COMMITTED = "group_committed"


class RunState(StrEnum):
    READING = "reading"
    COMMITTING = "committing"
    CAUGHT_UP = "caught up"
    WAITING = "waiting for the brokers"


@dataclass(frozen=True, slots=True)
class StepReached:
    batch: int
    step: Step


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    batch: int
    rows: int
    dead_letters: int
    files: int
    size_bytes: int
    seconds: float
    table_version: int


@dataclass(frozen=True, slots=True)
class Notice:
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """committed <= read <= end: in the table, read by the running batch, in the log."""

    topic: str
    partition: int
    committed: int
    read: int
    end: int

    @property
    def lag(self) -> int:
        return self.end - self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    pipeline: str
    state: RunState
    batch: int
    partitions: tuple[PartitionProgress, ...]
    #: in the table since the runner began
    rows: int
    dead_letters: int
    files: int
    rows_per_s: float
    table_version: int
    #: None before the first
    last_commit_ms: int | None
    #: until the end as it is now; None where nothing moves
    eta_s: float | None

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields, and the lag of all and of each."""
        found = asdict(self)
        found["lag"] = self.lag
        for row, partition in zip(found["partitions"], self.partitions, strict=True):
            row["lag"] = partition.lag
        return found


Event = StepReached | BatchCommitted | Notice | RunProgress
Listener = Callable[[Event], None]


class Meter:
    """Counts what a runner has done, and how fast. The time is given to it, in seconds."""

    def __init__(self) -> None:
        self.rows = 0
        self.dead_letters = 0
        self.files = 0
        self.last_commit_ms: int | None = None
        #: (time, rows, offsets) of what was done lately
        self._done: deque[tuple[float, int, int]] = deque()
        self._since: float | None = None

    def begin(self, now_s: float) -> None:
        if self._since is None:
            self._since = now_s

    def add(self, now_s: float, rows: int, offsets: int) -> None:
        """Rows that were read, and offsets that are done with them."""
        self._done.append((now_s, rows, offsets))
        while self._done and self._done[0][0] < now_s - WINDOW_S:
            self._done.popleft()

    def rates(self, now_s: float) -> tuple[float, float]:
        """(rows, offsets) per second, over the window or since the begin."""
        done = [entry for entry in self._done if entry[0] >= now_s - WINDOW_S]
        span_s = min(WINDOW_S, max(now_s - (now_s if self._since is None else self._since), 0.001))
        return sum(rows for _, rows, _ in done) / span_s, sum(offsets for _, _, offsets in done) / span_s


def partitions_of(
    committed: Mapping[TopicPartition, int],
    read: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, Ends],
) -> tuple[PartitionProgress, ...]:
    return tuple(
        PartitionProgress(*at, committed[at], max(committed[at], read.get(at, 0)), max(end, committed[at]))
        for at, (_, end) in sorted(ends.items())
        if at in committed
    )


def tell_all(listeners: Iterable[Listener], event: Event) -> None:
    for listener in listeners:
        listener(event)
