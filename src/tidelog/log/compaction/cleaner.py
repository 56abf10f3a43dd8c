"""The compactor of a broker: one round at a time, of the log that needs it most.

    broker's thread     next_work(now_ms) ──► work            a round planned, or its next group, or a checkpoint
    a worker            work()                                reads and writes files; touches nothing that is shared
    broker's thread     done(work, error)                     a few renames, and the log has the new segment

`next_work` returns nothing while work is in progress, if there is nothing to do, or if the last round failed: ask again
after `log.cleaner.backoff.ms`.

The progress of each log (`log.cleaned_offset`) is kept in `cleaner-offset-checkpoint`, one file per directory in Apache
Kafka's format, which is rewritten whenever it differs from the logs. After a crash it may be behind: then a part is
compacted once more.

A plan may be out of date when it is carried out: the log was truncated or deleted, or retention removed its oldest
segments. A group whose segments are all gone is skipped; anything else aborts the round. A log in which damage is found
is not touched again (`uncleanable`). A full disk, or too little memory, only ends the round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.clock import Clock
from tidelog.log.checkpoints import CLEANED_OFFSETS, MalformedCheckpoint, read_offsets, write_offsets
from tidelog.log.compaction.cleaner_throttle import Cancelled, Throttle
from tidelog.log.compaction.compaction_plan import CompactionSource, LogToClean, dirtiest, measure, sources
from tidelog.log.compaction.compaction_round import CleanerConfig, CleanerStats, Compaction, Job
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import Disk
from tidelog.log.errors import LogError, StorageError, WriteRefused
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.log.producer_recovery import rebuild_txn_index
from tidelog.log.txn_index import CorruptIndex
from tidelog.wire.partitions import TopicPartition


class CleaningFailed(LogError):
    """A round was given up; the message names the log and the reason."""


class CleaningRefused(CleaningFailed, WriteRefused):
    """The disk was full, or something else passes: the round is tried again."""


class CompactionWork:
    """A step of a round."""

    __slots__ = ("compaction", "log", "sources", "truncations")

    def __init__(self, log: Log, compaction: Compaction, sources: list[CompactionSource]) -> None:
        self.log = log
        self.compaction = compaction
        self.sources = sources
        #: the log's, when the round was planned
        self.truncations = log.truncations

    def __call__(self) -> None:
        self.compaction.step()


class CheckpointWork:
    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: LogDir, offsets: Mapping[TopicPartition, int]) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = offsets

    def __call__(self) -> None:
        write_offsets(self._disk, f"{self.directory.path}/{CLEANED_OFFSETS}", self.offsets)


Work = CompactionWork | CheckpointWork


class Cleaner:
    """`stable_offset` gives the last stable offset of a partition, None while this broker does not know it."""

    def __init__(
        self,
        logs: LogDirs,
        stable_offset: Callable[[TopicPartition], int | None],
        clock: Clock,
        config: CleanerConfig | None = None,
    ) -> None:
        self._logs = logs
        self._stable_offset = stable_offset
        self._config = config or CleanerConfig()
        self._throttle = Throttle(self._config.io_max_bytes_per_second, clock.monotonic_ms)
        self._round: CompactionWork | None = None
        self._under_way: Work | None = None
        #: the last round failed: what is next waits for the next backoff
        self._rests = False
        self._on_disk: dict[str, Mapping[TopicPartition, int]] = {}
        #: logs that are left alone, and why
        self.uncleanable: dict[Log, str] = {}
        #: of the last round that was completed
        self.last_stats: CleanerStats | None = None
        #: the share of the dirtiest log that was cleanable when last looked at
        self.max_cleanable_ratio = 0.0

    @property
    def config(self) -> CleanerConfig:
        return self._config

    @config.setter
    def config(self, config: CleanerConfig) -> None:
        """The rate holds at once, the rest from the next round on."""
        self._config = config
        self._throttle.bytes_per_second = config.io_max_bytes_per_second

    def stop(self) -> None:
        """Gives up what is under way, from now on for good."""
        self._throttle.cancelled.set()

    # --- what to do next

    def next_work(self, now_ms: int) -> Work | None:
        """Raises LogError where a log cannot be compacted; the others are next."""
        if self._under_way is not None or self._throttle.cancelled.is_set():
            return None
        if self._rests:
            self._rests = False
            return None
        work = self._round or self._checkpoint() or self._begin(now_ms)
        self._under_way = work
        return work

    def _checkpoint(self) -> CheckpointWork | None:
        for directory in self._logs.dirs:
            if directory.failure is not None:
                continue
            offsets = {key: log.cleaned_offset for key, log in directory.logs.items() if log.cleaned_offset is not None}
            if offsets != self._known(directory):
                return CheckpointWork(self._logs.disk, directory, offsets)
        return None

    def _known(self, directory: LogDir) -> Mapping[TopicPartition, int]:
        known = self._on_disk.get(directory.path)
        if known is None:
            try:
                known = read_offsets(self._logs.disk, f"{directory.path}/{CLEANED_OFFSETS}")
            except MalformedCheckpoint:
                known = {}
            self._on_disk[directory.path] = known
        return known

    def _begin(self, now_ms: int) -> CompactionWork | None:
        candidates = []
        for key, log in self._logs.logs.items():
            if (
                log.config.compact
                and log.store is None
                and log not in self.uncleanable
                and log.directory.failure is None
            ):
                stable_offset = self._stable_offset(key)
                if stable_offset is not None:
                    candidates.append(self._measure(log, stable_offset, now_ms))
        measured = [candidate for candidate in candidates if candidate is not None]
        self.max_cleanable_ratio = max((each.cleanable_ratio for each in measured), default=0.0)
        self.uncleanable = {log: why for log, why in self.uncleanable.items() if self._is_here(log)}
        chosen = dirtiest(measured)
        if chosen is None:
            return None
        log = chosen.log
        try:
            job = _job(chosen, now_ms)
        except OSError as error:
            raise log.directory.refuse(error, log.name) from error
        except Exception as error:
            raise self._leave_alone(log, error) from error
        self._round = CompactionWork(log, Compaction(job, self._config, self._throttle), job.sources)
        return self._round

    def _measure(self, log: Log, stable_offset: int, now_ms: int) -> LogToClean | None:
        try:
            return measure(log, stable_offset, now_ms)
        except OSError as error:
            log.directory.refuse(error, log.name)
        except Exception as error:
            log.directory.tell(str(self._leave_alone(log, error)))
        return None

    def _leave_alone(self, log: Log, error: Exception) -> CleaningFailed:
        """A log that compaction cannot get through is not tried again; the others are."""
        self.uncleanable[log] = str(error)
        return CleaningFailed(f"{log.name} is no longer compacted: {error}")

    def _is_here(self, log: Log) -> bool:
        return self._logs.logs.get(log.key) is log

    # --- what was done

    def done(self, work: Work, error: BaseException | None = None) -> CleanerStats | None:
        """Takes note of a work that ran; what a round has done, when that was its last step. Raises LogError."""
        self._under_way = None
        if isinstance(work, CheckpointWork):
            if error is None:
                self._on_disk[work.directory.path] = work.offsets
                return None
            self._rests = True
            where = f"{work.directory.path}/{CLEANED_OFFSETS}"
            if isinstance(error, OSError):
                raise _refusal(work.directory, error, where, f"{where} was not written: {error}") from error
            raise CleaningFailed(f"{where} was not written: {error}") from error
        failure = error
        if failure is None:
            try:
                return self._advance(work)
            except (LogError, OSError, Cancelled) as raised:
                failure = raised
        self._round = None
        self._rests = True
        self._judge(work, failure)
        return None

    def _advance(self, work: CompactionWork) -> CleanerStats | None:
        """Swaps in what a step has made; the stats of the round if it is over."""
        compaction, log = work.compaction, work.log
        made, compaction.result = compaction.result, None
        holds = self._holds(work)
        if made is not None:
            group, cleaned = made
            left = self._left(log, group) if holds else 0
            if left == len(group):
                log.replace_segments([source.segment for source in group], cleaned)
            else:
                cleaned.remove()
                holds = holds and not left
        if not holds:
            raise Cancelled
        if not compaction.finished:
            return None
        self._round = None
        log.cleaned_offset = compaction.end_offset
        self.last_stats = compaction.stats
        return compaction.stats

    def _holds(self, work: CompactionWork) -> bool:
        """Whether the log is what it was when the round was planned, but for retention and what was appended."""
        log = work.log
        return self._is_here(log) and log.truncations == work.truncations and log.config.compact

    @staticmethod
    def _left(log: Log, group: list[CompactionSource]) -> int:
        """How many of these segments are still in the log."""
        here = {id(segment) for segment in log.segments}
        return sum(id(source.segment) in here for source in group)

    def _judge(self, work: CompactionWork, failure: BaseException) -> None:
        """What a failure means; raises where somebody should know."""
        log = work.log
        if isinstance(failure, Cancelled) or not self._holds(work):
            return
        if isinstance(failure, StorageError):
            raise failure
        if isinstance(failure, CorruptIndex):
            self._mend(work)
            return
        if isinstance(failure, FileNotFoundError) and self._left(log, work.sources) < len(work.sources):
            return
        if isinstance(failure, OSError):
            told = f"{log.name} was not compacted: {failure}"
            raise _refusal(log.directory, failure, log.name, told) from failure
        if isinstance(failure, MemoryError) or not isinstance(failure, Exception):
            raise CleaningFailed(f"{log.name} was not compacted: {failure}") from failure
        raise self._leave_alone(log, failure) from failure

    @staticmethod
    def _mend(work: CompactionWork) -> None:
        """Writes the transaction indexes anew that cannot be right; the next round goes by them."""
        log = work.log
        for source in work.sources:
            try:
                source.segment.txn_index.check()
            except CorruptIndex:
                rebuild_txn_index(log.segments, log.snapshots, source.segment, 0)


def _refusal(directory: LogDir, error: OSError, where: str, told: str) -> LogError:
    """What to raise for an error of the disk; only one that passes is told in the words of the compactor."""
    refusal = directory.refuse(error, where)
    return CleaningRefused(told) if isinstance(refusal, WriteRefused) else refusal


def _job(plan: LogToClean, now_ms: int) -> Job:
    """All that the round must know of the log, copied."""
    log = plan.log
    end = plan.first_uncleanable_offset
    first = log.segments.since(plan.first_dirty_offset)[0]
    span = first.find(plan.first_dirty_offset)
    producers = list(log.producers)
    return Job(
        disk=log.directory.disk,
        directory=log.path,
        config=log.config,
        sources=sources(log, end),
        first_dirty_offset=plan.first_dirty_offset,
        first_dirty_position=first.size if span is None else span.position,
        first_uncleanable_offset=end,
        aborted_behind=log.aborted_transactions(end, end, now_ms),
        last_data_offsets=[producer.batches[-1].last_offset for producer in producers if producer.batches],
        marker_epochs={producer.producer_id: producer.epoch for producer in producers if not producer.batches},
        now_ms=now_ms,
    )
