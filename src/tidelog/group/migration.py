"""Both protocols in one group, and the way from one to the other without stopping the consumers.

upgrade
    A member that joins a non-empty classic group with ConsumerGroupHeartbeat turns it into a consumer group: every
    classic member becomes a member with the partitions that its leader had given it, and keeps talking JoinGroup,
    SyncGroup and Heartbeat. To it the coordinator looks like the leader's assignment made elsewhere: a join is
    answered at once, with the member's epoch as the generation, and the sync brings what it may own by now.
downgrade
    When the last member that speaks the consumer protocol leaves, or comes back as a static member of the classic
    protocol, the rest becomes a classic group again.

`group.consumer.migration.policy` allows each way. A group whose members' blobs cannot be read, or whose assignor keeps
data of its own in the assignment, stays what it is.
"""

from __future__ import annotations

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group import consumer_protocol
from tidelog.group.classic_group import ClassicGroup, ClassicMember
from tidelog.group.classic_rebalance import send_away
from tidelog.group.consumer_group import (
    NOTHING,
    Assignment,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from tidelog.group.consumer_members import (
    can_downgrade,
    check_instance,
    downgrade,
    fence,
    forget_steps,
    static_member,
)
from tidelog.group.consumer_records import (
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from tidelog.group.consumer_update import Update
from tidelog.group.outcomes import Joined, JoinRefusal, Synced
from tidelog.group.records import group_metadata_tombstone
from tidelog.group.requests import Joining, MemberIdentity, Membership, Syncing
from tidelog.group.shard import Shard
from tidelog.group.topics_image import TopicsImage
from tidelog.wire import messages
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


# -- classic to consumer -----------------------------------------------------------------------------------------


def upgrade(shard: Shard, turn: Turn, classic: ClassicGroup) -> ConsumerGroup:
    """The consumer group that replaying the records of this turn will make; who waits in the old one joins again."""
    why_not = None
    if not shard.config.upgrade_enabled:
        why_not = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        why_not = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > shard.config.consumer_max_size:
        why_not = "the group size exceeds the consumer group maximum size"
    else:
        try:
            group = _converted(classic, shard.around.topics)
        except consumer_protocol.Malformed as problem:
            why_not = f"the embedded consumer protocol is malformed ({problem})"
    if why_not is not None:
        message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {why_not}."
        raise Refusal(_E.GROUP_ID_NOT_FOUND, message)
    for member in classic.members.values():
        send_away(shard, turn, classic, member, _E.REBALANCE_IN_PROGRESS)
        # What was expected of it when this was a consumer group before: it has joined since.
        forget_steps(shard, turn, group.group_id, member.member_id)
        shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)
    turn.append(group_metadata_tombstone(group.group_id))
    members = group.members.values()
    turn.records.extend(member_record(group.group_id, member) for member in members)
    turn.append(group_epoch_record(group.group_id, group.group_epoch, group.metadata_hash))
    turn.records.extend(target_record(group.group_id, m, target) for m, target in group.target.items())
    turn.append(target_epoch_record(group.group_id, group.assignment_epoch, 0))
    turn.records.extend(current_record(group.group_id, member) for member in members)
    return group


def _converted(classic: ClassicGroup, image: TopicsImage) -> ConsumerGroup:
    group = ConsumerGroup(classic.group_id)
    epoch = group.group_epoch = group.assignment_epoch = classic.generation_id
    for old in classic.members.values():
        subscription = consumer_protocol.decode_subscription(_chosen_metadata(classic, old))
        target = _assigned_to(old, image)
        group.target[old.member_id] = target
        group.put_member(
            ConsumerMember(
                member_id=old.member_id,
                member_epoch=epoch,
                previous_member_epoch=epoch,
                instance_id=old.group_instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=old.rebalance_timeout_ms,
                client_id=old.client_id,
                client_host=old.client_host,
                subscribed_topic_names=frozenset(subscription.topics),
                assigned={topic_id: dict.fromkeys(sorted(p), epoch) for topic_id, p in target.items()},
                classic=ClassicMetadata(old.session_timeout_ms, tuple(old.protocols)),
            )
        )
    group.metadata_hash = image.hash_of(group.subscribed_topics())
    return group


def _chosen_metadata(classic: ClassicGroup, member: ClassicMember) -> bytes:
    """Before the first generation no protocol is chosen: every member's favourite tells its topics as well."""
    name = classic.protocol_name
    return member.metadata(name) if any(n == name for n, _ in member.protocols) else member.protocols[0][1]


def _assigned_to(member: ClassicMember, image: TopicsImage) -> Assignment:
    if not member.assignment:
        return {}
    assignment = consumer_protocol.decode_assignment(member.assignment)
    if assignment.user_data:
        raise consumer_protocol.Malformed("an unsupported custom assignor is in use")
    by_id = consumer_protocol.by_topic_id(assignment.assigned_partitions, image)
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_id.items()}


# -- classic members of a consumer group -------------------------------------------------------------------------


def join(shard: Shard, turn: Turn, group: ConsumerGroup, joining: Joining) -> Joined:
    given_id, instance_id = joining.member_id, joining.group_instance_id
    member_id = given_id or shard.around.new_uuid()
    if len(group.members) >= shard.config.consumer_max_size and member_id not in group.members:
        raise Refusal(_E.GROUP_MAX_SIZE_REACHED)
    if not group.supports_classic(joining.protocol_type, joining.names):
        raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL)
    if not given_id and instance_id is None and joining.knows_member_id_required:
        raise JoinRefusal(_E.MEMBER_ID_REQUIRED, member_id)
    try:
        subscription = consumer_protocol.decode_subscription(joining.protocols[0][1])
    except consumer_protocol.Malformed:
        raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL) from None
    if instance_id is None:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    else:
        joins = not given_id
        member = static_member(turn, group, member_id, instance_id, -1, NOTHING, joins=joins, classic=True)
    updated = _with_join(member, joining, subscription)
    replaced = group.static_member(instance_id)
    left = list(group.after(updated))
    leaves_modern = replaced is not None and not replaced.uses_classic_protocol and can_downgrade(shard, left)
    update = Update(shard, turn, group, member, updated)
    changed = update.names_changed or update.regex_changed
    update.bump_epoch(changed)
    owned = consumer_protocol.by_topic_id(subscription.owned_partitions, shard.around.topics)
    if leaves_modern and replaced is not None:
        updated = _downgrade_by(turn, update, replaced, left, owned, changed)
    else:
        epoch, target = update.retarget()
        updated = update.reconcile(epoch, target, owned, changed)
        key = shard.key("member-sync", group.group_id, updated.member_id)
        shard.deadlines.set(turn, key, turn.now_ms + joining.rebalance_timeout_ms)
        shard.touch_session(turn, group.group_id, updated.member_id, joining.session_timeout_ms)
    shard.deadlines.cancel(turn, shard.key("member-join", group.group_id, updated.member_id))
    turn.ordered = True
    protocol_name = joining.protocols[0][0]
    return Joined(updated.member_id, updated.member_epoch, consumer_protocol.CONSUMER_PROTOCOL_TYPE, protocol_name)


def _downgrade_by(
    turn: Turn,
    update: Update,
    replaced: ConsumerMember,
    left: list[ConsumerMember],
    owned: dict[bytes, set[int]],
    changed: bool,
) -> ConsumerMember:
    """A static member came back on the classic protocol, and nobody else speaks the new one."""
    group, member = update.group, update.updated
    rebalance = group.assignment_epoch < update.epoch
    inherits = {member.member_id: replaced.member_id}
    if not rebalance:
        target = group.target.get(replaced.member_id, NOTHING)
        member = update.reconcile(group.assignment_epoch, target, owned, changed)
    downgrade(update.shard, turn, group, left, rebalance=rebalance, inherits=inherits)
    return member


def _with_join(
    member: ConsumerMember, joining: Joining, subscription: messages.ConsumerProtocolSubscription
) -> ConsumerMember:
    instance_id, rack_id = joining.group_instance_id, subscription.rack_id
    return member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=joining.client_id,
        client_host=joining.client_host,
        classic=ClassicMetadata(joining.session_timeout_ms, tuple(joining.protocols)),
    )


def _classic_member(group: ConsumerGroup, claimed: Membership) -> tuple[ConsumerMember, ClassicMetadata]:
    """The member behind a SyncGroup or Heartbeat, if it speaks the classic protocol and is in that generation."""
    if claimed.group_instance_id is None:
        member = group.member(claimed.member_id)
    else:
        existing = group.static_member(claimed.group_instance_id)
        member = check_instance(existing, claimed.member_id, claimed.group_instance_id)
    if member.classic is None:
        raise Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol.")
    if claimed.generation_id != member.member_epoch:
        raise Refusal(_E.ILLEGAL_GENERATION)
    return member, member.classic


def sync(shard: Shard, turn: Turn, group: ConsumerGroup, syncing: Syncing) -> Synced:
    member, classic = _classic_member(group, syncing.member)
    name, metadata = classic.protocols[0]
    if (syncing.protocol_type or consumer_protocol.CONSUMER_PROTOCOL_TYPE) != consumer_protocol.CONSUMER_PROTOCOL_TYPE:
        raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL)
    if syncing.protocol_name is not None and syncing.protocol_name != name:
        raise Refusal(_E.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(shard, turn, group, member)
        raise Refusal(_E.REBALANCE_IN_PROGRESS)
    shard.deadlines.cancel(turn, shard.key("member-sync", group.group_id, member.member_id))
    shard.touch_session(turn, group.group_id, member.member_id, classic.session_timeout_ms)
    assignment = consumer_protocol.encode_assignment(
        member.assigned, shard.around.topics, consumer_protocol.version_of(metadata)
    )
    turn.ordered = True
    return Synced(syncing.protocol_type, syncing.protocol_name, assignment)


def heartbeat(shard: Shard, turn: Turn, group: ConsumerGroup, claimed: Membership) -> ErrorCode:
    member, classic = _classic_member(group, claimed)
    shard.touch_session(turn, group.group_id, member.member_id, classic.session_timeout_ms)
    free = member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)
    behind = member.member_epoch < group.assignment_epoch
    if behind or member.state is MemberState.UNREVOKED_PARTITIONS or free:
        _expect_join(shard, turn, group, member)
        return _E.REBALANCE_IN_PROGRESS
    return _E.NONE


def _expect_join(shard: Shard, turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    key = shard.key("member-join", group.group_id, member.member_id)
    if key not in shard.deadlines:
        shard.deadlines.set(turn, key, turn.now_ms + member.rebalance_timeout_ms)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        partition not in member.assigned.get(topic_id, NOTHING)
        and group.held_by_other(member.member_id, topic_id, partition)
        for topic_id, partitions in group.target.get(member.member_id, NOTHING).items()
        for partition in partitions
    )


def leave(shard: Shard, turn: Turn, group: ConsumerGroup, identities: list[MemberIdentity]) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in identities:
        try:
            if identity.group_instance_id is None:
                member = group.member(identity.member_id)
            else:
                existing = group.static_member(identity.group_instance_id)
                named = identity.member_id or ("" if existing is None else existing.member_id)
                member = check_instance(existing, named, identity.group_instance_id)
            leaving[member.member_id] = member
            codes.append(_E.NONE)
        except Refusal as refusal:
            codes.append(refusal.code)
    fence(shard, turn, group, list(leaving.values()))
    return codes
