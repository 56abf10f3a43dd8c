"""Joining, staying in and leaving a group of the consumer protocol (KIP-848), all by heartbeats.

The member epoch of a heartbeat says what it is: 0 joins, -1 leaves, -2 leaves for a while (a static member that keeps
its place), anything else is a heartbeat of a member in that epoch. A member that is one epoch behind is let through if
it owns nothing that it may not own: the answer that would have moved it was lost.
"""

from __future__ import annotations

from typing import Any

from tidelog.deciding.turn import Refusal, Turn
from tidelog.group import migration
from tidelog.group.classic_group import ClassicGroup
from tidelog.group.config import NO_OVERRIDES, GroupConfig
from tidelog.group.consumer_group import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from tidelog.group.consumer_members import check_instance, dynamic_member, fence, static_member
from tidelog.group.consumer_records import current_record
from tidelog.group.consumer_update import Update, check_regex, resolve_regexes
from tidelog.group.outcomes import MemberStanding
from tidelog.group.records import group_metadata_tombstone
from tidelog.group.requests import ConsumerHeartbeat
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode

_E = ErrorCode


def validate(request: ConsumerHeartbeat, config: GroupConfig) -> None:
    epoch = request.member_epoch
    if (request.brings_member_id or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
        raise Refusal(_E.INVALID_REQUEST, "MemberId can't be empty.")
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise Refusal(_E.INVALID_REQUEST, f"{name} can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise Refusal(_E.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise Refusal(_E.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise Refusal(_E.INVALID_REQUEST, message)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise Refusal(_E.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise Refusal(_E.INVALID_REQUEST, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.consumer_assignors:
        message = f"ServerAssignor {assignor} is not supported. Supported: {', '.join(config.consumer_assignors)}."
        raise Refusal(_E.UNSUPPORTED_ASSIGNOR, message)
    if request.subscribed_topic_regex:
        check_regex(request.subscribed_topic_regex)


def heartbeat(shard: Shard, turn: Turn, request: ConsumerHeartbeat) -> MemberStanding:
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return _leave(shard, turn, request)
    group = _group_of(shard, turn, request)
    owned = request.owned
    member_id = request.member_id or shard.around.new_uuid()
    if request.instance_id is None:
        member = dynamic_member(group, member_id, request.member_epoch, owned)
    else:
        member = static_member(turn, group, member_id, request.instance_id, request.member_epoch, owned)
    update = Update(shard, turn, group, member, _with_request(member, request))
    update.bump_epoch(update.names_changed or update.regex_resolved)
    epoch, target = update.retarget()
    moved = update.reconcile(epoch, target, owned, update.names_changed or update.regex_changed)
    shard.touch_session(turn, group.group_id, moved.member_id, session_timeout_ms(shard, group.group_id))
    return _standing(shard, turn, request, member, moved)


def session_timeout_ms(shard: Shard, group_id: str) -> int:
    timeout_ms = shard.around.overrides.get(group_id, NO_OVERRIDES).session_timeout_ms
    return shard.config.consumer_session_timeout_ms if timeout_ms is None else timeout_ms


def _group_of(shard: Shard, turn: Turn, request: ConsumerHeartbeat) -> ConsumerGroup:
    """The group; a joining member makes a new one, or turns a classic group into one."""
    group_id, joins = request.group_id, request.member_epoch == 0
    group = shard.groups.get(group_id)
    if not joins and not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        raise Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    limit = shard.config.consumer_max_size
    if group is not None and len(group.members) >= limit and request.member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {limit} members."
        raise Refusal(_E.GROUP_MAX_SIZE_REACHED, message)
    if isinstance(group, ConsumerGroup):
        return group
    if group is not None and not group.is_empty:
        return migration.upgrade(shard, turn, group)
    if isinstance(group, ClassicGroup) and group.stored:
        turn.append(group_metadata_tombstone(group_id))
    return ConsumerGroup(group_id)


# -- the member as the request has it ------------------------------------------------------------------------------


def _with_request(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    """Fields that a request leaves out stay; a heartbeat that brings nothing gives the very same member."""
    changes: dict[str, Any] = {}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["subscribed_topic_regex"] = request.subscribed_topic_regex
    if request.server_assignor is not None:
        changes["server_assignor"] = request.server_assignor
    if member.client_id != request.client_id or member.client_host != request.client_host:
        changes["client_id"], changes["client_host"] = request.client_id, request.client_host
    if member.classic is not None:
        changes["classic"] = None
    return member._replace(**changes) if changes else member


def _standing(
    shard: Shard, turn: Turn, request: ConsumerHeartbeat, before: ConsumerMember, member: ConsumerMember
) -> MemberStanding:
    interval_ms = shard.around.overrides.get(request.group_id, NO_OVERRIDES).heartbeat_interval_ms
    if interval_ms is None:
        interval_ms = shard.config.consumer_heartbeat_interval_ms
    # A heartbeat that says everything wants to hear everything: the member cannot know what it missed.
    full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.owned is not None
    )
    assigned = None
    if request.member_epoch == 0 or full or before.assigned != member.assigned:
        turn.ordered = True
        assigned = member.assigned
    return MemberStanding(member.member_id, member.member_epoch, interval_ms, assigned)


# -- leaving, and what is due ------------------------------------------------------------------------------------


def _leave(shard: Shard, turn: Turn, request: ConsumerHeartbeat) -> MemberStanding:
    group = shard.consumer(request.group_id)
    if group is None:
        raise Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        existing = group.static_member(request.instance_id)
        member = check_instance(existing, request.member_id, request.instance_id)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
        away = member._replace(member_epoch=LEAVE_STATIC_EPOCH, assigned=assigned, revoking=NOTHING)
        turn.append(current_record(group.group_id, away))
    else:
        fence(shard, turn, group, [member])
    return MemberStanding(request.member_id, request.member_epoch)


def due(shard: Shard, turn: Turn, group: ConsumerGroup, kind: str, member_id: str) -> None:
    if kind == "regex":
        resolve_regexes(shard, turn, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if kind == "revoke":
        # A static member that is away has nothing to revoke any more.
        revoking = member.state is MemberState.UNREVOKED_PARTITIONS and member.member_epoch >= 0
        if not revoking:
            return
    elif kind not in ("session", "member-join", "member-sync"):
        return
    fence(shard, turn, group, [member])


def loaded(shard: Shard, turn: Turn, group: ConsumerGroup) -> None:
    for member in group.members.values():
        timeout_ms = session_timeout_ms(shard, group.group_id)
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        shard.touch_session(turn, group.group_id, member.member_id, timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.member_epoch >= 0:
            key = shard.key("revoke", group.group_id, member.member_id)
            shard.deadlines.set(turn, key, turn.now_ms + member.rebalance_timeout_ms)
