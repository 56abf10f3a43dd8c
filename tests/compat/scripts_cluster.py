"""Scripts of raw requests about the cluster: versions, metadata, topics, configurations, and frames that are none."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    DescribeTopicPartitionsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from scripts_records import RECORDS, create, produce
from stock import eventually
from wiretap import Closed, Wire, batch

Steps = Iterator[tuple[str, Any]]

#: The APIs whose versions clients rely on; what a broker serves to other brokers is its own affair.
CLIENT_APIS = (
    *range(4), *range(8, 17), *range(18, 24), *range(29, 34), 35, 37, *range(42, 48), 57, 60, 68, 69, 74, 75
)  # fmt: skip
UNKNOWN_ID = "11111111-1111-1111-1111-111111111111"


def api_versions(wire: Wire) -> Steps:
    for version in range(5):
        answer = wire.raw(ApiVersionsRequest, version, client_software_name="a", client_software_version="1")
        ranges = {one.api_key: [one.min_version, one.max_version] for one in answer.api_keys}
        yield f"v{version}", [answer.error_code, {key: ranges.get(key) for key in CLIENT_APIS}]
    header = struct.pack(">hhih", 18, 3, 5, 1) + b"c" + b"\x00"
    body = b"\x0bno spaces!" + b"\x021" + b"\x00"
    answer = wire.exchange(struct.pack(">i", len(header) + len(body)) + header + body)
    yield "invalid software name", list(struct.unpack_from(">ih", answer))
    header = struct.pack(">hhih", 18, 99, 77, 1) + b"c" + b"\x00"
    answer = wire.exchange(struct.pack(">i", len(header) + len(body)) + header + body)
    correlation, error, count = struct.unpack_from(">ihi", answer)
    # The body is that of version 0, so that a newer client can read which versions there are.
    ranges = [struct.unpack_from(">hhh", answer, 10 + 6 * n) for n in range(count)]
    yield "version 99", [correlation, error, [list(one) for one in ranges if one[0] == 18]]


def frames_that_are_none(wire: Wire) -> Steps:
    def send(data: bytes) -> str:
        answer = wire.exchange(data)
        wire.close()
        return "closed" if answer is Closed else "answered"

    def framed(body: bytes) -> bytes:
        return struct.pack(">i", len(body)) + body

    yield "unknown API", send(framed(struct.pack(">hhih", 999, 0, 1, -1)))
    yield "unsupported version of Metadata", send(framed(struct.pack(">hhih", 3, 99, 1, -1)))
    yield "body cut short", send(framed(struct.pack(">hhih", 3, 1, 1, -1) + b"\x00\x00\x00\x05"))
    yield "negative size", send(struct.pack(">i", -5) + b"12345")
    yield "size beyond the limit", send(struct.pack(">i", 200_000_000) + b"12345")
    yield "array of a billion", send(framed(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1 << 30)))
    yield "broker API", send(framed(struct.pack(">hhih", 4, 0, 1, -1)))


def metadata(wire: Wire) -> Steps:
    create(wire, "known", 2)
    kind = MetadataRequest.MetadataRequestTopic

    def ask(version: int, topics: list[Any] | None, **more: Any) -> Any:
        return wire.ask(MetadataRequest, version, topics=topics, **more)

    for version in range(14):
        never = {"allow_auto_topic_creation": False} if version >= 4 else {}
        yield f"v{version} known", ask(version, [kind(name="known")], **never)
        if version >= 4:
            yield f"v{version} unknown", ask(version, [kind(name="unknown")], **never)
        if version >= 1:
            yield f"v{version} none", ask(version, [], **never)["topics"]
    yield "invalid name", ask(9, [kind(name="in/valid")], allow_auto_topic_creation=True)["topics"]
    yield "twice the same", ask(9, [kind(name="known"), kind(name="known")], allow_auto_topic_creation=False)["topics"]
    unknown = kind(name=None, topic_id=UNKNOWN_ID)
    yield "unknown id", ask(12, [unknown], allow_auto_topic_creation=False)["topics"]
    yield "name and id", ask(12, [kind(name="known", topic_id=UNKNOWN_ID)], allow_auto_topic_creation=False)
    yield "made by asking", ask(9, [kind(name="made-by-asking")], allow_auto_topic_creation=True)["topics"]
    both = [kind(name="known"), kind(name="made-beside"), kind(name="in/valid")]
    beside = ask(12, both, allow_auto_topic_creation=True)["topics"]
    yield "made beside others", sorted(beside, key=lambda topic: topic["name"])
    there = eventually(
        lambda: ask(9, [kind(name="made-by-asking")], allow_auto_topic_creation=False)["topics"][0]["partitions"]
    )
    yield "made", there
    operations = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    yield "operations", ask(9, [kind(name="known")], allow_auto_topic_creation=False, **operations)


def cluster(wire: Wire) -> Steps:
    for version in range(3):
        yield f"describe v{version}", wire.ask(DescribeClusterRequest, version)
    yield "of controllers", wire.ask(DescribeClusterRequest, 1, endpoint_type=2)["error_code"]
    create(wire, "pages", 3)
    kind = DescribeTopicPartitionsRequest.TopicRequest
    asked = [kind(name="pages"), kind(name="unknown")]
    described = wire.ask(DescribeTopicPartitionsRequest, 0, topics=asked, response_partition_limit=2000)
    described["topics"][1].pop("topic_authorized_operations")
    yield "topic partitions", described
    yield "first page", wire.ask(DescribeTopicPartitionsRequest, 0, topics=asked, response_partition_limit=2)
    produce(wire, "pages", batch(RECORDS))
    which = [DescribeLogDirsRequest.DescribableLogDirTopic(topic="pages", partitions=[0, 1, 2])]
    for version in range(1, 6):
        yield f"log dirs v{version}", wire.ask(DescribeLogDirsRequest, version, topics=which)
    topics = ElectLeadersRequest.TopicPartitions
    for version in range(3):
        wanted = [topics(topic="pages", partitions=[0]), topics(topic="unknown", partitions=[1])]
        yield (
            f"elect v{version}",
            wire.ask(ElectLeadersRequest, version, election_type=0, topic_partitions=wanted, timeout_ms=5_000),
        )


def create_topics(wire: Wire) -> Steps:
    topic = CreateTopicsRequest.CreatableTopic
    config, assignment = topic.CreatableTopicConfig, topic.CreatableReplicaAssignment

    def ask(version: int, *topics: Any, validate_only: bool = False) -> Any:
        answer = wire.ask(
            CreateTopicsRequest, version, topics=list(topics), timeout_ms=10_000, validate_only=validate_only
        )
        for one in answer["topics"]:
            # The list of configurations is compared on its own.
            one.pop("configs", None)
        return answer["topics"]

    def new(name: str, partitions: int = 1, replicas: int = 1, assigned: Any = None, **configs: str | None) -> Any:
        wanted = [config(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        spread = [assignment(partition_index=key, broker_ids=brokers) for key, brokers in (assigned or {}).items()]
        return topic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=spread, configs=wanted
        )

    for version in range(2, 8):
        yield f"v{version}", ask(version, new(f"created-{version}", 2))
        yield f"v{version} again", ask(version, new(f"created-{version}", 2))
    cases = {
        "defaults": new("defaults", -1, -1),
        "no partitions": new("zero", 0),
        "partitions -2": new("minus", -2),
        "two replicas": new("replicas", 1, 2),
        "no replicas": new("none", 1, 0),
        "invalid name": new("in valid"),
        "empty name": new(""),
        "dots": new(".."),
        "unknown config": new("config", no_such_thing="1"),
        "wrong config": new("config", retention_ms="x"),
        "null config": new("config-null", retention_ms=None),
        "assigned": new("assigned", -1, -1, {0: [0], 1: [0]}),
        "assigned with a gap": new("gap", -1, -1, {0: [0], 2: [0]}),
        "assigned to nobody": new("nobody", -1, -1, {0: []}),
        "assigned twice": new("twice", -1, -1, {0: [0, 0]}),
        "assigned to a stranger": new("stranger", -1, -1, {0: [9]}),
        "assigned and counted": new("both", 1, -1, {0: [0]}),
        "colliding": new("created.2"),
    }
    for label, one in cases.items():
        yield label, ask(7, one)
    yield "colliding for real", ask(7, new("a.b"), new("c")) and ask(7, new("a_b"))
    yield "validate only", ask(7, new("validated", 2), validate_only=True)
    yield "twice in one request", ask(7, new("double"), new("double"), new("single"))
    yield "nothing", ask(7)


def delete_topics_and_add_partitions(wire: Wire) -> Steps:
    for name in ("gone-1", "gone-4", "gone-5", "grown"):
        create(wire, name)
    for version in (1, 4, 5):
        names = [f"gone-{version}", "unknown"]
        answer = wire.ask(DeleteTopicsRequest, version, topic_names=names, timeout_ms=10_000)
        yield f"delete v{version}", sorted(answer["responses"], key=lambda one: one["name"])
    state = DeleteTopicsRequest.DeleteTopicState
    unknown = [state(name=None, topic_id=UNKNOWN_ID)]
    yield "delete unknown id", wire.ask(DeleteTopicsRequest, 6, topics=unknown, timeout_ms=10_000)
    twice = [state(name="unknown"), state(name="unknown")]
    yield "delete twice", wire.ask(DeleteTopicsRequest, 6, topics=twice, timeout_ms=10_000)
    kind = CreatePartitionsRequest.CreatePartitionsTopic
    spread = kind.CreatePartitionsAssignment

    def grow(version: int, count: int, assigned: list[list[int]] | None = None, name: str = "grown") -> Any:
        assignments = None if assigned is None else [spread(broker_ids=one) for one in assigned]
        one = kind(name=name, count=count, assignments=assignments)
        return wire.ask(CreatePartitionsRequest, version, topics=[one], timeout_ms=10_000, validate_only=False)

    for version in range(4):
        yield f"grow v{version}", grow(version, version + 2)
    yield "shrink", grow(3, 1)
    yield "stay", grow(3, 5)
    yield "unknown topic", grow(3, 2, name="unknown")
    yield "too few assignments", grow(3, 8, [[0]])
    yield "assigned to a stranger", grow(3, 6, [[9]])
    yield "assigned", grow(3, 6, [[0]])


def configs(wire: Wire) -> Steps:
    create(wire, "configured", retention_ms="1000")
    resource = DescribeConfigsRequest.DescribeConfigsResource

    def describe(version: int, kind: int, name: str, keys: list[str] | None, **more: Any) -> Any:
        one = resource(resource_type=kind, resource_name=name, configuration_keys=keys)
        answer = wire.ask(DescribeConfigsRequest, version, resources=[one], **more)["results"][0]
        for config in answer["configs"]:
            config.pop("documentation", None)
        # Settings of our own stand beside Kafka's.
        answer["configs"] = [config for config in answer["configs"] if not config["name"].startswith("tidelog.")]
        return answer

    keys = ["retention.ms", "cleanup.policy", "no.such.thing"]
    for version in range(1, 5):
        yield f"v{version} topic", describe(version, 2, "configured", keys, include_synonyms=True)
        yield f"v{version} broker", describe(version, 4, "0", ["num.partitions", "log.cleaner.threads"])
    replicas = ["min.insync.replicas"]
    yield "in sync, topic", describe(4, 2, "configured", replicas, include_synonyms=True)
    yield "in sync, broker", describe(4, 4, "0", replicas, include_synonyms=True)
    yield "in sync, all brokers", describe(4, 4, "", replicas, include_synonyms=True)
    given = describe(4, 4, "0", ["listeners", "log.dirs"])["configs"]
    yield "given at the start", {one["name"]: [one["config_source"], one["read_only"]] for one in given}
    yield "unknown topic", describe(4, 2, "unknown", None)
    yield "invalid topic", describe(4, 2, "in valid", None)
    yield "unknown broker", describe(4, 4, "77", None)
    yield "broker that is no number", describe(4, 4, "x", None)
    yield "unknown kind", describe(4, 99, "x", None)
    yield "no keys", len(describe(4, 2, "configured", [])["configs"])
    described = describe(4, 2, "configured", None)["configs"]
    yield "every name of a topic", sorted(one["name"] for one in described)
    yield (
        "every default of a topic",
        {
            one["name"]: [one["value"], one["read_only"], one["is_sensitive"], one["config_source"], one["config_type"]]
            for one in described
        },
    )
    for version in range(2):
        answer = wire.ask(ListConfigResourcesRequest, version, **({"resource_types": [4]} if version else {}))
        yield f"listed v{version}", [answer["error_code"], len(answer["config_resources"])]


def alter_configs(wire: Wire) -> Steps:
    create(wire, "altered")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource

    def increment(*changes: tuple[str, int, str | None], name: str = "altered", kind: int = 2, version: int = 1) -> Any:
        configs = [
            resource.AlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes
        ]
        one = resource(resource_type=kind, resource_name=name, configs=configs)
        return wire.ask(IncrementalAlterConfigsRequest, version, resources=[one], validate_only=False)

    for version in range(2):
        yield f"set v{version}", increment(("retention.ms", 0, "5"), version=version)
    yield "delete", increment(("retention.ms", 1, None))
    yield "delete what is not set", increment(("flush.ms", 1, None))
    yield "append", increment(("cleanup.policy", 2, "compact"))
    yield "append twice", increment(("cleanup.policy", 2, "compact"))
    yield "subtract", increment(("cleanup.policy", 3, "delete"))
    yield "append to a number", increment(("retention.ms", 2, "5"))
    yield "unknown config", increment(("no.such", 0, "5"))
    # Apache Kafka calls this an unknown server error.
    yield "unknown operation", increment(("retention.ms", 9, "5"))["responses"][0]["error_code"] != 0
    yield "set to null", increment(("retention.ms", 0, None))
    yield "the same twice", increment(("retention.ms", 0, "5"), ("retention.ms", 0, "6"))
    yield "wrong value", increment(("retention.ms", 0, "x"))
    yield "too small", increment(("segment.bytes", 0, "1"))
    yield "unknown topic", increment(("retention.ms", 0, "5"), name="unknown")
    yield "empty topic", increment(("retention.ms", 0, "5"), name="")
    yield "unknown kind", increment(("retention.ms", 0, "5"), kind=77)
    yield "broker, read only", increment(("log.dirs", 0, "/x"), name="0", kind=4)
    yield "broker, dynamic", increment(("log.cleaner.threads", 0, "2"), name="0", kind=4)
    yield "every broker", increment(("log.cleaner.backoff.ms", 0, "15001"), name="", kind=4)
    yield "unknown broker", increment(("log.cleaner.threads", 0, "2"), name="55", kind=4)
    whole = AlterConfigsRequest.AlterConfigsResource
    for version in range(3):
        config = whole.AlterableConfig(name="retention.ms", value="9")
        one = whole(resource_type=2, resource_name="altered", configs=[config])
        yield f"alter all v{version}", wire.ask(AlterConfigsRequest, version, resources=[one], validate_only=False)
    config = whole.AlterableConfig(name="retention.ms", value=None)
    one = whole(resource_type=2, resource_name="altered", configs=[config])
    yield "alter all, null", wire.ask(AlterConfigsRequest, 2, resources=[one], validate_only=False)


def coordinators(wire: Wire) -> Steps:
    def ask(version: int, key: str, kind: int = 0) -> Any:
        which: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        return wire.ask(FindCoordinatorRequest, version, **which, **({"key_type": kind} if version else {}))

    eventually(lambda: ask(1, "some-group")["error_code"] == 0, 30)
    for version in range(7):
        yield f"v{version}", ask(version, "some-group")
    eventually(lambda: ask(1, "some-id", 1)["error_code"] == 0, 30)
    yield "transactions", ask(4, "some-id", 1)
    yield "unknown kind", ask(4, "x", 9)
    yield "empty key", ask(4, "")


SCRIPTS = (
    api_versions,
    frames_that_are_none,
    metadata,
    cluster,
    create_topics,
    delete_topics_and_add_partitions,
    configs,
    alter_configs,
    coordinators,
)
