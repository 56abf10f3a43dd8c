"""Recovering segments of the shared layout: queues as they were at the checkpoint of the commit log, and what follows.

A queue is trusted as far as it points before the checkpoint: so much of it is on the device. From there on it is made
anew: the entries of the commit log that belong to the partition are told over, in their order.

    what is told                                    what is done
    batches at the log's end                        queued in the last segment that begins at or before them
    batches that lie before the first segment       nothing: retention took them
    a cut, a new start                              the same again
    batches behind the log's end                    nothing: the queue was cut, and either the cut is told later, or it
                                                    has got lost, and with it what followed
    an entry whose predecessor is missing           nothing, nor with what follows it, up to a new start: one of them
                                                    may have cut the log

What is left is the log as it was at some moment since the checkpoint, or the beginning of that.

Nothing but the end of the commit log is read. Where files of the commit log are gone, queues that point into them are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tidelog.log.directories.claim import Recovered
from tidelog.log.directories.losses import Loss
from tidelog.log.log import Log
from tidelog.log.segment import TXN_INDEX
from tidelog.log.shared.commit_entry import Entry, EntryKind
from tidelog.log.shared.queue import QUEUE
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.log.shared.store import QueueStore


def recover_queues(log: Log, store: QueueStore, sizes: dict[str, int], told: Iterable[Entry], now_ms: int) -> Recovered:
    """The segments in the directory of a log, whose files have these sizes; `told` is what follows the checkpoint."""
    replay = _Replay(log, store, sizes, now_ms)
    for entry in told:
        replay.tell(entry)
    return replay.ended()


class _Replay:
    """The segments of a log while they are told what follows the checkpoint."""

    __slots__ = ("_dense", "_end", "_log", "_now_ms", "_segments", "_stable", "_store", "_touched")

    def __init__(self, log: Log, store: QueueStore, sizes: dict[str, int], now_ms: int) -> None:
        self._log = log
        self._store = store
        self._now_ms = now_ms
        self._dense = not log.notes.gaps
        #: base offsets of the segments that are not as their files are
        self._touched: set[int] = set()
        self._segments: list[QueueSegment] = []
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

    def tell(self, entry: Entry) -> None:
        if entry.kind is EntryKind.MOVED:
            return
        store = self._store
        follows = entry.previous == store.last or (store.last < 0 and entry.previous < store.commit.checkpoint)
        if not follows and entry.kind is not EntryKind.START:
            return
        store.last = entry.position
        if entry.kind is EntryKind.START:
            self._start(entry.base_offset)
        elif entry.kind is EntryKind.CUT:
            self._cut(entry.base_offset)
        else:
            self._add(entry)

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
            self._begin(base_offset)
        if entry.last_offset < self._segments[0].base_offset:
            return
        if base_offset > self._end and self._dense:
            return
        self._cut(base_offset)
        segment = next(each for each in reversed(self._segments) if each.base_offset <= base_offset)
        self._touched.add(segment.base_offset)
        for place, header in entry.batches:
            segment.readmit(place, header)
        self._end = entry.last_offset + 1

    def _remove(self, segments: list[QueueSegment]) -> None:
        for segment in segments:
            for path in segment.rename_deleted():
                self._log.directory.disk.remove(path)
            self._segments.remove(segment)
            self._touched.discard(segment.base_offset)

    def ended(self) -> Recovered:
        self._remove([segment for segment in self._segments[1:] if segment.base_offset > self._end])
        losses = [
            Loss(segment.next_offset(), after.base_offset, segment.log_path, "ends before them")
            for segment, after in pairwise(self._segments)
            if self._dense and segment.next_offset() < after.base_offset
        ]
        # Of a marker at the log's end that has got lost, the transaction index may know nevertheless.
        known = {segment.base_offset for segment in self._segments[-1:] if segment.txn_index.size_bytes}
        touched = [segment for segment in self._segments if segment.base_offset in self._touched | known]
        self._restore_epochs()
        after_holes = [loss.end_offset or 0 for loss in losses]
        end_offset = self._end if self._segments else None
        return Recovered([*self._segments], [*touched], losses, after_holes, [], [], self._stable, end_offset)

    def _restore_epochs(self) -> None:
        """Of the segments that changed, and those after them; of all, where the file does not know those before."""
        epochs = self._log.leader_epochs
        first = min(self._touched, default=self._end)
        before = [segment for segment in self._segments if segment.base_offset < first and segment.queue.count]
        epochs.truncate_from_end(first)
        if before and before[-1].queue.entry(before[-1].queue.count - 1).leader_epoch > epochs.latest:
            epochs.clear()
            first = 0
        for segment in self._segments:
            if segment.base_offset < first:
                continue
            for queued in segment.entries(0):
                if queued.leader_epoch > epochs.latest:
                    epochs.assign(queued.leader_epoch, queued.base_offset)
