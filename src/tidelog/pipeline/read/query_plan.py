"""Which offsets a read consists of, and how they are divided into tasks.

Batch: where it starts and ends is resolved once, on the driver, and every task gets numbers.

Streaming, as Spark drives it:

    initial() -> latest(start) -> ranges(start, end) -> … -> latest(start) -> …
                 written down by Spark before ranges() is asked

Spark does not write down what `initial` said, and asks again when it starts the first batch, and again when it repeats
it after a crash. Offsets that would be others by then must not matter, or records would be lost in between:

    1. a new query starts at the end of a partition, offset 10
    2. the first batch ends at 15, which is written down; the process dies before the batch is done
    3. the query is started again, with the end now at 20: a first batch from 20 to 15, and 10 to 15 are never read

So what starts at the end of a partition also ends there in the first batch, which reads nothing of it: with 10 written
down as its end, the next batch begins at 10 whatever happens.

Partitions that appear later are read from their beginning. Whatever shows that records were lost before they were read
(a partition that is gone, that begins later or ends earlier than it should) is `DataLoss`, or with `failOnDataLoss`
false a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.offset_ranges import Ends, OffsetRange, Offsets
from tidelog.pipeline.options.source_options import AtOffsets, AtWord, Position, SourceOptions
from tidelog.pipeline.read.ranges import hold, limit, split_by_size, split_evenly
from tidelog.pipeline.read.subscribed_topics import Resolved
from tidelog.wire.partitions import TopicPartition

log = logging.getLogger("tidelog.pipeline")


class QueriedTopics(Protocol):
    """What the plans ask of `SubscribedTopics`."""

    def earliest(self, wanted: Iterable[TopicPartition]) -> Offsets: ...
    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets: ...
    def resolve(self, position: Position, *, starting: bool) -> Resolved: ...


class Task(NamedTuple):
    """What one Spark task reads, and whether it fails where part of that is gone."""

    range: OffsetRange
    fail_on_data_loss: bool
    #: whatever the partition no longer begins with is not missed, also by a task that fails otherwise
    beginning_may_be_gone: bool = False


def divided(ranges: list[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Cut to `maxRecordsPerPartition` and into `minPartitions`; empty ranges dropped."""
    if options.max_records_per_partition is not None:
        ranges = split_by_size(ranges, options.max_records_per_partition)
    return split_evenly(ranges, options.min_partitions or 0)


def plan_batch(topics: QueriedTopics, options: SourceOptions) -> list[Task]:
    starts = topics.resolve(options.starting, starting=True).offsets
    ends = topics.resolve(options.ending, starting=False).offsets
    ranges = []
    # A partition that was added or deleted between the two questions is not part of this read.
    for tp in sorted(starts.keys() & ends.keys()):
        start, until = starts[tp], ends[tp]
        if start > until:
            _lost(
                f"{tp} would be read from offset {start}, which is after its end, {until}: "
                "see startingOffsets and endingOffsets and their timestamps, and whether the topic was created anew",
                options,
            )
            until = start
        ranges.append(OffsetRange(tp.topic, tp.partition, start, until))
    if isinstance(options.starting, AtOffsets) or isinstance(options.ending, AtOffsets):
        ranges = _held(topics, ranges, options)
    # What is read from the earliest offset is what there is: records that age out before the task reads are not missed.
    from_earliest = options.starting == AtWord("earliest")
    return [Task(r, options.fail_on_data_loss, from_earliest) for r in divided(ranges, options)]


def _held(topics: QueriedTopics, ranges: list[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """The ranges as far as the partitions hold them. An end that does not exist yet would be waited for in vain."""
    firsts = topics.earliest(r.at for r in ranges)
    ends = topics.latest()
    held = []
    for r in ranges:
        found = Ends(firsts.get(r.at, r.start), ends.get(r.at, r.until))
        there, missing = hold(r, found)
        if missing:
            held_now = f"{r.at} holds the offsets {found.first} to {found.end - 1}"
            _lost(f"{held_now}, and {r.start} to {r.until - 1} are asked for", options)
        held.append(there)
    return held


class StreamPlan:
    """The offsets of one streaming query, for as long as its driver runs."""

    def __init__(
        self, topics: QueriedTopics, options: SourceOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topics = topics
        self._options = options
        self._clock = clock
        self._initial: Resolved | None = None
        #: what was asked since `initial` made it known where the query would start
        self._first: Literal["undecided", "decided", "repeated"] = "undecided"
        self._available_now = False
        self._target: Offsets | None = None
        self._newest: Offsets | None = None
        self._last_trigger: float | None = None

    def initial(self) -> Offsets:
        """Where a new query starts; the same whenever it is asked."""
        if self._initial is None:
            self._initial = self._topics.resolve(self._options.starting, starting=True)
        return self._initial.offsets

    def prepare_for_available_now(self) -> None:
        """From now on nothing is read beyond what the next `latest` finds."""
        self._available_now = True

    @property
    def newest(self) -> Offsets | None:
        """What could have been read when `latest` was asked last, without regard to limits."""
        return self._newest

    def latest(self, start: Offsets, *, max_offsets: int | None, unlimited: bool = False) -> Offsets:
        """Where the batch that begins at `start` ends; `unlimited` sets both limits of the options aside."""
        newest = self._look(start)
        beginnings = start | self._topics.earliest(newest.keys() - start.keys())
        ranges = [
            OffsetRange(tp.topic, tp.partition, beginnings[tp], end) for tp, end in newest.items() if tp in beginnings
        ]
        if not unlimited:
            if self._should_wait(sum(r.size for r in ranges)):
                return dict(start)
            if max_offsets is not None:
                ranges = limit(ranges, max_offsets)
        ends = newest | {r.at: r.until for r in ranges}
        if self._first == "undecided" and self._initial is not None:
            ends |= {tp: start[tp] for tp in self._initial.at_the_end}
        self._first = "decided"
        return ends

    def _look(self, start: Offsets) -> Offsets:
        if self._available_now:
            if self._target is None:
                self._target = self._topics.latest(start)
            self._newest = self._target
        else:
            self._newest = self._topics.latest(start)
        return self._newest

    def _should_wait(self, waiting: int) -> bool:
        """Whether `minOffsetsPerTrigger` are not there yet, and `maxTriggerDelay` has not passed either."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available_now:
            return False
        now = self._clock()
        delay_s = self._options.max_trigger_delay_ms / 1000
        if waiting < least and self._last_trigger is not None and now - self._last_trigger < delay_s:
            return True
        self._last_trigger = now
        return False

    def ranges(self, start: Offsets, end: Offsets) -> list[Task]:
        """The tasks of a batch."""
        added = end.keys() - start.keys()
        beginnings = self._topics.earliest(added)
        if vanished := sorted(added - beginnings.keys()):
            self._lost(f"{_names(vanished)} appeared and was gone before it was read")
        for tp in sorted(beginnings):
            if beginnings[tp] > 0:
                self._lost(f"{tp} was added, and begins at offset {beginnings[tp]} instead of 0")
        repeated = self._repeated_first_batch(start)
        if (gone := sorted(start.keys() - end.keys())) and not repeated:
            self._lost(f"{_names(gone)} is gone: the topic was deleted")
        starts = start | beginnings
        ranges = []
        for tp in sorted(end.keys() & starts.keys()):
            if end[tp] < starts[tp] and not (repeated and tp in repeated.at_the_end):
                self._lost(
                    f"{tp} ends at offset {end[tp]}, and {starts[tp]} is to be read next: either the topic was deleted "
                    "and created again, or the query was started at an offset that does not exist yet"
                )
            ranges.append(OffsetRange(tp.topic, tp.partition, starts[tp], end[tp]))
        return [Task(r, self._options.fail_on_data_loss) for r in divided(ranges, self._options)]

    def _repeated_first_batch(self, start: Offsets) -> Resolved | None:
        """Where the query would start now, if this is its first batch and was decided before a restart.

        What starts at the end has moved on since then, and partitions may have been added; neither is a loss.
        """
        if self._initial is None or self._first == "decided" or start != self._initial.offsets:
            return None
        self._first = "repeated"
        return self._initial

    def _lost(self, what: str) -> None:
        _lost(what, self._options)


def _lost(what: str, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}. Set option failOnDataLoss to false to go on without what is lost")
    log.warning("%s; going on without what is lost, as failOnDataLoss is false", what)


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
