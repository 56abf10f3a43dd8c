"""Transaction markers: the control batch that ends a producer's transaction on a partition.

Each is written by the partition's leader. A marker on a partition of the offsets topic makes the offsets of that
transaction visible, or drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.groups import GroupCoordination
from tidelog.log.log import Log
from tidelog.log.producers import AppendOrigin
from tidelog.node.data_plane import DataPlane
from tidelog.timer.host import Host
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.partitions import TopicPartition
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_end_txn_marker


class Ending(Protocol):
    """How a transaction ends, as a coordinator or a WriteTxnMarkers request says it."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def coordinator_epoch(self) -> int: ...

    @property
    def commit(self) -> bool: ...

    @property
    def transaction_version(self) -> int: ...


class Markers:
    def __init__(self, config: BrokerConfig, data: DataPlane, groups: GroupCoordination, host: Host) -> None:
        self._config = config
        self._data = data
        self._groups = groups
        self._host = host

    def write(self, topic: str, index: int, ending: Ending, done: Callable[[ErrorCode], None]) -> None:
        """Ends a transaction on a partition that this broker leads.

        `done` gets NONE when the marker is committed, and flushed where that belongs to it.
        """

        key = TopicPartition(topic, index)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done(error)
            elif key not in self._data.replicas.partitions:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it went while its log was flushed
            else:
                self._data.when_committed(key, self._config.values.request_timeout_ms, done)

        try:
            log_to_flush = self._append(topic, index, ending)
        except CodedError as error:
            done(error.code)
        except Exception as broken:
            # Whoever ends the transaction must hear of each of its partitions.
            self._host.report(f"{topic}-{index} could not take a marker", broken)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if log_to_flush is None:
                written(ErrorCode.NONE)
            else:
                self._data.flushing.flush(log_to_flush, written)

    def _append(self, topic: str, index: int, ending: Ending) -> Log | None:
        """The log, where it is to be flushed before anybody hears of the marker."""
        partition = self._data.partition(topic, index)
        now_ms = self._host.clock.wall_ms()
        marker = EndTxnMarker(COMMIT if ending.commit else ABORT, ending.coordinator_epoch)
        batch = build_end_txn_marker(marker, ending.producer_id, ending.producer_epoch, now_ms)
        info = partition.append(
            memoryview(batch),
            -1,
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=ending.transaction_version,
        )
        if topic == self._groups.topic:
            self._groups.room.transaction_ended(index, ending.producer_id, ending.commit)
        self._data.appended(partition)
        return partition.log if info.flush_due else None
