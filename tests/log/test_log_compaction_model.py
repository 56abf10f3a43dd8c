"""A compacted log against a list of all that was ever written, through rounds, crashes at every step of them, and time.

The oracle knows nothing of batches: it holds records, transactions and the times of tombstones, and says what a reader
must find.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import hypothesis.strategies as st
from compaction_kit import (
    COMPACT,
    KERNEL,
    KEY,
    NOW_MS,
    Compacted,
    FragileDisk,
    PowerLoss,
    kernel_face,
    open_dirs,
    run,
    table_of,
    visible,
)
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.log.compaction import compaction_round
from tidelog.log.producers import Producers
from tidelog.log.retention import delete_old_segments
from tidelog.wire.batch import iter_headers
from tidelog.wire.records import read_end_txn_marker, read_records

CONFIG = replace(COMPACT, segment_bytes=700, cleanup_policy=("compact", "delete"), retention_ms=-1)
RETENTION_MS = CONFIG.delete_retention_ms
KEYS = [b"", b"a", b"bb", b"key-of-eight", b"a-key-that-is-longer-than-sixteen-bytes", *(b"k%d" % n for n in range(20))]
IDEMPOTENT, TRANSACTIONAL = (1, 2), (11, 12)


@dataclass
class Written:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    #: the transaction, None outside of one
    txn: int | None


class CompactionMachine(RuleBasedStateMachine):
    face = "compiled"

    def __init__(self) -> None:
        super().__init__()
        self.kernel = compaction_round.kernel
        compaction_round.kernel = kernel_face(KERNEL, self.face)

    def teardown(self) -> None:
        compaction_round.kernel = self.kernel

    @initialize(seed=st.integers(0, 1 << 32), map_slots=st.sampled_from([16, 20, 1000]))
    def start(self, seed: int, map_slots: int) -> None:
        self.random = Random(seed)
        self.disk = FragileDisk()
        self.it = Compacted(CONFIG, self.disk, dedupe_buffer_size=16 * map_slots, io_buffer_size=1)
        self.disk.commit()
        self.now_ms = NOW_MS
        self.written: dict[int, Written] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, int] = {}
        self.transactions = 0
        self.epochs = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), 0)
        self.sequences = dict.fromkeys((*IDEMPOTENT, *TRANSACTIONAL), 0)
        #: when a round first went, or may have gone, over a tombstone
        self.first_met_ms: dict[int, int] = {}
        self.count = 0
        self.log_start = 0

    # --- writing

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6),
        tombstones=st.integers(0, 63),
        producer_id=st.sampled_from([-1, *IDEMPOTENT, *TRANSACTIONAL]),
        codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        null_key=st.sampled_from([False] * 15 + [True]),
    )
    def write(self, keys: list[bytes], tombstones: int, producer_id: int, codec: int, null_key: bool) -> None:
        self.count += 1
        records: list[tuple[bytes | None, bytes | None]] = [
            (key, None if tombstones >> i & 1 else b"%d.%d" % (self.count, i)) for i, key in enumerate(keys)
        ]
        if null_key and producer_id < 0:
            records[0] = (None, b"lost")
        timestamp = 1000 + self.random.randint(0, 500)
        producer = None
        if producer_id > 0:
            producer = (producer_id, self.epochs[producer_id], self.sequences[producer_id])
            self.sequences[producer_id] += len(records)
        transactional = producer_id in TRANSACTIONAL
        if transactional and producer_id not in self.open:
            self.transactions += 1
            self.open[producer_id] = self.transactions
        base = self.it.append(
            *records, timestamp=timestamp, codec=codec, producer=producer, transactional=transactional
        )
        txn = self.open[producer_id] if transactional else None
        for i, (key, value) in enumerate(records):
            self.written[base + i] = Written(base + i, timestamp + i, key, value, producer_id, txn)
        self.it.log.flush()

    @rule(count=st.integers(2, 6), end=st.booleans())
    def write_a_segment(self, count: int, end: bool) -> None:
        """So that there is something to compact in nearly every run."""
        random = self.random
        for _ in range(count):
            producer_id = random.choice([-1, *IDEMPOTENT, *TRANSACTIONAL])
            keys = random.choices(KEYS[:9], k=random.randint(1, 4))
            self.write(keys, random.choice([0, 0, 1, 5]), producer_id, random.choice([0, 0, 3]), False)
        for producer_id in sorted(self.open) if end else ():
            self._end(producer_id, random.random() < 0.5, random.random() < 0.3)
        self.roll()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, data: st.DataObject, commit: bool, bump: bool) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.open))), commit, bump)

    def _end(self, producer_id: int, commit: bool, bump: bool) -> None:
        txn = self.open.pop(producer_id)
        if not commit:
            self.aborted.add(txn)
        if bump:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        self.it.mark(producer_id, self.epochs[producer_id], commit)
        self.it.log.flush()

    @rule()
    def roll(self) -> None:
        self.it.roll()
        self.it.log.flush()

    @rule(ms=st.integers(0, 2 * RETENTION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    # --- compacting

    @rule()
    def compact(self) -> None:
        for _ in run(self.it.cleaner, self.now_ms):
            self._completed()

    @rule(operations=st.integers(0, 150), power=st.booleans())
    def lose_power_while_compacting(self, operations: int, power: bool) -> None:
        """The power goes, or the process is killed, before any one of the operations on the disk."""
        self.disk.operations_left = operations
        reach = self.it.log.segments.active.base_offset
        try:
            run(self.it.cleaner, self.now_ms)
            self.it.dirs.checkpoint()
        except PowerLoss:
            pass
        self.disk.operations_left = None
        producers = self._producers()
        self.it.log.abandon()
        if power:
            self.disk.crash(self.random)
        else:
            self.disk.locked.clear()
        self._reopened(producers)
        # The round may have come this far before it was interrupted, and have given tombstones their time.
        self._met(reach)

    @rule()
    def restart_cleanly(self) -> None:
        producers = self._producers()
        self.it.dirs.close()
        self._reopened(producers)

    @rule()
    def delete_files(self) -> None:
        for deletion in self.it.dirs.take_deletions():
            deletion()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log_start, max(self.log_start, self.it.log.log_end_offset - 5)))
        self.it.log.advance_log_start_offset(offset)
        delete_old_segments(self.it.log, self.now_ms, self.it.log.log_end_offset)
        self.it.dirs.checkpoint()
        self.log_start = self.it.log.log_start_offset

    def _reopened(self, producers: dict[int, tuple[int, int]]) -> None:
        self.it.adopt(open_dirs(self.disk, CONFIG))
        assert not [entry.name for entry in self.disk.list(f"/data/{KEY[0]}-{KEY[1]}") if "." in entry.name[25:]]
        assert self._producers() == producers
        self._completed()

    def _producers(self) -> dict[int, tuple[int, int]]:
        return {p.producer_id: (p.epoch, p.last_sequence) for p in self.it.log.producers}

    def _completed(self) -> None:
        """A round may have been completed: what lies below is judged by its rules from now on."""
        self._met(self.it.log.cleaned_offset or 0)

    def _met(self, end_offset: int) -> None:
        for record in self.written.values():
            if record.value is None and record.offset < end_offset:
                self.first_met_ms.setdefault(record.offset, self.now_ms)

    # --- what must hold

    @invariant()
    def all_promises_are_kept(self) -> None:
        self.nothing_is_there_that_was_not_written()
        self.a_reader_of_the_whole_log_ends_with_the_newest_values()
        self.the_newest_record_of_every_key_is_there()
        self.a_tombstone_stays_for_its_time()
        self.what_is_clean_has_each_key_once()
        self.what_is_not_clean_is_as_it_was()
        self.every_fetch_gives_whole_batches_in_order()
        self.times_are_found()
        self.indexes_point_at_batches()
        self.producers_are_what_the_log_tells()

    def _committed(self) -> list[Written]:
        return [r for r in self.written.values() if r.txn not in self.aborted and r.key is not None]

    def _found(self) -> dict[int, tuple[int, bytes | None, bytes | None]]:
        return {
            offset: (timestamp, key, value)
            for batch in self.it.batches()
            if not batch.header.is_control
            for offset, timestamp, key, value in batch.records
        }

    def nothing_is_there_that_was_not_written(self) -> None:
        for offset, found in self._found().items():
            record = self.written[offset]
            assert found == (record.timestamp, record.key, record.value)

    def a_reader_of_the_whole_log_ends_with_the_newest_values(self) -> None:
        if self.log_start == 0 and not self.open:
            expected = table_of((r.offset, r.key or b"", r.value) for r in self._committed())
            assert (
                table_of((o, k, v) for o, k, v in visible(self.it.log) if self.written[o].key is not None) == expected
            )

    def the_newest_record_of_every_key_is_there(self) -> None:
        """But for a tombstone, which may go when `delete.retention.ms` is over, and what DeleteRecords took."""
        found = self._found()
        newest = {record.key: record for record in self._committed()}
        for record in newest.values():
            if record.value is not None and record.offset >= self.log_start:
                assert record.offset in found

    def a_tombstone_stays_for_its_time(self) -> None:
        found = self._found()
        newest = {record.key: record for record in self._committed()}
        for record in newest.values():
            met = self.first_met_ms.get(record.offset)
            young = met is None or self.now_ms < met + RETENTION_MS
            if record.value is None and young and record.offset >= self.log_start:
                assert record.offset in found

    def what_is_clean_has_each_key_once(self) -> None:
        found = self._found()
        committed = {r.offset for r in self._committed()}
        clean = [self.written[o] for o in sorted(found) if self.log_start <= o < (self.it.log.cleaned_offset or 0)]
        kept = [record for record in clean if record.offset in committed]
        assert kept == clean
        assert len({record.key for record in kept}) == len(kept)

    def what_is_not_clean_is_as_it_was(self) -> None:
        dirty = self.it.log.cleaned_offset or self.log_start
        active = self.it.log.segments.active.base_offset
        found = self._found()
        newest = {record.key: record.offset for record in self._committed()}
        for record in self.written.values():
            if record.offset >= max(dirty, active, self.log_start):
                assert record.offset in found
            elif record.offset >= max(dirty, self.log_start) and record.offset not in found:
                # An interrupted round was here: it may only have taken what a completed one would take.
                gone = record.txn in self.aborted or record.key is None or newest[record.key] > record.offset
                assert gone or record.value is None

    def every_fetch_gives_whole_batches_in_order(self) -> None:
        log = self.it.log
        expected = sorted(o for o in self._found() if o >= self.log_start)
        found = [offset for offset, _, _ in _everything(self.it)]
        assert found == expected
        for offset in self.random.sample(range(self.log_start, log.log_end_offset + 1), k=1):
            piece = log.read(offset, 200, log.log_end_offset)
            if piece is not None:
                assert piece.next_offset > offset

    def times_are_found(self) -> None:
        found = [(o, t) for o, (t, _, _) in sorted(self._found().items()) if o >= self.log_start]
        for target in (1000, 1000 + self.random.randint(0, 520)):
            expected = next(((stamp, offset) for offset, stamp in found if stamp >= target), None)
            answer = self.it.log.offset_for_timestamp(target)
            if answer is None or not self._is_marker(answer.offset):
                assert (None if answer is None else answer[:2]) == expected

    def _is_marker(self, offset: int) -> bool:
        return offset not in self.written

    def indexes_point_at_batches(self) -> None:
        for segment in self.it.log.segments:
            headers = dict(segment.headers(0))
            assert sum(header.size_bytes for header in headers.values()) == segment.size
            for n in range(segment.offset_index.count):
                offset, position = segment.offset_index.entry(n)
                assert headers[position].last_offset == offset

    def producers_are_what_the_log_tells(self) -> None:
        """Replayed from the first byte, the log tells of every producer what is known of it."""
        if self.log_start > 0:
            return
        replayed = Producers()
        for batch in self.it.batches():
            if batch.header.producer_id >= 0:
                marker = None
                if batch.header.is_control:
                    marker = read_end_txn_marker(batch.data)
                replayed.replay(batch.header, marker, NOW_MS)
        for producer in self.it.log.producers:
            if producer.batches:
                again = replayed.get(producer.producer_id)
                assert again is not None
                assert (again.epoch, again.last_sequence) == (producer.epoch, producer.last_sequence)


def _everything(it: Compacted) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records but control records, fetched piece by piece."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    log, at = it.log, it.log.log_start_offset
    while at < log.log_end_offset:
        piece = log.read(at, 300, log.log_end_offset)
        if piece is None:
            break
        data = memoryview(piece.read())
        for position, header in iter_headers(data):
            if not header.is_control:
                records = read_records(data[position : position + header.size_bytes])
                found += [(r.offset, r.key, r.value) for r in records if r.offset >= at]
        at = piece.next_offset
    return found


class PureCompactionMachine(CompactionMachine):
    face = "pure"


# Searching for the shortest history of a failure takes minutes; the first one found says enough.
FAST = {"stateful_step_count": 40, "deadline": None, "phases": (Phase.explicit, Phase.reuse, Phase.generate)}
CompactionMachine.TestCase.settings = settings(max_examples=60, **FAST)
PureCompactionMachine.TestCase.settings = settings(max_examples=20, **FAST)
test_a_compacted_log_keeps_its_promises_through_every_crash = CompactionMachine.TestCase
test_it_keeps_them_without_a_compiler_as_well = PureCompactionMachine.TestCase
