"""Recovering segments of the shared layout: queues as they were at the checkpoint of the commit log, and what follows.

A queue is trusted as far as it points before the checkpoint: so much of it is on the device. From there on it is made
anew: the entries of the commit log that belong to the partition are told over, in their order.

    what is told                                    what is done
    batches at the log's end                        queued in the last segment that begins at or before them
    batches that begin before the first segment     nothing: retention took them, or the log was begun anew
    a cut, a new start                              the same again
    batches, or a cut, behind the log's end         nothing: the queue was cut, and either the cut is told later, or it
                                                    has got lost, and with it what followed; or the queue is not whole
    an entry whose predecessor is missing           nothing, nor with what follows it, up to a new start: one of them
                                                    may have cut the log

What is left is the log as it was at some moment since the checkpoint, or the beginning of that.

Nothing but the end of the commit log is read. Where files of the commit log are gone, queues that point into them are.

Where a queue is missing, short or damaged, all of the commit log is read, and what it says of the partition before the
checkpoint is compared with the queues: they get what they lack. What neither knows is lost, and told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import islice, pairwise, zip_longest
from typing import Final

from tidelog.log.directories.claim import Claim, Recovered
from tidelog.log.directories.losses import Loss
from tidelog.log.errors import CorruptMessage
from tidelog.log.log import Log
from tidelog.log.log_dir import MENDING
from tidelog.log.producers import RETAINED_BATCHES
from tidelog.log.segment import TXN_INDEX
from tidelog.log.shared import QUEUE
from tidelog.log.shared.commit_entry import OF_A_STRAY, Entry, EntryKind
from tidelog.log.shared.queue import Queued
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.store import QueueStore
from tidelog.wire.batch import CONTROL_FLAG, BatchHeader

#: of the last batches of a log, so many are looked at after a crash
_MOST_RECALLED: Final = 50


def recover_queues(log: Log, store: QueueStore, sizes: dict[str, int], claim: Claim, now_ms: int) -> Recovered:
    """The segments in the directory of a log, whose files have these sizes."""
    directory = log.directory
    if not claim.distrusted and MENDING not in sizes:
        replay = _Replay(log, store, sizes, now_ms)
        try:
            replay.tell_all(directory.told(store.owner))
            if not replay.lacks(claim):
                return replay.ended(claim)
        except CorruptMessage:
            pass
        replay.abandon()
        store.last = -1
        sizes = {entry.name: entry.size_bytes for entry in directory.disk.list(log.path)}
    replay = _Replay(log, store, sizes, now_ms)
    replay.fill(lambda: directory.told_before(store.owner), claim)
    replay.tell_all(directory.told(store.owner))
    return replay.ended(claim)


def end_mending(log: Log) -> None:
    """Queues were made anew, and transaction indexes with them: from now on they are trusted. May raise OSError."""
    disk = log.directory.disk
    for segment in log.segments:
        segment.seal()
        for path in segment.index_paths:
            if disk.exists(path):
                disk.open(path).sync()
    disk.sync_dir(log.path)
    disk.remove(f"{log.path}/{MENDING}")


def recover_stray_queues(log: Log, store: QueueStore, sizes: dict[str, int], now_ms: int) -> Recovered:
    """Of a log that was set aside: as far as the checkpoint covers it. What follows may be of another log."""
    return _Replay(log, store, sizes, now_ms).ended(Claim())


def _passed_over(told: Iterable[Entry]) -> set[int]:
    """The positions of entries that were there when another was appended whose author did not count them.

    A start that passes over entries appends one of its own before a checkpoint is taken (`upkeep.tell_ends`). Its
    `previous` is the last one that counts: what stands between the two does not, whatever was cut by it.
    """
    chain = [(entry.position, entry.previous) for entry in told if entry.kind is not EntryKind.MOVED]
    passed_over = set()
    counts_to: int | None = None
    for position, previous in reversed(chain):
        if counts_to is not None and position > counts_to:
            passed_over.add(position)
        else:
            counts_to = previous if previous >= 0 else None
    return passed_over


def _alive(told: Callable[[], Iterable[Entry]]) -> tuple[list[Queued], int | None]:
    """The batches that a partition had when all this was told, as they would be queued; and where it was begun anew.

    Copies (MOVED) are taken where what they were made from is gone; those of a log that was set aside are none of this
    one. It is read twice, so as not to keep all of it in memory.
    """
    batches: list[Queued] = []
    copies: list[Queued] = []
    begun_at: int | None = None
    copied_to = -1
    passed_over = _passed_over(told())
    for entry in told():
        if entry.position in passed_over:
            continue
        if entry.kind is EntryKind.MOVED:
            if entry.previous != OF_A_STRAY and begun_at is None:
                copies += (_queued(place, header, moved=True) for place, header in entry.batches)
                copied_to = max(copied_to, entry.last_offset)
            continue
        least = entry.base_offset
        if entry.kind is EntryKind.START:
            begun_at, least = entry.base_offset, 0
        while batches and batches[-1].last_offset >= least:
            batches.pop()
        if copied_to >= least:
            copies = [each for each in copies if each.last_offset < least]
            copied_to = least - 1
        batches += (_queued(place, header) for place, header in entry.batches)
    return [*batches, *copies], begun_at


def _queued(place: int, header: BatchHeader, moved: bool = False) -> Queued:
    delta = ~header.last_offset_delta if moved else header.last_offset_delta
    return Queued(header.last_offset, place, header.max_timestamp, 0, header.size_bytes, delta, header.leader_epoch)


def _base_offset(queued: Queued) -> int:
    return queued.last_offset - (queued.delta if queued.delta >= 0 else ~queued.delta)


class _Replay:
    """The segments of a log while they are told what follows the checkpoint."""

    __slots__ = (
        "_begun_at",
        "_behind",
        "_dense",
        "_end",
        "_holes",
        "_is_beginning_guessed",
        "_is_mending",
        "_is_told",
        "_log",
        "_now_ms",
        "_segments",
        "_stable",
        "_store",
        "_touched",
        "_unfollowed",
        "_wanted_from",
        "_was_mending",
    )

    def __init__(self, log: Log, store: QueueStore, sizes: dict[str, int], now_ms: int) -> None:
        self._log = log
        self._store = store
        self._now_ms = now_ms
        self._dense = not log.notes.gaps
        #: base offsets of the segments that are not as their files are
        self._touched: set[int] = set()
        self._segments: list[QueueSegment] = []
        #: where the log was begun anew; None where nothing tells of it
        self._begun_at: int | None = None
        #: where batches are told that begin before the first segment, those that hold this offset, or come later, are
        #: missing; None where retention may have taken them
        self._wanted_from: int | None = None
        #: no file and no start tells where the log begins: it is taken to begin with the first batch that is told
        self._is_beginning_guessed = False
        #: where batches would end that were told, and passed over: because they lie behind the log's end, and because
        #: an entry before them is missing
        self._behind = self._unfollowed = 0
        #: the last entry was told, and the log ends where it says
        self._is_told = False
        #: queues were made anew by a start that did not come to its end; and are by this one
        self._was_mending = self._is_mending = MENDING in sizes
        #: what is missing inside a segment
        self._holes: list[Loss] = []
        disk, commit = log.directory.disk, store.commit
        for name in sorted(sizes):
            stem, suffix = name[:20], name[20:]
            if suffix != QUEUE or not stem.isdigit():
                continue
            segment = QueueSegment(
                disk,
                f"{log.path}/{stem}",
                int(stem),
                log.config,
                store,
                sizes[name],
                sizes.get(stem + TXN_INDEX, 0),
            )
            segment.created_ms = now_ms
            if segment.trust(commit.checkpoint):
                self._touched.add(segment.base_offset)
            self._segments.append(segment)
        self._drop_what_left()
        self._remove_begun_inside(
            [(segment.base_offset, segment.next_offset()) for segment in self._segments if segment.queue.count]
        )
        self._end = self._stable = 0
        self._find_end()

    def _find_end(self) -> None:
        filled = [segment for segment in self._segments if segment.queue.count] or self._segments[:1]
        self._end = filled[-1].next_offset() if filled else 0
        #: what lies below it was there at the checkpoint, and was not cut since
        self._stable = self._end

    def _drop_what_left(self) -> None:
        """The first segments, where they point into files of the commit log that are gone."""
        first = self._store.commit.first
        while len(self._segments) > 1:
            last = self._segments[0].queue.last
            if last is None or last.place >= first:
                break
            self._remove(self._segments[:1])

    def fill(self, told: Callable[[], Iterable[Entry]], claim: Claim) -> None:
        """Before anything is told: gives the queues what they lack of what was told before the checkpoint."""
        alive, self._begun_at = _alive(told)
        # Below the log's start, what a segment holds is wanted nevertheless: a queue has no holes.
        least = min([claim.log_start_offset, *(segment.base_offset for segment in self._segments[:1])])
        batches = sorted((each for each in alive if each.last_offset >= least), key=_base_offset)
        stable = []
        began = self._segments[:1]
        self._remove_begun_inside([(_base_offset(each), each.last_offset + 1) for each in batches])
        # Otherwise retention may have taken what came before.
        is_known_to_begin_before = claim.began_at is not None or self._segments[:1] != began
        if not self._segments or is_known_to_begin_before:
            self._complete_beginning(batches, claim)
        for segment, after in zip_longest(self._segments, self._segments[1:]):
            end = after.base_offset if after is not None else None
            lacking = [
                each
                for each in batches
                if segment.base_offset <= (base := _base_offset(each)) and (end is None or base < end)
            ]
            stable += self._fill_segment(segment, lacking)
        self._find_end()
        self._stable = min([self._stable, *stable])
        if self._was_mending:
            # What that start has mended looks whole now, and nothing that goes with it need be written.
            self._stable = 0
            self._touched.update(segment.base_offset for segment in self._segments)

    def _complete_beginning(self, batches: list[Queued], claim: Claim) -> None:
        """Puts an empty segment before the others where the log begins before them."""
        # What is told past the checkpoint may begin before them, too.
        self._wanted_from = claim.began_at
        if batches and (not self._segments or _base_offset(batches[0]) < self._segments[0].base_offset):
            self._begin_before(_base_offset(batches[0]))

    def _begin_before(self, offset: int) -> None:
        self._begin_mending()
        log = self._log
        segment = QueueSegment.create(log.directory.disk, log.path, offset, log.config, self._now_ms, self._store)
        self._segments.insert(0, segment)

    def _begin_mending(self) -> None:
        """A queue is about to be made anew. Should the power go meanwhile, the next start must look at all of this
        again: what points before the checkpoint is trusted otherwise. `end_mending` is called when all of it is
        written, transaction indexes included."""
        if not self._is_mending:
            self._is_mending = True
            directory, path = self._log.directory, self._log.path
            directory.disk.open(f"{path}/{MENDING}", create=True)
            directory.disk.sync_dir(path)

    def _remove_begun_inside(self, ranges: list[tuple[int, int]]) -> None:
        """Empty segments that would begin inside of what stands before them, as first and next offsets in rising order:
        they were begun when the log went on in another way."""
        for segment in list(self._segments):
            at = bisect_left(ranges, (segment.base_offset,)) - 1
            if not segment.queue.count and at >= 0 and ranges[at][1] > segment.base_offset:
                self._remove([segment])

    def _fill_segment(self, segment: QueueSegment, batches: list[Queued]) -> list[int]:
        """Returns the offset up to which the queue stays as it was, where it does not stay as a whole."""
        queue = segment.queue
        known = queue.whole()
        places = {_base_offset(each) for each in known}
        added = [each for each in batches if _base_offset(each) not in places]
        if not added and all(queue.is_sound(n) for n in range(queue.count)):
            return []
        self._begin_mending()
        entries: list[Queued] = []
        stable, next_offset = -1, segment.base_offset
        for each in sorted([*known, *added], key=_base_offset):
            base_offset = _base_offset(each)
            if base_offset < next_offset:
                continue
            if base_offset > next_offset and self._dense:
                self._holes.append(Loss(next_offset, base_offset, segment.log_path, "does not know where they are"))
            if stable < 0 and (len(entries) >= len(known) or each != known[len(entries)]):
                stable = next_offset
            entries.append(each)
            next_offset = each.last_offset + 1
        segment.refill(entries, self._now_ms)
        self._touched.add(segment.base_offset)
        return [stable if stable >= 0 else next_offset]

    def lacks(self, claim: Claim) -> bool:
        """Whether there are batches before the checkpoint that the queues do not know of, by all that can be told."""
        segments = self._segments
        if self._behind > self._end:
            return True
        if self._dense and any(one.next_offset() < other.base_offset for one, other in pairwise(segments)):
            return True
        if self._begun_at is not None:
            return False
        if not segments:
            # A log always has one.
            return True
        vouched = max(claim.recovery_point, claim.high_watermark, *self._log.snapshots.offsets[-1:])
        ends_early = self._end < vouched and (claim.clean or self._store.last < 0)
        return ends_early or (claim.began_at is not None and segments[0].base_offset > claim.began_at)

    def abandon(self) -> None:
        """It is tried again with what the files then hold: nothing of this is written any more."""
        if self._is_beginning_guessed:
            # There was none before.
            self._remove(list(self._segments))
        for segment in self._segments:
            segment.park_all()

    def tell_all(self, told: Iterable[Entry]) -> None:
        for entry in told:
            self.tell(entry)

    def tell(self, entry: Entry) -> None:
        if entry.kind is EntryKind.MOVED:
            return
        store = self._store
        follows = entry.previous == store.last or (store.last < 0 and entry.previous < store.commit.checkpoint)
        if not follows and entry.kind is not EntryKind.START:
            self._is_told = False
            if entry.kind is EntryKind.BATCHES:
                self._unfollowed = max(self._unfollowed, entry.last_offset + 1)
            return
        store.last = entry.position
        # What did not follow was passed over, and told, by a start before this entry was written.
        self._is_told, self._unfollowed = True, 0
        if entry.kind is EntryKind.START:
            self._begun_at, self._behind = entry.base_offset, 0
            self._is_beginning_guessed = False
            self._start(entry.base_offset)
        elif entry.kind is EntryKind.CUT:
            self._tell_cut(entry.base_offset)
        else:
            self._add(entry)

    def _tell_cut(self, offset: int) -> None:
        if offset > self._end:
            # Nobody tells of a cut behind the log's end: there was more, before the checkpoint.
            self._behind, self._is_told = offset, False
        elif (self._is_beginning_guessed or self._wanted_from is not None) and any(
            offset < segment.base_offset for segment in self._segments[:1]
        ):
            # It began before: a log that begins behind a cut is begun anew.
            self._behind = 0
            self._remove(list(self._segments))
            self._begin(offset)
        else:
            self._behind = min(self._behind, offset)
            self._cut(offset)

    def _start(self, offset: int) -> None:
        self._log.leader_epochs.clear()
        if [(each.base_offset, each.queue.count, each.txn_index.size_bytes) for each in self._segments] == [
            (offset, 0, 0)
        ]:
            # Of thousands of partitions that were made since the checkpoint, nothing but the names are there.
            self._stable, self._end = 0, offset
            self._touched.add(offset)
            return
        self._remove(list(self._segments))
        self._begin(offset)

    def _begin(self, offset: int) -> None:
        self._stable = 0
        log = self._log
        disk, store = log.directory.disk, self._store
        self._segments.append(QueueSegment.create(disk, log.path, offset, log.config, self._now_ms, store))
        self._touched.add(offset)
        self._end = offset

    def _cut(self, offset: int) -> None:
        if not self._segments or offset >= self._end:
            return
        kept = max(sum(segment.base_offset <= offset for segment in self._segments), 1)
        self._remove(self._segments[kept:])
        last = self._segments[-1]
        # Below its first offset: what it holds comes from before the cut, and is told over if it came again.
        self._end = last.cut_queue(max(offset, last.base_offset), self._now_ms)
        self._stable = min(self._stable, self._end)
        self._touched.add(last.base_offset)

    def _add(self, entry: Entry) -> None:
        base_offset = entry.base_offset
        if not self._segments:
            self._is_beginning_guessed = True
            self._begin(base_offset)
        if base_offset < self._segments[0].base_offset:
            if self._wanted_from is None or entry.last_offset < self._wanted_from:
                self._is_told = False
                return
            # The segments that are there came later.
            self._begin_before(base_offset)
            self._end, self._stable = base_offset, 0
        if base_offset > self._end and self._dense:
            self._behind = max(self._behind, entry.last_offset + 1)
            self._is_told = False
            return
        self._behind = min(self._behind, base_offset)
        self._cut(base_offset)
        at = next(n for n in reversed(range(len(self._segments))) if self._segments[n].base_offset <= base_offset)
        # Those that would begin inside of it are empty, and were begun when the log went on in another way.
        self._remove([each for each in self._segments[at + 1 :] if each.base_offset <= entry.last_offset])
        segment = self._segments[at]
        self._touched.add(segment.base_offset)
        for place, header in entry.batches:
            segment.readmit(place, header)
        self._end = entry.last_offset + 1

    def _remove(self, segments: list[QueueSegment]) -> None:
        # Newest first: should the power go in between, the log ends earlier, and does not begin later.
        for segment in reversed(segments):
            for path in segment.rename_deleted():
                self._log.directory.disk.remove(path)
            self._segments.remove(segment)
            self._touched.discard(segment.base_offset)

    def _losses(self, claim: Claim) -> list[Loss]:
        losses = [loss for loss in self._holes if loss.first_offset < self._end]
        losses += [
            Loss(segment.next_offset(), after.base_offset, segment.log_path, "ends before them")
            for segment, after in pairwise(self._segments)
            if self._dense and segment.next_offset() < after.base_offset
        ]
        begins, first = claim.began_at, self._segments[0].base_offset if self._segments else 0
        if begins is not None and begins < first != self._begun_at:
            losses.append(Loss(begins, first, self._segments[0].log_path, "begins after them"))
        losses.sort()
        reached = max(self._behind, self._unfollowed)
        if reached > self._end:
            losses.append(Loss(self._end, reached, self._store.commit.path, "has lost an entry that precedes them"))
        return losses

    def ended(self, claim: Claim) -> Recovered:
        self._remove([segment for segment in self._segments[1:] if segment.base_offset > self._end])
        self._take_beginning_back()
        losses = self._losses(claim)
        # Of a marker at the log's end that has got lost, the transaction index may know nevertheless.
        known = {segment.base_offset for segment in self._segments[-1:] if segment.txn_index.size_bytes}
        touched = [segment for segment in self._segments if segment.base_offset in self._touched | known]
        self._restore_epochs(claim)
        after_holes = [loss.end_offset or 0 for loss in losses]
        self._store.is_told = claim.clean or self._is_told
        end_offset = self._end if self._segments else None
        mended = [segment.base_offset for segment in self._segments] if self._is_mending else []
        return Recovered([*self._segments], [*touched], losses, after_holes, [], mended, self._stable, end_offset)

    def _take_beginning_back(self) -> None:
        """Where nothing is left, and offsets before the log's beginning are missing."""
        first = max(self._wanted_from or 0, self._begun_at or 0)
        if self._wanted_from is not None and self._segments and self._end == self._segments[0].base_offset > first:
            self._remove(list(self._segments))
            self._begin(first)

    def _restore_epochs(self, claim: Claim) -> None:
        """From the queues, as far as they reach back. The file is believed only after a clean stop, of segments that
        did not change: it is written by flushes, and neither goes with a checkpoint nor with what is told past it."""
        epochs = self._log.leader_epochs
        first = self._segments[0].base_offset if self._segments else self._end
        begins = max(claim.log_start_offset, first)
        is_forgetful = any(start > begins for _, start in epochs.entries()[:1]) and begins < self._end
        filled = [segment for segment in self._segments if segment.queue.count]
        latest = filled[-1].queue.glance(filled[-1].queue.count - 1).leader_epoch if filled else -1
        if claim.clean and not self._touched and not is_forgetful and latest <= epochs.latest:
            return
        epochs.truncate_from_end(first)
        if filled and filled[0].queue.entry(0).leader_epoch < epochs.latest:
            epochs.clear()
        for segment in filled:
            for queued in segment.epochs():
                if queued.leader_epoch > epochs.latest:
                    epochs.assign(queued.leader_epoch, queued.base_offset)


def recall_last_batches(log: Log) -> None:
    """In the shared layout a start need not read what its snapshots cover, and these tell only the last batch of each
    producer. But whoever was not answered before the crash sends the others again."""
    lacking = {each.producer_id for each in log.producers if len(each.batches) < RETAINED_BATCHES}
    left = _MOST_RECALLED
    try:
        for segment in reversed(list(log.segments)):
            if not isinstance(segment, QueueSegment):
                return
            for n in reversed(range(segment.queue.count)):
                if not lacking or not left:
                    return
                left -= 1
                for _, header in islice(segment.headers(segment.queue.entry(n).position), 1):
                    producer = log.producers.get(header.producer_id)
                    if producer is None or header.attributes & CONTROL_FLAG:
                        continue
                    log.producers.recall(header)
                    if header.base_sequence == 0 or len(producer.batches) == RETAINED_BATCHES:
                        lacking.discard(header.producer_id)
    except CorruptMessage:
        # Readers are told.
        return
