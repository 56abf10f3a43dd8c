"""Opening a log: from the files in a partition's directory to a `Log`.

After a clean shutdown nothing is scanned: sizes come from the directory listing, and the log end from the last index
entry and the few headers after it. If something differs from the sizes recorded at shutdown (`clean_stop.py`), or the
last batch is incomplete, the segment was damaged in the meantime: it is scanned, and the segments after it are kept,
because they were flushed. After a crash every segment from the recovery point on is scanned, batch by batch:

    what is found                                             what is done
    a CRC that does not match, a header that cannot be one    cut there, drop all later segments
    the file ends inside a batch (torn write)                 cut there
    offsets or leader epochs that go back                     cut before the batch that broke the rise
    a gap before the very last batch of a log that was        cut that batch: its offset stands outside the CRC, and a
    never compacted                                           flipped bit there shows only this way
    a segment of such a log that ends before the next begins  drop all later segments: they have lost their footing
    an index that is missing, torn or full of zeros           written anew from the batches

Leftovers of interrupted work are cleared first: `.deleted` and `.cleaned` files are removed, `.swap` files (a finished
compaction that was about to replace its originals) take their place.

Every loss is reported in one line (`losses.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.log.append_rules import roll_jitter_ms
from tidelog.log.checkpoints import (
    PARTITION_METADATA,
    PARTITION_NOTES,
    MalformedCheckpoint,
    PartitionNotes,
    format_partition_metadata,
    parse_partition_metadata,
)
from tidelog.log.cleaned_segment import CLEANED, SWAP
from tidelog.log.config import LogConfig
from tidelog.log.directories.clean_stop import Sizes, Stopped, sizes_of
from tidelog.log.directories.directory_names import name_of
from tidelog.log.directories.losses import Loss, lost_at_the_end
from tidelog.log.disk import NO_ROOM, OF_ONE_FILE, PASSING, Disk, read_file
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.producer_recovery import load_newest, rebuild_txn_index, replay_segments
from tidelog.log.segment import DELETED, INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, Segment, offset_name
from tidelog.log.segments import Segments
from tidelog.log.snapshots import Snapshots
from tidelog.log.txn_index import CorruptIndex
from tidelog.wire.batch import NO_LEADER_EPOCH, BatchHeader, crc_matches
from tidelog.wire.errors import CodedError
from tidelog.wire.partitions import TopicPartition

_SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
MAX_OFFSET: Final = (1 << 63) - 1


class Claim(NamedTuple):
    """What the checkpoints of the directory say about a log."""

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int | None = None
    #: it is not known whether the log was ever compacted
    gaps: bool = False
    #: what the clean stop wrote down of the log's segments; None where nothing is known of it
    stopped: Stopped | None = None
    #: offsets below it were replicated, and seen by consumers
    high_watermark: int = 0
    #: where the log began when that was last written down; None where it is not known to have been
    began_at: int | None = None


def create_log(
    directory: LogDir,
    key: TopicPartition,
    config: LogConfig,
    now_ms: int,
    topic_id: bytes | None = None,
    name: str | None = None,
) -> Log:
    """A new, empty log in a directory of that name. Its files are on the device after its first flush."""
    topic, partition = key
    path = f"{directory.path}/{name or name_of(key)}"
    log = Log(directory, path, topic, partition, config)
    was_there = directory.disk.exists(path)
    try:
        directory.disk.mkdir(path)
        if topic_id is not None:
            log.topic_id = topic_id
            data = format_partition_metadata(topic_id)
            directory.disk.open(f"{path}/{PARTITION_METADATA}", create=True).write(data, 0)
        log.segments = Segments([Segment.create(directory.disk, path, 0, config, now_ms)])
    except OSError as error:
        if not was_there:
            _forget_half_made(directory.disk, path)
        raise directory.refuse(error, f"the new partition {log.name}") from error
    log.named_anew()
    return log


def _forget_half_made(disk: Disk, path: str) -> None:
    """Clears what a creation left that did not come to its end, as far as the disk lets it."""
    try:
        for entry in disk.list(path):
            disk.remove(f"{path}/{entry.name}")
        disk.remove_dir(path)
    except OSError:
        return


def open_if_possible(
    directory: LogDir, path: str, key: TopicPartition, config: LogConfig, claim: Claim, now_ms: int
) -> Log | None:
    """The log in the directory `path`; None where it cannot be opened, which is then that partition's trouble alone.

    What the claim vouches for is looked at once more where it leads nowhere. May raise OSError.
    """
    # After a crash from the first batch on; after a clean stop as if no segment were as it was left.
    closer = claim._replace(stopped={}) if claim.clean else claim._replace(recovery_point=0)
    why: Exception | None = None
    for each in (claim, closer):
        try:
            return open_log(directory, path, key, config, each, now_ms)
        except (CodedError, CorruptIndex, ValueError) as error:
            why = error
        except OSError as error:
            if error.errno not in OF_ONE_FILE | NO_ROOM:
                raise
            # Where it cannot be mended for want of room, the next start tries again; the others need none.
            why = error
    directory.unopened[key] = str(why)
    directory.tell(f"partition {key[1]} of topic {key[0]} is offline, its files in {path} cannot be opened: {why}")
    return None


def open_log(directory: LogDir, path: str, key: TopicPartition, config: LogConfig, claim: Claim, now_ms: int) -> Log:
    """The log in the directory `path`, recovered where the claim is not clean. May raise OSError."""
    disk = directory.disk
    log = Log(directory, path, key[0], key[1], config)
    log.cleaned_offset = claim.cleaned_offset
    sizes, retired = _settle(disk, path)
    log.topic_id = read_topic_id(disk, path)
    log.notes = read_notes(disk, path)
    if claim.gaps:
        log.note(log.notes._replace(gaps=True), sync=False)
    if LEADER_EPOCH_FILE in sizes:
        log.leader_epochs = _read_epochs(disk, f"{path}/{LEADER_EPOCH_FILE}")
    stems = [name[:20] for name in sizes if name.endswith(SNAPSHOT)]
    log.snapshots = Snapshots(disk, path, [int(stem) for stem in stems if stem.isdigit()])
    found = _find_segments(disk, path, sizes, config, now_ms)
    segments = found.segments
    recovery = _recover_stopped(log, found, claim) if claim.clean else _recover(log, found, claim)
    if not claim.clean:
        recovery.losses[:0] = _lost_at_the_start(log, found, claim, retired)
    log_end_offset = recovery.end_offset
    if log_end_offset is None:
        log_end_offset = segments[-1].next_offset() if segments else 0
    checkpointed = max(claim.recovery_point, claim.log_start_offset, claim.high_watermark)
    vouched = max(checkpointed, log.snapshots.latest(MAX_OFFSET) or 0)
    last_file = segments[-1].log_path if segments else path
    for loss in lost_at_the_end(recovery.losses, log_end_offset, vouched, last_file):
        directory.tell(loss.tell(log))
    if log_end_offset < claim.log_start_offset:
        # The segments end before the log begins: somebody removed files. What is left belongs to no readable offset.
        for segment in segments:
            for deleted in segment.rename_deleted():
                disk.remove(deleted)
        log.leader_epochs.clear()
        segments.clear()
    if not segments:
        # Offsets below the recovery point were given away once; they are not given away again.
        log_end_offset = max(claim.log_start_offset, claim.recovery_point)
        segments.append(Segment.create(disk, path, log_end_offset, config, now_ms))
    log.segments = Segments(segments)
    log.segments.active.roll_jitter_ms = roll_jitter_ms(config, log.name, log.segments.active.base_offset)
    log.log_end_offset = log_end_offset
    log.log_start_offset = max(claim.log_start_offset, segments[0].base_offset)
    log.recovery_point = log_end_offset if claim.clean else min(claim.recovery_point, log_end_offset)
    if claim.clean:
        # What was mended is not on the device yet.
        log.recovery_point = min([log.recovery_point, *recovery.mended])
    if claim.recovery_point > min(log.recovery_point, log.segments.active.base_offset):
        # The checkpoint claims what was lost, or a segment that will grow; it must not vouch for what is written there.
        directory.recovery_points_stale = True
    log.leader_epochs.truncate_from_end(log_end_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    read = [segment for segment in recovery.read if segment in segments]
    _restore_producers(log, claim, read, recovery.after_holes, now_ms)
    for segment in recovery.unindexed:
        rebuild_txn_index(log.segments, log.snapshots, segment, now_ms)
    return log


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """Whose partition is in this directory, as far as it says."""
    try:
        return parse_partition_metadata(read_file(disk, f"{path}/{PARTITION_METADATA}"))
    except FileNotFoundError:
        return None


def read_notes(disk: Disk, path: str) -> PartitionNotes:
    """What must be known of the partition in this directory besides what its files show."""
    try:
        return PartitionNotes.parse(read_file(disk, f"{path}/{PARTITION_NOTES}"))
    except FileNotFoundError:
        return PartitionNotes()


def _restore_producers(
    log: Log, claim: Claim, recovered: list[Segment], after_holes: Iterable[int], now_ms: int
) -> None:
    producers, snapshots, end_offset = log.producers, log.snapshots, log.log_end_offset
    snapshots.drop_above(end_offset)
    if claim.clean and not recovered and not snapshots.offsets:
        # A log that was stopped cleanly and has no snapshot has never seen a producer.
        producers.reset(end_offset)
        return
    # A segment that was recovered is replayed as a whole, to write its transaction index anew.
    at_most = recovered[0].base_offset if recovered else end_offset
    start_offset = load_newest(producers, snapshots, at_most, now_ms)
    if start_offset is None:
        start_offset = log.segments.first_base_offset
        producers.reset(start_offset)
    for segment in recovered:
        segment.txn_index.reset()
    for offset in after_holes:
        if start_offset < offset < end_offset and offset in snapshots.offsets:
            # What ended in the hole is not found by reading on: what was known behind it is.
            replay_segments(producers, log.segments, start_offset, offset, now_ms, recovered)
            start_offset = load_newest(producers, snapshots, offset, now_ms) or 0
    replay_segments(producers, log.segments, start_offset, end_offset, now_ms, recovered)
    producers.on_log_start_offset(log.log_start_offset)
    if recovered and len(producers):
        _write_snapshot(log)
    snapshots.prune({segment.base_offset for segment in log.segments})


def _write_snapshot(log: Log) -> None:
    """Synced, since it may take the place of one that was. Where there is no room, the next start reads again."""
    try:
        log.snapshots.write(log.log_end_offset, log.producers.snapshot(), sync=True)
    except OSError as error:
        if error.errno not in PASSING:
            raise
        log.directory.refuse(error, log.name)


def _settle(disk: Disk, path: str) -> tuple[dict[str, int], set[int]]:
    """Clears leftovers of interrupted work; returns the sizes of the files that remain, by name, and the base offsets
    of segments that were on their way out."""
    sizes = {entry.name: entry.size_bytes for entry in disk.list(path) if not entry.is_dir}
    cleaned = [int(name[:20]) for name in sizes if name.endswith(CLEANED)]
    retired = {int(name[:20]) for name in sizes if name.endswith(LOG + DELETED)}
    swaps = []
    for name in list(sizes):
        # A `.swap` file at or past a `.cleaned` one is part of a replacement that was not complete.
        stale_swap = name.endswith(SWAP) and bool(cleaned) and int(name[:20]) >= min(cleaned)
        if name.endswith((DELETED, CLEANED, ".tmp")) or stale_swap:
            disk.remove(f"{path}/{name}")
            del sizes[name]
        elif name.endswith(SWAP):
            swaps.append(name)
    if swaps:
        _complete_swap(disk, path, sizes, swaps)
    return sizes, retired


def _complete_swap(disk: Disk, path: str, sizes: dict[str, int], swaps: list[str]) -> None:
    """Removes the segments that `.swap` segments replace, then gives these their final names."""
    first = min(int(name[:20]) for name in swaps)
    end = first
    for name in swaps:
        if name.endswith(LOG + SWAP):
            base_offset = int(name[:20])
            segment = Segment(disk, f"{path}/{name[:20]}", base_offset, LogConfig(), sizes[name], 0, 0)
            segment.use(disk.open(f"{path}/{name}"))
            end = max(end, segment.next_offset())
            segment.park()
    for name in list(sizes):
        if not name[:20].isdigit() or not first <= int(name[:20]) < end:
            continue
        # The snapshot at the first one's start speaks of what lies before it, and stays.
        if name.endswith(_SEGMENT_SUFFIXES) or (name.endswith(SNAPSHOT) and int(name[:20]) > first):
            disk.remove(f"{path}/{name}")
            del sizes[name]
    for name in swaps:
        final = name.removesuffix(SWAP)
        disk.rename(f"{path}/{name}", f"{path}/{final}")
        sizes[final] = sizes.pop(name)


def _read_epochs(disk: Disk, path: str) -> LeaderEpochs:
    """A torn file counts as empty: what recovery reads again brings its epochs with it."""
    try:
        return LeaderEpochs.parse(read_file(disk, path), path)
    except MalformedCheckpoint:
        return LeaderEpochs()


class _Found(NamedTuple):
    #: in order
    segments: list[Segment]
    #: the base offsets of those whose index files cannot be right
    suspects: set[int]
    #: base offsets of indexes that lay there without a log file
    orphans: set[int]


def _find_segments(disk: Disk, path: str, sizes: dict[str, int], config: LogConfig, now_ms: int) -> _Found:
    segments = []
    suspects = set()
    orphans = set()
    for name in sorted(sizes):
        stem, suffix = name[:20], name[20:]
        if suffix == LOG and stem.isdigit():
            base_offset = int(stem)
            index_bytes = sizes.get(stem + INDEX, -1)
            time_bytes = sizes.get(stem + TIME_INDEX, -1)
            if index_bytes % 8 or time_bytes % 12:
                suspects.add(base_offset)
            txn_bytes = sizes.get(stem + TXN_INDEX, 0)
            segment = Segment(
                disk, f"{path}/{stem}", base_offset, config, sizes[name], index_bytes, time_bytes, txn_bytes
            )
            segment.created_ms = now_ms
            segments.append(segment)
        elif suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem.isdigit() and stem + LOG not in sizes:
            disk.remove(f"{path}/{name}")
            orphans.add(int(stem))
    return _Found(segments, suspects, orphans)


class _Recovery(NamedTuple):
    """What was done to the segments of a log."""

    #: those that were read through
    read: list[Segment]
    losses: list[Loss]
    #: base offsets of segments that stay although something before them is missing
    after_holes: list[int]
    #: segments whose transaction index must be written anew
    unindexed: list[Segment]
    #: base offsets of segments some file of which was written anew
    mended: list[int]
    #: where the log ends; None where that is still to be found out
    end_offset: int | None = None


def _is_dense(log: Log) -> bool:
    """Whether its offsets follow one another without a gap: compaction was never here."""
    return not log.notes.gaps and not log.config.compact


def _recover(log: Log, found: _Found, claim: Claim) -> _Recovery:
    """After a crash: recovers what must be, and drops what lies behind damage."""
    segments = found.segments
    first_unflushed = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= claim.recovery_point:
            first_unflushed = at
    losses = _holes(log, segments[: first_unflushed + 1], {*found.orphans, *log.snapshots.offsets})
    flushed = _Recovery([], losses, [], [], [])
    for segment, after in pairwise(segments[: first_unflushed + 1]):
        if segment.base_offset in found.suspects:
            segment.rebuild_indexes()
        if not _ends_at(log, segment, after.base_offset, losses):
            _read_through(log, segment, after.base_offset, claim, flushed)
    losses.sort(key=lambda loss: loss.first_offset)
    after_holes = [loss.end_offset or 0 for loss in losses]
    for at, segment in enumerate(segments[first_unflushed:], first_unflushed):
        last = at == len(segments) - 1
        bound = None if last else segments[at + 1].base_offset
        dense = _is_dense(log)
        end = recover_segment(segment, log.leader_epochs, bound, dense)
        loss = end.loss(segment, bound, dense)
        if loss is not None:
            losses.append(loss)
        if end.is_short(bound, dense) and not last:
            losses[-1:] = [_drop(log, segments, at + 1, end, losses[-1:])]
            break
        if not last:
            segment.seal()
    behind = segments[-1].base_offset if segments else -1
    for base_offset in sorted(orphan for orphan in found.orphans if orphan > behind):
        losses.append(Loss(base_offset, None, f"{log.path}/{offset_name(base_offset)}{LOG}", "is missing"))
    return _Recovery(flushed.read + segments[first_unflushed:], losses, after_holes, [], [])


def _lost_at_the_start(log: Log, found: _Found, claim: Claim, retired: set[int]) -> list[Loss]:
    """What is missing before the first segment, where it was not removed by us: that is written down beforehand."""
    if not found.segments:
        return []
    first = found.segments[0].base_offset
    begins = claim.log_start_offset
    orphans = sorted(orphan for orphan in found.orphans if orphan < first and orphan not in retired)
    if claim.began_at is not None and not any(base < first for base in retired):
        orphans = orphans or [begins]
    if not orphans or begins >= first:
        return []
    lost = f"{log.path}/{offset_name(orphans[0])}{LOG}"
    return [Loss(max(begins, orphans[0]), first, lost, "is missing")]


def _ends_at(log: Log, segment: Segment, bound: int, losses: list[Loss]) -> bool:
    """Whether a segment that was flushed is whole up to the next one, or what it lacks is told already."""
    end = segment.whole_end()
    if end is None:
        return False
    return not _is_dense(log) or end >= bound or any(loss.first_offset == end for loss in losses)


def _drop(log: Log, segments: list[Segment], first: int, end: _SegmentEnd, known: list[Loss]) -> Loss:
    """Removes the segments that have lost their footing; the loss that this comes to."""
    dropped = segments[first:]
    end_offset = max(dropped[-1].base_offset, dropped[-1].next_offset())
    loss = known[0] if known else Loss(end.offset, None, segments[first - 1].log_path, "ends before the next begins")
    for later in dropped:
        for deleted in later.rename_deleted():
            log.directory.disk.remove(deleted)
    del segments[first:]
    also = f"{loss.what}; {len(dropped)} later segments, from {dropped[0].log_path} on, are dropped as well"
    return loss._replace(what=also).reaching(end_offset)


def _holes(log: Log, segments: list[Segment], hints: set[int]) -> list[Loss]:
    """What is missing between segments that are not read: told by one that is empty, or by what a lost one left."""
    losses = []
    for segment, after in pairwise(segments):
        hinted = segment.size == 0 or any(segment.base_offset < hint < after.base_offset for hint in hints)
        if not hinted or not _is_dense(log):
            continue
        end_offset = segment.next_offset()
        if end_offset < after.base_offset:
            lost = segment.log_path if segment.size == 0 else f"{log.path}/{offset_name(end_offset)}{LOG}"
            what = "is empty" if segment.size == 0 else "is missing"
            losses.append(Loss(end_offset, after.base_offset, lost, what))
    return losses


def _recover_stopped(log: Log, found: _Found, claim: Claim) -> _Recovery:
    """After a clean stop: looks at what is not as the stop left it, and keeps all that can be read."""
    segments, stopped = found.segments, claim.stopped
    recovery = _Recovery([], _missing(log, segments, stopped or {}, claim), [], [], [])
    end_offset = None
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        before, now = (stopped or {}).get(segment.base_offset), sizes_of(segment)
        if before is not None and _is_rewritten(log, segment, before):
            before = now
        sound = stopped is None or (before is not None and before.log == now.log)
        if sound and last:
            end_offset = segment.whole_end()
            sound = end_offset is not None
        indexed = before is None or before == now
        if sound and indexed and segment.base_offset not in found.suspects:
            continue
        log.directory.begin_mending()
        recovery.mended.append(segment.base_offset)
        if sound:
            segment.rebuild_indexes()
            recovery.unindexed.append(segment)
            continue
        end = _read_through(log, segment, None if last else segments[at + 1].base_offset, claim, recovery)
        end_offset = end.offset if last else None
    recovery.losses.sort(key=lambda loss: loss.first_offset)
    recovery.after_holes.extend(loss.end_offset or 0 for loss in recovery.losses)
    return recovery._replace(end_offset=end_offset)


def _read_through(log: Log, segment: Segment, bound: int | None, claim: Claim, recovery: _Recovery) -> _SegmentEnd:
    """Recovers one segment of those that were on the device; what lies behind it stays."""
    dense = _is_dense(log)
    end = recover_segment(segment, log.leader_epochs.below(segment.base_offset), bound, dense)
    loss = end.loss(segment, bound, dense)
    if loss is not None:
        # What lay behind all that was ever given away was none of ours.
        junk = bound is None and 0 < claim.recovery_point <= end.offset
        recovery.losses.append(loss.reaching(end.offset) if junk else loss)
    if bound is not None:
        segment.seal()
    recovery.read.append(segment)
    return end


def _is_rewritten(log: Log, segment: Segment, before: Sizes) -> bool:
    """Whether somebody else has compacted the segment since the stop: it is another one, and whole."""
    return segment.size != before.log and not _is_dense(log) and segment.whole_end() is not None


def _missing(log: Log, segments: list[Segment], stopped: Stopped, claim: Claim) -> list[Loss]:
    """Segments that were there when the log was stopped and are not there any more."""
    here = {segment.base_offset: segment for segment in segments}
    losses = []
    merged = False
    for base, end in pairwise([*sorted(stopped), claim.recovery_point]):
        if base in here:
            # What is compacted is merged with its neighbours.
            merged = _is_rewritten(log, here[base], stopped[base])
        elif stopped[base].log > 0 and not merged:
            losses.append(Loss(base, end, f"{log.path}/{offset_name(base)}{LOG}", "is missing"))
    return losses


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    #: it does not begin where the one before ended
    gap: bool
    new_epoch: bool


class _SegmentEnd(NamedTuple):
    """Where the good batches of a segment end."""

    offset: int
    position: int
    #: what lay behind them and was cut off
    cut_bytes: int
    #: up to where headers behind the damage can still be read; `offset` where none can
    seen_offset: int

    def is_short(self, bound: int | None, dense: bool) -> bool:
        """Whether anything is missing before the next segment begins."""
        return self.cut_bytes > 0 or (dense and bound is not None and self.offset != bound)

    def loss(self, segment: Segment, bound: int | None, dense: bool) -> Loss | None:
        if not self.is_short(bound, dense) or (self.cut_bytes and segment.preallocated):
            return None
        what = f"is damaged at byte {self.position}, and {self.cut_bytes} bytes are truncated"
        if not self.cut_bytes:
            what = f"ends at byte {self.position}" if self.position else "is empty"
        end_offset = bound if bound is not None else self.seen_offset if self.seen_offset > self.offset else None
        return Loss(self.offset, end_offset, segment.log_path, what)


def recover_segment(segment: Segment, epochs: LeaderEpochs, bound: int | None, dense: bool) -> _SegmentEnd:
    """Keeps the longest run of good batches and writes the indexes anew.

    `bound` is the base offset of the next segment, None for the last one. `dense` logs were never compacted.
    """
    segment.reset_indexes()
    epochs.truncate_from_end(segment.base_offset)
    file_bytes = segment.size
    expected = segment.base_offset
    epoch = epochs.latest
    #: the last batch that looked good; it counts only when what follows it does not contradict
    pending: _Batch | None = None
    end = 0
    end_offset = segment.base_offset

    def admit(batch: _Batch) -> None:
        nonlocal end, end_offset
        header = batch.header
        segment.readmit(batch.position, header)
        if header.leader_epoch >= 0:
            epochs.assign(max(header.leader_epoch, epochs.latest), header.base_offset)
        end = batch.position + header.size_bytes
        end_offset = header.next_offset

    for position, header, data in segment.batches(0):
        if not crc_matches(data, 0, header) or header.leader_epoch < NO_LEADER_EPOCH:
            break
        if header.base_offset < expected or 0 <= header.leader_epoch < epoch:
            if pending is not None and (pending.gap or pending.new_epoch):
                # Either of the two may carry the flipped bit; the earlier one is the one that rose without need.
                pending = None
            break
        if pending is not None:
            admit(pending)
        pending = _Batch(position, header, header.base_offset != expected, header.leader_epoch != epoch)
        expected = header.last_offset + 1
        epoch = max(epoch, header.leader_epoch)
    if pending is not None:
        past_bound = bound is not None and pending.header.last_offset >= bound
        lone_gap = bound is None and dense and pending.gap
        if not past_bound and not lone_gap:
            admit(pending)
    seen_offset = end_offset
    for _, header in segment.headers(end):
        if header.base_offset < seen_offset or (dense and header.base_offset != seen_offset):
            break
        seen_offset = header.next_offset
    segment.cut_at(end, file_bytes)
    return _SegmentEnd(end_offset, end, file_bytes - end, seen_offset)
