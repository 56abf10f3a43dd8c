"""Recovering segments that are stored as files: from what lies in a partition's directory to segments that are whole.

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
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from tidelog.log.cleaned_segment import CLEANED, SWAP
from tidelog.log.config import LogConfig
from tidelog.log.directories.claim import Claim, Recovered
from tidelog.log.directories.clean_stop import Stopped
from tidelog.log.directories.losses import Loss, note_damage
from tidelog.log.directories.torn import is_torn
from tidelog.log.disk import Disk
from tidelog.log.file_segment import FileSegment
from tidelog.log.leader_epochs import LeaderEpochs
from tidelog.log.log import Log
from tidelog.log.segment import DELETED, INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, Sizes, offset_name
from tidelog.log.shared import QUEUE
from tidelog.wire.batch import NO_LEADER_EPOCH, BatchHeader, crc_matches

_SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


def settle(disk: Disk, path: str) -> tuple[dict[str, int], set[int]]:
    """Clears leftovers of interrupted work; returns the sizes of the files that remain, by name, and the base offsets
    of segments that were on their way out."""
    sizes = {entry.name: entry.size_bytes for entry in disk.list(path) if not entry.is_dir}
    cleaned = [int(name[:20]) for name in sizes if name.endswith(CLEANED)]
    retired = {int(name[:20]) for name in sizes if name.endswith((LOG + DELETED, QUEUE + DELETED))}
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
            segment = FileSegment(disk, f"{path}/{name[:20]}", base_offset, LogConfig(), sizes[name], 0, 0)
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


class _Found(NamedTuple):
    #: in order
    segments: list[FileSegment]
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
            segment = FileSegment(
                disk, f"{path}/{stem}", base_offset, config, sizes[name], index_bytes, time_bytes, txn_bytes
            )
            segment.created_ms = now_ms
            segments.append(segment)
        elif suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem.isdigit() and stem + LOG not in sizes:
            disk.remove(f"{path}/{name}")
            orphans.add(int(stem))
    return _Found(segments, suspects, orphans)


def recover_files(log: Log, sizes: dict[str, int], retired: set[int], claim: Claim, now_ms: int) -> Recovered:
    """The segments in the directory of a log: `sizes` and `retired` are what `settle` gave."""
    found = _find_segments(log.directory.disk, log.path, sizes, log.config, now_ms)
    for segment in found.segments:
        # By a setting of the topic, perhaps, which is not known yet.
        segment.preallocated |= log.notes.preallocates
    if claim.clean:
        return _recover_stopped(log, found, claim)
    recovery = _recover(log, found, claim)
    recovery.losses[:0] = _lost_at_the_start(log, found, claim, retired)
    return recovery


def _is_dense(log: Log) -> bool:
    """Whether its offsets follow one another without a gap: compaction was never here."""
    return not log.notes.gaps and not log.config.compact


def _recover(log: Log, found: _Found, claim: Claim) -> Recovered:
    """After a crash: recovers what must be, and drops what lies behind damage."""
    segments = found.segments
    first_unflushed = 0
    for at, segment in enumerate(segments):
        if segment.base_offset <= claim.recovery_point:
            first_unflushed = at
    losses = _holes(log, segments[: first_unflushed + 1], {*found.orphans, *log.snapshots.offsets})
    flushed = Recovered([], [], losses, [], [], [], None)
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
        later = _Later(log, segment, segments[at + 1 :])
        end = recover_segment(segment, log.leader_epochs, bound, dense, later.lose_footing)
        loss = end.loss(segment, bound, dense)
        if loss is not None:
            losses.append(loss)
        if end.is_short(bound, dense) and not last:
            later.lose_footing()
            del segments[at + 1 :]
            losses[-1:] = [later.loss(end, losses[-1:])]
            break
        if not last:
            segment.seal()
    behind = segments[-1].base_offset if segments else -1
    for base_offset in sorted(orphan for orphan in found.orphans if orphan > behind):
        losses.append(Loss(base_offset, None, f"{log.path}/{offset_name(base_offset)}{LOG}", "is missing"))
    return Recovered([*segments], [*flushed.read, *segments[first_unflushed:]], losses, after_holes, [], [], None)


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


def _ends_at(log: Log, segment: FileSegment, bound: int, losses: list[Loss]) -> bool:
    """Whether a segment that was flushed is whole up to the next one, or what it lacks is told already."""
    end = segment.whole_end()
    if end is None:
        return False
    return not _is_dense(log) or end >= bound or any(loss.first_offset == end for loss in losses)


class _Later:
    """The segments behind one that is recovered. Where that is short they have lost their footing."""

    def __init__(self, log: Log, before: FileSegment, segments: list[FileSegment]) -> None:
        self._log = log
        self._before = before
        self._segments = segments
        #: up to where they reached; None before they were dropped
        self._end_offset: int | None = None

    def lose_footing(self, is_torn: bool = False) -> None:
        """Before anything is cut off. What is dropped goes newest first: should the power go meanwhile, none comes back
        behind a hole."""
        if self._segments or not is_torn:
            note_damage(self._log, is_known=False)
        if self._end_offset is None and self._segments:
            self._end_offset = max(self._segments[-1].base_offset, self._segments[-1].next_offset())
            for segment in reversed(self._segments):
                for deleted in segment.rename_deleted():
                    self._log.directory.disk.remove(deleted)

    def loss(self, end: _SegmentEnd, known: list[Loss]) -> Loss:
        """What it comes to that they were dropped."""
        loss = known[0] if known else Loss(end.offset, None, self._before.log_path, "ends before the next begins")
        first = self._segments[0].log_path
        also = f"{loss.what}; {len(self._segments)} later segments, from {first} on, are dropped as well"
        return loss._replace(what=also).reaching(self._end_offset or 0)


def _holes(log: Log, segments: list[FileSegment], hints: set[int]) -> list[Loss]:
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


def _recover_stopped(log: Log, found: _Found, claim: Claim) -> Recovered:
    """After a clean stop: looks at what is not as the stop left it, and keeps all that can be read."""
    segments, stopped = found.segments, claim.stopped
    recovery = Recovered([*segments], [], _missing(log, segments, stopped or {}, claim), [], [], [], None)
    end_offset = None
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        before, now = (stopped or {}).get(segment.base_offset), segment.file_sizes()
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


def _read_through(log: Log, segment: FileSegment, bound: int | None, claim: Claim, recovery: Recovered) -> _SegmentEnd:
    """Recovers one segment of those that were on the device; what lies behind it stays."""
    dense = _is_dense(log)

    def before_cut(is_torn: bool) -> None:
        if bound is not None:
            note_damage(log, is_known=False)

    end = recover_segment(segment, log.leader_epochs.below(segment.base_offset), bound, dense, before_cut)
    loss = end.loss(segment, bound, dense)
    if loss is not None:
        # What lay behind all that was ever given away was none of ours.
        junk = bound is None and 0 < claim.recovery_point <= end.offset
        recovery.losses.append(loss.reaching(end.offset) if junk else loss)
    if bound is not None:
        segment.seal()
    recovery.read.append(segment)
    return end


def _is_rewritten(log: Log, segment: FileSegment, before: Sizes) -> bool:
    """Whether somebody else has compacted the segment since the stop: it is another one, and whole."""
    return segment.size != before.log and not _is_dense(log) and segment.whole_end() is not None


def _missing(log: Log, segments: list[FileSegment], stopped: Stopped, claim: Claim) -> list[Loss]:
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
    #: that was the beginning of a batch, or room that was made for one
    is_torn: bool

    def is_short(self, bound: int | None, dense: bool) -> bool:
        """Whether anything is missing before the next segment begins."""
        return self.cut_bytes > 0 or (dense and bound is not None and self.offset != bound)

    def loss(self, segment: FileSegment, bound: int | None, dense: bool) -> Loss | None:
        if not self.is_short(bound, dense) or (self.is_torn and segment.preallocated):
            return None
        what = f"is damaged at byte {self.position}, and {self.cut_bytes} bytes are truncated"
        if not self.cut_bytes:
            what = f"ends at byte {self.position}" if self.position else "is empty"
        end_offset = bound if bound is not None else self.seen_offset if self.seen_offset > self.offset else None
        return Loss(self.offset, end_offset, segment.log_path, what, self.is_torn)


def recover_segment(
    segment: FileSegment,
    epochs: LeaderEpochs,
    bound: int | None,
    dense: bool,
    before_cut: Callable[[bool], None] = lambda is_torn: None,
) -> _SegmentEnd:
    """Keeps the longest run of good batches and writes the indexes anew.

    `bound` is the base offset of the next segment, None for the last one. `dense` logs were never compacted.
    `before_cut` is called where something is cut off, and told whether that is torn: afterwards nobody sees that there
    was more.
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
    cut_bytes = file_bytes - end
    torn = cut_bytes > 0 and bound is None and is_torn(segment.file, end, cut_bytes, segment.preallocated)
    if torn:
        seen_offset = end_offset
    if cut_bytes:
        before_cut(torn)
    segment.cut_at(end, file_bytes)
    return _SegmentEnd(end_offset, end, cut_bytes, seen_offset, torn)
