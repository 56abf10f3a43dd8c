"""DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2 and ConsumerGroupDescribe 0-1.

Authorized operations are the business of the API room: it fills them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidelog.deciding.turn import Refusal, RequestContext, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import NOTHING, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_records import group_tombstones
from tidelog.group.records import group_metadata_tombstone, offset_tombstone
from tidelog.group.shard import Group, Shard
from tidelog.group.topics_image import TopicsImage
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode


def describe_classic(
    shard: Shard, group_id: str, context: RequestContext
) -> messages.DescribeGroupsResponse.DescribedGroup:
    of_group = messages.DescribeGroupsResponse.DescribedGroup
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        if context.api_version < 6:
            return of_group(group_id=group_id, group_state=ClassicState.DEAD.value)
        reason = "not found" if group is None else "is not a classic group"
        return of_group(
            group_id=group_id,
            group_state=ClassicState.DEAD.value,
            error_code=int(ErrorCode.GROUP_ID_NOT_FOUND),
            error_message=f"Group {group_id} {reason}.",
        )
    stable = group.state is ClassicState.STABLE
    of_member = messages.DescribeGroupsResponse.DescribedGroupMember
    return of_group(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            of_member(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata(group.protocol_name) if stable else b"",
                member_assignment=m.assignment,
            )
            for m in group.members.values()
        ],
    )


def listed(shard: Shard, states: set[str], types: set[str]) -> Iterator[messages.ListGroupsResponse.ListedGroup]:
    """`states` and `types` in lower case; empty means all."""
    of_group = messages.ListGroupsResponse.ListedGroup
    for group in shard.groups.values():
        if (not states or group.state_name.lower() in states) and (not types or group.type in types):
            yield of_group(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type,
            )


def delete(shard: Shard, turn: Turn, group_id: str) -> ErrorCode:
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty:
        return ErrorCode.NON_EMPTY_GROUP
    for topic, partition in shard.offsets.of_group(group_id):
        turn.append(offset_tombstone(group_id, topic, partition))
    bury(shard, turn, group)
    return ErrorCode.NONE


def bury(shard: Shard, turn: Turn, group: Group) -> None:
    """Tombstones for an empty group; one that was never stored goes without."""
    if isinstance(group, ConsumerGroup):
        turn.records.extend(group_tombstones(group))
    elif group.stored or turn.records:
        turn.append(group_metadata_tombstone(group.group_id))
    else:
        del shard.groups[group.group_id]


# -- consumer groups ---------------------------------------------------------------------------------------------


def describe_consumer(shard: Shard, group_id: str) -> messages.ConsumerGroupDescribeResponse.DescribedGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    image = shard.around.topics
    return messages.ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or shard.config.consumer_assignors[0],
        members=[_described_member(group, m, image) for m in group.members.values()],
    )


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, image: TopicsImage
) -> messages.ConsumerGroupDescribeResponse.Member:
    held: dict[bytes, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return messages.ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(held, image),
        target_assignment=_assignment(group.target.get(member.member_id, NOTHING), image),
        member_type=0 if member.uses_classic_protocol else 1,
    )


def _assignment(
    partitions: Mapping[bytes, Iterable[int]], image: TopicsImage
) -> messages.ConsumerGroupDescribeResponse.Assignment:
    response = messages.ConsumerGroupDescribeResponse
    return response.Assignment(
        topic_partitions=[
            response.TopicPartitions(
                topic_id=topic_id, topic_name=image.by_id[topic_id].name, partitions=sorted(indexes)
            )
            for topic_id, indexes in partitions.items()
            if topic_id in image.by_id
        ]
    )
