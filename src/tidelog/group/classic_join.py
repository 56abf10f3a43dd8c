"""Joining a group of the classic protocol.

A dynamic member first gets an id and MEMBER_ID_REQUIRED, so that a client that never hears the answer leaves no ghost
behind; a static member never does. A static leader that returns to a stable group is told to skip the assignment.
Clients that know neither are treated as they expect. A group is created by the first member that comes without an id.
"""

from __future__ import annotations

from tidelog.deciding.decision import Ticket
from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicMember, ClassicState
from tidelog.group.classic_rebalance import (
    answer_join,
    complete_if_all_joined,
    joined,
    park_join,
    prepare_or_complete,
    prepare_rebalance,
    send_away,
)
from tidelog.group.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from tidelog.group.consumer_records import group_tombstones
from tidelog.group.outcomes import JoinRefusal
from tidelog.group.records import group_metadata_record
from tidelog.group.requests import Joining
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode


def join(shard: Shard, turn: Turn, ticket: Ticket, joining: Joining) -> None:
    group_id, member_id = joining.group_id, joining.member_id
    _make_room_in_empty_consumer_group(shard, turn, group_id)
    group = shard.classic(group_id)
    if group is None:
        if member_id:
            turn.reply(ticket, JoinRefusal(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            return
        group = ClassicGroup(group_id, turn.wall_ms)
    if not _has_room(shard, group, member_id):
        group.remove(member_id)
        turn.reply(ticket, JoinRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif not group.supports(joining.protocol_type, joining.names):
        turn.reply(ticket, JoinRefusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
    elif not member_id:
        shard.groups[group_id] = group
        _join_new(shard, turn, group, ticket, joining)
    elif member_id in group.pending_members and joining.group_instance_id is None:
        _add_member(shard, turn, group, ticket, joining, member_id)
    else:
        _rejoin(shard, turn, group, ticket, joining)


def _make_room_in_empty_consumer_group(shard: Shard, turn: Turn, group_id: str) -> None:
    """An empty group of the consumer protocol becomes a classic one by the first classic join."""
    empty = shard.consumer(group_id)
    if empty is None or not empty.is_empty:
        return
    turn.records.extend(group_tombstones(empty))
    shard.groups[group_id] = fresh = ClassicGroup(group_id, turn.wall_ms)

    def undo(turn: Turn, code: ErrorCode) -> None:
        for member in fresh.members.values():
            answer_join(shard, turn, fresh, member, JoinRefusal(code, member.member_id))
        shard.groups[group_id] = empty

    turn.undo.append(undo)


def _has_room(shard: Shard, group: ClassicGroup, member_id: str) -> bool:
    """While members are joining, the ones that wait count, so that a group over its limit sheds the last to come."""
    limit = shard.config.group_max_size
    member = group.members.get(member_id)
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or group.awaiting_join_count < limit
    return member is not None or len(group.members) < limit


def _join_new(shard: Shard, turn: Turn, group: ClassicGroup, ticket: Ticket, joining: Joining) -> None:
    instance_id = joining.group_instance_id
    # The id is stored as a string of at most 32767 bytes: an endless client id must not push it past that.
    prefix = joining.client_id[:255] if instance_id is None else instance_id[:255]
    new_id = f"{prefix}-{shard.around.new_uuid()}"
    if instance_id is not None:
        known = group.static_members.get(instance_id)
        if known is None:
            _add_member(shard, turn, group, ticket, joining, new_id)
        else:
            _replace_static(shard, turn, group, ticket, joining, known, new_id)
    elif joining.knows_member_id_required:
        group.pending_members.add(new_id)
        shard.touch_session(turn, group.group_id, new_id, joining.session_timeout_ms)
        turn.reply(ticket, JoinRefusal(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _add_member(shard, turn, group, ticket, joining, new_id)


def _add_member(
    shard: Shard, turn: Turn, group: ClassicGroup, ticket: Ticket, joining: Joining, member_id: str
) -> None:
    member = ClassicMember(
        member_id,
        joining.group_instance_id,
        joining.client_id,
        joining.client_host,
        joining.rebalance_timeout_ms,
        joining.session_timeout_ms,
        joining.protocol_type,
        joining.protocols,
    )
    member.is_new = True
    if group.state is ClassicState.PREPARING_REBALANCE and group.previous_state is ClassicState.EMPTY:
        group.new_member_added = True
    group.add(member)
    park_join(shard, turn, group, member, ticket)
    # Without its id the member cannot heartbeat; a client that gave up is forgotten after this time.
    shard.touch_session(turn, group.group_id, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_or_complete(shard, turn, group)


def _rejoin(shard: Shard, turn: Turn, group: ClassicGroup, ticket: Ticket, joining: Joining) -> None:
    member_id = joining.member_id
    try:
        member = group.validate_member(member_id, joining.group_instance_id)
    except Refusal as refusal:
        turn.reply(ticket, JoinRefusal(refusal.code, member_id))
        return
    unchanged = member.protocols == joining.protocols
    if group.state is ClassicState.COMPLETING_REBALANCE and unchanged:
        # The answer to its first join was lost: it gets the same again.
        turn.reply(ticket, joined(group, member))
    elif group.state is ClassicState.STABLE and unchanged and member_id != group.leader_id:
        turn.reply(ticket, joined(group, member))
    elif group.state is ClassicState.EMPTY:
        turn.reply(ticket, JoinRefusal(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
    else:
        # A leader that joins a stable group asks for a rebalance, for reasons only it knows (its topics changed).
        group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
        park_join(shard, turn, group, member, ticket)
        prepare_or_complete(shard, turn, group)


def _replace_static(
    shard: Shard, turn: Turn, group: ClassicGroup, ticket: Ticket, joining: Joining, old_id: str, new_id: str
) -> None:
    """A static member came back without its id: it takes the place of its former self, which is fenced."""
    old = group.members[old_id]
    former = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
    old_leader = group.leader_id
    send_away(shard, turn, group, old, ErrorCode.FENCED_INSTANCE_ID)
    member = group.replace_static(old_id, new_id)
    shard.deadlines.cancel(turn, shard.key("session", group.group_id, old_id))
    group.update(member, joining.protocols, joining.rebalance_timeout_ms, joining.session_timeout_ms)
    shard.touch_session(turn, group.group_id, new_id, member.session_timeout_ms)
    if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol_name:
        park_join(shard, turn, group, member, ticket)
        if group.can_rebalance:
            # In CompletingRebalance the leader may be assigning to the old id: only a new round is safe.
            prepare_rebalance(shard, turn, group)
        else:
            complete_if_all_joined(shard, turn, group)
        return

    def undo(turn: Turn, code: ErrorCode) -> None:
        group.update(member, *former)
        group.replace_static(new_id, old_id)
        group.leader_id = old_leader
        shard.touch_session(turn, group.group_id, old_id, former[2])

    turn.undo.append(undo)
    turn.append(group_metadata_record(group, {m.member_id: m.assignment for m in group.members.values()}))
    leads = group.leader_id == new_id
    outcome = joined(group, member, skip_assignment=leads)
    if leads and not joining.knows_skip_assignment:
        # Such a client would assign again if it were told that it leads: it is told who led before.
        outcome = outcome._replace(leader_id=old_id, members=(), skip_assignment=False)
    turn.reply(ticket, outcome)
