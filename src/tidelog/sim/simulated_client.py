"""A simulated client: it asks brokers, remembers who leads what, and does no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidelog.net.link import PeerLink
from tidelog.net.requester import PeerRequester
from tidelog.peers.requester import NEWEST, Answered, Failure, FailureKind, PeerAddress
from tidelog.sim.log_place import LogPlace
from tidelog.sim.oracle import Oracle
from tidelog.sim.process import MachineClock
from tidelog.sim.world import PORT, World
from tidelog.wire import messages
from tidelog.wire.apis import APIS
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode

R = TypeVar("R")
KEY_OF = {f"{api.name}Request": int(key) for key, api in APIS.items()}
METADATA_TIMEOUT_MS = 3_000
#: names instead of topic ids: what a client knows by name it need not look up
METADATA_VERSION = 12

#: errors that pass: a client looks for the leader, or waits, and tries again
RETRIABLE = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)


class SimulatedClient:
    def __init__(self, world: World, oracle: Oracle, name: str) -> None:
        self.world = world
        self.oracle = oracle
        self.name = name
        self.random = world.random(f"client {name}")
        clock = MachineClock(world.time)
        self.process, self.host = world.host(name, clock, self.random)
        self._requester = PeerRequester(-1, self.host, world.network.dialler(name), self.random)
        self._links: dict[int, PeerLink] = {}
        #: the leader epoch of each partition and who leads in it, as far as is known
        self._leaders: dict[LogPlace, tuple[int, int]] = {}
        self.topic_names: dict[bytes, str] = {}
        self._refreshing: dict[str, list[Callable[[], None]]] = {}
        self.is_stopped = False

    def after(self, span_ms: int, callback: Callable[[], object]) -> None:
        self.process.add(self.host.clock.monotonic_ms() + span_ms, callback)

    def soon(self, least_ms: int, most_ms: int, callback: Callable[[], object]) -> None:
        self.after(self.random.randint(least_ms, most_ms), callback)

    # --- asking -------------------------------------------------------------------------------------------

    def ask(
        self,
        broker_id: int,
        request: RequestMessage[R],
        done: Callable[[Answered[R] | Failure], object],
        timeout_ms: int,
        at_most: int = NEWEST,
    ) -> None:
        link = self._links.get(broker_id)
        if link is None:
            address = PeerAddress(broker_id, f"b{broker_id}", PORT)
            link = self._links[broker_id] = self._requester.link(address, self.name)

        def answered(outcome: Answered[R] | Failure) -> None:
            if isinstance(outcome, Failure) and outcome.kind is FailureKind.TIMED_OUT:
                self._hang_up(broker_id, link)
            done(outcome)

        link.send(KEY_OF[type(request).__name__], request, answered, timeout_ms, at_most)

    def _hang_up(self, broker_id: int, link: PeerLink) -> None:
        """As with stock clients, a request that times out ends the connection, and with it all that follow.

        Otherwise a batch could reach the broker although the one before it has not been sent.
        """
        if self._links.get(broker_id) is link:
            del self._links[broker_id]
            link.close()

    def any_broker(self) -> int:
        return self.random.choice(list(self.world.brokers))

    def count(self, operation: str, outcome: Any) -> None:
        self.oracle.operations[f"{operation}: {outcome}"] += 1

    def witness(self, what: str) -> None:
        self.oracle.witnessed[what] += 1

    # --- who leads ----------------------------------------------------------------------------------------

    def refresh(self, topic: str, then: Callable[[], None]) -> None:
        """Asks some broker who leads the partitions of a topic; `then` in any case."""
        waiting = self._refreshing.setdefault(topic, [])
        waiting.append(then)
        if len(waiting) == 1:
            request = messages.MetadataRequest
            wanted = request(topics=[request.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            self.ask(
                self.any_broker(),
                wanted,
                lambda outcome: self._refreshed(topic, outcome),
                METADATA_TIMEOUT_MS,
                METADATA_VERSION,
            )

    def _refreshed(self, topic: str, outcome: Answered[messages.MetadataResponse] | Failure) -> None:
        if not isinstance(outcome, Failure):
            for found in outcome.message.topics:
                if not found.error_code:
                    self.topic_names[found.topic_id] = topic
                    for partition in found.partitions:
                        self._learn(LogPlace(topic, partition.partition_index), partition)
        for then in self._refreshing.pop(topic):
            then()

    def _learn(self, place: LogPlace, told: messages.MetadataResponse.MetadataResponsePartition) -> None:
        """A broker that is behind tells of an earlier leader: nobody goes back to that one."""
        if told.leader_epoch >= self.leader_epoch(place):
            self._leaders[place] = told.leader_epoch, told.leader_id

    def forget_leaders(self, topic: str) -> None:
        self._leaders = {place: led for place, led in self._leaders.items() if place.topic != topic}

    def leader(self, place: LogPlace) -> int | None:
        _, leader = self._leaders.get(place, (-1, -1))
        return None if leader < 0 else leader

    def leader_epoch(self, place: LogPlace) -> int:
        epoch, _ = self._leaders.get(place, (-1, -1))
        return epoch
