"""What the next batch reads: a pure function of what the table has, what the log holds, and the limits.

    table: committed offset of each partition      log: first and end offset of each partition
                                 \\                /
                     ranges [committed, end), shortened to the limit by lag
                                        |
                     cut until every task has about the same number of offsets

A partition that the table does not know begins where the file says, if the pipeline itself is new; one that appears
later is read from its beginning, for whatever it holds came after the pipeline began.

Two things stop a plan. The log may begin behind the committed offset: retention was faster than the pipeline, and the
records between are gone; `fail_on_data_loss = false` goes on behind the gap, and the plan names it. Or the log may end
before the committed offset: the topic was deleted and created again, or lost its end, as one did that has the id it
always had; what is written there now is not the continuation of what the table has, so there is nothing to go on with.
A topic that was created again and has grown past the committed offset is told by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.pipeline.errors import DataLoss, PipelineError
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST, Ends, OffsetRange
from tidelog.pipeline.read.ranges import hold, into_tasks, limit
from tidelog.pipeline.spec import StartingOffsets
from tidelog.wire.partitions import TopicPartition

_REBUILD: Final = (
    "give the pipeline a new name and a new table, or rebuild the table from what the log holds now: "
    "tidelog pipeline replay FILE --allow-missing"
)


class Gap(NamedTuple):
    """Offsets that were due and that the log no longer holds: start <= offset < until."""

    topic: str
    partition: int
    start: int
    until: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: offset {self.start} is due, and the log begins at {self.until}; "
            f"{self.until - self.start} offsets are gone"
        )


@dataclass(frozen=True, slots=True)
class BatchPlan:
    #: one per partition that has something to read
    ranges: tuple[OffsetRange, ...]
    #: the same offsets, as they are given to tasks
    tasks: tuple[tuple[OffsetRange, ...], ...]
    gaps: tuple[Gap, ...]
    #: (committed offset before the batch, after it) of every partition that moves
    moves: Mapping[TopicPartition, tuple[int, int]]
    #: offsets from the committed one to the end, of all partitions
    lag: int

    @property
    def size(self) -> int:
        return sum(r.size for r in self.ranges)


def starting_offset(at: TopicPartition, ends: Ends, starting: StartingOffsets, is_new: bool) -> int:
    """Where a partition begins that the table does not know; `is_new` is the pipeline that has committed nothing."""
    if not is_new or starting == "earliest":
        return ends.first
    if isinstance(starting, str):
        return ends.end
    offset = starting.get(at[0], {}).get(at[1], EARLIEST)
    if offset > ends.end:
        raise PipelineError(
            f"{at[0]}-{at[1]} shall be read from offset {offset}, and its log ends at {ends.end}",
            f"write an offset from {ends.first} to {ends.end} under starting_offsets in [source]",
        )
    return ends.first if offset == EARLIEST else ends.end if offset == LATEST else offset


def plan(
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, Ends],
    *,
    max_records: int | None,
    tasks: int,
    fail_on_data_loss: bool = True,
    same_topics: Collection[str] = (),
) -> BatchPlan:
    """`committed` has every partition of `ends`. DataLoss where the log does not continue what the table has.

    `same_topics` are known by their ids to be those that the table was read from.
    """
    gaps: list[Gap] = []
    ranges: list[OffsetRange] = []
    lag = 0
    for at, found in sorted(ends.items()):
        due = OffsetRange(*at, committed[at], found.end)
        if due.start > due.until:
            raise _shrunk(at, due.start, due.until, at[0] in same_topics)
        lag += due.size
        held, missing = hold(due, found)
        gaps += [Gap(*r) for r in missing]
        ranges.append(held)
    if gaps and fail_on_data_loss:
        raise _lost(gaps)
    chosen = [r for r in (ranges if max_records is None else limit(ranges, max_records)) if r.size]
    moves = {TopicPartition(gap.topic, gap.partition): (gap.start, gap.until) for gap in gaps}
    moves |= {r.at: (committed[r.at], r.until) for r in chosen}
    return BatchPlan(tuple(chosen), into_tasks(chosen, tasks), tuple(gaps), moves, lag)


def _lost(gaps: Iterable[Gap]) -> DataLoss:
    return DataLoss(
        "; ".join(map(str, gaps)),
        "keep records longer (retention.ms, retention.bytes) or run the pipeline more often; "
        "fail_on_data_loss = false in [source] goes on behind the gap and reports it",
    )


def _shrunk(at: TopicPartition, committed: int, end: int, is_same_topic: bool) -> DataLoss:
    found = f"{at[0]}-{at[1]}: the table has it up to offset {committed}, and the log ends at {end}"
    if not is_same_topic:
        return DataLoss(f"{found}: the topic was deleted and created again, or lost its end", _REBUILD)
    return DataLoss(
        f"{found}, though it is the same topic: it lost its end, or this isolation does not let one read up to it",
        "bring back a replica that has the records, or wait for open transactions to end; where the records are lost, "
        "build the table without them: tidelog pipeline replay FILE --allow-missing",
    )


def renewed(topics: Iterable[str]) -> DataLoss:
    return DataLoss(
        f"deleted and created again since the table was read from it: {', '.join(sorted(topics))}; "
        "what is there now is not the continuation of what the table has",
        _REBUILD,
    )
