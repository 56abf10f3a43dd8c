"""Consumer groups from the outside: list and describe groups, and read, change or delete their offsets.

All requests about a group go to its coordinator. A group is classic (the client's leader assigns), consumer (the broker
assigns, KIP-848), share or streams. The type is not known in advance, so the describe requests are sent in turn until
one of them finds the group, as Apache Kafka's own tools do.

Offsets can be committed from the outside only while the group has no members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidelog.client.cluster import NO_TOPIC_ID, Cluster
from tidelog.client.connection import NEWEST
from tidelog.client.errors import ClientError, check, error_for
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.codec import stored_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.malformed import WireError
from tidelog.wire.partitions import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
_DEAD: Final = "Dead"
_LAST_COMMIT_WITH_NAMES: Final = 9
_FIRST_FETCH_OF_GROUPS: Final = 8
_LAST_FETCH_WITH_NAMES: Final = 9


class ListedGroup(NamedTuple):
    group_id: str
    #: "" where the broker does not tell
    state: str
    type: str
    protocol_type: str
    coordinator: int


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]


class DescribedGroup(NamedTuple):
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: str
    members: list[Member]


class GroupOffset(NamedTuple):
    """The next offset that the group reads."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- which there are ----------------------------------------------------------------------------

    def list_all(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, in the order of their names."""
        message = messages.ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        def attempt() -> list[ListedGroup]:
            found: dict[str, ListedGroup] = {}
            for node_id in self._cluster.node_ids():
                answer = self._cluster.broker(node_id).call(ApiKey.LIST_GROUPS, message)
                check(answer.error_code, f"the groups of broker {node_id}")
                for group in answer.groups:
                    kind = group.group_type.lower()
                    row = ListedGroup(group.group_id, group.group_state, kind, group.protocol_type, node_id)
                    found[group.group_id] = row
            return [found[name] for name in sorted(found)]

        return self._cluster.retrying(attempt)

    def describe(self, group_id: str) -> DescribedGroup:
        """State and members; NotFound where there is no such group."""
        return self._cluster.retrying(lambda: self._describe(group_id))

    def _describe(self, group_id: str) -> DescribedGroup:
        connection = self._cluster.coordinator(group_id)
        unknown: ClientError | None = None
        for api_key, shape in (
            (ApiKey.CONSUMER_GROUP_DESCRIBE, _consumer_group),
            (ApiKey.DESCRIBE_GROUPS, _classic_group),
            (ApiKey.SHARE_GROUP_DESCRIBE, _share_group),
            (ApiKey.STREAMS_GROUP_DESCRIBE, _streams_group),
        ):
            if api_key not in connection.versions:
                continue
            request = getattr(messages, f"{_REQUESTS[api_key]}Request")
            message = request(groups=[group_id]) if api_key == ApiKey.DESCRIBE_GROUPS else request(group_ids=[group_id])
            group = connection.call(api_key, message).groups[0]
            # Before version 6 a classic group that does not exist was described as dead.
            missing = api_key == ApiKey.DESCRIBE_GROUPS and group.group_state == _DEAD
            code = ErrorCode.GROUP_ID_NOT_FOUND if missing else group.error_code
            if code == ErrorCode.GROUP_ID_NOT_FOUND or code == ErrorCode.UNSUPPORTED_VERSION:
                unknown = error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
                continue
            check(code, f"group {group_id}", group.error_message)
            return shape(group, connection.address)
        raise unknown or error_for(ErrorCode.UNSUPPORTED_VERSION, f"describing group {group_id}")

    def delete(self, group_id: str) -> None:
        """Deletes a group that has no members, with its offsets."""

        def attempt() -> None:
            message = messages.DeleteGroupsRequest(groups_names=[group_id])
            answer = self._cluster.coordinator(group_id).call(ApiKey.DELETE_GROUPS, message)
            check(answer.results[0].error_code, f"deleting group {group_id}")

        self._cluster.retrying(attempt)

    # --- where they stand ---------------------------------------------------------------------------

    def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, GroupOffset]:
        """What the group has committed; for None all of it. A partition without a commit is left out."""
        wanted = None if partitions is None else by_topic(partitions)

        def attempt() -> dict[TopicPartition, GroupOffset]:
            connection = self._cluster.coordinator(group_id)
            version = min(connection.version_of(ApiKey.OFFSET_FETCH), _LAST_FETCH_WITH_NAMES)
            message = _offset_fetch(group_id, wanted, require_stable, version)
            answer = connection.call(ApiKey.OFFSET_FETCH, message, _LAST_FETCH_WITH_NAMES)
            group = answer.groups[0] if version >= _FIRST_FETCH_OF_GROUPS else answer
            check(group.error_code, f"the offsets of group {group_id}")
            found = {}
            for topic in group.topics:
                for p in topic.partitions:
                    check(p.error_code, f"the offset of group {group_id} in {topic.name}-{p.partition_index}")
                    if p.committed_offset >= 0:
                        committed = GroupOffset(p.committed_offset, p.committed_leader_epoch, p.metadata or "")
                        found[TopicPartition(topic.name, p.partition_index)] = committed
            return dict(sorted(found.items()))

        return self._cluster.retrying(attempt)

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | GroupOffset],
        member_id: str = "",
        member_epoch: int = -1,
    ) -> None:
        """Moves a group that has no members, or commits what a member of it has read."""
        request = messages.OffsetCommitRequest
        wanted = {where: c if isinstance(c, GroupOffset) else GroupOffset(c) for where, c in offsets.items()}

        def attempt() -> None:
            topics = []
            by_name = False
            for topic, partitions in by_topic(wanted).items():
                topic_id = self._cluster.known_topic(topic).topic_id
                by_name |= topic_id == NO_TOPIC_ID
                rows = [
                    request.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                    for partition in partitions
                    for committed in (wanted[TopicPartition(topic, partition)],)
                ]
                topics.append(request.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=rows))
            message = request(
                group_id=group_id, topics=topics, member_id=member_id, generation_id_or_member_epoch=member_epoch
            )
            at_most = _LAST_COMMIT_WITH_NAMES if by_name else NEWEST
            answer = self._cluster.coordinator(group_id).call(ApiKey.OFFSET_COMMIT, message, at_most)
            names = {topic.topic_id: topic.name for topic in topics}
            for result in answer.topics:
                name = result.name or names.get(result.topic_id, "")
                for partition in result.partitions:
                    what = f"committing the offset of group {group_id} in {name}-{partition.partition_index}"
                    check(partition.error_code, what)

        self._cluster.retrying(attempt)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forgets where the group stands in some partitions that no member subscribes to."""
        request = messages.OffsetDeleteRequest
        topics = [
            request.OffsetDeleteRequestTopic(
                name=topic, partitions=[request.OffsetDeleteRequestPartition(partition_index=p) for p in indexes]
            )
            for topic, indexes in by_topic(partitions).items()
        ]

        def attempt() -> None:
            answer = self._cluster.coordinator(group_id).call(
                ApiKey.OFFSET_DELETE, request(group_id=group_id, topics=topics)
            )
            check(answer.error_code, f"deleting offsets of group {group_id}")
            for topic in answer.topics:
                for result in topic.partitions:
                    what = f"deleting the offset of group {group_id} in {topic.name}-{result.partition_index}"
                    check(result.error_code, what)

        self._cluster.retrying(attempt)


_REQUESTS: Final = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: "ConsumerGroupDescribe",
    ApiKey.DESCRIBE_GROUPS: "DescribeGroups",
    ApiKey.SHARE_GROUP_DESCRIBE: "ShareGroupDescribe",
    ApiKey.STREAMS_GROUP_DESCRIBE: "StreamsGroupDescribe",
}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def _offset_fetch(
    group_id: str, wanted: Mapping[str, list[int]] | None, require_stable: bool, version: int
) -> messages.OffsetFetchRequest:
    request = messages.OffsetFetchRequest
    if version < _FIRST_FETCH_OF_GROUPS:
        topics = (
            None
            if wanted is None
            else [
                request.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in wanted.items()
            ]
        )
        return request(group_id=group_id, topics=topics, require_stable=require_stable and version >= 7)
    named = (
        None
        if wanted is None
        else [
            request.OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in wanted.items()
        ]
    )
    group = request.OffsetFetchRequestGroup(group_id=group_id, topics=named)
    return request(groups=[group], require_stable=require_stable)


# --- shapes of the four kinds -----------------------------------------------------------------------


def _classic_group(group: messages.DescribeGroupsResponse.DescribedGroup, coordinator: str) -> DescribedGroup:
    members = [
        Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, _assignment(m.member_assignment))
        if group.protocol_type == CONSUMER_PROTOCOL
        else Member(m.member_id, m.group_instance_id, m.client_id, m.client_host, [])
        for m in group.members
    ]
    return DescribedGroup(
        group.group_id, "classic", group.group_state, group.protocol_type, group.protocol_data, coordinator, members
    )


def _assignment(blob: bytes) -> list[TopicPartition]:
    """A consumer's partitions, as its group's leader wrote them; nothing where that cannot be read."""
    if len(blob) < 2:
        return []
    # Later versions only add fields at the end, so that any of them can be read as version 0.
    try:
        assigned: messages.ConsumerProtocolAssignment
        assigned, _ = stored_codec("ConsumerProtocolAssignment", 0).decode(memoryview(blob), 2)
    except WireError:
        return []
    return sorted(TopicPartition(topic.topic, p) for topic in assigned.assigned_partitions for p in topic.partitions)


def _named(
    assignment: messages.ConsumerGroupDescribeResponse.Assignment | messages.ShareGroupDescribeResponse.Assignment,
) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, p) for topic in assignment.topic_partitions for p in topic.partitions
    )


def _consumer_group(group: messages.ConsumerGroupDescribeResponse.DescribedGroup, coordinator: str) -> DescribedGroup:
    members = [
        Member(m.member_id, m.instance_id, m.client_id, m.client_host, _named(m.assignment)) for m in group.members
    ]
    return DescribedGroup(
        group.group_id, "consumer", group.group_state, CONSUMER_PROTOCOL, group.assignor_name, coordinator, members
    )


def _share_group(group: messages.ShareGroupDescribeResponse.DescribedGroup, coordinator: str) -> DescribedGroup:
    members = [Member(m.member_id, None, m.client_id, m.client_host, _named(m.assignment)) for m in group.members]
    return DescribedGroup(
        group.group_id, "share", group.group_state, "share", group.assignor_name, coordinator, members
    )


def _streams_group(group: messages.StreamsGroupDescribeResponse.DescribedGroup, coordinator: str) -> DescribedGroup:
    """Its members have tasks; a task's partition is that of the source topics of its subtopology."""
    sources: dict[str, list[str]] = {}
    if group.topology is not None:
        for part in group.topology.subtopologies or ():
            internal = [topic.name for topic in part.repartition_source_topics]
            sources[part.subtopology_id] = [*part.source_topics, *internal]
    members = []
    for m in group.members:
        tasks = [(task.subtopology_id, p) for task in m.assignment.active_tasks for p in task.partitions]
        assigned = sorted(
            TopicPartition(topic, p) for subtopology, p in tasks for topic in sources.get(subtopology, ())
        )
        members.append(Member(m.member_id, m.instance_id, m.client_id, m.client_host, assigned))
    return DescribedGroup(group.group_id, "streams", group.group_state, "streams", "", coordinator, members)
