"""Scripts of raw requests that administrators send: access control lists, moves of replicas, levels of features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from scripts_records import create
from wiretap import Wire

Steps = Iterator[tuple[str, Any]]

ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
UPGRADE, SAFE_DOWNGRADE = 1, 2


def acls(wire: Wire) -> Steps:
    entry = CreateAclsRequest.AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )
    everything = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    for version in range(1, 4):
        yield f"describe v{version}", wire.ask(DescribeAclsRequest, version, **everything)
        yield f"create v{version}", wire.ask(CreateAclsRequest, version, creations=[entry, entry])
        yield f"create none v{version}", wire.ask(CreateAclsRequest, version, creations=[])
        one = DeleteAclsRequest.DeleteAclsFilter(**everything)
        yield f"delete v{version}", wire.ask(DeleteAclsRequest, version, filters=[one, one])
        yield f"delete none v{version}", wire.ask(DeleteAclsRequest, version, filters=[])


def reassignments(wire: Wire) -> Steps:
    create(wire, "moved", 2)
    kind = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    for label, topics in (
        ("all", None),
        ("none", []),
        ("known", [kind(name="moved", partition_indexes=[0, 1])]),
        ("unknown", [kind(name="unknown", partition_indexes=[0]), kind(name="moved", partition_indexes=[9])]),
    ):
        yield f"list {label}", wire.ask(ListPartitionReassignmentsRequest, 0, timeout_ms=5_000, topics=topics)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    for version in range(2):
        for label, name, index, replicas in (
            ("to where it is", "moved", 0, [0]),
            ("cancel", "moved", 0, None),
            ("to nowhere", "moved", 0, []),
            ("to a broker that is not there", "moved", 0, [7]),
            ("to one more", "moved", 0, [0, 7]),
            ("twice to the same", "moved", 0, [0, 0]),
            ("to a negative one", "moved", 0, [-3]),
            ("of an unknown partition", "moved", 9, [0]),
            ("of an unknown topic", "unknown", 0, [0]),
        ):
            wanted = topic(
                name=name, partitions=[topic.ReassignablePartition(partition_index=index, replicas=replicas)]
            )
            yield (
                f"{label} v{version}",
                wire.ask(AlterPartitionReassignmentsRequest, version, timeout_ms=5_000, topics=[wanted]),
            )
        yield (
            f"nothing v{version}",
            wire.ask(AlterPartitionReassignmentsRequest, version, timeout_ms=5_000, topics=[]),
        )


def features(wire: Wire) -> Steps:
    def ask(version: int, *updates: tuple[str, int, int]) -> Any:
        kind = UpdateFeaturesRequest.FeatureUpdateKey
        how = [{"upgrade_type": how} if version else {"allow_downgrade": how != UPGRADE} for _, _, how in updates]
        keys = [
            kind(feature=name, max_version_level=level, **type_)
            for (name, level, _), type_ in zip(updates, how, strict=True)
        ]
        only = {"validate_only": True} if version else {}
        return wire.ask(UpdateFeaturesRequest, version, timeout_ms=5_000, feature_updates=keys, **only)

    for version in range(3):
        yield f"none v{version}", ask(version)
        yield f"as it is v{version}", ask(version, ("transaction.version", 2, UPGRADE))
        yield f"two as they are v{version}", ask(version, ("transaction.version", 2, 1), ("group.version", 1, 1))
        yield f"unknown v{version}", ask(version, ("no.such", 1, UPGRADE))
        yield f"one of two unknown v{version}", ask(version, ("group.version", 1, UPGRADE), ("no.such", 1, UPGRADE))
        yield f"too high v{version}", ask(version, ("transaction.version", 3, UPGRADE))
        yield f"lower without a word v{version}", ask(version, ("transaction.version", 1, UPGRADE))
        yield f"below zero v{version}", ask(version, ("group.version", -1, UPGRADE))
        if version:
            yield f"unknown type v{version}", ask(version, ("group.version", 1, 0))
            yield f"a downgrade to what it is v{version}", ask(version, ("group.version", 1, SAFE_DOWNGRADE))


SCRIPTS = (acls, reassignments, features)
