"""The transaction coordinator over the partitions of `__transaction_state`.

Markers. A transaction that is to end (its record is committed) gets a marker on each of its partitions; the coordinator
is told what became of each, sends again what failed, and completes when all are there.

Verification (KIP-890). Before a partition takes the first batch of a transaction, the coordinator is asked: an older
client must have added the partition before, a newer one adds it by writing. The guard that the partition's log gave out
at the beginning is taken away by a marker that arrives in between, so a batch that comes after its transaction's end is
refused where it would be appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.by_name import ByName
from tidelog.coordinator.coordination import Coordination
from tidelog.coordinator.marker_delivery import MarkerDelivery
from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.coordinator.verification import TransactionVerifier
from tidelog.log.producers import NO_GUARD
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.internal_topics import TRANSACTIONS_TOPIC
from tidelog.peers.requester import Requester
from tidelog.timer.host import Host
from tidelog.txn.adding import Addition, AdditionResults
from tidelog.txn.config import TxnConfig
from tidelog.txn.transaction import EPOCH_BUMP_VERSION, ProducerIdentity
from tidelog.txn.transactions import Transactions
from tidelog.txn.turn import TxnDecision, TxnMarkers
from tidelog.wire.errors import ErrorCode, KafkaError
from tidelog.wire.partitions import TopicPartition

MARKER_TIMEOUT_MS: Final = 5_000
_UNVERIFIED: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


class CallbackTicket:
    """A ticket whose outcome is handed to a function."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[Any], None]) -> None:
        self._done = done

    def reply(self, outcome: Any) -> None:
        self._done(outcome)


class TransactionCoordination(Coordination[TxnDecision]):
    def __init__(
        self,
        config: BrokerConfig,
        producer_ids: ProducerIds,
        delivery: MarkerDelivery,
        pattern: Callable[[str], Callable[[str], bool]],
        cluster: ClusterView,
        requester: Requester | None,
        data: DataPlane,
        host: Host,
    ) -> None:
        """`requester` None: this broker works alone, and coordinates whatever is coordinated."""
        self.room = Transactions(TxnConfig.from_properties(ByName(config)), producer_ids.take, pattern)
        self._delivery = delivery
        self._verification = TransactionVerifier(cluster, requester, host, self.room.partition_for, self.add)
        super().__init__(TRANSACTIONS_TOPIC, self.room, data, host, lambda: MARKER_TIMEOUT_MS)

    def carry_out(self, decision: TxnDecision, guard: int = NO_GUARD) -> None:
        super().carry_out(decision, guard)
        if decision.records:
            self._note_committed(decision.partition)

    def _note_committed(self, index: int) -> None:
        partition = self._data.replicas.partitions.get((self.topic, index))
        if partition is not None:
            self.room.committed(index, partition.high_watermark)

    @property
    def shown(self) -> Transactions:
        """The room, for whoever shows what is in it: it knows how much of that is committed now."""
        for index in self._owned:
            self._note_committed(index)
        return self.room

    def _effects(self, decision: TxnDecision) -> Callable[[], None] | None:
        markers = decision.markers
        return None if not markers else lambda: self._deliver_all(markers)

    def _deliver_all(self, all_markers: Iterable[TxnMarkers]) -> None:
        for markers in all_markers:
            self._delivery.deliver(markers, partial(self._delivered, markers))

    def _delivered(self, markers: TxnMarkers, results: Mapping[TopicPartition, ErrorCode]) -> None:
        self.carry_out(self.room.markers_written(markers, results, *self.now()))

    # --- what a transaction touches -----------------------------------------------------------------

    def add(self, additions: Iterable[Addition], done: Callable[[AdditionResults], None]) -> None:
        """Adds partitions to transactions that are coordinated here, or verifies that they were; `done` gets the
        results of all, once."""
        results: AdditionResults = {}
        missing = 0

        def answered(part: AdditionResults) -> None:
            nonlocal missing
            assert missing > 0, "a coordinator partition has answered twice"
            results.update(part)
            missing -= 1
            if not missing:
                done(results)

        decisions = self.room.add_partitions(CallbackTicket(answered), additions, *self.now())
        missing = len(decisions)
        if not decisions:
            done(results)
        for decision in decisions:
            self.carry_out(decision)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        add: bool,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Asks the coordinator, on whatever broker it is, whether the partitions belong to the transaction; with `add`
        they do from now on."""
        asked = Addition(
            transactional_id,
            ProducerIdentity(producer_id, producer_epoch),
            frozenset(partitions),
            EPOCH_BUMP_VERSION,
            verify_only=not add,
        )
        self._verification.ask(asked, done)

    def close(self) -> None:
        self._delivery.close()
        self._verification.close()


def producer_error(code: ErrorCode, knows_abortable: bool, bumps_epoch: bool) -> KafkaError:
    """A coordinator's refusal as a producer of this age understands it."""
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not bumps_epoch):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"could not verify that the partition belongs to the transaction ({code.name}): try again",
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    return KafkaError(code)
