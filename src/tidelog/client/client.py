"""The client: finds the brokers, asks the right one, tries again where the error says so.

    with Client("127.0.0.1:9092") as client:
        client.admin.create_topic("orders", partitions=3)
        client.produce("orders", 0, [Record(value=b"one"), Record(value=b"two")])
        for record in client.read("orders", 0, from_offset="earliest", until_offset="latest"):
            print(record.offset, record.value)

It is blocking and has one thread. A retriable error, or a broken connection, is tried again with fresh metadata until
`timeout_s` is over; what remains is raised as a `ClientError` that says what was asked of whom.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, Unreachable, check, error_for
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

T = TypeVar("T")
FIRST_BACKOFF_S: Final = 0.05
LAST_BACKOFF_S: Final = 1.0
NO_LEADER: Final = -1


class PartitionInfo(NamedTuple):
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


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


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; `[::1]:9092` for IPv6; the port is 9092 where none is given."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or (part.endswith("]") and part.startswith("[")):
            host, port = part, "9092"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientError(f"{part!r} is not a broker address: write host:port, for example localhost:9092")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientError("no broker address given: write host:port, for example localhost:9092")
    return addresses


class Client:
    def __init__(self, bootstrap: str, client_id: str = "tidelog", timeout_s: float = 30.0) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._connections: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, NodeInfo] = {}
        self._controller_id = -1
        self._topics: dict[str, TopicInfo] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections = {}

    # --- whom to ask --------------------------------------------------------------------------------

    def _connect(self, host: str, port: int) -> Connection:
        connection = self._connections.get((host, port))
        if connection is None:
            connection = Connection(host, port, self._client_id, self.timeout_s)
            self._connections[host, port] = connection
        return connection

    def any_broker(self) -> Connection:
        """A connection to some broker: one that is known, else the first bootstrap address that answers."""
        known = [(node.host, node.port) for node in self._nodes.values()]
        failures: list[str] = []
        for host, port in dict.fromkeys([*self._connections, *known, *self._bootstrap]):
            try:
                return self._connect(host, port)
            except Unreachable as error:
                failures.append(str(error))
        raise Unreachable("; ".join(failures))

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._nodes:
            self.cluster([])
        if node_id not in self._nodes:
            raise ClientError(f"broker {node_id} is not in the cluster", ErrorCode.BROKER_NOT_AVAILABLE)
        node = self._nodes[node_id]
        return self._connect(node.host, node.port)

    def controller(self) -> Connection:
        if self._controller_id not in self._nodes:
            self.cluster([])
        return self.broker(self._controller_id)

    def leader(self, topic: str, partition: int) -> Connection:
        known = self._topics.get(topic)
        if known is None or partition not in known.partitions:
            known = self.topic(topic)
        info = known.partitions.get(partition)
        if info is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}")
        if info.leader == NO_LEADER:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self.broker(info.leader)

    # --- metadata -----------------------------------------------------------------------------------

    def cluster(self, topics: Iterable[str] | None = None, auto_create: bool = False) -> ClusterInfo:
        """The cluster, with the topics named; all of them for None."""
        request = messages.MetadataRequest(
            topics=None if topics is None else [messages.MetadataRequest.MetadataRequestTopic(name=n) for n in topics],
            allow_auto_topic_creation=auto_create,
        )
        answer = self.any_broker().call(ApiKey.METADATA, request)
        self._nodes = {b.node_id: NodeInfo(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
        self._controller_id = answer.controller_id
        found = {}
        for topic in answer.topics:
            check(topic.error_code, f"topic {topic.name}")
            found[topic.name] = TopicInfo(
                topic.name,
                topic.topic_id,
                topic.is_internal,
                {
                    p.partition_index: PartitionInfo(
                        p.partition_index,
                        p.leader_id,
                        p.leader_epoch,
                        p.replica_nodes,
                        p.isr_nodes,
                        p.offline_replicas,
                    )
                    for p in sorted(topic.partitions, key=lambda p: p.partition_index)
                },
            )
        self._topics.update(found)
        return ClusterInfo(answer.cluster_id, answer.controller_id, self._nodes, found)

    def topic(self, name: str) -> TopicInfo:
        return self.retrying(lambda: self.cluster([name]).topics[name], create_race=False)

    # --- trying again -------------------------------------------------------------------------------

    def retrying(self, attempt: Callable[[], T], create_race: bool = True) -> T:
        """Repeats `attempt` while it fails with something that passes. Metadata is forgotten in between.

        `create_race` treats an unknown topic as passing too: right after its creation not every broker knows it.
        """
        deadline = time.monotonic() + self.timeout_s
        backoff = FIRST_BACKOFF_S
        while True:
            try:
                return attempt()
            except ClientError as error:
                passing = error.retriable or (isinstance(error, Unreachable) and bool(self._nodes))
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create_race:
                    passing = False
                if not passing or time.monotonic() + backoff > deadline:
                    raise
                self._forget()
            time.sleep(backoff)
            backoff = min(backoff * 2, LAST_BACKOFF_S)

    def _forget(self) -> None:
        self.close()
        self._topics = {}

    def call_leader(self, topic: str, partition: int, api_key: int, message: Any, at_most: int = 2**15) -> Any:
        return self.leader(topic, partition).call(api_key, message, at_most)
