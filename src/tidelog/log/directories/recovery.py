"""Opening a log: from the files in a partition's directory to a `Log`.

How segments are found and mended is the business of whoever stores them (`file_recovery.py`). What a log knows besides
its batches (epochs, producers, transactions) comes from its own files, and from the batches that these do not cover.

Every loss is reported in one line (`losses.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Final

from tidelog.log.append_rules import roll_jitter_ms
from tidelog.log.checkpoints import (
    PARTITION_METADATA,
    PARTITION_NOTES,
    MalformedCheckpoint,
    PartitionNotes,
    format_partition_metadata,
    parse_partition_metadata,
)
from tidelog.log.config import LogConfig
from tidelog.log.directories.claim import Claim, Recovered
from tidelog.log.directories.directory_names import name_of
from tidelog.log.directories.file_recovery import recover_files, settle
from tidelog.log.directories.losses import lost_at_the_end, note_damage
from tidelog.log.disk import NO_ROOM, OF_ONE_FILE, PASSING, Disk, read_file
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.producer_recovery import load_newest, rebuild_txn_index, replay_segments
from tidelog.log.segment import LOG, SNAPSHOT, Segment
from tidelog.log.segments import Segments
from tidelog.log.shared import QUEUE
from tidelog.log.snapshots import HAD_PRODUCERS, Snapshots
from tidelog.log.txn_index import CorruptIndex
from tidelog.wire.errors import CodedError
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.shared.store import QueueStore

MAX_OFFSET: Final = (1 << 63) - 1


def create_log(
    directory: LogDir,
    key: TopicPartition,
    config: LogConfig,
    now_ms: int,
    topic_id: bytes | None = None,
    name: str | None = None,
    is_back: bool = False,
) -> Log:
    """A new, empty log in a directory of that name. Its files are on the device after its first flush.

    `is_back`: there was another one of the partition, of which a commit log may tell.
    """
    topic, partition = key
    path = f"{directory.path}/{name or name_of(key)}"
    log = Log(directory, path, topic, partition, config)
    is_new = False
    try:
        log.store = directory.store_for(key, config, topic_id)
        log.snapshots.leaves_word = log.store is not None
        store = log.store
        if is_back and directory.commit is not None and topic_id is not None:
            # One that has files of its own now may have been there.
            store = store or directory.queue_store(topic_id, key[1])
        if store is not None:
            store.tell_start(0)
            if is_back:
                # Before the new one has a name: with the start lost, a start would give it what the other one had.
                store.commit.sync_work()()
        is_new = directory.disk.mkdir(path)
        if topic_id is not None:
            log.topic_id = topic_id
            data = format_partition_metadata(topic_id)
            directory.disk.open(f"{path}/{PARTITION_METADATA}", create=True).write(data, 0)
        log.segments = Segments([log.new_segment(0, now_ms, is_new)])
    except OSError as error:
        if is_new:
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
    closer = closer._replace(distrusted=True)
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
        if directory.commit is not None:
            directory.commit.forget_queues(path)
    directory.unopened[key] = str(why)
    remedy = ". Make room, and start the broker again" if isinstance(why, OSError) and why.errno in NO_ROOM else ""
    directory.tell(
        f"partition {key[1]} of topic {key[0]} is offline, its files in {path} cannot be opened: {why}{remedy}"
    )
    return None


def open_log(directory: LogDir, path: str, key: TopicPartition, config: LogConfig, claim: Claim, now_ms: int) -> Log:
    """The log in the directory `path`, recovered where the claim is not clean. May raise OSError."""
    disk = directory.disk
    log = Log(directory, path, key[0], key[1], config)
    log.cleaned_offset = claim.cleaned_offset
    sizes, retired = settle(disk, path)
    log.topic_id = read_topic_id(disk, path)
    log.notes = read_notes(disk, path)
    if claim.gaps:
        log.note(log.notes._replace(gaps=True), sync=False)
    if LEADER_EPOCH_FILE in sizes:
        log.leader_epochs = _read_epochs(disk, f"{path}/{LEADER_EPOCH_FILE}")
    stems = [name[:20] for name in sizes if name.endswith(SNAPSHOT)]
    log.snapshots = Snapshots(disk, path, [int(stem) for stem in stems if stem.isdigit()], HAD_PRODUCERS in sizes)
    recovery = _recover_segments(log, sizes, retired, claim, now_ms)
    segments = recovery.segments
    log_end_offset = recovery.end_offset
    if log_end_offset is None:
        log_end_offset = segments[-1].next_offset() if segments else 0
    checkpointed = max(claim.recovery_point, claim.log_start_offset, claim.high_watermark)
    vouched = max(checkpointed, log.snapshots.latest(MAX_OFFSET) or 0)
    last_file = segments[-1].log_path if segments else path
    for loss in lost_at_the_end(recovery.losses, log_end_offset, vouched, last_file):
        directory.tell(loss.tell(log))
        if loss.is_damage:
            note_damage(log)
    if log.store is not None and log.store.commit.may_be_damaged(log.store.owner):
        note_damage(log)
    if log_end_offset < claim.log_start_offset:
        # The segments end before the log begins: somebody removed files. What is left belongs to no readable offset.
        for segment in segments:
            for deleted in segment.rename_deleted():
                disk.remove(deleted)
        log.leader_epochs.clear()
        segments.clear()
    if not segments:
        # Somebody removed the files: offsets below the recovery point were given away once, and are not given away
        # again. Unless it was us: the log was to be begun anew, perhaps before them, and the power went meanwhile.
        log_end_offset = max(claim.log_start_offset, 0 if retired else claim.recovery_point)
        if log.store is not None:
            log.store.tell_start(log_end_offset)
        segments.append(log.new_segment(log_end_offset, now_ms))
    log.segments = Segments(segments)
    log.segments.active.roll_jitter_ms = roll_jitter_ms(config, log.name, log.segments.active.base_offset)
    log.log_end_offset = log_end_offset
    log.log_start_offset = max(claim.log_start_offset, segments[0].base_offset)
    # After a crash nothing vouches for the segment that grew: it may have been cut and have gone on since.
    vouched_to = log.segments.active.base_offset
    log.recovery_point = log_end_offset if claim.clean else min(claim.recovery_point, vouched_to)
    if claim.clean:
        # What was mended is not on the device yet.
        log.recovery_point = min([log.recovery_point, *recovery.mended])
    if claim.recovery_point > min(log.recovery_point, log.segments.active.base_offset):
        # The checkpoint claims what was lost, or a segment that will grow; it must not vouch for what is written there.
        directory.recovery_points_stale = True
    log.leader_epochs.truncate_from_end(log_end_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    read = [segment for segment in recovery.read if segment in segments]
    if recovery.stable_offset is None:
        _restore_producers(log, claim, read, recovery.after_holes, now_ms)
    else:
        from tidelog.log.directories.queue_recovery import end_mending, recall_last_batches

        _restore_producers_since(log, recovery.stable_offset, read, now_ms)
        if not claim.clean:
            recall_last_batches(log)
        if recovery.mended:
            end_mending(log)
    for segment in recovery.unindexed:
        rebuild_txn_index(log.segments, log.snapshots, segment, now_ms)
    return log


def _recover_segments(log: Log, sizes: dict[str, int], retired: set[int], claim: Claim, now_ms: int) -> Recovered:
    """In the way in which the files that are there are stored; a log without any goes where a new one would."""
    directory = log.directory
    queues = [name for name in sizes if name.endswith(QUEUE)]
    if queues and directory.commit is None:
        raise ValueError("it has queues, and there is no commit log: the directory was used with log.layout=shared")
    if queues and log.topic_id is None:
        # The first flush makes the id durable. Without it nobody knows what in the commit log belongs to them.
        for name in queues:
            directory.disk.remove(f"{log.path}/{name}")
    elif directory.commit is not None and log.topic_id is not None and queues:
        log.store = directory.queue_store(log.topic_id, log.partition)
    elif not any(name.endswith(LOG) for name in sizes):
        log.store = directory.store_for(log.key, log.config, log.topic_id) or _store_of_before(log)
    if log.store is None:
        return recover_files(log, sizes, retired, claim, now_ms)
    log.snapshots.leaves_word = True
    first = min((int(name[:20]) for name in queues), default=0)
    if not claim.stopped and any(base < first and base <= (claim.began_at or 0) for base in retired):
        # The segment with which the log began when that was last written down was retired since, by retention.
        claim = claim._replace(began_at=None)
    from tidelog.log.directories.queue_recovery import recover_queues

    return recover_queues(log, log.store, sizes, claim, now_ms)


def _store_of_before(log: Log) -> QueueStore | None:
    """Where a topic is compacted now, and has no files: it stays in the commit log until it gets some. A start that
    makes its queues anew may have been interrupted, or somebody has removed them for that."""
    directory, topic_id = log.directory, log.topic_id
    is_a_copy = log.path != f"{directory.path}/{name_of(log.key)}"
    if directory.commit is None or topic_id is None or is_a_copy or log.notes.succeeds or log.topic.startswith("__"):
        return None
    store = directory.queue_store(topic_id, log.partition)
    is_told_of = any(True for _ in chain(directory.told(store.owner), directory.told_before(store.owner)))
    return store if is_told_of else None


def open_stray(directory: LogDir, path: str, key: TopicPartition, config: LogConfig, now_ms: int) -> Log | None:
    """In the shared layout: a log that was set aside, as far as the checkpoint of the commit log covers it.

    What follows that may be of another log of the same partition. None where nothing of it lies in the commit log.
    """
    sizes = {entry.name: entry.size_bytes for entry in directory.disk.list(path)}
    topic_id = read_topic_id(directory.disk, path)
    if directory.commit is None or topic_id is None or not any(name.endswith(QUEUE) for name in sizes):
        return None
    from tidelog.log.directories.queue_recovery import recover_stray_queues

    log = Log(directory, path, key[0], key[1], config)
    log.topic_id = topic_id
    log.store = directory.queue_store(topic_id, key[1])
    recovered = recover_stray_queues(log, log.store, sizes, now_ms)
    if not recovered.segments:
        return None
    log.segments = Segments(recovered.segments)
    log.log_start_offset, log.log_end_offset = log.segments.first_base_offset, recovered.end_offset or 0
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
        _write_snapshot(log, log.log_end_offset, sync=True)
    snapshots.prune({segment.base_offset for segment in log.segments})


def _restore_producers_since(log: Log, stable_offset: int, changed: list[Segment], now_ms: int) -> None:
    """Where snapshots and transaction indexes are right below an offset, and segments have changed only past it."""
    producers, snapshots = log.producers, log.snapshots
    snapshots.drop_above(stable_offset)
    start_offset = load_newest(producers, snapshots, stable_offset, now_ms)
    if start_offset is None:
        # A checkpoint writes a snapshot of every log that has producers.
        start_offset = log.segments.first_base_offset if snapshots.had_any else stable_offset
        producers.reset(start_offset)
    corrupt = []
    for segment in changed:
        try:
            segment.txn_index.truncate_to(stable_offset)
        except CorruptIndex:
            corrupt.append(segment)
    reindexed = [segment for segment in changed if segment not in corrupt]
    for base_offset in [segment.base_offset for segment in log.segments if segment.base_offset > stable_offset]:
        # As a roll has done it: when the segments before it go, it is all that tells of what they held.
        if start_offset < base_offset <= log.log_end_offset:
            replay_segments(producers, log.segments, start_offset, base_offset, now_ms, reindexed, stable_offset)
            start_offset = base_offset
            if len(producers):
                _write_snapshot(log, base_offset, sync=False)
    replay_segments(producers, log.segments, start_offset, log.log_end_offset, now_ms, reindexed, stable_offset)
    for segment in corrupt:
        rebuild_txn_index(log.segments, snapshots, segment, now_ms)
    producers.on_log_start_offset(log.log_start_offset)
    snapshots.prune({segment.base_offset for segment in log.segments})


def _write_snapshot(log: Log, offset: int, sync: bool) -> None:
    """Synced where it may take the place of one that was. Where there is no room, the next start reads again."""
    try:
        log.snapshots.write(offset, log.producers.snapshot(), sync=sync)
    except OSError as error:
        if error.errno not in PASSING:
            raise
        log.directory.refuse(error, log.name)


def _read_epochs(disk: Disk, path: str) -> LeaderEpochs:
    """A torn file counts as empty: what recovery reads again brings its epochs with it."""
    try:
        return LeaderEpochs.parse(read_file(disk, path), path)
    except MalformedCheckpoint:
        return LeaderEpochs()
