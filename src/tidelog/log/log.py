"""One partition on disk: segments in the order of their base offsets, the last of them active.

    log_start_offset   the first offset that may be read; moved up by retention and DeleteRecords
    log_end_offset     the next offset to be given away
    recovery_point     offsets below it are on the device; after a crash only what lies past it is checked

An append checks the batch, gives it its offset and leader epoch in place, and writes it with one write: whatever came
over the wire goes to the file as it is. A read returns a slice of a file, whole batches, for `sendfile`. Finding a
position costs the same at any log size (`segments.py`).

A write that fails is cut off again: nothing half-written stays behind, and nothing that failed was ever counted. On a
full disk the log goes on as soon as there is room; any other error takes the directory offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.log.append import AppendInfo, has_gaps, runs_of
from tidelog.log.append_rules import roll_jitter_ms
from tidelog.log.checkpoints import PARTITION_METADATA, PARTITION_NOTES, PartitionNotes, format_partition_metadata
from tidelog.log.cleaned_segment import CleanedSegment
from tidelog.log.config import LogConfig
from tidelog.log.disk import PASSING, Disk, replace_file
from tidelog.log.errors import (
    CorruptMessage,
    InconsistentTopicId,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnexpectedAppendOffset,
)
from tidelog.log.file_segment import FileSegment
from tidelog.log.flush import FlushWork, collect, collect_for_stop, settle
from tidelog.log.guarding import guarded
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log_dir import LogDir, PendingDeletion
from tidelog.log.producer_recovery import rebuild_producers, rebuild_txn_index, recall_batches
from tidelog.log.producers import NO_GUARD, AppendOrigin, BatchMetadata, Producers
from tidelog.log.segment import Segment, Slice
from tidelog.log.segments import Segments
from tidelog.log.snapshots import Snapshots
from tidelog.log.time_lookup import TimestampedOffset, first_at_or_after, first_of_largest
from tidelog.log.txn_index import AbortedTxn, CorruptIndex
from tidelog.wire.batch import CODEC_MASK, CONTROL_FLAG, BatchHeader, InvalidBatch, batch_header, patch_place
from tidelog.wire.check import SHORT_BYTES, CheckedBatch, check_built, check_produced, check_replicated
from tidelog.wire.compression import ZSTD
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import EndTxnMarker, read_end_txn_marker

if TYPE_CHECKING:
    from tidelog.log.shared.store import QueueStore

_ANY_EPOCH: Final = (1 << 31) - 1
# A constant, because every append needs it: Python 3.11 is slow to look up a member of an enum.
_CLIENT: Final = AppendOrigin.CLIENT


class Log:
    __slots__ = (
        "_dirty_since_ms",
        "_disk",
        "cleaned_offset",
        "config",
        "directory",
        "key",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "names_given",
        "names_synced",
        "notes",
        "partition",
        "path",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "store",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(self, directory: LogDir, path: str, topic: str, partition: int, config: LogConfig) -> None:
        self.directory = directory
        self._disk: Disk = directory.disk
        self.path = path
        self.topic = topic
        self.partition = partition
        self.key = TopicPartition(topic, partition)
        self.topic_id: bytes | None = None
        self.notes = PartitionNotes()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.recovery_point = 0
        #: compaction has been over everything below it; None before the first time
        self.cleaned_offset: int | None = None
        self.leader_epochs = LeaderEpochs()
        self.producers = Producers()
        self.snapshots = Snapshots(self._disk, path)
        #: where segments are kept in the shared layout; None where they are files of their own
        self.store: QueueStore | None = None
        #: set before the log is handed out
        self.segments: Segments
        #: a flush or a copy that began before the last one says nothing about what was written after it
        self.truncations = 0
        #: when the first append since the last flush was made; -1 where there was none
        self._dirty_since_ms = -1
        #: counts names that were given to the directory and to segments that were swapped in; those up to
        #: `names_synced` are on the device
        self.names_given = 0
        self.names_synced = 0
        self.config = config

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @guarded
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Writes down whose partition this is; on the device with the next flush."""
        if self.topic_id not in (None, topic_id):
            raise InconsistentTopicId(f"{self.name} exists with another topic ID")
        self.topic_id = topic_id
        data = format_partition_metadata(topic_id)
        replace_file(self._disk, f"{self.path}/{PARTITION_METADATA}", data, sync=False)

    def note(self, notes: PartitionNotes, sync: bool = True) -> None:
        """Writes down what the next opening must know, before what it speaks of happens. May raise OSError."""
        if notes != self.notes:
            replace_file(self._disk, f"{self.path}/{PARTITION_NOTES}", notes.format(), sync)
            self.notes = notes

    # --- appending

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """This broker leads from here on: the epoch begins at the log's end, even if nothing is written in it."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def append_as_leader(
        self,
        records: memoryview,
        leader_epoch: int,
        now_ms: int,
        zstd_allowed: bool = True,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: int = NO_GUARD,
        transaction_version: int = 0,
        checked: CheckedBatch | None = None,
    ) -> AppendInfo:
        """Appends one produced batch; its bytes are patched in place and must be writable.

        Raises InvalidBatch or ProducerRefused for what may not be stored, LogError for what cannot be. `guard` is what
        the verification of a transaction gave, `transaction_version` that of the request that brought a marker. Where
        checking a client's batch would take long, it raises TakesLong: `checked` is what came of that elsewhere, by
        the `rules` of this log's `config`.
        """
        if self.directory.failure is not None:
            raise self.directory.offline()
        config = self.config
        if checked is None:
            if origin is _CLIENT:
                checked = check_produced(records, config.rules, now_ms, most_bytes=SHORT_BYTES)
            else:
                checked = check_built(records, config.rules, now_ms)
        batch, header = checked.batch, checked.header
        if header.attributes & CODEC_MASK == ZSTD and not zstd_allowed:
            raise InvalidBatch(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a newer version of the produce request"
            )
        size_bytes = len(batch)
        if size_bytes > config.segment_bytes:
            raise RecordListTooLarge(f"{size_bytes} bytes exceed segment.bytes = {config.segment_bytes}")
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_FLAG:
                marker = read_end_txn_marker(batch)
            known = self.producers.check(
                header, origin, marker=marker, guard=guard, transaction_version=transaction_version
            )
            if known is not None:
                return self.duplicate(known)
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        assert last_offset == first_offset + header.record_count - 1, f"a batch for {self.name} leaves offsets out"
        if leader_epoch != self.leader_epochs.latest:
            assert leader_epoch > self.leader_epochs.latest, f"{self.name} goes back to leader epoch {leader_epoch}"
            self.leader_epochs.assign(leader_epoch, first_offset)
        patch_place(batch, 0, first_offset, header.length, leader_epoch)
        info = AppendInfo(first_offset, last_offset, header.max_timestamp, size_bytes)
        if config.rules.log_append_time:
            info.log_append_time_ms = now_ms
        self._write(batch, first_offset, info, now_ms, None)
        if header.producer_id >= 0:
            self._note_producer(batch_header((first_offset, *header[1:])), marker, now_ms)
        else:
            self.producers.end_offset = last_offset + 1
        return info

    def duplicate(self, known: BatchMetadata) -> AppendInfo:
        """What is answered to a batch that is in the log already."""
        info = AppendInfo(known.first_offset, known.last_offset, known.timestamp, 0)
        info.duplicate = True
        info.log_append_time_ms = known.timestamp
        info.log_start_offset = self.log_start_offset
        if known.last_offset >= self.recovery_point and self.unflushed_messages >= self.config.flush_messages:
            # It is no more acknowledged before its flush than the first attempt is.
            info.flush_due = True
        return info

    def _note_producer(self, header: BatchHeader, marker: EndTxnMarker | None, now_ms: int) -> None:
        """A batch of a producer is in the active segment: remembers it, and a transaction that it aborted."""
        completed = self.producers.append(header, marker, now_ms)
        if completed is None:
            return
        if completed.is_aborted:
            aborted = AbortedTxn(
                completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
            )
            try:
                self.segments.active.txn_index.append(aborted)
            except OSError as error:
                # The marker is written, its index entry is not: recovery brings it back. Until then nothing is stable.
                # A full disk does not come here: the entry then waits in memory.
                raise self.directory.fail(error) from error
        self.producers.complete(completed)

    def append_as_follower(self, records: memoryview, now_ms: int, leader_epoch: int = _ANY_EPOCH) -> AppendInfo:
        """Appends what a leader sent: batches with their offsets, continuing this log; a torn last one is left out.

        Batches of an epoch past `leader_epoch` are left out too: the sender lost its leadership while it sent them.
        """
        if self.directory.failure is not None:
            raise self.directory.offline()
        end, placed = check_replicated(records)
        for at, (position, header) in enumerate(placed):
            if header.leader_epoch > leader_epoch:
                end, placed = position, placed[:at]
                break
        info = AppendInfo(self.log_end_offset, self.log_end_offset - 1, -1, end)
        info.log_start_offset = self.log_start_offset
        if not placed:
            return info
        info.first_offset = placed[0][1].base_offset
        if info.first_offset < self.log_end_offset:
            raise UnexpectedAppendOffset(
                f"{self.name} ends at {self.log_end_offset}, a batch at {info.first_offset} cannot follow",
                info.first_offset,
                placed[-1][1].last_offset,
            )
        if not self.notes.gaps and has_gaps(placed, self.log_end_offset):
            try:
                self.note(self.notes._replace(gaps=True))
            except OSError as error:
                raise self.directory.refuse(error, self.name) from error
        start = 0
        for run in runs_of(placed, self.config.segment_bytes):
            stop = run[-1][0] + run[-1][1].size_bytes
            self._append_run(records[start:stop], [header for _, header in run], info, now_ms)
            for position, header in run:
                if header.producer_id >= 0:
                    batch = records[position : position + header.size_bytes]
                    marker = read_end_txn_marker(batch) if header.attributes & CONTROL_FLAG else None
                    self._note_producer(header, marker, now_ms)
            self.producers.end_offset = self.log_end_offset
            start = stop
        return info

    def _append_run(self, records: memoryview, headers: list[BatchHeader], info: AppendInfo, now_ms: int) -> None:
        spans = []
        for header in headers:
            info.max_timestamp = max(info.max_timestamp, header.max_timestamp)
            spans.append((header.last_offset, header.max_timestamp, header.size_bytes))
        assert self.log_end_offset <= headers[0].base_offset, f"{self.name} would be written over"
        info.last_offset = headers[-1].last_offset
        self._write(records, headers[0].base_offset, info, now_ms, spans)
        # Of what is refused nothing is known: an epoch that seems to have begun already would end the one before it.
        for header in headers:
            if header.leader_epoch >= 0 and header.leader_epoch != self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)

    def _write(
        self,
        records: memoryview,
        first_offset: int,
        info: AppendInfo,
        now_ms: int,
        spans: list[tuple[int, int, int]] | None,
    ) -> None:
        """One write; then the log end, and whatever reader waits for it, may know."""
        segment = self.segments.active
        config = self.config
        last_offset = info.last_offset
        try:
            if segment.should_roll(len(records), last_offset, info.max_timestamp, now_ms, config):
                segment = self.roll(now_ms, first_offset)
            position = segment.append(records, last_offset, info.max_timestamp, spans)
        except OSError as error:
            # On a full disk the next append may find room.
            raise self.directory.refuse(error, self.name) from error
        self.log_end_offset = last_offset + 1
        self.segments.remember(first_offset, segment, position)
        info.log_start_offset = self.log_start_offset
        if self._dirty_since_ms < 0:
            self._dirty_since_ms = now_ms
        if last_offset + 1 - self.recovery_point >= config.flush_messages:
            info.flush_due = True
            self.directory.flushes.add(self)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seals the active segment and opens the next one; an empty one that begins there already stays."""
        if base_offset is None:
            base_offset = self.log_end_offset
        old = self.segments.active
        if old.base_offset == base_offset:
            return old
        self._trust_no_further_than(old)
        old.seal()
        segment = self._begin_segment(base_offset, now_ms)
        self.directory.flushes.add(self)
        self.write_snapshot(base_offset)
        return segment

    def write_snapshot(self, offset: int) -> None:
        """Of the producers; `offset` is where the log ends. May raise OSError."""
        if self.store is not None:
            # By a snapshot a start misses what lies before it: it must not be there earlier than that.
            self.store.commit.write_out()
        self.snapshots.write(offset, self.producers.snapshot())

    def _trust_no_further_than(self, active: Segment) -> None:
        """The active segment is about to be followed by another."""
        if self.directory.recovery_points_stale:
            # Sealed segments below the recovery point are trusted after a crash, so it may not lie any longer.
            self.directory.checkpoint_recovery_points()
        # Its batches may be on the device, its indexes as they are now are not.
        self.recovery_point = min(self.recovery_point, active.base_offset)

    def _begin_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = self.new_segment(base_offset, now_ms)
        segment.roll_jitter_ms = roll_jitter_ms(self.config, self.name, base_offset)
        self.segments.add(segment)
        self.producers.end_offset = base_offset
        return segment

    def new_segment(self, base_offset: int, now_ms: int, is_first: bool = False) -> Segment:
        """An empty one, which is to become the last of this log; `is_first` where its directory has just been made.
        May raise OSError."""
        if self.store is not None:
            from tidelog.log.shared.queue_segment import QueueSegment

            return QueueSegment.create(self._disk, self.path, base_offset, self.config, now_ms, self.store)
        if self.config.preallocate:
            self.note(self.notes._replace(preallocates=True), sync=False)
        return FileSegment.create(self._disk, self.path, base_offset, self.config, now_ms, is_first)

    # --- reading

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> Slice | None:
        """Whole batches from the one that holds `offset` on, all below `max_offset`, from one segment.

        At most `max_bytes`, except that `min_one_batch` brings the first batch whatever its size. None if there is
        nothing that may be read, or nothing that fits.
        """
        end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.name} is not within {self.log_start_offset} and {end_offset}"
            )
        if max_offset > end_offset:
            max_offset = end_offset
        if offset >= max_offset:
            return None
        if self.directory.failure is not None:
            raise self.directory.offline()
        try:
            return self.segments.read(offset, max_bytes, max_offset, end_offset, min_one_batch)
        except CorruptMessage as error:
            self.directory.tell(f"partition {self.partition} of topic {self.topic} cannot be read there: {error}")
            raise
        except OSError as error:
            raise self.directory.refuse(error, self.name) from error

    @guarded
    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record at or after a time, not before the log's start; None if there is none."""
        return first_at_or_after(self.segments, timestamp, self.log_start_offset)

    @guarded
    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The first record that has the largest timestamp in the log; None in a log without timestamps."""
        return first_of_largest(self.segments)

    # --- transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction that is not decided for good begins; None if there is none."""
        unstable = self.producers.first_unstable_offset()
        return unstable if unstable is None else max(unstable, self.log_start_offset)

    @guarded
    def aborted_transactions(self, offset: int, end_offset: int, now_ms: int = 0) -> list[AbortedTxn]:
        """The aborted transactions that have records from `offset` to below `end_offset`."""
        aborted: list[AbortedTxn] = []
        for segment in self.segments.since(offset):
            try:
                found, complete = segment.txn_index.collect(offset, end_offset)
            except CorruptIndex:
                rebuild_txn_index(self.segments, self.snapshots, segment, now_ms)
                found, complete = segment.txn_index.collect(offset, end_offset)
            aborted += found
            if complete:
                break
        return aborted

    # --- cutting at the end

    @guarded
    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Cuts everything from `offset` on; returns whether there was anything. A batch that holds it goes whole."""
        if offset < 0:
            raise ValueError(f"cannot truncate to {offset}")
        if offset >= self.log_end_offset:
            # An epoch may have begun at the log's end and nothing been written in it; another leader's is right.
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            if self.producers.end_offset != self.log_end_offset:
                # It was cut before, and then something failed.
                self._cut_producers(now_ms)
            return False
        if offset < self.segments.first_base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        first_offset = self._first_of_batch(offset)
        readable_from = min(offset, self.log_start_offset)
        if first_offset < readable_from:
            # A batch that holds both the log's start and the offset goes whole: nothing that may be read is left.
            self.truncate_fully_and_start_at(readable_from, now_ms)
            return True
        if self.store is not None:
            self.store.tell_cut(first_offset)
        self._vouch_no_further_than(self.segments.since(first_offset)[0].base_offset, first_offset)
        # Newest first: a crash in between then leaves a log that ends earlier, not one with a hole.
        self._cut_off(self.segments.drop_from(offset)[::-1])
        end_offset = self.segments.active.truncate_to(offset, now_ms)
        if not self.notes.gaps and not self.config.compact:
            # It may have been cut before, and something have failed then: a batch that held the offset is gone.
            end_offset = min(end_offset, self.segments.active.next_offset())
        self._ends_at(end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self._cut_producers(now_ms)
        return True

    def _cut_producers(self, now_ms: int) -> None:
        """The log was cut: its producers have sent what is left of it."""
        if len(self.producers) or self.producers.end_offset < self.log_end_offset:
            # Whoever sent a batch that stays may not have had its answer, and sends it again.
            known = self.producers.batches_below(self.log_end_offset)
            rebuild_producers(
                self.producers, self.segments, self.snapshots, self.log_start_offset, self.log_end_offset, now_ms
            )
            self.producers.remember(known)
        else:
            self.snapshots.drop_above(self.log_end_offset)
            self.producers.end_offset = self.log_end_offset

    def _first_of_batch(self, offset: int) -> int:
        """The base offset of the batch that holds `offset`; the offset itself where none does."""
        found = self.segments.position(offset)
        return offset if found is None else min(found[0].span_at(found[1]).base_offset, offset)

    @guarded
    def recall_batches(self, start_offset: int) -> None:
        """After the log was opened: has it know repetitions of the batches from `start_offset` on."""
        if len(self.producers) and start_offset < self.log_end_offset:
            recall_batches(self.producers, self.segments, start_offset)

    @guarded
    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Drops everything; the log is empty and begins at `offset`."""
        if self.store is not None:
            self.store.tell_start(offset)
        self._vouch_no_further_than(offset, offset)
        # First: what they tell must not be found beside segments that begin anew.
        self.snapshots.drop_above(-1)
        self._cut_off(list(self.segments)[::-1], offset, now_ms)
        self._ends_at(offset)
        self.log_start_offset = offset
        self.leader_epochs.clear()
        self.producers.reset(offset)

    def _cut_off(self, segments: list[Segment], begins_at: int | None = None, now_ms: int = 0) -> None:
        """Discards segments, and begins anew where that is said.

        Whatever fails takes the directory offline, a full disk too: half of the log is gone, and nothing may be added
        to the rest. The next start finds what is there, as after a crash.
        """
        try:
            self._discard(segments)
            if begins_at is not None:
                self.segments = Segments([self.new_segment(begins_at, now_ms)])
        except OSError as error:
            raise self.directory.fail(error) from error

    def _ends_at(self, offset: int) -> None:
        """The active segment was cut."""
        self.log_end_offset = offset
        self.truncations += 1
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)
        self.segments.forget()

    def _vouch_no_further_than(self, base_offset: int, end_offset: int) -> None:
        """The log is about to be cut at `end_offset`, in the segment that begins at `base_offset`, which counts as
        unflushed as a whole, for so do its indexes."""
        if self.recovery_point > base_offset:
            self.recovery_point = base_offset
            self.directory.recovery_points_stale = True
        self.directory.vouch_no_further_than(self, end_offset)

    @guarded
    def replace_segments(self, old: list[Segment], cleaned: CleanedSegment) -> None:
        """Puts a compacted segment in the place of sealed ones; `cleaned_segment` tells of crashes in between."""
        self.note(self.notes._replace(gaps=True))
        cleaned.rename_to_swap()
        self._discard(old)
        cleaned.rename_to_log()
        self.segments.replace(old, cleaned.segment(self.config))
        self.named_anew()
        self.directory.flushes.add(self)
        for segment in old[1:]:
            if segment.base_offset in self.snapshots.offsets:
                self.snapshots.remove(segment.base_offset)

    def _discard(self, segments: list[Segment]) -> None:
        """Gives the files of segments that left the log to a deletion after `file.delete.delay.ms`."""
        paths = [path for segment in segments for path in segment.rename_deleted()]
        if paths:
            deletion = PendingDeletion(self._disk, paths, self.config.file_delete_delay_ms)
            self.directory.deletions.append(deletion)

    # --- cutting at the start

    def advance_log_start_offset(self, offset: int) -> bool:
        """What lies below `offset` may no longer be read; segments wholly below it go with the next retention."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"{self.name} ends at {self.log_end_offset} and cannot begin at {offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.on_log_start_offset(offset)
        return True

    @guarded
    def remove_oldest(self, count: int, now_ms: int) -> None:
        """Takes the `count` oldest segments out; where that would leave none, an empty one follows them first."""
        if count == len(self.segments):
            self._follow_with_empty(now_ms)
        dropped = self.segments.drop_first(count)
        self.advance_log_start_offset(self.segments.first_base_offset)
        self._discard(dropped)
        self.forget_older_producers()

    def forget_older_producers(self) -> None:
        """Older snapshots go when the one with which the log begins is on the device: of producers that have written
        only before it, it is all that tells. May raise OSError.

        In the shared layout that is for the checkpoint to say, which removes them.
        """
        if len(self.snapshots.offsets) < 2:
            return  # the newest stays anyway
        base_offset = self.segments.first_base_offset
        if not len(self.producers) or (self.store is None and self.recovery_point >= base_offset):
            self.snapshots.drop_below(base_offset)

    def _follow_with_empty(self, now_ms: int) -> None:
        """A roll that does not seal, since the active segment goes at once: on a full disk it must be able to."""
        self._trust_no_further_than(self.segments.active)
        self._begin_segment(self.log_end_offset, now_ms)
        self.directory.flushes.add(self)
        try:
            self.write_snapshot(self.log_end_offset)
        except OSError as error:
            # A crash would then bring back what an older one knows; the next roll or stop writes a newer one.
            if error.errno not in PASSING:
                raise

    # --- flushing

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def flush_is_due(self, now_ms: int) -> bool:
        """Whether something has waited for `flush.ms`."""
        return 0 <= self._dirty_since_ms <= now_ms - self.config.flush_ms

    def flush_work(self) -> FlushWork | None:
        """What must be synced for the whole log to be on the device; None if it is already. Raises where a sync failed:
        what it should have written may be dropped, and the next one succeed all the same."""
        if self.directory.failure is not None:
            raise self.directory.offline()
        self.directory.flushes.discard(self)
        self._dirty_since_ms = -1
        return collect(self)

    def flush_done(self, work: FlushWork) -> None:
        """Takes note of work that ran; raises if it failed."""
        if work.error is not None:
            raise self.directory.fail(work.error) from work.error
        if work.refused is not None:
            raise self.directory.refuse(work.refused, self.name) from work.refused
        settle(self, work)

    def flush(self) -> None:
        """Synchronous: the log is on the device when this returns."""
        work = self.flush_work()
        if work is not None:
            work()
            self.flush_done(work)

    # --- leaving

    def named_anew(self) -> None:
        """The log, or a segment of it, got its name: the next flush makes sure that it is on the device."""
        self.names_given += 1

    def move(self, path: str) -> None:
        """Renames the log's directory; the log goes on under the new name."""
        self._disk.rename(self.path, path)
        self.named_anew()
        self.path = path
        self.snapshots.path = path
        for segment in self.segments:
            segment.moved(path)

    @guarded
    def close_work(self) -> FlushWork:
        """Seals the log, so that the next opening need not scan; what must be synced for that to be true."""
        return collect_for_stop(self)

    def close(self) -> None:
        """A clean stop of this log alone."""
        work = self.close_work()
        work()
        self.flush_done(work)
        self.abandon()

    def abandon(self) -> None:
        """Gives descriptors and mappings back without touching the disk."""
        self.directory.flushes.discard(self)
        for segment in self.segments:
            segment.park_all()
