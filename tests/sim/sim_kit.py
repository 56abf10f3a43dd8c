"""A small simulated cluster for tests that need one thing to go wrong at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.peers.requester import Failure
from tidelog.replica.partition import Partition
from tidelog.sim.oracle import Oracle
from tidelog.sim.simulated_client import SimulatedClient
from tidelog.sim.trace import text_of
from tidelog.sim.world import SimulatedBroker, World
from tidelog.wire import messages
from tidelog.wire.records import build_batch

#: simulated; whatever takes longer hangs
PATIENCE_MS = 120_000


class SmallWorld(World):
    """A world in which time passes when a test says so."""

    def run(self, span_ms: int) -> None:
        end_ms = self.time.now_ms + span_ms
        while self.step(end_ms):
            pass

    def run_until(self, condition: Callable[[], bool], most_ms: int = PATIENCE_MS) -> None:
        end_ms = self.time.now_ms + most_ms
        while not condition():
            assert self.step(end_ms), f"this did not come about:\n{text_of(self.trace.happenings)}"


def cluster_of(brokers: int, seed: int = 0, **settings: str) -> SmallWorld:
    """Brokers that all serve; `a_b="x"` sets a.b."""
    world = SmallWorld(seed, brokers, {name.replace("_", "."): value for name, value in settings.items()})
    for site in world.brokers.values():
        site.start()
    world.run_until(lambda: all(site.is_ready for site in world.brokers.values()))
    return world


def create(world: SmallWorld, topic: str, replicas: list[int]) -> None:
    """A topic of one partition."""
    client, done = SimulatedClient(world, Oracle(), "admin"), []
    request = messages.CreateTopicsRequest
    placed = request.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    wanted = request.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=[placed])
    client.ask(0, request(topics=[wanted], timeout_ms=5_000), done.append, 10_000)
    world.run_until(lambda: bool(done))


def leads(site: SimulatedBroker) -> list[str]:
    """The partitions that a broker leads, as far as it knows."""
    assert site.broker is not None
    return [partition.log.name for partition in site.broker.data.replicas.partitions.values() if partition.is_leader]


def controller_of(world: SmallWorld) -> SimulatedBroker:
    return world.brokers[world.stored().controller_id]


def produce(world: SmallWorld, leader: int, topic: str, values: list[bytes]) -> None:
    """Sends a batch, and does not wait for its acknowledgement."""
    request = messages.ProduceRequest
    records = build_batch([(0, None, value, None) for value in values])
    data = request.TopicProduceData(name=topic, partition_data=[request.PartitionProduceData(index=0, records=records)])
    client = SimulatedClient(world, Oracle(), "writer")
    client.ask(leader, request(acks=-1, timeout_ms=5_000, topic_data=[data]), lambda outcome: None, 10_000, 12)


def replica(site: SimulatedBroker, topic: str) -> Partition:
    assert site.broker is not None
    return site.broker.data.replicas.partitions[topic, 0]


class PositionKeeper:
    """Commits positions of groups without members, and asks for them, until there is an answer."""

    def __init__(self, world: SmallWorld) -> None:
        self._world = world
        self._client = SimulatedClient(world, Oracle(), "keeper")

    def commit(self, group: str, topic: str, offset: int) -> None:
        request = messages.OffsetCommitRequest
        partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        wanted = request(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        self._ask(group, wanted, lambda answer: answer.topics[0].partitions[0].error_code)

    def position(self, group: str, topic: str) -> int:
        request = messages.OffsetFetchRequest
        topics = [request.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        wanted = request(groups=[request.OffsetFetchRequestGroup(group_id=group, topics=topics)])
        answer = self._ask(group, wanted, lambda answer: answer.groups[0].error_code)
        offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
        return offset

    def _ask(self, group: str, wanted: Any, code_of: Callable[[Any], int]) -> Any:
        """Of whoever is the coordinator."""
        client, answers = self._client, []

        def look() -> None:
            request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            client.ask(client.any_broker(), request, found, 4_000)

        def found(outcome: Any) -> None:
            if isinstance(outcome, Failure) or outcome.message.coordinators[0].error_code:
                client.after(100, look)
            else:
                client.ask(outcome.message.coordinators[0].node_id, wanted, answered, 4_000, 9)

        def answered(outcome: Any) -> None:
            if isinstance(outcome, Failure) or code_of(outcome.message):
                client.after(100, look)
            else:
                answers.append(outcome.message)

        look()
        self._world.run_until(lambda: bool(answers))
        return answers[0]
