"""Opening a log: from the files in a partition's directory to a `Log`.

After a clean stop nothing is scanned: sizes come from the directory listing, the log end from the last index entry and
the few headers behind it. After a crash every segment from the recovery point on is read through, batch by batch:

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
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.log.checkpoints import (
    PARTITION_METADATA,
    MalformedCheckpoint,
    TopicPartition,
    format_partition_metadata,
    parse_partition_metadata,
)
from tidelog.log.compaction_output import CLEANED, SWAP
from tidelog.log.config import LogConfig
from tidelog.log.disk import Disk, read_file
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.producer_recovery import load_newest, replay_segments
from tidelog.log.rules import roll_jitter_ms
from tidelog.log.segment import DELETED, INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, Segment
from tidelog.log.segments import Segments
from tidelog.log.snapshots import Snapshots
from tidelog.wire.batch import NO_LEADER_EPOCH, BatchHeader, crc_matches

_SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


class Claim(NamedTuple):
    """What the checkpoints of the directory say about a log."""

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int | None = None


def create_log(
    directory: LogDir,
    key: TopicPartition,
    config: LogConfig,
    now_ms: int,
    topic_id: bytes | None = None,
    suffix: str = "",
) -> Log:
    """A new, empty log. Its files are on the device after its first flush."""
    topic, partition = key
    path = f"{directory.path}/{topic}-{partition}{suffix}"
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


def open_log(directory: LogDir, path: str, key: TopicPartition, config: LogConfig, claim: Claim, now_ms: int) -> Log:
    """The log in the directory `path`, recovered where the claim is not clean. May raise OSError."""
    disk = directory.disk
    log = Log(directory, path, key[0], key[1], config)
    log.cleaned_offset = claim.cleaned_offset
    sizes = _settle(disk, path)
    if PARTITION_METADATA in sizes:
        log.topic_id = parse_partition_metadata(read_file(disk, f"{path}/{PARTITION_METADATA}"))
    if LEADER_EPOCH_FILE in sizes:
        log.leader_epochs = _read_epochs(disk, f"{path}/{LEADER_EPOCH_FILE}")
    segments, suspects = _find_segments(disk, path, sizes, config, now_ms)
    recovered = _recover(log, segments, suspects, claim)
    log_end_offset = segments[-1].next_offset() if segments else 0
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
    if claim.recovery_point > min(log.recovery_point, log.segments.active.base_offset):
        # The checkpoint claims what was lost, or a segment that will grow; it must not vouch for what is written there.
        directory.recovery_points_stale = True
    log.leader_epochs.truncate_from_end(log_end_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    stems = [name[:20] for name in sizes if name.endswith(SNAPSHOT)]
    log.snapshots = Snapshots(disk, path, [int(stem) for stem in stems if stem.isdigit()])
    _restore_producers(log, claim, [segment for segment in recovered if segment in segments], now_ms)
    return log


def _restore_producers(log: Log, claim: Claim, recovered: list[Segment], now_ms: int) -> None:
    producers, snapshots, end_offset = log.producers, log.snapshots, log.log_end_offset
    snapshots.drop_above(end_offset)
    if claim.clean and not snapshots.offsets:
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
    replay_segments(producers, log.segments, start_offset, end_offset, now_ms, recovered)
    producers.on_log_start_offset(log.log_start_offset)
    if recovered and len(producers):
        # Synced, since it may take the place of one that was.
        snapshots.write(end_offset, producers.snapshot(), sync=True)
    snapshots.prune({segment.base_offset for segment in log.segments})


def _settle(disk: Disk, path: str) -> dict[str, int]:
    """Clears leftovers of interrupted work; returns the sizes of the files that remain, by name."""
    sizes = {entry.name: entry.size_bytes for entry in disk.list(path) if not entry.is_dir}
    cleaned = [int(name[:20]) for name in sizes if name.endswith(CLEANED)]
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
    return sizes


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


def _find_segments(
    disk: Disk, path: str, sizes: dict[str, int], config: LogConfig, now_ms: int
) -> tuple[list[Segment], set[int]]:
    """The segments in order, and the base offsets of those whose index files cannot be right."""
    segments = []
    suspects = set()
    for name in sorted(sizes):
        stem, suffix = name[:20], name[20:]
        if suffix == LOG and stem.isdigit():
            base_offset = int(stem)
            index_bytes = sizes.get(stem + INDEX, -1)
            time_bytes = sizes.get(stem + TIME_INDEX, -1)
            if index_bytes % 8 or time_bytes % 12:
                suspects.add(base_offset)
            segment = Segment(disk, f"{path}/{stem}", base_offset, config, sizes[name], index_bytes, time_bytes)
            segment.created_ms = now_ms
            segments.append(segment)
        elif suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem.isdigit() and stem + LOG not in sizes:
            disk.remove(f"{path}/{name}")
    return segments, suspects


def _recover(log: Log, segments: list[Segment], suspects: set[int], claim: Claim) -> list[Segment]:
    """Recovers what must be, drops what lies behind damage; returns the segments that were read through."""
    first_unflushed = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= claim.recovery_point:
            first_unflushed = at
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if claim.clean or at < first_unflushed:
            if segment.base_offset in suspects:
                segment.rebuild_indexes()
            continue
        bound = None if last else segments[at + 1].base_offset
        dense = not log.config.compact and segment.base_offset >= (log.cleaned_offset or 0)
        if recover_segment(segment, log.leader_epochs, bound, dense) and not last:
            for later in segments[at + 1 :]:
                for deleted in later.rename_deleted():
                    log.directory.disk.remove(deleted)
            del segments[at + 1 :]
            break
        if not last:
            segment.seal()
    return [] if claim.clean else segments[first_unflushed:]


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    #: it does not begin where the one before ended
    gap: bool
    new_epoch: bool


def recover_segment(segment: Segment, epochs: LeaderEpochs, bound: int | None, dense: bool) -> bool:
    """Keeps the longest run of good batches and writes the indexes anew; True if anything is missing behind it.

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
    cut = segment.cut_at(end, file_bytes)
    return cut or (dense and bound is not None and end_offset != bound)
