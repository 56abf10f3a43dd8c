"""The members of a consumer group: found, checked and replaced when they ask; taken out when they leave or are late.

When the last member goes that speaks the consumer protocol, the group becomes a classic one again.
"""

from __future__ import annotations

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicMember
from tidelog.group.consumer_group import LEAVE_STATIC_EPOCH, NOTHING, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment, version_of
from tidelog.group.consumer_records import (
    current_record,
    group_epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    regex_tombstone,
    target_record,
)
from tidelog.group.records import group_metadata_record
from tidelog.group.requests import Reported
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


def dynamic_member(group: ConsumerGroup, member_id: str, epoch: int, owned: Reported) -> ConsumerMember:
    if epoch == 0:
        return group.members.get(member_id) or ConsumerMember(member_id)
    member = group.member(member_id)
    _check_epoch(member, epoch, owned)
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Reported) -> None:
    known = member.member_epoch
    if epoch in (0, known):
        return
    if epoch < known and epoch == member.previous_member_epoch and _within(owned, member):
        return
    which = "greater" if epoch > known else "smaller"
    message = (
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known}). The member must abandon all its partitions and rejoin."
    )
    raise Refusal(_E.FENCED_MEMBER_EPOCH, message)


def _within(owned: Reported, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(p <= member.assigned.get(topic_id, NOTHING).keys() for topic_id, p in owned.items())


def static_member(
    turn: Turn,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    epoch: int,
    owned: Reported,
    *,
    joins: bool | None = None,
    classic: bool = False,
) -> ConsumerMember:
    """The static member, or the one that takes its place; `classic` where a JoinGroup asks."""
    existing = group.static_member(instance_id)
    if epoch == 0 if joins is None else joins:
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not classic and not existing.uses_classic_protocol and existing.member_epoch != LEAVE_STATIC_EPOCH:
            message = (
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {existing.member_id} member."
            )
            raise Refusal(_E.UNRELEASED_INSTANCE_ID, message)
        return _take_over(turn, group, existing, member_id)
    member = check_instance(existing, member_id, instance_id)
    if not classic:
        _check_epoch(member, epoch, owned)
    return member


def check_instance(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    if existing is None:
        raise Refusal(_E.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}."
        raise Refusal(_E.FENCED_INSTANCE_ID, message)
    return existing


def _take_over(turn: Turn, group: ConsumerGroup, existing: ConsumerMember, member_id: str) -> ConsumerMember:
    """The new member starts in epoch 0 with all that its former self had."""
    member = existing._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group_id = group.group_id
    turn.records.extend(member_tombstones(group_id, existing.member_id))
    turn.append(member_record(group_id, member))
    turn.append(target_record(group_id, member_id, group.target.get(existing.member_id, NOTHING)))
    turn.append(current_record(group_id, member))
    return member


# -- taking members out ------------------------------------------------------------------------------------------


def fence(shard: Shard, turn: Turn, group: ConsumerGroup, members: list[ConsumerMember]) -> None:
    """Remove the members; the group's epoch grows, and the next heartbeat of another makes a new target."""
    if not members:
        return
    gone = {member.member_id for member in members}
    left = [member for member in group.members.values() if member.member_id not in gone]
    if can_downgrade(shard, left):
        downgrade(shard, turn, group, left, rebalance=True)
        return
    for member in members:
        turn.records.extend(member_tombstones(group.group_id, member.member_id))
        forget_steps(shard, turn, group.group_id, member.member_id)
        shard.deadlines.cancel(turn, shard.key("session", group.group_id, member.member_id))
    still = {member.subscribed_topic_regex for member in left}
    for expression in sorted({m.subscribed_topic_regex for m in members if m.subscribed_topic_regex} - still):
        turn.append(regex_tombstone(group.group_id, expression))
    metadata_hash = shard.around.topics.hash_of(group.subscribed_topics(left))
    turn.append(group_epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))


def forget_steps(shard: Shard, turn: Turn, group_id: str, member_id: str) -> None:
    """No step of a reconciliation is expected of the member any more."""
    for kind in ("revoke", "member-join", "member-sync"):
        shard.deadlines.cancel(turn, shard.key(kind, group_id, member_id))


def can_downgrade(shard: Shard, left: list[ConsumerMember]) -> bool:
    """Whether only members of the classic protocol remain, and they may have their group back."""
    return (
        bool(left)
        and all(member.uses_classic_protocol for member in left)
        and shard.config.downgrade_enabled
        and len(left) <= shard.config.group_max_size
    )


def downgrade(
    shard: Shard,
    turn: Turn,
    group: ConsumerGroup,
    left: list[ConsumerMember],
    *,
    rebalance: bool,
    inherits: dict[str, str] | None = None,
) -> None:
    """The group becomes a classic one with the members `left`, stable with what they were meant to have.

    `inherits` maps the id of a member that has just replaced another to the id whose target it takes. The rebalance,
    where one is needed, begins with the next turn: by then the records have made the group.
    """
    inherits = inherits or {}
    ids = dict.fromkeys([*group.members, *(member.member_id for member in left)])
    turn.records.extend(group_tombstones(group, ids))
    classic = ClassicGroup(group.group_id, turn.wall_ms)
    for member in left:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                list(member.classic.protocols),
            )
        )
        shard.touch_session(turn, group.group_id, member.member_id, member.classic.session_timeout_ms)
    classic.generation_id = group.group_epoch
    classic.protocol_name = classic.select_protocol()
    assignment = {
        member.member_id: encode_assignment(
            group.target.get(inherits.get(member.member_id, member.member_id), NOTHING),
            shard.around.topics,
            version_of(classic.members[member.member_id].metadata(classic.protocol_name)),
        )
        for member in left
    }
    turn.append(group_metadata_record(classic, assignment))
    if rebalance:
        shard.deadlines.set(turn, shard.key("rebalance", group.group_id), turn.now_ms)
