"""Transactions across the rooms: the coordinator's markers, and the verification of what clients write.

Markers. A transaction that is to end (its record is committed) gets a control batch on each of its partitions. Each is
written by the partition's leader; the coordinator is told what became of it, and completes when all are there. A marker
on a partition of the offsets topic makes the offsets of that transaction visible, or drops them.

Verification (KIP-890). Before a partition takes the first batch of a transaction, the coordinator is asked: an older
client must have added the partition before, a newer one adds it by writing. The guard that the partition's log gave out
at the beginning is taken away by a marker that arrives in between, so a batch that comes after its transaction's end is
refused where it would be appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.coordination import Coordination
from tidelog.decision import CoordinatorRecord, Decision
from tidelog.log.errors import LogError
from tidelog.log.producers import AppendOrigin, ProducerRefused
from tidelog.txn.transaction import TopicPartition
from tidelog.wire import messages
from tidelog.wire.batch import InvalidBatch
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.records import ABORT, COMMIT, EndTxnMarker, build_end_txn_marker

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.replica.partition import Partition
    from tidelog.txn.transactions import Transactions
    from tidelog.txn.turn import TxnDecision, TxnMarkers

#: how the broker itself asks its coordinator
VERIFICATION_VERSION: Final = 5
_UNVERIFIED: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


class Asking(NamedTuple):
    api_version: int


class Answer:
    """A ticket whose reply is handed to a function."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self._done = done

    def reply(self, message: Any) -> None:
        self._done(message)


class TransactionCoordination(Coordination):
    def __init__(self, broker: Broker, topic: str, room: Transactions, commit_timeout_ms: Callable[[], int]) -> None:
        super().__init__(broker, topic, room, commit_timeout_ms)
        self._transactions = room

    def _begin(self, partition: Partition) -> Decision:
        self._transactions.load_begin(partition.index, partition.leader_epoch)
        return Decision()

    def _replay(self, index: int, record: CoordinatorRecord, producer_id: int, offset: int) -> None:
        self._transactions.replay(index, record.key, record.value)

    def _replay_end(self, index: int, producer_id: int, commit: bool) -> None:
        """The coordinator writes its own records outside of transactions: a marker here means nothing."""

    def _effects(self, decision: TxnDecision) -> Callable[[], None] | None:  # type: ignore[override]
        markers = getattr(decision, "markers", None)
        return None if not markers else lambda: self._write_all(markers)

    def _write_all(self, all_markers: Iterable[TxnMarkers]) -> None:
        for markers in all_markers:
            self._write_markers(markers)

    def _write_markers(self, markers: TxnMarkers) -> None:
        broker, clock = self._broker, self._broker.clock
        results: dict[TopicPartition, ErrorCode] = {}

        def told(at: TopicPartition, code: int) -> None:
            results[at] = ErrorCode.of(code)
            if len(results) == len(markers.partitions):
                now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
                self.carry_out(self._transactions.markers_written(markers, results, now_ms, wall_ms))

        for at in markers.partitions:
            write_marker(broker, at, markers, partial(told, at))

    # --- verification -------------------------------------------------------------------------------

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        add: bool,
        done: Callable[[Mapping[tuple[str, int], ErrorCode]], None],
    ) -> None:
        """Asks the coordinator whether the partitions belong to the transaction; with `add` they do from now on."""
        request = messages.AddPartitionsToTxnRequest
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        asked = request.AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[request.AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in by_topic.items()],
        )

        def answered(response: Any) -> None:
            done(
                {
                    (topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
                    for transaction in response.results_by_transaction
                    for topic in transaction.topic_results
                    for result in topic.results_by_partition
                }
            )

        clock = self._broker.clock
        (decision,) = self._transactions.add_partitions_to_txn(
            Answer(answered),
            request(transactions=[asked]),
            Asking(VERIFICATION_VERSION),
            clock.monotonic_ms(),
            clock.wall_ms(),
        )
        self.carry_out(decision)


def producer_error(code: ErrorCode, knows_abortable: bool, bumps_epoch: bool) -> KafkaError:
    """A coordinator's refusal as a producer of this age understands it."""
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not bumps_epoch):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"it could not be verified that the partition belongs to the transaction ({code.name}): try again",
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    return KafkaError(code)


def write_marker(broker: Broker, at: TopicPartition, marker: Any, done: Callable[[int], None]) -> None:
    """Ends a producer's transaction on a partition that this broker leads. `done` gets an error code, 0 when the marker
    is written, and flushed where that belongs to it. A partition that is gone needs none."""
    try:
        partition = broker.partition(at.topic, at.partition)
        now_ms = broker.clock.wall_ms()
        end = EndTxnMarker(COMMIT if marker.commit else ABORT, marker.coordinator_epoch)
        info = partition.append(
            memoryview(build_end_txn_marker(end, marker.producer_id, marker.producer_epoch, now_ms)),
            -1,
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
    except KafkaError as error:
        done(0 if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.code)
        return
    except (LogError, ProducerRefused, InvalidBatch) as error:
        done(error.code)
        return
    if at.topic == broker.group_coordination.topic:
        broker.groups.transaction_ended(at.partition, marker.producer_id, marker.commit)
    broker.appended(partition)
    if info.flush_due:
        broker.flushing.flush(partition.log, done)
    else:
        done(0)
