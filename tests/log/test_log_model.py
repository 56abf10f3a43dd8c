"""A log against a list in memory: appends, rolls, truncations, retention, flushes, clean stops and crashes.

The model keeps every batch it ever saw, as versions: a truncation starts a new one. After a crash the log must be a
prefix of some version, hold everything that was flushed, and be whole in itself; the model then goes on from there.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from random import Random

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from logkit import KEY, NOW_MS, fetched, stamped

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.file_segment import FileSegment
from tidelog.log.flush import FlushWork
from tidelog.log.log import Log
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.producer_snapshot import decode_snapshot
from tidelog.log.producers import NOT_REQUIRED, AppendOrigin, Producers
from tidelog.log.retention import delete_old_segments
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.wire.batch import HEADER_SIZE, BatchHeader, iter_headers, read_header
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_batch, build_end_txn_marker, read_records

CONFIG = LogConfig(
    segment_bytes=1500,
    segment_index_bytes=120,
    index_interval_bytes=150,
    max_message_bytes=1500,
    retention_ms=500,
    retention_bytes=4000,
)


class Batch:
    """One batch as it should stand in the log; `marker` is what a control batch ends a transaction with."""

    def __init__(
        self,
        base_offset: int,
        leader_epoch: int,
        timestamps: list[int],
        value: bytes,
        header: BatchHeader | None = None,
        marker: EndTxnMarker | None = None,
    ) -> None:
        self.header = header
        self.marker = marker
        self.base_offset = base_offset
        self.last_offset = base_offset + len(timestamps) - 1
        self.leader_epoch = leader_epoch
        self.timestamps = timestamps
        self.value = value

    def content(self) -> tuple[int, int, list[tuple[int, int, bytes]]]:
        records = [(self.base_offset + i, timestamp, self.value) for i, timestamp in enumerate(self.timestamps)]
        return self.base_offset, self.leader_epoch, records


def content_of(header: BatchHeader, batch: memoryview) -> tuple[int, int, list[tuple[int, int, bytes | None]]]:
    records = [(record.offset, record.timestamp, record.value) for record in read_records(batch)]
    return header.base_offset, header.leader_epoch, records


class LogMachine(RuleBasedStateMachine):
    #: in the shared layout: how large a file of the commit log becomes
    commit_bytes: int | None = None

    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk()
        self.dirs = self._open()
        self.log: Log = self.dirs.create(KEY, NOW_MS, bytes(range(16)))
        self.batches: list[Batch] = []
        self.versions: list[list[Batch]] = []
        self.log_start = 0
        self.end = 0
        self.epoch = 0
        self.work: FlushWork | None = None
        self.value = 0
        self.start_went_back = False
        #: what should be remembered of producers, and what of it no batch tells any more
        self.producers = Producers()
        self.known = (0, Producers().snapshot())

    def _open(self) -> LogDirs:
        dirs = LogDirs(["/data"], self.disk, lambda topic: CONFIG, lambda: bytes(15) + b"\1", self.commit_bytes)
        dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
        return dirs

    def _value(self, size: int) -> bytes:
        self.value += 1
        return f"{self.value:06d}".encode() + bytes(size)

    # --- rules

    @rule(
        producer_id=st.integers(1, 3),
        count=st.integers(1, 3),
        transactional=st.booleans(),
        as_leader=st.booleans(),
        again=st.booleans(),
    )
    def append_of_a_producer(
        self, producer_id: int, count: int, transactional: bool, as_leader: bool, again: bool
    ) -> None:
        known = self.log.producers.get(producer_id)
        transactional |= known is not None and known.txn_first_offset >= 0
        sequence = 0 if known is None else known.last_sequence + 1
        value = self._value(10)
        timestamps = [self.random.randint(0, 1000) for _ in range(count)]
        sent = build_batch(
            [(timestamp, None, value, None) for timestamp in timestamps],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        self._append(sent, value, timestamps, None, as_leader)
        if again:
            retried = self.log.append_as_leader(memoryview(self._reset(sent)), self.epoch, NOW_MS, guard=NOT_REQUIRED)
            assert retried.duplicate and retried.first_offset == self.batches[-1].base_offset

    @staticmethod
    def _reset(batch: bytearray) -> bytearray:
        """The batch as a producer sends it again."""
        return bytearray(8) + batch[8:]

    @rule(producer_id=st.integers(1, 3), kind=st.sampled_from([ABORT, ABORT, COMMIT]), as_leader=st.booleans())
    def end_transaction(self, producer_id: int, kind: int, as_leader: bool) -> None:
        marker = EndTxnMarker(kind, 0)
        self.value += 1
        sent = build_end_txn_marker(marker, producer_id, 0, self.value % 1000)
        (record,) = read_records(sent)
        assert record.value is not None
        self._append(sent, record.value, [record.timestamp], marker, as_leader)

    def _append(
        self, sent: bytearray, value: bytes, timestamps: list[int], marker: EndTxnMarker | None, as_leader: bool
    ) -> None:
        if as_leader:
            origin = AppendOrigin.CLIENT if marker is None else AppendOrigin.COORDINATOR
            self.log.append_as_leader(memoryview(sent), self.epoch, NOW_MS, origin=origin, guard=NOT_REQUIRED)
        else:
            self.log.append_as_follower(fetched(self.end, self.epoch, memoryview(sent)), NOW_MS)
        header = read_header(fetched(self.end, self.epoch, memoryview(sent)))
        batch = Batch(self.end, self.epoch, timestamps, value, header, marker)
        self.batches.append(batch)
        self.end = batch.last_offset + 1
        self.producers.replay(header, marker, NOW_MS)

    @rule(
        timestamps=st.lists(st.integers(0, 1000), min_size=1, max_size=5),
        size=st.integers(0, 200),
        codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
        new_epoch=st.booleans(),
    )
    def append_as_leader(self, timestamps: list[int], size: int, codec: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        value = self._value(size)
        info = self.log.append_as_leader(stamped(timestamps, value, codec), self.epoch, NOW_MS)
        batch = Batch(self.end, self.epoch, timestamps, value)
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        self.batches.append(batch)
        self.end = batch.last_offset + 1

    @rule(shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.booleans()), min_size=1, max_size=8))
    def append_as_follower(self, shapes: list[tuple[int, int, bool]]) -> None:
        sent = bytearray()
        for count, size, new_epoch in shapes:
            self.epoch += new_epoch
            timestamps = [self.random.randint(0, 1000) for _ in range(count)]
            value = self._value(size)
            batch = Batch(self.end, self.epoch, timestamps, value)
            sent += fetched(batch.base_offset, batch.leader_epoch, stamped(timestamps, value))
            self.batches.append(batch)
            self.end = batch.last_offset + 1
        torn = self.random.randbytes(self.random.choice([0, 0, 5]))
        info = self.log.append_as_follower(memoryview(sent + torn), NOW_MS)
        assert info.last_offset == self.end - 1

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @precondition(lambda self: self.end > self.log_start)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.log_start - 2, 0), self.end))
        self.versions.append(list(self.batches))
        whole_log = offset < self.log.segments.first_base_offset
        self.log.truncate_to(offset, NOW_MS)
        whole = [batch for batch in self.batches if batch.last_offset < offset]
        held = [batch for batch in self.batches if batch.base_offset < offset <= batch.last_offset]
        if offset < self.end:
            self.end = max(held[0].base_offset, min(offset, self.log_start)) if held else offset
        self.batches = whole
        if whole_log or (held and held[0].base_offset < min(offset, self.log_start)):
            self.batches = []
            self.known = (0, Producers().snapshot())
        self.log_start = min(self.log_start, self.end)
        self._replay()

    def _replay(self) -> None:
        """What is known of producers after the batches that are left."""
        known_at, known = self.known
        if self.end < known_at:
            self._adopt_producers()
            return
        self.producers = Producers()
        self.producers.load(known, known_at, NOW_MS)
        for batch in self.batches:
            if batch.header is not None and batch.base_offset >= known_at:
                self.producers.replay(batch.header, batch.marker, NOW_MS)

    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.versions.append(list(self.batches))
        self.end += ahead
        self.log.truncate_fully_and_start_at(self.end, NOW_MS)
        self.batches = []
        self.log_start = self.end
        self.known = (0, Producers().snapshot())
        self._replay()

    @rule(data=st.data())
    def advance_log_start(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end))
        assert self.log.advance_log_start_offset(offset) == (offset > self.log_start)
        self.log_start = max(self.log_start, offset)

    @rule(now_ms=st.integers(0, 2000))
    def retain(self, now_ms: int) -> None:
        first = self.log.segments[0].base_offset
        deleted = delete_old_segments(self.log, now_ms, self.end)
        assert (self.log.segments[0].base_offset > first) == (deleted > 0)
        assert self.log.log_start_offset >= self.log_start
        self.log_start = self.log.log_start_offset
        if len(self.log.segments) > 1:
            assert now_ms - self.log.segments[0].largest_timestamp() <= CONFIG.retention_ms
            assert self.log.size_bytes - self.log.segments[0].size < CONFIG.retention_bytes

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def begin_flush(self) -> None:
        self.work = self.log.flush_work()

    @precondition(lambda self: self.work is not None)
    @rule()
    def end_flush(self) -> None:
        assert self.work is not None
        self.work()
        self.log.flush_done(self.work)
        self.work = None

    @rule()
    def checkpoint(self) -> None:
        self.dirs.checkpoint()
        for work in self.dirs.checkpoint_queues():
            if work is not None:
                work()

    @rule()
    def delete_files(self) -> None:
        for deletion in self.dirs.take_deletions():
            deletion()

    def _most_reads(self, log: Log) -> int:
        """Checkpoints and notes of the directory and of the log, and the end of the last segment; no batch besides."""
        return 30

    @rule()
    def restart_cleanly(self) -> None:
        self.work = None
        self.dirs.close(broker_epoch=7)
        scanned = self.disk.counts.get("pread", 0)
        self.dirs = self._open()
        assert self.disk.counts.get("pread", 0) - scanned < self._most_reads(self.dirs.logs[KEY])
        assert self.dirs.clean_broker_epoch == 7
        self.log = self.dirs.logs[KEY]
        assert self.log.recovery_point == self.end
        # Until the first flush a crash may have torn the file.
        assert self.log.topic_id in (None, bytes(range(16)))

    @rule(power=st.booleans(), damage=st.sampled_from(["none", "none", "cut", "flip", "garbage"]))
    def crash(self, power: bool, damage: str) -> None:
        """The power goes, or the process is killed and bytes past the recovery point are damaged besides."""
        self.work = None
        flushed = self.log.recovery_point
        unflushed = self._first_unflushed(flushed)
        self.log.abandon()
        if power:
            self.disk.crash(self.random)
        else:
            self.disk.locked.clear()
            if unflushed is not None:
                self._damage(self.disk.content(unflushed[0]), unflushed[1], damage)
        self.dirs = self._open()
        self.log = self.dirs.logs[KEY] if KEY in self.dirs.logs else self.dirs.create(KEY, NOW_MS, bytes(range(16)))
        self._adopt(flushed)

    def _first_unflushed(self, flushed: int) -> tuple[str, int] | None:
        """The file that holds the first batch which was not flushed, and where, if all after it are there too."""
        found = self.log.segments.position(flushed) if flushed < self.end else None
        if found is None or found[0] is not self.log.segments.active:
            return None
        return found[0].log_path, found[1]

    def _damage(self, content: bytearray, start: int, damage: str) -> None:
        if damage == "none" or len(content) <= start:
            return
        if damage == "cut":
            del content[self.random.randint(start, len(content)) :]
        elif damage == "garbage":
            content += self.random.randbytes(self.random.randint(1, 2 * HEADER_SIZE))
        else:
            at = self.random.randrange(start, len(content))
            # The leader epoch stands in no CRC, and in the last batch nothing contradicts it.
            epochs = [position + 12 + i for position, _ in self._headers(content) for i in range(4)]
            if at not in epochs:
                content[at] ^= 1 << self.random.randrange(8)

    @staticmethod
    def _headers(content: bytearray) -> list[tuple[int, BatchHeader]]:
        headers = []
        try:
            headers.extend(iter_headers(bytes(content)))
        except Exception:
            pass
        return headers

    def _adopt(self, flushed: int) -> None:
        log = self.log
        lasting = [batch for batch in self.batches if batch.last_offset < flushed]
        assert (lasting[-1].last_offset + 1 if lasting else 0) <= log.log_end_offset
        assert log.log_start_offset <= max(self.log_start, log.log_end_offset)
        stored = []
        for segment in log.segments:
            for _, header, batch in segment.batches(0):
                stored.append(content_of(header, batch))
        known = {}
        for version in [*self.versions, self.batches]:
            for batch in version:
                known[(batch.base_offset, batch.value, batch.timestamps[0])] = batch
        adopted = []
        for base_offset, leader_epoch, records in stored:
            match = known[(base_offset, records[0][2] or b"", records[0][1])]
            assert (base_offset, leader_epoch, records) == match.content()
            adopted.append(match)
        assert [batch for batch in adopted if lasting and batch.last_offset <= lasting[-1].last_offset] == [
            batch for batch in lasting if adopted and batch.base_offset >= adopted[0].base_offset
        ]
        for before, after in pairwise(adopted):
            assert after.base_offset == before.last_offset + 1
        self.versions.append(self.batches)
        self.batches = adopted
        self._adopt_producers()
        self.start_went_back |= log.log_start_offset < self.log_start
        self.log_start = log.log_start_offset
        self.end = log.log_end_offset

    def _adopt_producers(self) -> None:
        """Of producers whose batches are there, all is known; of others, what a snapshot kept of segments now gone."""
        found = {producer.producer_id: producer for producer in self.log.producers}
        replayed = Producers()
        for batch in self.batches:
            if batch.header is not None and batch.base_offset >= self.log.segments.first_base_offset:
                replayed.replay(batch.header, batch.marker, NOW_MS)
        for expected in replayed:
            assert found[expected.producer_id].epoch == expected.epoch
            assert expected.last_sequence in (-1, found[expected.producer_id].last_sequence)
        self.known = (self.log.log_end_offset, self.log.producers.snapshot())
        self.producers = Producers()
        self.producers.load(self.known[1], self.known[0], NOW_MS)

    # --- what must always hold

    @invariant()
    def producers_are_those_of_the_batches(self) -> None:
        expected = {entry.producer_id: entry for entry in decode_snapshot(self.producers.snapshot())}
        found = {entry.producer_id: entry for entry in decode_snapshot(self.log.producers.snapshot())}
        assert found == expected
        assert self.log.producers.first_undecided_offset() == self.producers.first_undecided_offset()

    @invariant()
    def aborted_transactions_are_found(self) -> None:
        producers = Producers()
        aborted = []
        for batch in self.batches:
            if batch.header is not None:
                completed = producers.replay(batch.header, batch.marker, NOW_MS)
                if completed is not None and completed.is_aborted:
                    aborted.append((completed.producer_id, completed.first_offset, completed.last_offset))
        start = self.random.randint(self.log_start, self.end)
        bound = self.random.randint(start, self.end)
        found = self.log.aborted_transactions(start, bound)
        firsts = {(txn.producer_id, txn.last_offset): txn.first_offset for txn in found}
        for producer_id, first, last in aborted:
            if last >= start and first < bound:
                # It may have begun in a segment that is gone.
                assert firsts[(producer_id, last)] <= first
        assert all(txn.last_offset >= start and txn.first_offset < bound for txn in found)

    @invariant()
    def offsets_agree(self) -> None:
        assert self.log.log_start_offset == self.log_start
        assert self.log.log_end_offset == self.end
        assert self.log_start <= self.end
        assert self.log.recovery_point <= self.end

    @invariant()
    def every_offset_is_read(self) -> None:
        bases = [batch.base_offset for batch in self.batches]
        for offset in range(self.log_start, self.end):
            max_bytes = self.random.choice([1, 200, 700, 1 << 20])
            bound = self.random.randint(offset, self.end)
            at = max(bisect_right(bases, offset) - 1, 0)
            piece = self.log.read(offset, max_bytes, bound)
            expected = self.batches[at:]
            readable = [batch for batch in expected if batch.last_offset < bound]
            if piece is None:
                assert not readable or readable[0].base_offset > offset
                continue
            data = memoryview(piece.read())
            found = [content_of(header, data[at : at + header.size_bytes]) for at, header in iter_headers(data)]
            assert sum(header.size_bytes for _, header in iter_headers(data)) == len(data) == piece.size_bytes
            assert found and found == [batch.content() for batch in readable[: len(found)]]
            assert len(data) <= max_bytes or len(found) == 1
            assert piece.next_offset > readable[len(found) - 1].last_offset
            following = [batch for batch in self.batches if batch.base_offset > readable[len(found) - 1].last_offset]
            assert not following or piece.next_offset <= following[0].base_offset or piece.next_offset == bound

    @invariant()
    def every_time_is_found(self) -> None:
        records = [record for batch in self.batches for record in batch.content()[2] if record[0] >= self.log_start]
        stamps = {timestamp for _, timestamp, _ in records}
        for target in self.random.sample(sorted(stamps | {stamp + 1 for stamp in stamps} | {0}), k=min(5, len(stamps))):
            expected = next(((stamp, offset) for offset, stamp, _ in records if stamp >= target), None)
            found = self.log.offset_for_timestamp(target)
            assert (None if found is None else found[:2]) == expected
        stored = [
            record
            for batch in self.batches
            if batch.base_offset >= self.log.segments.first_base_offset
            for record in batch.content()[2]
        ]
        latest = self.log.max_timestamp_offset()
        if not stored:
            assert latest is None
        else:
            largest = max(timestamp for _, timestamp, _ in stored)
            assert latest is not None
            assert latest[:2] == (largest, next(offset for offset, stamp, _ in stored if stamp == largest))

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(batch.leader_epoch, batch.base_offset)
        entries = list(starts.items())
        before = [entry for entry in entries if entry[1] <= self.log_start]
        after = [entry for entry in entries if entry[1] > self.log_start]
        expected = [(before[-1][0], self.log_start)] if before and self.end > self.log_start else []
        epochs = self.log.leader_epochs
        if self.end > self.log_start:
            self._epochs_agree(epochs.entries(), expected + after)
        for asked in range(self.epoch + 2):
            found = epochs.end_offset_for(asked, self.end)
            later = [start for epoch, start in epochs.entries() if epoch > asked]
            known = [epoch for epoch, _ in epochs.entries() if epoch <= asked]
            if known and known[-1] == asked and not later:
                assert found == (asked, self.end)
            elif later:
                assert found == (known[-1] if known else asked, later[0])
            else:
                assert found is None

    def _epochs_agree(self, found: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
        """Where a crash took the log's start back, what the epochs knew of the time before it stays forgotten."""
        if self.start_went_back and found:
            expected = expected[-len(found) :]
            assert expected[0][0] == found[0][0] and expected[0][1] <= found[0][1]
            expected[0] = found[0]
        assert found == expected

    @invariant()
    def indexes_point_at_batches(self) -> None:
        for segment in self.log.segments:
            headers = dict(segment.headers(0))
            assert sum(header.size_bytes for header in headers.values()) == segment.size
            entries = [segment.offset_index.entry(n) for n in range(segment.offset_index.count)]
            assert entries == sorted(entries) and len({offset for offset, _ in entries}) == len(entries)
            for offset, position in entries:
                assert headers[position].last_offset == offset
            largest = -1
            firsts = {}
            for header in headers.values():
                if header.max_timestamp > largest:
                    largest = header.max_timestamp
                    firsts[header.last_offset] = largest
            for n in range(segment.time_index.count):
                timestamp, offset = segment.time_index.entry(n)
                assert firsts[offset] == timestamp


class SharedLogMachine(LogMachine):
    """The same in the shared layout."""

    commit_bytes = 4000

    def _most_reads(self, log: Log) -> int:
        """The end of each queue besides."""
        return super()._most_reads(log) + 2 * len(list(log.segments))

    def _first_unflushed(self, flushed: int) -> tuple[str, int] | None:
        for segment in self.log.segments.since(flushed):
            if not isinstance(segment, QueueSegment):
                # A crash took the topic's id before it was flushed.
                return super()._first_unflushed(flushed)
            n = segment.queue.first_with(flushed)
            if n < segment.queue.count:
                commit = self.dirs.dirs[0].commit
                # What lies before the checkpoint is on the device, and not read again.
                return self._place(max(segment.queue.entry(n).place, commit.checkpoint if commit else 0))
        return None

    def _place(self, place: int) -> tuple[str, int] | None:
        names = [entry.name for entry in self.disk.list("/data/tidelog-commit") if entry.name.endswith(".commit")]
        base = max(int(name[:20]) for name in names)
        return (f"/data/tidelog-commit/{base:020d}.commit", place - base) if place >= base else None

    @invariant()
    def indexes_point_at_batches(self) -> None:
        for segment in self.log.segments:
            assert isinstance(segment, (QueueSegment, FileSegment))
            headers = dict(segment.headers(0))
            assert sum(header.size_bytes for header in headers.values()) == segment.size
            if isinstance(segment, QueueSegment):
                queued = list(segment.entries(0))
                assert [(each.position, each.base_offset, each.last_offset) for each in queued] == [
                    (position, header.base_offset, header.last_offset) for position, header in headers.items()
                ]


SharedLogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)
test_the_log_agrees_with_a_list_in_the_shared_layout = SharedLogMachine.TestCase
LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)
test_the_log_agrees_with_a_list_through_every_fault = LogMachine.TestCase
