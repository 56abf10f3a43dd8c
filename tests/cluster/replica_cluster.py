"""A cluster of brokers 1, 2, 3 … for tests of replication: who writes, who reads, who hears the controller, and who
dies. Time is simulated, as `broker_cluster` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker_cluster import BrokerCluster, Node
from tidelog.control.leadership import ElectionType, IsrChange, IsrResult
from tidelog.control.reassignment import WantedReassignment
from tidelog.log.memory_disk import MemoryDisk
from tidelog.node.voice import PURPOSE
from tidelog.peers.requester import NEWEST, Answered, Failure, FailureKind, Link, LinkOptions, PeerAddress, Requester
from tidelog.replica.partition import Partition
from tidelog.wire import messages
from tidelog.wire.records import build_batch, iter_records

TIMESTAMP_MS = 1_700_000_000_000
SETTINGS = {
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    "auto.create.topics.enable": "false",
}


class Asked:
    """A client's request. Time passes until its answer is there, when somebody looks at it."""

    def __init__(self, cluster: BrokerCluster, outcome: list[Answered[Any] | Failure]) -> None:
        self._cluster = cluster
        self._outcome = outcome

    @property
    def is_answered(self) -> bool:
        return bool(self._outcome)

    @property
    def outcome(self) -> Answered[Any] | Failure:
        return self._outcome[0]

    @property
    def answer(self) -> Any:
        self._cluster.run_until(lambda: self.is_answered)
        assert isinstance(self._outcome[0], Answered), self._outcome[0]
        return self._outcome[0].message


class Produced(Asked):
    @property
    def result(self) -> tuple[int, int]:
        """(error code, base offset)"""
        (partition,) = self.answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset


class Site:
    """One broker, however often it is killed and started again."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int, settings: dict[str, str]) -> None:
        self._cluster = cluster
        self.id = broker_id
        self.settings = settings

    @property
    def node(self) -> Node:
        return self._cluster.nodes[self.id]

    @property
    def disk(self) -> MemoryDisk:
        return self._cluster.disks[self.id]

    def start(self) -> None:
        self._cluster.start(self.id, **self.settings)

    def kill(self) -> None:
        self._cluster.kill(self.id)

    def lose_disk(self) -> None:
        """It starts with an empty one next time."""
        self._cluster.disks[self.id] = MemoryDisk()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.node.broker.data.replicas.partitions[topic, index]

    def produce(self, records: int | bytes = 1, acks: int = -1, topic: str = "t", timeout_ms: int = 30_000) -> Produced:
        data = batch(records) if isinstance(records, int) else records
        request = messages.ProduceRequest
        wanted = request.TopicProduceData(name=topic, partition_data=[request.PartitionProduceData(records=data)])
        body = request(acks=acks, timeout_ms=timeout_ms, topic_data=[wanted])
        return Produced(self._cluster, self._cluster.send(self.id, body, 12))

    def fetch(self, offset: int, topic: str = "t", version: int = 12, rack_id: str = "") -> Any:
        """What a consumer gets at once."""
        request = messages.FetchRequest
        place = request.FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = [request.FetchTopic(topic=topic, partitions=[place])]
        answer = self._cluster.ask(self.id, request(min_bytes=1, topics=wanted, rack_id=rack_id), version)
        return answer.responses[0].partitions[0]


class ReplicaCluster(BrokerCluster):
    """`racks` and `layouts` are those of brokers 1, 2, 3 …"""

    def __init__(
        self,
        brokers: int = 3,
        racks: Sequence[str] = (),
        seed: int = 0,
        layouts: Sequence[str] = (),
        **settings: str,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        #: brokers that the controller's word does not reach
        self.deaf: set[int] = set()
        #: what leaders ask about their ISR gets no answer
        self.isr_is_stuck = False
        super().__init__(0, seed, {**SETTINGS, **named}, wrap_requester=lambda node, way: Deafening(self, way))
        own: list[dict[str, str]] = [{} for _ in range(brokers)]
        for each, rack in zip(own, racks, strict=False):
            each["broker_rack"] = rack
        for each, layout in zip(own, layouts, strict=False):
            each["log_layout"] = layout
        self.sites = {broker: Site(self, broker, each) for broker, each in enumerate(own, 1)}
        for site in self.sites.values():
            site.start()

    def __getitem__(self, broker: int) -> Site:
        return self.sites[broker]

    def begin(self, broker_id: int, **settings: str) -> Node:
        node = super().begin(broker_id, **{**self.sites[broker_id].settings, **settings})
        changes = node.broker.replication.isr_changes
        alter_partition = changes._alter_partition

        def alter(wanted: Sequence[IsrChange], done: Callable[[list[IsrResult]], None]) -> None:
            if not self.isr_is_stuck:
                alter_partition(wanted, done)

        changes._alter_partition = alter
        return node

    def leading(self, topic: str = "t") -> Site:
        return self.sites[self.leader(topic, 0)]

    def isr(self, topic: str = "t") -> tuple[int, ...]:
        assigned = self.stored.partition(topic, 0)
        assert assigned is not None
        return tuple(sorted(assigned.isr))

    def topic(self, name: str = "t", replicas: Sequence[int] = (1, 2, 3), **configs: str) -> None:
        """Creates a topic of one partition."""
        request = messages.CreateTopicsRequest
        wanted = request.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[request.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[
                request.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
            ],
        )
        (created,) = self.ask(self.controller.id, request(topics=[wanted], timeout_ms=30_000)).topics
        assert created.error_code == 0, created

    def write(self, topic: str = "t", records: int | bytes = 1) -> None:
        """Has records written that are acknowledged by all."""
        asked = self.leading(topic).produce(records, topic=topic)
        assert asked.result[0] == 0, asked.result

    def delete_records(self, before_offset: int, timeout_ms: int = 30_000) -> Asked:
        request = messages.DeleteRecordsRequest
        place = request.DeleteRecordsPartition(partition_index=0, offset=before_offset)
        wanted = [request.DeleteRecordsTopic(name="t", partitions=[place])]
        return Asked(self, self.send(self.leading().id, request(topics=wanted, timeout_ms=timeout_ms)))

    def delete_topic(self, name: str) -> None:
        request = messages.DeleteTopicsRequest
        wanted = request(topics=[request.DeleteTopicState(name=name)], timeout_ms=30_000)
        (result,) = self.ask(self.controller.id, wanted).responses
        assert result.error_code == 0, result

    def reassign(self, *replicas: int) -> None:
        request = messages.AlterPartitionReassignmentsRequest
        place = request.ReassignablePartition(partition_index=0, replicas=list(replicas))
        wanted = [request.ReassignableTopic(name="t", partitions=[place])]
        answer = self.ask(self.controller.id, request(topics=wanted, timeout_ms=30_000))
        assert answer.responses[0].partitions[0].error_code == 0, answer

    def reassign_unheard(self, replicas: Sequence[int]) -> None:
        """The same, without waiting for the answer."""
        wanted = [WantedReassignment("t", 0, tuple(replicas))]
        self.controller.broker.cluster.decide(
            lambda room: room.alter_partition_reassignments(wanted), lambda results: None
        )

    def elect_preferred(self, topic: str = "t") -> None:
        self.elect(ElectionType.PREFERRED, topic)

    def elect(self, kind: ElectionType, topic: str = "t") -> None:
        request = messages.ElectLeadersRequest
        wanted = [request.TopicPartitions(topic=topic, partitions=[0])]
        self.ask(self.controller.id, request(election_type=kind, topic_partitions=wanted, timeout_ms=30_000))

    def alter(self, kind: int, name: str, **configs: str) -> None:
        request = messages.IncrementalAlterConfigsRequest
        settings = [request.AlterableConfig(name=key, config_operation=0, value=text) for key, text in configs.items()]
        resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)
        (result,) = self.ask(self.controller.id, request(resources=[resource])).responses
        assert result.error_code == 0, result

    def separate(self, broker: int, *others: int) -> None:
        """Nothing passes between a broker and others."""
        for other in others:
            self.network.cut(f"b{broker}", f"b{other}")
            self.network.cut(f"b{other}", f"b{broker}")

    def join(self, broker: int, *others: int) -> None:
        for other in others:
            self.network.mend(f"b{broker}", f"b{other}")
            self.network.mend(f"b{other}", f"b{broker}")

    def contents(self, topic: str = "t", *brokers: int) -> set[bytes]:
        """The bytes of the replicas: one element if they are the same."""
        return {content(self[broker].partition(topic)) for broker in brokers or (1, 2, 3)}


class Deafening:
    """The way of a broker to others, on which what the controller says to deaf brokers is lost."""

    def __init__(self, cluster: ReplicaCluster, requester: Requester) -> None:
        self._cluster = cluster
        self._requester = requester

    def link(self, peer: PeerAddress, purpose: str, options: LinkOptions = LinkOptions()) -> Link:  # noqa: B008
        link = self._requester.link(peer, purpose, options)
        return DeafeningLink(self._cluster, link) if purpose == PURPOSE else link


class DeafeningLink:
    def __init__(self, cluster: ReplicaCluster, link: Link) -> None:
        self._cluster = cluster
        self._link = link

    @property
    def peer(self) -> PeerAddress:
        return self._link.peer

    @property
    def unanswered(self) -> int:
        return self._link.unanswered

    def send(self, api_key: int, asked: Any, done: Any, timeout_ms: int, at_most: int = NEWEST) -> None:
        cluster = self._cluster
        if self.peer.node_id in cluster.deaf:
            lost = Failure(FailureKind.TIMED_OUT, "lost on its way", True)
            cluster.timer.add(cluster.clock.now_ms + 10, lambda: done(lost))
        else:
            self._link.send(api_key, asked, done, timeout_ms, at_most)

    def close(self) -> None:
        self._link.close()


def batch(records: int = 1, value: bytes = b"value", **how: Any) -> bytes:
    return bytes(build_batch([(TIMESTAMP_MS, b"key", value, None)] * records, **how))


def content(partition: Partition) -> bytes:
    log = partition.log
    found, at = b"", log.log_start_offset
    while at < log.log_end_offset and (piece := log.read(at, 1 << 20, log.log_end_offset)) is not None:
        found += piece.read()
        at = piece.next_offset
    return found


def values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in iter_records(content(partition))]
