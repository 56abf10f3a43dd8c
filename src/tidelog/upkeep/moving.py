"""Moves partitions between the broker's log directories while they are in use (AlterReplicaLogDirs).

    begin ─▶ read a chunk (worker) ─▶ add it to the future log ─▶ … ─▶ sync it (worker) ─▶ what came meanwhile ─▶ swap

Reading and syncing happen on workers; adding a chunk costs what a produce of its size costs. The future log and the
partition's log change places on the broker's thread, between requests, so that no reader and no writer sees a moment
in between. `replica.alter.log.dirs.io.max.bytes.per.second` holds the copying back. A move that a stop interrupted
begins anew with the next start. A move that fails is given up and reported; the partition stays where it is. Where it
is the partition's own disk that failed, the copy stays too: it may be all that is left.

In the shared layout a topic that becomes compacted leaves the commit log in the same way: its partitions are copied,
within their directories, into files of their own, and are compacted from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.log.directories.moves import Move
from tidelog.log.errors import LogError
from tidelog.log.log import Log
from tidelog.node.data_plane import DataPlane
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

#: what may be unsynced when the logs change places: syncing it keeps the broker's thread waiting
SMALL_BYTES: Final = 1 << 20


class Moves:
    def __init__(self, config: BrokerConfig, data: DataPlane, host: Host) -> None:
        self._config = config
        self._data = data
        self._host = host
        self._under_way: dict[TopicPartition, Move] = {}
        self._stopped = False
        data.on_reconfigured = self._separate_if_compacted

    def begin(self, key: TopicPartition, path: str) -> None:
        """Begins to move a partition, in place of a move that is under way; nothing to do where it is there."""
        present = self._under_way.get(key)
        if present is not None and present.future.directory.path == path:
            return
        self._under_way.pop(key, None)
        move = self._data.logs.begin_move(key, path, self._host.clock.wall_ms())
        if move is not None:
            self._start(key, move)

    def resume(self) -> None:
        """Resumes the moves that a stop interrupted, and starts those that were put off."""
        for move in self._data.logs.resume_moves():
            self._start(move.current.key, move)
        for log in list(self._data.logs.logs.values()):
            self._separate_if_compacted(log)

    def _separate_if_compacted(self, log: Log) -> None:
        """The cleaner cannot compact what lies in the commit log."""
        if not log.config.compact or log.store is None or log.key in self._under_way:
            return
        try:
            move = self._data.logs.begin_separation(log.key, self._host.clock.wall_ms())
        except LogError as error:
            self._host.report(f"{log.name} is not compacted before the next start: it stays in the commit log", error)
            return
        self._start(log.key, move)

    def stop(self) -> None:
        self._stopped = True

    def _start(self, key: TopicPartition, move: Move) -> None:
        self._under_way[key] = move
        self._step(key, move)

    def _goes_on(self, key: TopicPartition, move: Move) -> bool:
        """False once the partition is gone, the move was replaced, or the broker stops."""
        return not self._stopped and self._under_way.get(key) is move and self._data.logs.logs.get(key) is move.current

    def _step(self, key: TopicPartition, move: Move) -> None:
        if not self._goes_on(key, move):
            return
        try:
            chunk = move.next_chunk(self._host.clock.wall_ms())
        except LogError as error:
            self._give_up(key, move, error)
            return
        if chunk is None:
            self._sync(key, move)
        else:
            self._host.workers.in_worker(chunk.read, self._then(key, move, self._add))

    def _add(self, key: TopicPartition, move: Move, data: bytes) -> None:
        move.add(data, self._host.clock.wall_ms())
        per_second = self._config.values.replica_alter_log_dirs_io_max_bytes_per_second
        pause_ms = len(data) * 1000 // per_second
        if pause_ms:
            deadline_ms = self._host.clock.monotonic_ms() + pause_ms
            self._host.timer.add(deadline_ms, lambda: self._step(key, move))
        else:
            self._step(key, move)

    # --- the end ------------------------------------------------------------------------------------

    def _sync(self, key: TopicPartition, move: Move) -> None:
        def synced(error: ErrorCode) -> None:
            if not self._goes_on(key, move):
                return
            if error is not ErrorCode.NONE:
                self._give_up(key, move, KafkaError(error))
            elif move.lag_bytes > SMALL_BYTES:
                self._step(key, move)
            else:
                self._swap(key, move)

        self._data.flushing.flush(move.future, synced)

    def _swap(self, key: TopicPartition, move: Move) -> None:
        data, clock = self._data, self._host.clock
        try:
            while (rest := move.next_chunk(clock.wall_ms())) is not None:
                move.add(rest.read(), clock.wall_ms())
            log = data.logs.finish_move(key)
        except (LogError, OSError) as error:
            self._give_up(key, move, error)
            return
        del self._under_way[key]
        partition = data.replicas.partitions.get(key)
        if partition is not None:  # else it is not in service yet, and will be with this log
            partition.adopt_log(log)
        data.wake_all(key)
        data.on_work_left()

    def _then(
        self, key: TopicPartition, move: Move, go_on: Callable[[TopicPartition, Move, Any], None]
    ) -> Callable[[Any, BaseException | None], None]:
        def done(result: Any, error: BaseException | None) -> None:
            if not self._goes_on(key, move):
                return
            try:
                if error is not None:
                    raise error
                go_on(key, move, result)
            except (LogError, OSError) as failure:
                self._give_up(key, move, failure)

        return done

    def _give_up(self, key: TopicPartition, move: Move, error: BaseException) -> None:
        self._host.report(f"{move.current.name} could not be moved to {move.future.directory.path}", error)
        self._under_way.pop(key, None)
        if move.current.directory.failure is not None:
            return
        try:
            self._data.logs.cancel_move(key)
        except LogError as failure:
            self._host.report(f"the copy of {move.current.name} could not be removed", failure)
