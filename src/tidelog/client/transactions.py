"""Transactions from the outside: list and describe them, find hanging ones, and end them.

A transaction is known in two places. Its coordinator has the transactional ID, the state and the partitions; the leader
of each partition has the producers that wrote there and the start of their open transactions. A transaction hangs if it
is open on a partition and no coordinator will end it: `read_committed` consumers wait behind it for ever. It is ended
by an abort marker on that partition alone. A transaction that a coordinator knows is ended through the coordinator,
which fences the producer and marks all its partitions; marking one of them behind its back would tear the transaction.

A transaction that its producer has prepared can be ended from anywhere with its `Prepared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import TRANSACTION, Cluster
from tidelog.client.connection import Connection, Sent
from tidelog.client.errors import ClientError, NotFound, Refused, check, error_for
from tidelog.client.transactional import Prepared, end_request, end_result, newest_end
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

_FIRST_VERSION_WITH_DURATION: Final = 1
#: who takes an id to fence its producer never begins a transaction with it
_FENCING_TIMEOUT_MS: Final = 60_000
_NO_OFFSET: Final = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class DescribedTransaction(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: None where none is open or was open last
    start_ms: int | None
    coordinator: str
    #: what it wrote to; while it ends, what still waits for its marker
    partitions: list[TopicPartition]

    @property
    def is_open(self) -> bool:
        return self.state in ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class OpenTransaction(NamedTuple):
    """A transaction as the leader of one partition knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    #: of the coordinator that last wrote a marker for the producer; -1 for none
    coordinator_epoch: int
    start_offset: int
    #: of the newest record that the producer wrote to the partition
    last_timestamp_ms: int


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- what the coordinators know -----------------------------------------------------------------

    def list_all(
        self, states: Iterable[str] = (), producer_ids: Iterable[int] = (), longer_than_ms: int = -1
    ) -> list[ListedTransaction]:
        """The transactional ids of all coordinators, in the order of their names."""
        request = messages.ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )

        def attempt() -> list[ListedTransaction]:
            found: dict[str, ListedTransaction] = {}
            for node_id in self._cluster.node_ids():
                connection = self._cluster.broker(node_id)
                if longer_than_ms >= 0:
                    _need_duration(connection)
                answer = connection.call(ApiKey.LIST_TRANSACTIONS, request)
                check(answer.error_code, f"the transactions of broker {node_id}")
                if answer.unknown_state_filters:
                    raise Refused(
                        f"there is no state {', '.join(answer.unknown_state_filters)} of a transaction",
                        hint="for example Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Empty",
                    )
                for row in answer.transaction_states:
                    listed = ListedTransaction(row.transactional_id, row.transaction_state, row.producer_id, node_id)
                    found[row.transactional_id] = listed
            return [found[name] for name in sorted(found)]

        return self._cluster.retrying(attempt)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """NotFound where no producer has used the id."""
        found = self.describe_all([transactional_id])[transactional_id]
        if found is None:
            raise error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id}")
        return found

    def describe_all(self, transactional_ids: Iterable[str]) -> dict[str, DescribedTransaction | None]:
        """Transactional id -> what its coordinator knows; None where no producer has used it."""
        found: dict[str, DescribedTransaction | None] = {}
        wanted = list(dict.fromkeys(transactional_ids))

        def attempt() -> None:
            left = [name for name in wanted if name not in found]
            if not left:
                return
            for connection, names in self._by_coordinator(left).items():
                message = messages.DescribeTransactionsRequest(transactional_ids=names)
                for state in connection.call(ApiKey.DESCRIBE_TRANSACTIONS, message).transaction_states:
                    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        found[state.transactional_id] = None
                        continue
                    check(state.error_code, f"transactional id {state.transactional_id}")
                    found[state.transactional_id] = _described(state, connection.address)

        self._cluster.retrying(attempt)
        return found

    def _by_coordinator(self, transactional_ids: Iterable[str]) -> dict[Connection, list[str]]:
        found: dict[Connection, list[str]] = {}
        for name, connection in self._cluster.coordinators(transactional_ids, TRANSACTION).items():
            found.setdefault(connection, []).append(name)
        return found

    # --- what the partitions know -------------------------------------------------------------------

    def open_on(self, partitions: Mapping[str, Iterable[int]]) -> list[OpenTransaction]:
        """The transactions that are open on these partitions: topic -> partitions."""

        def attempt() -> list[OpenTransaction]:
            by_leader: dict[Connection, dict[str, list[int]]] = {}
            for topic, indexes in partitions.items():
                for index in indexes:
                    connection = self._cluster.leader(topic, index)[0]
                    by_leader.setdefault(connection, {}).setdefault(topic, []).append(index)
            return sorted(
                found for connection, topics in by_leader.items() for found in _ask_producers(connection, topics)
            )

        return self._cluster.retrying(attempt)

    def find_hanging(
        self, partitions: Mapping[str, Iterable[int]], older_than_ms: int, now_ms: int
    ) -> list[OpenTransaction]:
        """The open transactions that no coordinator will end.

        One that wrote within `older_than_ms` is left out: its coordinator may be about to hear of it, or to end it.
        """
        old = [txn for txn in self.open_on(partitions) if now_ms - txn.last_timestamp_ms > older_than_ms]
        if not old:
            return []
        expected = self._expected({txn.producer_id for txn in old})
        hanging = [txn for txn in old if (txn.producer_id, txn.topic, txn.partition) not in expected]
        # Between the two questions a transaction may have ended in the best of order.
        again: dict[str, set[int]] = {}
        for txn in hanging:
            again.setdefault(txn.topic, set()).add(txn.partition)
        still_open = {(txn.topic, txn.partition, txn.start_offset) for txn in self.open_on(again)}
        return [txn for txn in hanging if (txn.topic, txn.partition, txn.start_offset) in still_open]

    def _expected(self, producer_ids: set[int]) -> set[tuple[int, str, int]]:
        """What coordinators still mean to mark: (producer id, topic, partition)."""
        expected: set[tuple[int, str, int]] = set()
        for listed in self.list_all(producer_ids=producer_ids):
            try:
                described = self.describe(listed.transactional_id)
            except NotFound:
                continue
            expected.update((listed.producer_id, topic, partition) for topic, partition in described.partitions)
        return expected

    def is_expected(self, txn: OpenTransaction) -> bool:
        """Whether a coordinator knows the transaction, and will end it."""
        return (txn.producer_id, txn.topic, txn.partition) in self._expected({txn.producer_id})

    # --- ending -------------------------------------------------------------------------------------

    def abort_hanging(self, txn: OpenTransaction) -> None:
        """Writes an abort marker on the one partition."""
        request = messages.WriteTxnMarkersRequest
        # A producer that never saw a marker has no coordinator epoch; none is older than 0.
        marker = request.WritableTxnMarker(
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            transaction_result=False,
            topics=[request.WritableTxnMarkerTopic(name=txn.topic, partition_indexes=[txn.partition])],
            coordinator_epoch=max(txn.coordinator_epoch, 0),
        )

        def attempt() -> None:
            answer = self._cluster.call_leader(
                txn.topic, txn.partition, ApiKey.WRITE_TXN_MARKERS, request(markers=[marker])
            )
            code = answer.markers[0].topics[0].partitions[0].error_code
            check(code, f"aborting the transaction at offset {txn.start_offset} of {txn.topic}-{txn.partition}")

        self._cluster.retrying(attempt)

    def end(self, prepared: Iterable[Prepared], committed: bool) -> dict[Prepared, ClientError | None]:
        """Commits or aborts prepared transactions, each with what came of it: None where it ended so, now or before.

        The requests of one coordinator are under way together. What passes by itself is tried again.
        """
        outcomes: dict[Prepared, ClientError | None] = {}
        wanted = {each.transactional_id: each for each in prepared}

        def attempt() -> None:
            passing: ClientError | None = None
            left = [name for name, each in wanted.items() if each not in outcomes]
            if not left:
                return
            sent: list[tuple[Connection, Sent[messages.EndTxnResponse], Prepared]] = []
            for connection, names in self._by_coordinator(left).items():
                newest = newest_end(connection)
                for name in names:
                    request = end_request(wanted[name], committed)
                    sent.append((connection, connection.send(ApiKey.END_TXN, request, newest), wanted[name]))
            for connection, due, each in sent:
                try:
                    end_result(connection.receive(due), each, committed)
                    outcomes[each] = None
                except ClientError as error:
                    if self._cluster.passes(error):
                        passing = error
                    else:
                        outcomes[each] = error
            if passing is not None:
                raise passing

        try:
            self._cluster.retrying(attempt)
        except ClientError as error:
            outcomes.update({each: error for each in wanted.values() if each not in outcomes})
        return outcomes

    def abort(self, transactional_id: str) -> None:
        """Has the coordinator abort what is open, and fences the producer: it must begin anew."""
        request = messages.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )

        def attempt() -> None:
            connection = self._cluster.coordinator(transactional_id, TRANSACTION)
            answer = connection.call(ApiKey.INIT_PRODUCER_ID, request)
            check(answer.error_code, f"transactional id {transactional_id}")

        self._cluster.retrying(attempt)


def _described(state: messages.DescribeTransactionsResponse.TransactionState, coordinator: str) -> DescribedTransaction:
    return DescribedTransaction(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        coordinator,
        sorted(TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions),
    )


def _need_duration(connection: Connection) -> None:
    if connection.version_of(ApiKey.LIST_TRANSACTIONS) < _FIRST_VERSION_WITH_DURATION:
        raise ClientError(
            f"the broker at {connection.address} cannot report how long a transaction has been open",
            ErrorCode.UNSUPPORTED_VERSION,
            "a newer broker may support it",
        )


def _ask_producers(connection: Connection, topics: Mapping[str, list[int]]) -> Iterable[OpenTransaction]:
    request = messages.DescribeProducersRequest
    wanted = [request.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    answer = connection.call(ApiKey.DESCRIBE_PRODUCERS, request(topics=wanted))
    for topic in answer.topics:
        for partition in topic.partitions:
            where = f"the producers of {topic.name}-{partition.partition_index}"
            check(partition.error_code, where, partition.error_message)
            for producer in partition.active_producers:
                if producer.current_txn_start_offset != _NO_OFFSET:
                    yield OpenTransaction(
                        topic.name,
                        partition.partition_index,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )
