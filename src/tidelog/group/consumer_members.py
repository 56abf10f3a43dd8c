"""Who a request comes from: finding, checking and replacing the members of a consumer group."""

from __future__ import annotations

from dataclasses import replace

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.consumer_group import LEAVE_STATIC_EPOCH, NOTHING, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_records import current_record, member_record, member_tombstones, target_record
from tidelog.group.reconcile import Reported
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
    member = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    group_id = group.group_id
    turn.records.extend(member_tombstones(group_id, existing.member_id))
    turn.append(member_record(group_id, member))
    turn.append(target_record(group_id, member_id, group.target.get(existing.member_id, NOTHING)))
    turn.append(current_record(group_id, member))
    return member
