"""Which offsets are read: batches once and divided, streams without a gap or a double whatever is interrupted when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.errors import DataLoss
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST, OffsetRange, Offsets
from tidelog.pipeline.options.offsets_json import offsets_from, offsets_to
from tidelog.pipeline.options.source_options import AtOffsets, AtTimestamp, AtWord, Named, Position, SourceOptions
from tidelog.pipeline.read.query_plan import StreamPlan, plan_batch
from tidelog.pipeline.read.subscribed_topics import Resolved
from tidelog.wire.partitions import TopicPartition

TOPIC = "t"


def tp(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


class Logs:
    """Partitions as a first offset and an end each."""

    def __init__(self, *ends: int) -> None:
        self.held = {tp(partition): (0, end) for partition, end in enumerate(ends)}

    def append(self, partition: int, count: int) -> None:
        first, end = self.held[tp(partition)]
        self.held[tp(partition)] = (first, end + count)

    def age_out(self, partition: int, first: int) -> None:
        self.held[tp(partition)] = (first, self.held[tp(partition)][1])

    def earliest(self, wanted: Iterable[TopicPartition]) -> Offsets:
        return {one: self.held[one][0] for one in wanted if one in self.held}

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Offsets:
        return {one: end for one, (_, end) in self.held.items()}

    def resolve(self, position: Position, *, starting: bool) -> Resolved:
        if isinstance(position, AtWord):
            if position.word == "earliest":
                return Resolved(self.earliest(self.held), frozenset())
            return Resolved(self.latest(), frozenset(self.held))
        if isinstance(position, AtTimestamp):  # as if every record were as old as its offset
            return Resolved({one: min(position.timestamp_ms, end) for one, (_, end) in self.held.items()}, frozenset())
        assert isinstance(position, AtOffsets)
        ends = {one for one, offset in position.offsets.items() if offset == LATEST}
        firsts = {one for one, offset in position.offsets.items() if offset == EARLIEST}
        latest = self.latest()
        resolved = position.offsets | {one: latest[one] for one in ends} | self.earliest(firsts)
        return Resolved(resolved, frozenset(ends))


def options(starting: Position, **others: object) -> SourceOptions:
    ending = others.pop("ending", AtWord("latest"))
    return SourceOptions("broker", Named((TOPIC,)), starting, ending, **others)  # type: ignore[arg-type]


# --- batch ------------------------------------------------------------------------------------------


def test_a_batch_is_what_lies_between_its_start_and_its_end() -> None:
    logs = Logs(10, 0, 7)
    logs.age_out(0, 4)
    tasks = plan_batch(logs, options(AtWord("earliest")))
    assert [task.range for task in tasks] == [OffsetRange(TOPIC, 0, 4, 10), OffsetRange(TOPIC, 2, 0, 7)]
    tasks = plan_batch(logs, options(AtTimestamp(5), ending=AtOffsets({tp(0): 6, tp(1): LATEST, tp(2): LATEST})))
    assert [task.range for task in tasks] == [OffsetRange(TOPIC, 0, 5, 6), OffsetRange(TOPIC, 2, 5, 7)]


def test_a_batch_is_divided_into_at_least_min_partitions_of_at_most_max_records() -> None:
    logs = Logs(100, 10)
    sizes = [t.range.size for t in plan_batch(logs, options(AtWord("earliest"), min_partitions=6))]
    assert sizes == [20, 20, 20, 20, 20, 10]
    sizes = [t.range.size for t in plan_batch(logs, options(AtWord("earliest"), max_records_per_partition=40))]
    assert sizes == [33, 33, 34, 10]


def test_what_ages_out_before_it_is_read_from_the_earliest_offset_is_not_missed() -> None:
    def flags(starting: Position, **others: object) -> tuple[bool, bool]:
        (task,) = plan_batch(Logs(10), options(starting, **others))
        return task.fail_on_data_loss, task.beginning_may_be_gone

    assert flags(AtWord("earliest")) == (True, True)
    assert flags(AtOffsets({tp(0): 0})) == (True, False)
    assert not flags(AtWord("earliest"), fail_on_data_loss=False)[0]


@pytest.mark.parametrize(
    ("held", "starting", "ending", "start", "end"),
    [
        ((0, 10), AtTimestamp(9), AtOffsets({tp(0): 5}), 9, 5),
        # Retention has passed the end that is asked for.
        ((100, 200), AtWord("earliest"), AtOffsets({tp(0): 50}), 100, 50),
        # The topic was created anew, and is shorter now.
        ((0, 50), AtOffsets({tp(0): 100}), AtWord("latest"), 100, 50),
    ],
)
def test_a_batch_that_would_end_before_it_starts_is_told_or_reads_nothing(
    held: tuple[int, int], starting: Position, ending: Position, start: int, end: int
) -> None:
    logs = Logs(0)
    logs.held[tp(0)] = held
    with pytest.raises(DataLoss, match=f"t-0 would be read from offset {start}, which is after its end, {end}"):
        plan_batch(logs, options(starting, ending=ending))
    assert plan_batch(logs, options(starting, ending=ending, fail_on_data_loss=False)) == []


@pytest.mark.parametrize(("start", "end"), [(0, 8), (4, 15), (3, 15)])
def test_offsets_that_a_partition_does_not_hold_are_told_or_left_out_but_not_waited_for(start: int, end: int) -> None:
    logs = Logs(10)
    logs.age_out(0, 4)
    positions = {"starting": AtOffsets({tp(0): start}), "ending": AtOffsets({tp(0): end})}
    with pytest.raises(DataLoss, match=f"t-0 holds the offsets 4 to 9, and {start} to {end - 1} are asked for"):
        plan_batch(logs, options(**positions))
    (task,) = plan_batch(logs, options(**positions, fail_on_data_loss=False))
    assert task.range == OffsetRange(TOPIC, 0, 4, min(end, 10))


# --- streaming --------------------------------------------------------------------------------------


class Crash(Exception):
    pass


@dataclass
class Engine:
    """What Spark does with a stream: which offsets it writes down when, and what it asks again after a crash.

    `log` and `done` are its checkpoint. A batch that is run again replaces what it gave the first time.
    """

    logs: Logs
    options: SourceOptions
    log: list[dict[str, dict[str, int]]] = field(default_factory=list)
    done: int = 0
    read: dict[int, list[OffsetRange]] = field(default_factory=dict)
    #: where the query started, as of the plan that decided the first batch
    began: Offsets | None = None
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.start()

    def start(self, available_now: bool = False) -> None:
        self.plan = StreamPlan(self.logs, self.options, lambda: self.clock)
        if available_now:
            self.plan.prepare_for_available_now()

    def trigger(self, crash_at: str = "", everything: bool = False, arriving: int = 0) -> bool:
        """One trigger; whether it had a batch to run. Records arrive between any two questions."""
        if len(self.log) == self.done:
            start = self._begin()
            self.logs.append(0, arriving)
            end = offsets_to(
                self.plan.latest(start, max_offsets=self.options.max_offsets_per_trigger, unlimited=everything)
            )
            if self.log and end == self.log[-1]:
                return False
            if not self.log:
                self.began = self.plan.initial()
            self.log.append(end)
            self._crash("logged", crash_at)
        self.logs.append(0, arriving)
        tasks = self.plan.ranges(self._begin(), offsets_from(self.log[self.done]))
        self.read[self.done] = [task.range for task in tasks]
        self._crash("read", crash_at)
        self.done += 1
        return True

    def _begin(self) -> Offsets:
        return offsets_from(self.log[self.done - 1]) if self.done else self.plan.initial()

    @staticmethod
    def _crash(here: str, crash_at: str) -> None:
        if here == crash_at:
            raise Crash

    def finish(self) -> None:
        while self.trigger():
            pass

    def offsets_read(self, partition: int) -> list[int]:
        """Every offset that was read, in the order of the batches."""
        batches = [self.read[number] for number in sorted(self.read)]
        return [
            offset
            for batch in batches
            for r in sorted(batch)
            if r.partition == partition
            for offset in range(r.start, r.until)
        ]


events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 30)),
        st.tuples(st.just("add")),
        st.tuples(st.just("trigger"), st.sampled_from(["", "", "logged", "read"]), st.booleans(), st.integers(0, 3)),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)
starts = st.sampled_from(
    [
        AtWord("earliest"),
        AtWord("latest"),
        AtOffsets({tp(0): 3, tp(1): LATEST}),
        AtOffsets({tp(0): LATEST, tp(1): EARLIEST}),
    ]
)


@given(starts, events, st.none() | st.integers(1, 40), st.none() | st.integers(1, 4), st.booleans())
def test_a_stream_reads_every_offset_once_whatever_is_interrupted_when(
    starting: Position, happened: list[tuple], most: int | None, tasks: int | None, available_now: bool
) -> None:
    logs = Logs(5, 0)
    engine = Engine(logs, options(starting, max_offsets_per_trigger=most, min_partitions=tasks))
    for event in happened:
        if event[0] == "append" and tp(event[1]) in logs.held:
            logs.append(event[1], event[2])
        elif event[0] == "add":
            logs.held[tp(len(logs.held))] = (0, 0)
        elif event[0] == "restart":
            engine.start()
        elif event[0] == "trigger":
            try:
                engine.trigger(*event[1:])
            except Crash:
                engine.start()
    if available_now:
        engine.start(available_now=True)
    engine.finish()
    assert engine.began is not None
    for one, (_, end) in logs.held.items():
        assert engine.offsets_read(one.partition) == list(range(engine.began.get(one, 0), end))


def test_a_stream_that_starts_at_the_end_loses_nothing_when_its_first_batch_is_interrupted() -> None:
    logs = Logs(10)
    engine = Engine(logs, options(AtWord("latest")))
    with pytest.raises(Crash):
        engine.trigger("logged", arriving=5)
    logs.append(0, 5)
    engine.start()
    engine.finish()
    assert engine.offsets_read(0) == list(range(10, 20))


def test_limits_divide_by_lag_and_a_trigger_that_allows_no_second_batch_has_none() -> None:
    engine = Engine(Logs(90, 10), options(AtWord("earliest"), max_offsets_per_trigger=20))
    engine.trigger()
    assert engine.read[0] == [OffsetRange(TOPIC, 0, 0, 18), OffsetRange(TOPIC, 1, 0, 2)]
    engine.trigger(everything=True)
    assert engine.read[1] == [OffsetRange(TOPIC, 0, 18, 90), OffsetRange(TOPIC, 1, 2, 10)]
    assert engine.plan.newest == {tp(0): 90, tp(1): 10}


def test_too_few_offsets_are_waited_for_until_the_delay_is_over() -> None:
    logs = Logs(4)
    engine = Engine(logs, options(AtWord("earliest"), min_offsets_per_trigger=10, max_trigger_delay_ms=60_000))
    assert engine.trigger()  # a query's first batch does not wait
    logs.append(0, 9)
    assert not engine.trigger()
    logs.append(0, 1)
    assert engine.trigger()
    logs.append(0, 1)
    engine.clock = 59.0
    assert not engine.trigger()
    engine.clock = 60.0
    assert engine.trigger()
    assert engine.offsets_read(0) == list(range(15))


def test_available_now_reads_to_the_end_that_it_found_first_within_limits_and_without_waiting() -> None:
    logs = Logs(25)
    engine = Engine(logs, options(AtWord("earliest"), max_offsets_per_trigger=10, min_offsets_per_trigger=10))
    engine.start(available_now=True)
    engine.trigger()
    logs.append(0, 100)
    engine.finish()
    assert [[r.size for r in engine.read[n]] for n in range(engine.done)] == [[10], [10], [5]]
    assert engine.offsets_read(0) == list(range(25))


class TestLostOffsets:
    """Each loss stops the stream, or with failOnDataLoss false is passed over."""

    def plans(self, logs: Logs) -> tuple[StreamPlan, StreamPlan]:
        return (
            StreamPlan(logs, options(AtWord("earliest"))),
            StreamPlan(logs, options(AtWord("earliest"), fail_on_data_loss=False)),
        )

    def test_a_partition_that_is_gone(self) -> None:
        strict, lenient = self.plans(Logs(5))
        start, end = {tp(0): 1, tp(1): 3}, {tp(0): 5}
        with pytest.raises(DataLoss, match="t-1 is gone"):
            strict.ranges(start, end)
        assert [task.range for task in lenient.ranges(start, end)] == [OffsetRange(TOPIC, 0, 1, 5)]

    def test_a_partition_that_ends_before_what_is_to_be_read_next(self) -> None:
        strict, lenient = self.plans(Logs(5))
        with pytest.raises(DataLoss, match="t-0 ends at offset 5, and 8 is to be read next"):
            strict.ranges({tp(0): 8}, {tp(0): 5})
        assert lenient.ranges({tp(0): 8}, {tp(0): 5}) == []

    def test_a_new_partition_that_does_not_begin_with_its_first_record(self) -> None:
        logs = Logs(5, 9)
        logs.age_out(1, 4)
        strict, lenient = self.plans(logs)
        with pytest.raises(DataLoss, match="t-1 was added, and begins at offset 4"):
            strict.ranges({tp(0): 5}, {tp(0): 5, tp(1): 9})
        assert [task.range for task in lenient.ranges({tp(0): 5}, {tp(0): 5, tp(1): 9})] == [
            OffsetRange(TOPIC, 1, 4, 9)
        ]

    def test_a_new_partition_that_is_gone_before_it_is_read(self) -> None:
        strict, lenient = self.plans(Logs(5))
        with pytest.raises(DataLoss, match="t-1 appeared and was gone"):
            strict.ranges({tp(0): 5}, {tp(0): 5, tp(1): 9})
        assert lenient.ranges({tp(0): 5}, {tp(0): 5, tp(1): 9}) == []
