"""A transactional producer of the wire protocol on a cluster in memory. It finds its coordinator and its leaders anew
for every attempt, and tries again on what a client tries again on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replica_cluster import TIMESTAMP_MS, ReplicaCluster

from tidelog.peers.requester import NEWEST, Failure
from tidelog.wire import messages
from tidelog.wire.batch import iter_headers
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch, iter_records

GROUP, TRANSACTION = 0, 1
RETRY_MS = 20
#: what a producer hears while coordinators and leaders move
RETRIABLE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


def coordinator(cluster: ReplicaCluster, key: str, kind: int = GROUP) -> int:
    request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    (found,) = cluster.ask(min(cluster.nodes), request).coordinators
    return -1 if found.error_code else int(found.node_id)


def persist(
    cluster: ReplicaCluster,
    find: Callable[[], int],
    request: RequestMessage[Any],
    code_of: Callable[[Any], int],
    version: int = NEWEST,
    heard: set[int] | None = None,
    client: str = "test",
) -> Any:
    """Asks whoever `find` names until there is an answer that counts; `heard` gets the codes on the way."""
    while True:
        asked = find()
        if asked in cluster.nodes:
            outcome = cluster.send(asked, request, version, client=client)
            cluster.run_until(lambda outcome=outcome: bool(outcome))  # type: ignore[misc]
            if not isinstance(outcome[0], Failure):
                code = code_of(outcome[0].message)
                if heard is not None:
                    heard.add(code)
                if code not in RETRIABLE:
                    return outcome[0].message
        cluster.run(RETRY_MS)


class TransactionalClient:
    """`adds`: transactions version 2, partitions are added by writing to them."""

    def __init__(self, cluster: ReplicaCluster, transactional_id: str = "x", adds: bool = True) -> None:
        self._cluster = cluster
        self.id = transactional_id
        self._adds = adds
        self._sequences: dict[tuple[str, int], int] = {}
        #: every code that it was answered
        self.heard: set[int] = set()
        request = messages.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = self._coordinated(request, lambda answer: answer.error_code, 5 if adds else 4)
        assert answer.error_code == 0, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def coordinator(self) -> int:
        return coordinator(self._cluster, self.id, TRANSACTION)

    def _coordinated(self, request: RequestMessage[Any], code_of: Callable[[Any], int], version: int) -> Any:
        return persist(self._cluster, lambda: self.coordinator, request, code_of, version, self.heard)

    def write(self, value: bytes, topic: str = "t", partition: int = 0) -> int:
        """One record, acknowledged by all; the code of the answer."""
        if not self._adds:
            self.add(topic, partition)
        body = self.produce_request(value, topic, partition)
        find = lambda: self._cluster.leader(topic, partition)  # noqa: E731
        version = 12 if self._adds else 11
        answer = persist(self._cluster, find, body, self.produced_code, version, self.heard)
        code = self.produced_code(answer)
        if code == 0:
            self._sequences[topic, partition] = self._sequences.get((topic, partition), 0) + 1
        return code

    def produce_request(self, value: bytes, topic: str = "t", partition: int = 0) -> messages.ProduceRequest:
        data = build_batch(
            [(TIMESTAMP_MS, b"key", value, None)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get((topic, partition), 0),
            transactional=True,
        )
        request = messages.ProduceRequest
        place = request.PartitionProduceData(index=partition, records=bytes(data))
        return request(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[request.TopicProduceData(name=topic, partition_data=[place])],
        )

    @staticmethod
    def produced_code(answer: messages.ProduceResponse) -> int:
        return int(answer.responses[0].partition_responses[0].error_code)

    def add(self, topic: str, partition: int) -> None:
        request = messages.AddPartitionsToTxnRequest
        body = request(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[request.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def code_of(answer: Any) -> int:
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        assert code_of(self._coordinated(body, code_of, 3)) == 0

    def commit_offset(self, group: str, offset: int, topic: str = "t", partition: int = 0) -> int:
        """A position of the group as part of the transaction; the code of the answer."""
        if not self._adds:
            added = messages.AddOffsetsToTxnRequest(
                transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            assert self._coordinated(added, lambda answer: answer.error_code, 3).error_code == 0
        request = messages.TxnOffsetCommitRequest
        place = request.TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        body = request(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=-1,
            topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )

        def code_of(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        find = lambda: coordinator(self._cluster, group)  # noqa: E731
        return code_of(persist(self._cluster, find, body, code_of, 5 if self._adds else 4, self.heard))

    def end(self, commit: bool = True) -> int:
        """The code of the answer; with version 2 the producer goes on with the next epoch."""
        answer = self._coordinated(self.end_request(commit), lambda answer: answer.error_code, 5 if self._adds else 4)
        if answer.error_code == 0 and self._adds:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return int(answer.error_code)

    def end_request(self, commit: bool = True) -> messages.EndTxnRequest:
        return messages.EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

    @property
    def state(self) -> str:
        """Of the transaction, as its coordinator describes it."""
        request = messages.DescribeTransactionsRequest(transactional_ids=[self.id])
        answer = self._coordinated(request, lambda answer: answer.transaction_states[0].error_code, 0)
        return str(answer.transaction_states[0].transaction_state)


def fetch_offset(cluster: ReplicaCluster, group: str, topic: str = "t", require_stable: bool = False) -> int:
    """The committed position of a group in partition 0; -1 where there is none."""
    request = messages.OffsetFetchRequest
    wanted = request.OffsetFetchRequestGroup(
        group_id=group, topics=[request.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    body = request(groups=[wanted], require_stable=require_stable)
    answer = persist(cluster, lambda: coordinator(cluster, group), body, lambda answer: answer.groups[0].error_code, 9)
    (place,) = answer.groups[0].topics[0].partitions
    assert place.error_code == 0, place
    return int(place.committed_offset)


def commit_offset(cluster: ReplicaCluster, group: str, offset: int, topic: str = "t") -> None:
    request = messages.OffsetCommitRequest
    place = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    body = request(group_id=group, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[place])])
    answer = persist(
        cluster, lambda: coordinator(cluster, group), body, lambda answer: answer.topics[0].partitions[0].error_code, 8
    )
    assert answer.topics[0].partitions[0].error_code == 0


def committed(cluster: ReplicaCluster, topic: str = "t") -> list[Any]:
    """What a reader of committed records sees of a topic of one partition."""
    request = messages.FetchRequest
    place = request.FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = request(min_bytes=0, isolation_level=1, topics=[request.FetchTopic(topic=topic, partitions=[place])])
    answer = cluster.ask(cluster.leader(topic, 0), wanted, 12).responses[0].partitions[0]
    assert answer.error_code == 0, answer
    aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    dropping: set[int] = set()
    found: list[Any] = []
    data = memoryview(bytes(answer.records or b""))
    for at, header in iter_headers(data):
        while aborted and aborted[0][0] <= header.base_offset:
            dropping.add(aborted.pop(0)[1])
        if header.is_control:
            dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            found += [record.value for record in iter_records(data[at : at + header.size_bytes])]
    return found
