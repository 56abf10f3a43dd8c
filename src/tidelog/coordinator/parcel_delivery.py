"""Brings parcels to the leaders of their targets, on this broker and on others, as a producer with acks=all would.

Each parcel is tried once, with the leader that is known now. Whoever sent it hears what became of it, and sends it
again: the target tells by producer id and sequence whether it has it. It tells so even if it would refuse the parcel by
now, because its settings have changed (`known_delivery`): otherwise nobody would learn that it has arrived. To clients
it behaves as Apache Kafka does, which looks at the records first and refuses the repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from tidelog.control.model import NO_LEADER
from tidelog.control.topic_names import INTERNAL_TOPICS
from tidelog.coordinator.peer_queues import PeerQueues
from tidelog.log.append import AppendInfo
from tidelog.log.producers import AppendOrigin
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane, Held
from tidelog.peers.requester import Requester, is_peer_client_id
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.batch import CONTROL_FLAG, HEADER_SIZE, TRANSACTIONAL_FLAG, InvalidBatch, read_header
from tidelog.wire.check import CheckedBatch, check_produced
from tidelog.wire.errors import CodedError, ErrorCode
from tidelog.wire.partitions import TopicPartition

PURPOSE: Final = "deliveries"
#: so long a leader has to answer beyond the time that it waits for its followers itself
MARGIN_MS: Final = 1_000
#: of one request
MOST_PARCELS: Final = 16

#: what the target will not take, however often it is tried, as long as its settings are what they are
REFUSALS: Final = frozenset(
    (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    )
)

#: what became of a parcel, and which of its records are to blame for a refusal, if the target names them
Told: TypeAlias = Callable[[ErrorCode, Sequence[int]], None]


class Consignment(NamedTuple):
    to: TopicPartition
    batch: bytearray
    told: Told


def why_unreachable(cluster: ClusterView, to: TopicPartition) -> str | None:
    """What has to be done before anything can be delivered there; None where nothing has."""
    topic = cluster.image.topics.get(to.topic)
    if to.topic in INTERNAL_TOPICS:
        return f"{to.topic} is written by the broker only: set another target"
    if topic is None:
        return f"there is no topic {to.topic}: create it, or set another target"
    if to.partition >= len(topic.partitions):
        return f"{to.topic} has only {len(topic.partitions)} partitions: add partitions to it"
    if cluster.log_config(to.topic).waits_for:
        return f"records wait in {to.topic} as well: set another target"
    return None


def is_delivery(client_id: str) -> bool:
    """A produce of this client comes from another broker, and brings parcels."""
    return is_peer_client_id(client_id, PURPOSE)


def known_delivery(partition: Partition, records: memoryview, refusal: CodedError) -> AppendInfo | CodedError:
    """What a delivery is answered that the target refuses: that it is there, or that its sequence is over.

    Otherwise nothing of it is there, and the refusal stands.
    """
    if refusal.code not in REFUSALS or len(records) < HEADER_SIZE:
        return refusal
    header = read_header(records)
    if header.attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG):
        return refusal  # no delivery is that
    try:
        partition.check_leader()
        known = partition.log.producers.check(header, AppendOrigin.CLIENT)
    except CodedError as error:
        return error
    return refusal if known is None else partition.log.duplicate(known)


class ParcelDelivery:
    def __init__(self, cluster: ClusterView, data: DataPlane, requester: Requester | None, host: Host) -> None:
        self._cluster = cluster
        self._data = data
        self._host = host
        values = cluster.config.values
        self._timeout_ms: Callable[[], int] = lambda: values.request_timeout_ms
        self._elsewhere = ProduceQueues(cluster, requester, lambda: values.request_timeout_ms + MARGIN_MS)

    def deliver(self, to: TopicPartition, batch: bytearray, told: Told) -> None:
        """`told` gets NONE when the target has the batch, and all of its replicas in sync have it."""
        leader = self._cluster.leader_of(*to)
        if leader is None:
            told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
        elif leader[0] == NO_LEADER:
            told(ErrorCode.LEADER_NOT_AVAILABLE, ())
        elif leader[0] == self._cluster.id:
            self._check(to, batch, told)
        else:
            self._elsewhere.put(leader[0], Consignment(to, batch, told))

    def _check(self, to: TopicPartition, batch: bytearray, told: Told) -> None:
        """On a worker: the target may have another codec."""
        partition = self._data.replicas.partitions.get(to)
        if partition is None:
            told(self._cluster.why_missing(*to), ())
            return
        rules, now_ms = partition.log.config.rules, self._host.clock.wall_ms()

        def checked(result: CheckedBatch | None, error: BaseException | None) -> None:
            if isinstance(error, CodedError):
                self._refused(to, memoryview(batch), error, told)
            elif result is None:
                self._host.report(f"a delivery to {to.topic}-{to.partition} could not be checked", error)
                told(ErrorCode.UNKNOWN_SERVER_ERROR, ())
            else:
                self._append(to, result, told)

        self._host.workers.in_worker(lambda: check_produced(memoryview(batch), rules, now_ms), checked)

    def _append(self, to: TopicPartition, checked: CheckedBatch, told: Told) -> None:
        try:
            partition = self._data.partition(*to)
            info = partition.append(checked.batch, -1, self._host.clock.wall_ms(), checked=checked)
        except CodedError as error:
            self._refused(to, checked.batch, error, told)
            return
        except Exception as broken:
            # Whoever sent it must hear of it, or nothing is delivered any more.
            self._host.report(f"{to.topic}-{to.partition} could not take a delivery", broken)
            told(ErrorCode.UNKNOWN_SERVER_ERROR, ())
            return
        self._data.appended(partition)
        self._taken(partition, info, told)

    def _refused(self, to: TopicPartition, batch: memoryview, refusal: CodedError, told: Told) -> None:
        partition = self._data.replicas.partitions.get(to)
        known = refusal if partition is None else known_delivery(partition, batch, refusal)
        if partition is not None and isinstance(known, AppendInfo):
            self._taken(partition, known, told)
        elif isinstance(known, InvalidBatch):
            told(known.code, [at for at, _ in known.record_errors])
        elif isinstance(known, CodedError):
            told(known.code, ())

    def _taken(self, partition: Partition, info: AppendInfo, told: Told) -> None:
        """It is in the log of the leader, now or since an earlier attempt; nobody may rely on it yet."""
        held = Held.now(partition)
        if info.flush_due:
            self._data.flushing.flush(partition.log, partial(self._flushed, held, told))
        else:
            self._flushed(held, told, ErrorCode.NONE)

    def _flushed(self, held: Held, told: Told, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            told(error, ())
        else:
            self._data.when_committed(held, self._timeout_ms(), lambda code: told(code, ()))

    def close(self) -> None:
        self._elsewhere.close()


class ProduceQueues(PeerQueues[Consignment, messages.ProduceResponse]):
    api_key = ApiKey.PRODUCE
    purpose = PURPOSE

    def _take(self, waiting: list[Consignment]) -> tuple[list[Consignment], list[Consignment]]:
        """At most one for each partition; the others go with the next request."""
        now: dict[TopicPartition, Consignment] = {}
        later: list[Consignment] = []
        for each in waiting:
            if each.to in now or len(now) == MOST_PARCELS:
                later.append(each)
            else:
                now[each.to] = each
        return list(now.values()), later

    def _request(self, batch: list[Consignment]) -> messages.ProduceRequest:
        request = messages.ProduceRequest
        topics: dict[str, messages.ProduceRequest.TopicProduceData] = {}
        for to, records, _ in batch:
            topic = topics.get(to.topic)
            if topic is None:
                topic_id = self._cluster.topic_id(to.topic)
                topic = topics[to.topic] = request.TopicProduceData(name=to.topic, topic_id=topic_id, partition_data=[])
            topic.partition_data.append(request.PartitionProduceData(index=to.partition, records=memoryview(records)))
        timeout_ms = self._cluster.config.values.request_timeout_ms
        return request(acks=-1, timeout_ms=timeout_ms, topic_data=list(topics.values()))

    def _answered(self, batch: list[Consignment], answer: messages.ProduceResponse | None) -> None:
        outcomes: dict[tuple[bytes | str, int], tuple[ErrorCode, list[int]]] = {}
        for topic in [] if answer is None else answer.responses:
            for each in topic.partition_responses:
                outcome = ErrorCode.of(each.error_code), [error.batch_index for error in each.record_errors]
                outcomes[topic.name, each.index] = outcomes[topic.topic_id, each.index] = outcome
        missing = (ErrorCode.NETWORK_EXCEPTION if answer is None else ErrorCode.UNKNOWN_SERVER_ERROR), list[int]()
        for to, _, told in batch:
            by_id = outcomes.get((self._cluster.topic_id(to.topic), to.partition), missing)
            told(*outcomes.get((to.topic, to.partition), by_id))
