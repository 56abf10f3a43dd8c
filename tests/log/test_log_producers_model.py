"""Random histories against a model that keeps everything and judges by looking back through it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidelog.log.producers import NOT_REQUIRED, AppendOrigin, ProducerRefused, Producers
from tidelog.wire.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker

WRAP = 2**31

producer_ids = st.integers(0, 2)
epochs = st.integers(0, 3)


@dataclass
class Written:
    """One thing in the model's log: a batch, or a marker where `marker` is set."""

    header: BatchHeader
    marker: EndTxnMarker | None = None


@dataclass
class Model:
    """The log as a list. Every question is answered by reading the list."""

    log: list[Written] = field(default_factory=list)

    def of(self, producer: int) -> list[Written]:
        return [w for w in self.log if w.header.producer_id == producer]

    def epoch(self, producer: int) -> int:
        mine = self.of(producer)
        return mine[-1].header.producer_epoch if mine else -1

    def current_batches(self, producer: int) -> list[BatchHeader]:
        """The producer's batches since its epoch last changed."""
        batches: list[BatchHeader] = []
        epoch = None
        for written in self.of(producer):
            if written.header.producer_epoch != epoch:
                batches, epoch = [], written.header.producer_epoch
            if written.marker is None:
                batches.append(written.header)
        return batches

    def open_since(self, producer: int) -> int | None:
        since = None
        for written in self.of(producer):
            if written.marker is not None:
                since = None
            elif written.header.is_transactional and since is None:
                since = written.header.base_offset
        return since

    def coordinator_epoch(self, producer: int) -> int:
        return next((w.marker.coordinator_epoch for w in reversed(self.of(producer)) if w.marker), -1)

    def verdict(self, batch: BatchHeader) -> str:
        producer = batch.producer_id
        if batch.producer_epoch == self.epoch(producer):
            for old in self.current_batches(producer)[-5:]:
                if (old.base_sequence, old.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return f"dup {old.base_offset}"
        if batch.producer_epoch < self.epoch(producer):
            return "47"
        if self.of(producer):
            if batch.producer_epoch > self.epoch(producer):
                expected = 0
            else:
                batches = self.current_batches(producer)
                expected = (batches[-1].last_sequence + 1) % WRAP if batches else 0
            if batch.base_sequence != expected:
                return "45"
        if self.open_since(producer) is not None and not batch.is_transactional:
            return "48"
        return "ok"

    def marker_verdict(self, batch: BatchHeader, marker: EndTxnMarker, version: int) -> str:
        producer = batch.producer_id
        known = self.epoch(producer)
        if self.of(producer):
            if batch.producer_epoch < known:
                return "47"
            if version >= 2 and batch.producer_epoch == known and self.open_since(producer) is not None:
                return "47"
        if marker.coordinator_epoch < self.coordinator_epoch(producer):
            return "52"
        return "ok"


class Partition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.real = Producers()
        self.high_watermark = 0
        self.snapshots: list[tuple[int, bytes]] = []
        #: where the last reload began. Of what lies before it only the last batch of each producer is remembered, and
        #: every marker counts as replicated, as in Apache Kafka: the decision is durable at its coordinator, which
        #: writes the marker again should it be lost.
        self.loaded_from = 0

    @property
    def end(self) -> int:
        return self.model.log[-1].header.next_offset if self.model.log else 0

    def verdict(self, batch: BatchHeader, **how: object) -> str:
        origin = AppendOrigin.COORDINATOR if batch.is_control else AppendOrigin.CLIENT
        try:
            duplicate = self.real.check(batch, origin, guard=NOT_REQUIRED, **how)  # type: ignore[arg-type]
        except ProducerRefused as e:
            return str(e.code)
        return "ok" if duplicate is None else f"dup {duplicate.first_offset}"

    def write(self, written: Written) -> None:
        completed = self.real.append(written.header, written.marker, 0)
        since = self.model.open_since(written.header.producer_id)
        if written.marker is not None and since is not None:
            assert completed is not None
            others = [self.model.open_since(p) for p in range(3) if p != written.header.producer_id]
            stable = min((at for at in others if at is not None), default=written.header.base_offset + 1)
            assert completed == (
                written.header.producer_id,
                since,
                written.header.base_offset,
                written.marker.type == ABORT,
                stable,
            )
            self.real.complete(completed)
        else:
            assert completed is None
        self.model.log.append(written)

    @rule(
        producer=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        how=st.sampled_from(["next", "next", "next", "again", "older", "zero", "gap"]),
        count=st.integers(1, 3),
        transactional=st.booleans(),
        fresh=st.sampled_from([0, 5, WRAP - 3]),
        back=st.integers(0, 6),
    )
    def produce(
        self, producer: int, epoch_step: int, how: str, count: int, transactional: bool, fresh: int, back: int
    ) -> None:
        batches = self.model.current_batches(producer)
        first = (batches[-1].last_sequence + 1) % WRAP if batches else fresh
        if how == "again" and batches:
            repeat = batches[-1 - back % len(batches)]
            first, count = repeat.base_sequence, repeat.record_count
        elif how == "older" and batches:
            first = batches[0].base_sequence
        elif how == "zero":
            first = 0
        elif how == "gap":
            first = (first + 1) % WRAP
        epoch = max(self.model.epoch(producer), 0) + epoch_step
        if epoch < 0:
            return
        attributes = TRANSACTIONAL_FLAG if transactional else 0
        batch = BatchHeader(self.end, 49, 0, 2, 0, attributes, count - 1, 0, 0, producer, epoch, first, count)
        expected = self.model.verdict(batch)
        seen = self.verdict(batch)
        if expected.startswith("dup") and int(expected[4:]) < self.loaded_from and seen == "45":
            return  # a snapshot keeps one batch of the five
        assert seen == expected
        if seen == "ok":
            self.write(Written(batch))

    @rule(
        producer=producer_ids,
        epoch_step=st.sampled_from([0, 0, 1, 1, -1]),
        kind=st.sampled_from([ABORT, COMMIT]),
        coordinator=st.integers(0, 3),
        version=st.sampled_from([0, 1, 2]),
    )
    def end_transaction(self, producer: int, epoch_step: int, kind: int, coordinator: int, version: int) -> None:
        epoch = max(self.model.epoch(producer), 0) + epoch_step
        if epoch < 0:
            return
        flags = TRANSACTIONAL_FLAG | CONTROL_FLAG
        batch = BatchHeader(self.end, 49, 0, 2, 0, flags, 0, 0, 0, producer, epoch, -1, 1)
        marker = EndTxnMarker(kind, coordinator)
        expected = self.model.marker_verdict(batch, marker, version)
        assert self.verdict(batch, marker=marker, transaction_version=version) == expected
        if expected == "ok":
            self.write(Written(batch, marker))

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        self.high_watermark = max(self.high_watermark, int(self.end * share))
        self.real.on_high_watermark(self.high_watermark)

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append((self.end, self.real.snapshot()))

    @rule(share=st.floats(0, 1), cut=st.booleans())
    def reload(self, share: float, cut: bool) -> None:
        """A restart; where `cut`, of a log that lost its end above the high watermark."""
        if cut:
            keep = self.high_watermark + int((self.end - self.high_watermark) * share)
            self.model.log = [w for w in self.model.log if w.header.next_offset <= keep]
        self.snapshots = [(at, data) for at, data in self.snapshots if at <= self.end]
        self.real = Producers()
        self.loaded_from = 0
        if self.snapshots:
            self.loaded_from = self.snapshots[-1][0]
            self.real.load(self.snapshots[-1][1], self.loaded_from, 0)
        for written in self.model.log:
            if written.header.base_offset >= self.real.end_offset:
                self.real.replay(written.header, written.marker, 0)
        self.high_watermark = min(self.high_watermark, self.end)
        self.real.on_high_watermark(self.high_watermark)

    @invariant()
    def remembers_what_the_log_says(self) -> None:
        assert self.real.end_offset == self.end
        for producer in range(3):
            known = self.real.get(producer)
            assert (known is not None) == bool(self.model.of(producer))
            if known is not None:
                batches = self.model.current_batches(producer)
                since = self.model.open_since(producer)
                assert known.epoch == self.model.epoch(producer)
                assert known.last_sequence == (batches[-1].last_sequence if batches else -1)
                assert known.txn_first_offset == (-1 if since is None else since)
                assert known.coordinator_epoch == self.model.coordinator_epoch(producer)

    @invariant()
    def no_undecided_or_unreplicated_record_is_stable(self) -> None:
        unstable = [since for p in range(3) if (since := self.model.open_since(p)) is not None]
        opened: dict[int, int] = {}
        for written in self.model.log:
            producer = written.header.producer_id
            if written.marker is None:
                if written.header.is_transactional:
                    opened.setdefault(producer, written.header.base_offset)
            elif producer in opened:
                first = opened.pop(producer)
                if written.header.base_offset >= max(self.high_watermark, self.loaded_from):
                    unstable.append(first)
        assert self.real.first_unstable_offset() == min(unstable, default=None)


Partition.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestPartition = Partition.TestCase
