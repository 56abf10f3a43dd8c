"""What administrators ask: to describe, list and delete groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicState
from tidelog.group.consumer_group import NOTHING, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_records import group_tombstones
from tidelog.group.outcomes import (
    ClassicDescription,
    ClassicMemberDescription,
    ConsumerDescription,
    ConsumerMemberDescription,
    DescribedPartitions,
    GroupListing,
)
from tidelog.group.records import group_metadata_tombstone, offset_tombstone
from tidelog.group.shard import Group, Shard
from tidelog.group.topics_image import TopicsImage
from tidelog.wire.errors import ErrorCode


def describe_classic(shard: Shard, group_id: str) -> ClassicDescription:
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        reason = "not found" if group is None else "is not a classic group"
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    stable = group.state is ClassicState.STABLE
    return ClassicDescription(
        state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        members=[
            ClassicMemberDescription(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                metadata=m.metadata(group.protocol_name) if stable else b"",
                assignment=m.assignment,
            )
            for m in group.members.values()
        ],
    )


def listed(shard: Shard, states: set[str], types: set[str]) -> Iterator[GroupListing]:
    """`states` and `types` in lower case; empty means all."""
    for group in shard.groups.values():
        if (not states or group.state_name.lower() in states) and (not types or group.type in types):
            yield GroupListing(group.group_id, group.protocol_type or "", group.state_name, group.type)


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


def describe_consumer(shard: Shard, group_id: str) -> ConsumerDescription:
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    image = shard.around.topics
    return ConsumerDescription(
        state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=group.preferred_assignor() or shard.config.consumer_assignors[0],
        members=[_described_member(group, m, image) for m in group.members.values()],
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember, image: TopicsImage) -> ConsumerMemberDescription:
    held: dict[bytes, list[int]] = {}
    for owned in (member.assigned, member.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return ConsumerMemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_partitions(held, image),
        target_assignment=_partitions(group.target.get(member.member_id, NOTHING), image),
        uses_classic_protocol=member.uses_classic_protocol,
    )


def _partitions(partitions: Mapping[bytes, Iterable[int]], image: TopicsImage) -> list[DescribedPartitions]:
    return [
        DescribedPartitions(topic_id, image.by_id[topic_id].name, sorted(indexes))
        for topic_id, indexes in partitions.items()
        if topic_id in image.by_id
    ]
