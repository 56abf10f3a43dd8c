"""Transaction markers: the control batch that ends a producer's transaction on a partition.

Each is written by the partition's leader. A marker on a partition of the offsets topic makes the offsets of that
transaction visible, or drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.groups import GroupCoordination
from tidelog.log.producers import AppendOrigin
from tidelog.node.data_plane import DataPlane, Held
from tidelog.timer.host import Host
from tidelog.wire.errors import CodedError, ErrorCode
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

        try:
            held, flush_due = self._append(topic, index, ending)
        except CodedError as error:
            done(error.code)
            return
        except Exception as broken:
            # Whoever ends the transaction must hear of each of its partitions.
            self._host.report(f"{topic}-{index} could not take a marker", broken)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                done(error)
            else:
                self._data.when_committed(held, self._config.values.request_timeout_ms, done)

        if flush_due:
            self._data.flushing.flush(held.partition.log, written)
        else:
            written(ErrorCode.NONE)

    def _append(self, topic: str, index: int, ending: Ending) -> tuple[Held, bool]:
        """What must be committed, and whether the log is to be flushed before anybody hears of the marker."""
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
        held = Held(partition, info.last_offset + 1, partition.resignations)
        self._data.appended(partition)
        return held, info.flush_due
