"""Administration: topics, partitions, configurations, records, leaders, disks.

Requests about the cluster's metadata go to the controller. If brokers forward such requests themselves (Apache Kafka
without ZooKeeper), they go to the broker that is named as controller. Requests about one broker (its configuration, its
disks) go to that broker, and requests about a partition go to its leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.client.cluster import Cluster, NodeInfo, Patience
from tidelog.client.connection import Connection
from tidelog.client.errors import ClientError, NotFound, Refused, check, error_for
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.classes import RequestMessage
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
#: the source of a configuration value, by the protocol's number
CONFIG_SOURCES: Final = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "start",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
CONFIG_TYPES: Final = (
    "unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password",
)  # fmt: skip
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
ELECTION_TYPES: Final = {"preferred": 0, "unclean": 1}
BROKER_DEFAULT: Final = -1
DELETED_WITHIN_S: Final = 5.0
FIRST_DELETE_BY_ID: Final = 6
FIRST_WITH_FENCED_BROKERS: Final = 2


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    #: -1 where the broker does not tell
    partitions: int
    replication_factor: int


class ConfigEntry(NamedTuple):
    name: str
    #: None where there is none, or it must not be shown
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None
    #: (name, value, source), the strongest first
    synonyms: list[tuple[str, str | None, str]]

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class DescribedCluster(NamedTuple):
    cluster_id: str
    controller_id: int
    nodes: dict[int, NodeInfo]
    fenced: list[int]


class OngoingMove(NamedTuple):
    """A move of replicas under way: all replicas, old and new, and which of them come and go."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ReplicaSize(NamedTuple):
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    path: str
    error_code: int
    #: -1 where the broker does not tell
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaSize]


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _timeout_ms(self) -> int:
        return int(self._cluster.request_timeout_s * 800)

    # --- topics -------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Creates a topic, or only tells whether it could be. `assignments` places replicas: partition -> brokers."""
        request = messages.CreateTopicsRequest
        topic = request.CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in (assignments or {}).items()
            ],
            configs=[request.CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        message = request(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)

        def attempt() -> CreatedTopic:
            answer = self._cluster.controller().call(ApiKey.CREATE_TOPICS, message)
            result = answer.topics[0]
            check(result.error_code, f"creating topic {name}", result.error_message)
            return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)

        created = self._cluster.retrying(attempt)
        if not validate_only:
            # Right after its creation a topic may not be known to every broker; the next question must find it.
            self._cluster.forget()
            self._cluster.retrying(lambda: self._cluster.describe([name]), topic_may_appear=True)
        return created

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes topics; the first that cannot be is raised when the others are gone."""
        wanted = list(names)
        request = messages.DeleteTopicsRequest

        def attempt() -> messages.DeleteTopicsResponse:
            connection = self._cluster.controller()
            by_id = connection.version_of(ApiKey.DELETE_TOPICS) >= FIRST_DELETE_BY_ID
            message = request(timeout_ms=self._timeout_ms)
            if by_id:
                message.topics = [request.DeleteTopicState(name=name) for name in wanted]
            else:
                message.topic_names = wanted
            return connection.call(ApiKey.DELETE_TOPICS, message)

        answer = self._cluster.retrying(attempt)
        self._cluster.forget()
        self._see_them_gone([result.name for result in answer.responses if result.name and not result.error_code])
        _raise_first(
            (result.error_code, f"deleting topic {result.name}", result.error_message) for result in answer.responses
        )

    def _see_them_gone(self, names: list[str]) -> None:
        """The next question shall not find them. Somebody may create them anew, so this is not insisted on."""
        patience = Patience(DELETED_WITHIN_S)
        for name in names:
            try:
                while True:
                    self._cluster.describe([name])
                    patience.pause(NotFound("still there"))
            except ClientError:
                self._cluster.forget()

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        """Adds partitions to a topic until it has `total` of them."""
        request = messages.CreatePartitionsRequest
        message = request(
            topics=[request.CreatePartitionsTopic(name=topic, count=total, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def attempt() -> None:
            result = self._cluster.controller().call(ApiKey.CREATE_PARTITIONS, message).results[0]
            check(result.error_code, f"adding partitions to topic {topic}", result.error_message)

        self._cluster.retrying(attempt)
        self._cluster.forget()

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Makes each partition begin at an offset, -1 for its end: partition -> its first offset now."""
        left = dict(before)
        low: dict[int, int] = {}

        def attempt() -> None:
            by_leader: dict[Connection, list[int]] = {}
            for partition in left:
                by_leader.setdefault(self._cluster.leader(topic, partition)[0], []).append(partition)
            failures = []
            for connection, partitions in by_leader.items():
                for result in self._delete_records(connection, topic, {p: left[p] for p in partitions}):
                    if result.error_code:
                        what = f"deleting records of {topic}-{result.partition_index}"
                        failures.append((result.error_code, what, None))
                    else:
                        low[result.partition_index] = result.low_watermark
                        del left[result.partition_index]
            _raise_first(failures)

        self._cluster.retrying(attempt)
        return dict(sorted(low.items()))

    def _delete_records(
        self, connection: Connection, topic: str, before: Mapping[int, int]
    ) -> list[messages.DeleteRecordsResponse.DeleteRecordsPartitionResult]:
        request = messages.DeleteRecordsRequest
        partitions = [
            request.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in before.items()
        ]
        message = request(
            topics=[request.DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=self._timeout_ms
        )
        return connection.call(ApiKey.DELETE_RECORDS, message).topics[0].partitions

    # --- configurations -----------------------------------------------------------------------------

    def describe_configs(
        self, kind: str, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The configuration of a topic, broker, group or client-metrics subscription; all of it for None."""
        request = messages.DescribeConfigsRequest
        resource = request.DescribeConfigsResource(
            resource_type=_resource_type(kind),
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        message = request(resources=[resource], include_synonyms=True, include_documentation=documentation)

        def attempt() -> list[ConfigEntry]:
            answer = self._for_resource(kind, name).call(ApiKey.DESCRIBE_CONFIGS, message)
            result = answer.results[0]
            check(result.error_code, f"the configuration of {_resource(kind, name)}", result.error_message)
            return sorted(_config_entry(entry) for entry in result.configs)

        return self._cluster.retrying(attempt)

    def alter_configs(
        self,
        kind: str,
        name: str,
        *,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes single values and leaves the others. `append` and `subtract` are for lists."""
        request = messages.IncrementalAlterConfigsRequest
        operations = [
            *((key, SET, value) for key, value in (set or {}).items()),
            *((key, DELETE, None) for key in delete),
            *((key, APPEND, value) for key, value in (append or {}).items()),
            *((key, SUBTRACT, value) for key, value in (subtract or {}).items()),
        ]
        configs = [
            request.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ]
        resource = request.AlterConfigsResource(resource_type=_resource_type(kind), resource_name=name, configs=configs)
        message = request(resources=[resource], validate_only=validate_only)
        self._alter(ApiKey.INCREMENTAL_ALTER_CONFIGS, kind, name, message)

    def _alter(
        self,
        api_key: int,
        kind: str,
        name: str,
        message: RequestMessage[messages.AlterConfigsResponse | messages.IncrementalAlterConfigsResponse],
    ) -> None:
        def attempt() -> None:
            result = self._for_resource(kind, name).call(api_key, message).responses[0]
            check(result.error_code, f"changing the configuration of {_resource(kind, name)}", result.error_message)

        self._cluster.retrying(attempt)

    def _for_resource(self, kind: str, name: str) -> Connection:
        """A broker's own configuration is the broker's business; everything else is the controller's."""
        if kind != "broker" or not name:
            return self._cluster.controller()
        if not name.isascii() or not name.isdigit():
            raise Refused(f"{name!r} is not a broker's number", ErrorCode.INVALID_REQUEST)
        return self._cluster.broker(int(name))

    # --- the cluster --------------------------------------------------------------------------------

    def describe_cluster(self) -> DescribedCluster:
        def attempt() -> DescribedCluster:
            connection = self._cluster.any_broker()
            if ApiKey.DESCRIBE_CLUSTER not in connection.versions:
                found = self._cluster.describe([])
                return DescribedCluster(found.cluster_id or "", found.controller_id, found.nodes, [])
            tells_fenced = connection.version_of(ApiKey.DESCRIBE_CLUSTER) >= FIRST_WITH_FENCED_BROKERS
            message = messages.DescribeClusterRequest(include_fenced_brokers=tells_fenced)
            answer = connection.call(ApiKey.DESCRIBE_CLUSTER, message)
            check(answer.error_code, "the cluster", answer.error_message)
            nodes = {b.broker_id: NodeInfo(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers}
            fenced = [broker.broker_id for broker in answer.brokers if broker.is_fenced]
            return DescribedCluster(answer.cluster_id, answer.controller_id, nodes, fenced)

        return self._cluster.retrying(attempt)

    def log_dirs(self, broker_id: int, topics: Iterable[str] | None = None) -> list[LogDir]:
        """The directories of a broker and the replicas in them; of all topics for None."""
        wanted = None
        if topics is not None:
            described = self._cluster.retrying(lambda: self._cluster.describe(topics))
            wanted = [
                messages.DescribeLogDirsRequest.DescribableLogDirTopic(topic=t.name, partitions=list(t.partitions))
                for t in described.topics.values()
            ]
        message = messages.DescribeLogDirsRequest(topics=wanted)

        def attempt() -> list[LogDir]:
            answer = self._cluster.broker(broker_id).call(ApiKey.DESCRIBE_LOG_DIRS, message)
            check(answer.error_code, f"the directories of broker {broker_id}")
            return [_log_dir(result) for result in answer.results]

        return self._cluster.retrying(attempt)

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, kind: str = "preferred"
    ) -> dict[TopicPartition, ClientError | None]:
        """Elects the preferred leaders, or with "unclean" any replica that lives; of all partitions for None.

        What is given back tells of each partition whose leader was to change: None where it did.
        """
        request = messages.ElectLeadersRequest
        by_topic: dict[str, list[int]] | None = None
        if partitions is not None:
            by_topic = {}
            for topic, partition in partitions:
                by_topic.setdefault(topic, []).append(partition)
        wanted = (
            None if by_topic is None else [request.TopicPartitions(topic=t, partitions=p) for t, p in by_topic.items()]
        )
        message = request(election_type=ELECTION_TYPES[kind], topic_partitions=wanted, timeout_ms=self._timeout_ms)

        def attempt() -> dict[TopicPartition, ClientError | None]:
            answer = self._cluster.controller().call(ApiKey.ELECT_LEADERS, message)
            check(answer.error_code, "electing leaders")
            outcome: dict[TopicPartition, ClientError | None] = {}
            for topic in answer.replica_election_results:
                for result in topic.partition_result:
                    what = f"electing a leader of {topic.topic}-{result.partition_id}"
                    error = error_for(result.error_code, what, result.error_message) if result.error_code else None
                    if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                        outcome[TopicPartition(topic.topic, result.partition_id)] = error
            return outcome

        outcome = self._cluster.retrying(attempt)
        self._cluster.forget()
        return outcome

    # --- moving replicas ----------------------------------------------------------------------------

    def reassign(self, plan: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, ClientError | None]:
        """Begins to move replicas to the brokers named, the preferred leader first; None cancels a move under way.

        What is given back tells of each partition why it cannot be, or None. `reassignments` tells when it is done.
        """
        request = messages.AlterPartitionReassignmentsRequest
        by_topic: dict[str, list[messages.AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, partition), replicas in plan.items():
            wanted = None if replicas is None else list(replicas)
            entry = request.ReassignablePartition(partition_index=partition, replicas=wanted)
            by_topic.setdefault(topic, []).append(entry)
        topics = [request.ReassignableTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
        message = request(timeout_ms=self._timeout_ms, topics=topics)

        def attempt() -> dict[TopicPartition, ClientError | None]:
            answer = self._cluster.controller().call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, message)
            check(answer.error_code, "moving replicas", answer.error_message)
            return {
                TopicPartition(topic.name, result.partition_index): error_for(
                    result.error_code, f"moving replicas of {topic.name}-{result.partition_index}", result.error_message
                )
                if result.error_code
                else None
                for topic in answer.responses
                for result in topic.partitions
            }

        outcome = self._cluster.retrying(attempt)
        self._cluster.forget()
        return outcome

    def reassignments(self) -> dict[TopicPartition, OngoingMove]:
        """The moves of replicas under way."""
        message = messages.ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None)

        def attempt() -> dict[TopicPartition, OngoingMove]:
            answer = self._cluster.controller().call(ApiKey.LIST_PARTITION_REASSIGNMENTS, message)
            check(answer.error_code, "the moves of replicas", answer.error_message)
            return {
                TopicPartition(topic.name, p.partition_index): OngoingMove(
                    p.replicas, p.adding_replicas, p.removing_replicas
                )
                for topic in answer.topics
                for p in topic.partitions
            }

        return self._cluster.retrying(attempt)


def _raise_first(results: Iterable[tuple[int, str, str | None]]) -> None:
    for code, what, detail in results:
        missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        check(code, what, "there is no such topic" if missing else detail)


def _resource_type(kind: str) -> int:
    if kind not in RESOURCE_TYPES:
        raise Refused(f"{kind} has no configuration", hint=f"one of {', '.join(RESOURCE_TYPES)}")
    return RESOURCE_TYPES[kind]


def _resource(kind: str, name: str) -> str:
    return f"{kind} {name}" if name else f"all {kind}s"


def _source(number: int) -> str:
    return CONFIG_SOURCES.get(number, "unknown")


def _config_entry(entry: messages.DescribeConfigsResponse.DescribeConfigsResourceResult) -> ConfigEntry:
    known_type = 0 <= entry.config_type < len(CONFIG_TYPES)
    return ConfigEntry(
        entry.name,
        entry.value,
        _source(entry.config_source),
        entry.read_only,
        entry.is_sensitive,
        CONFIG_TYPES[entry.config_type] if known_type else "unknown",
        entry.documentation,
        [(synonym.name, synonym.value, _source(synonym.source)) for synonym in entry.synonyms],
    )


def _log_dir(result: messages.DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    replicas = [
        ReplicaSize(topic.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
        for topic in result.topics
        for p in topic.partitions
    ]
    return LogDir(result.log_dir, result.error_code, result.total_bytes, result.usable_bytes, replicas)
