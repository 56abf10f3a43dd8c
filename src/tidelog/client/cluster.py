"""The brokers as a client sees them: which brokers exist, who leads what, where to send a request, and when to retry.

The information comes from Metadata and is kept until something fails. A retriable error or a broken connection is
retried with fresh metadata, after a growing pause, until `timeout_s` has passed. There is one exception: if the first
contact fails at every bootstrap address, it is not retried, because waiting does not fix a wrong address. Unattended
work sets `wait_for_first`, because it may start while a broker restarts.

A broker that is unreachable sends nothing, not even that it is gone. So a response is awaited for at most
`request_timeout_s`, which leaves time to find the new leader if `timeout_s` is longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, NotFound, Refused, TimedOut, Unreachable, check, error_for
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode, untraced

T = TypeVar("T")
DEFAULT_PORT: Final = 9092
FIRST_BACKOFF_S: Final = 0.05
#: the end of a transaction takes a few milliseconds, and the next one waits for it
ENDING_BACKOFF_S: Final = 0.005
LAST_BACKOFF_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
#: a broker that creates topics on demand has done so by then
CREATED_WITHIN_S: Final = 5.0
NO_LEADER: Final = -1
NO_TOPIC_ID: Final = bytes(16)
FIRST_VERSION_WITH_COORDINATOR_KEYS: Final = 4
#: kinds of coordinators
GROUP: Final = 0
TRANSACTION: Final = 1


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    #: those of the replicas that a move is adding, where that was asked for (`Client.describe_health`)
    adding: Sequence[int] = ()

    @property
    def replication_factor(self) -> int:
        """Without replicas that are being added: they have yet to be filled, and nobody is to be called for that."""
        return len(self.replicas) - len(self.adding)

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < self.replication_factor


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class NodeInfo(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None


class ClusterInfo(NamedTuple):
    cluster_id: str | None
    controller_id: int
    nodes: dict[int, NodeInfo]
    topics: dict[str, TopicInfo]

    @property
    def down(self) -> list[int]:
        """The brokers that have replicas, as far as the topics here tell, and are not there."""
        holders = {id for topic in self.topics.values() for p in topic.partitions.values() for id in p.replicas}
        return sorted(holders - self.nodes.keys())


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; `[::1]:9092` for IPv6; the port is 9092 where none is given."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]") or (part.count(":") > 1 and not part.startswith("[")):
            host, port = part, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refused(f"{part!r} is not a broker address", hint="use host:port, for example localhost:9092")
        addresses.append((host, int(port)))
    if not addresses:
        raise Refused("no broker address is given", hint="use host:port, for example localhost:9092")
    return addresses


class Cluster:
    def __init__(self, bootstrap: str, client_id: str, timeout_s: float, wait_for_first: bool = False) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._wait_for_first = wait_for_first
        self.timeout_s = timeout_s
        #: for the answer to one request; what a broker is told to wait for must come sooner
        self.request_timeout_s = min(timeout_s, REQUEST_TIMEOUT_S)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, NodeInfo] = {}
        self._controller_id = -1
        self._topics: dict[str, TopicInfo] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    def forget(self) -> None:
        """Something was not as the metadata said: the next question fetches it again."""
        self._topics = {}
        self._controller_id = -1

    # --- whom to ask --------------------------------------------------------------------------------

    def _connect(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None or connection.closed:
            patience_s = min(self.timeout_s, CONNECT_TIMEOUT_S)
            connection = Connection(host, port, self._client_id, self.request_timeout_s, patience_s)
            self._connections[host, port] = connection
        return connection

    def any_broker(self) -> Connection:
        """A connection to some broker: one that is open, else the first known or bootstrap address that answers."""
        opened = [address for address, connection in self._connections.items() if not connection.closed]
        known = [(node.host, node.port) for node in self._nodes.values()]
        failures: list[ClientError] = []
        for host, port in dict.fromkeys([*opened, *known, *self._bootstrap]):
            try:
                return self._connect(host, port)
            except ClientError as error:
                failures.append(untraced(error))
        try:
            if len(failures) == 1:
                raise failures[0]
            raise Unreachable("; ".join(map(str, failures)), hint=failures[0].hint)
        finally:
            del failures  # or the first would hold this frame, and this frame it

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._nodes:
            self.describe([])
        if node_id not in self._nodes:
            alive = ", ".join(map(str, sorted(self._nodes))) or "none"
            raise NotFound(f"broker {node_id} is not in the cluster", hint=f"available brokers: {alive}")
        node = self._nodes[node_id]
        return self._connect(node.host, node.port)

    def node_ids(self) -> list[int]:
        """The brokers that live, asked afresh."""
        return sorted(self.describe([]).nodes)

    def controller(self) -> Connection:
        if self._controller_id not in self._nodes:
            self.describe([])
        if self._controller_id not in self._nodes:
            raise error_for(ErrorCode.NOT_CONTROLLER, "the cluster", "it has no controller at the moment")
        return self.broker(self._controller_id)

    def leader(self, topic: str, partition: int) -> tuple[Connection, TopicInfo, PartitionInfo]:
        """The leader of a partition, with what the metadata says of both."""
        known = self._topics.get(topic)
        if known is None or partition not in known.partitions:
            known = self._look_up(topic)
        info = known.partitions.get(partition)
        if info is None:
            raise no_such_partition(known, partition)
        if info.leader not in self._nodes:
            # None, or one that was gone when the brokers were last asked for: then the topic is what is out of date.
            gone = None if info.leader == NO_LEADER else f"its leader, broker {info.leader}, is not in the cluster"
            self.forget()
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}", gone)
        return self.broker(info.leader), known, info

    def coordinator(self, key: str, kind: int = GROUP) -> Connection:
        """The broker that coordinates a group or a transactional id."""
        return self.coordinators([key], kind)[key]

    def coordinators(self, keys: Iterable[str], kind: int = GROUP) -> dict[str, Connection]:
        """Key -> the broker that coordinates it; asked for all at once where the brokers can be."""
        connection = self.any_broker()
        many = connection.version_of(ApiKey.FIND_COORDINATOR) >= FIRST_VERSION_WITH_COORDINATOR_KEYS
        keys = list(keys)
        answers: list[
            tuple[str, messages.FindCoordinatorResponse.Coordinator] | tuple[str, messages.FindCoordinatorResponse]
        ]
        if many:
            request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
            answers = [(found.key, found) for found in connection.call(ApiKey.FIND_COORDINATOR, request).coordinators]
        else:
            asked = [(key, messages.FindCoordinatorRequest(key_type=kind, key=key)) for key in keys]
            answers = [(key, connection.call(ApiKey.FIND_COORDINATOR, request)) for key, request in asked]
        for key, found in answers:
            check(found.error_code, f"the coordinator of {key}", found.error_message)
        return {key: self._connect(found.host, found.port) for key, found in answers}

    # --- metadata -----------------------------------------------------------------------------------

    def describe(self, topics: Iterable[str] | None = None, auto_create: bool = False) -> ClusterInfo:
        """The cluster, with the topics named; all of them for None. One question, not tried again.

        A topic that was named and cannot be described is an error; among all topics it is left out.
        """
        request = messages.MetadataRequest(
            topics=None if topics is None else [messages.MetadataRequest.MetadataRequestTopic(name=n) for n in topics],
            allow_auto_topic_creation=auto_create,
        )
        answer = self.any_broker().call(ApiKey.METADATA, request)
        self._nodes = {b.node_id: NodeInfo(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        self._controller_id = answer.controller_id
        found = {}
        for topic in answer.topics:
            if topics is None and topic.error_code:
                continue
            missing = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            check(topic.error_code, f"topic {topic.name}", "there is no such topic" if missing else None)
            name = topic.name or ""  # by name is how it was asked for
            found[name] = _topic_info(name, topic)
        self._topics.update(found)
        return ClusterInfo(answer.cluster_id, answer.controller_id, self._nodes, found)

    def topic(self, name: str, auto_create: bool = False) -> TopicInfo:
        """A topic as it is now. One that does not exist is an error at once, unless it may be created."""
        patience_s = min(self.timeout_s, CREATED_WITHIN_S) if auto_create else None
        return self.retrying(lambda: self._look_up(name, auto_create), auto_create, patience_s)

    def _look_up(self, name: str, auto_create: bool = False) -> TopicInfo:
        return self.describe([name], auto_create).topics[name]

    def known_topic(self, name: str, auto_create: bool = False) -> TopicInfo:
        """A topic as it was when last asked for."""
        return self._topics.get(name) or self.topic(name, auto_create)

    # --- trying again -------------------------------------------------------------------------------

    def retrying(self, attempt: Callable[[], T], topic_may_appear: bool = False, patience_s: float | None = None) -> T:
        """Repeats `attempt` while it fails with something that passes. Metadata is forgotten in between.

        `topic_may_appear` treats an unknown topic as passing too: right after its creation not every broker knows it.
        `patience_s` is for what brokers answer; that one answers at all is waited for as ever.
        """
        patience = Patience(self.timeout_s)
        answered = patience if patience_s is None else None
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not self.passes(error, topic_may_appear):
                    raise
                if isinstance(error, Unreachable):
                    patience.pause(error)
                else:
                    answered = answered or Patience(patience_s or 0)
                    answered.pause(error)
                self.forget()

    def passes(self, error: ClientError, topic_may_appear: bool = False) -> bool:
        """Whether it may help to ask again."""
        if isinstance(error, Unreachable):
            return self._wait_for_first or bool(self._nodes)
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            return topic_may_appear
        return error.retriable

    def call_leader(self, topic: str, partition: int, api_key: int, message: RequestMessage[T]) -> T:
        return self.leader(topic, partition)[0].call(api_key, message)


class Patience:
    """How long to go on trying: pauses that grow, and an end."""

    __slots__ = ("_backoff_s", "_deadline", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._backoff_s = 0.0

    def pause(self, error: ClientError) -> None:
        """Waits before the next attempt; raises `error`, or says how long it was tried, where time is up."""
        if not self._backoff_s:
            ending = error.code == ErrorCode.CONCURRENT_TRANSACTIONS
            self._backoff_s = ENDING_BACKOFF_S if ending else FIRST_BACKOFF_S
        if time.monotonic() + self._backoff_s > self._deadline:
            if isinstance(error, (Unreachable, NotFound)):
                raise error
            raise TimedOut(f"{error}; tried for {self.timeout_s:g} s", error.code, error.hint) from error
        time.sleep(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, LAST_BACKOFF_S)


def no_such_partition(topic: TopicInfo, partition: int) -> NotFound:
    last = len(topic.partitions) - 1
    return NotFound(
        f"topic {topic.name} has no partition {partition}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"its partitions are 0 to {last}" if last else "its only partition is 0",
    )


def _topic_info(name: str, topic: messages.MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    partitions = {
        p.partition_index: PartitionInfo(
            p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas
        )
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    }
    return TopicInfo(name, topic.topic_id, topic.is_internal, partitions)
