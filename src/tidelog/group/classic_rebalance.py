"""How a classic group moves through a rebalance: begin, wait for the members, end the join phase, end the sync phase.

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for more members, and again for as long
as new ones keep coming, up to the longest rebalance timeout. Every later one ends as soon as all known members have
joined, or when the longest rebalance timeout has passed: dynamic members that did not make it are then removed, static
ones stay until their session runs out.
"""

from __future__ import annotations

from typing import Final

from tidelog.deciding.decision import Ticket
from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ABANDONED, ClassicGroup, ClassicMember, ClassicState
from tidelog.group.outcomes import Joined, JoinedMember, JoinRefusal, Synced
from tidelog.group.records import group_metadata_record
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode
from tidelog.wire.quick_tuples import quick

_joined_member: Final = quick(JoinedMember)
_synced: Final = quick(Synced)

# -- answering what waits ----------------------------------------------------------------------------------------


def park_join(shard: Shard, turn: Turn, group: ClassicGroup, member: ClassicMember, ticket: Ticket) -> None:
    before = group.park_join(member, ticket)
    if before is not None:
        _release(shard, turn, before, JoinRefusal(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    shard.parked[ticket] = (group.group_id, member.member_id)


def park_sync(shard: Shard, turn: Turn, group: ClassicGroup, member: ClassicMember, ticket: Ticket) -> None:
    before, member.awaiting_sync = member.awaiting_sync, ticket
    if before is not None:
        _release(shard, turn, before, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    shard.parked[ticket] = (group.group_id, member.member_id)


def _release(shard: Shard, turn: Turn, ticket: Ticket, outcome: Joined | Synced | Refusal) -> None:
    """A request whose connection has gone keeps its member in the rebalance, but has nobody to answer."""
    if ticket is not ABANDONED:
        shard.parked.pop(ticket, None)
        turn.reply(ticket, outcome)


def answer_join(
    shard: Shard, turn: Turn, group: ClassicGroup, member: ClassicMember, outcome: Joined | JoinRefusal
) -> bool:
    ticket = group.take_join(member)
    if ticket is None:
        return False
    _release(shard, turn, ticket, outcome)
    return True


def answer_sync(shard: Shard, turn: Turn, member: ClassicMember, outcome: Synced | Refusal) -> bool:
    ticket, member.awaiting_sync = member.awaiting_sync, None
    if ticket is None:
        return False
    _release(shard, turn, ticket, outcome)
    return True


def send_away(shard: Shard, turn: Turn, group: ClassicGroup, member: ClassicMember, code: ErrorCode) -> None:
    """Whatever the member waits for does not come."""
    answer_join(shard, turn, group, member, JoinRefusal(code, member.member_id))
    answer_sync(shard, turn, member, Refusal(code))


def remove_member(shard: Shard, turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """Take a member out; whatever it waits for is answered, so that a live client comes back."""
    member = group.members.get(member_id)
    if member is not None:
        answer_join(shard, turn, group, member, JoinRefusal(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        answer_sync(shard, turn, member, Refusal(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member_id)
    shard.deadlines.cancel(turn, shard.key("session", group.group_id, member_id))


def joined(group: ClassicGroup, member: ClassicMember, skip_assignment: bool = False) -> Joined:
    """The outcome of a join: the leader gets everybody's metadata."""
    return Joined(
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        tuple(
            _joined_member((m.member_id, m.group_instance_id, m.metadata(group.protocol_name)))
            for m in group.members.values()
        )
        if member.member_id == group.leader_id
        else (),
        skip_assignment,
    )


def synced(group: ClassicGroup, assignment: bytes) -> Synced:
    return _synced((group.protocol_type, group.protocol_name, assignment))


# -- the phases --------------------------------------------------------------------------------------------------


def prepare_or_complete(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    if group.can_rebalance:
        prepare_rebalance(shard, turn, group)
    else:
        complete_if_all_joined(shard, turn, group)


def prepare_rebalance(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    if group.state is ClassicState.COMPLETING_REBALANCE:
        abandon_sync(shard, turn, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    shard.deadlines.cancel(turn, shard.key("sync", group.group_id))
    join_key = shard.key("join", group.group_id)
    if group.is_empty:
        delay_ms = shard.config.group_initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        group.transition(ClassicState.PREPARING_REBALANCE, turn.wall_ms)
        shard.deadlines.set(turn, join_key, turn.now_ms + delay_ms)
        return
    group.transition(ClassicState.PREPARING_REBALANCE, turn.wall_ms)
    if group.all_joined:
        complete_join(shard, turn, group)
    else:
        shard.deadlines.set(turn, join_key, turn.now_ms + group.rebalance_timeout_ms)


def abandon_sync(shard: Shard, turn: Turn, group: ClassicGroup, code: ErrorCode) -> None:
    """The assignment under way will not come: who waits for it joins again."""
    for member in group.members.values():
        member.assignment = b""
        if answer_sync(shard, turn, member, Refusal(code)):
            shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)


def complete_if_all_joined(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    """The initial delay of a new group is waited out even if everybody known has joined."""
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and group.previous_state is not ClassicState.EMPTY
        and group.all_joined
    ):
        complete_join(shard, turn, group)


def complete_join(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    group_id = group.group_id
    join_key = shard.key("join", group_id)
    shard.deadlines.cancel(turn, join_key)
    late = [m for m in group.members.values() if m.awaiting_join is None and m.group_instance_id is None]
    for member in late:
        remove_member(shard, turn, group, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none of them came: wait until their sessions decide.
        shard.deadlines.set(turn, join_key, turn.now_ms + group.rebalance_timeout_ms)
        return
    group.next_generation(turn.wall_ms)
    if group.is_empty:
        turn.append(group_metadata_record(group, {}))
        return
    for member in group.members.values():
        if member.awaiting_join is not None:
            answer_join(shard, turn, group, member, joined(group, member))
        shard.touch_session(turn, group_id, member.member_id, member.session_timeout_ms)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    shard.deadlines.set(turn, shard.key("sync", group_id), turn.now_ms + group.rebalance_timeout_ms)


# -- what is due -------------------------------------------------------------------------------------------------


def join_due(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    """The join phase has lasted long enough, unless the initial delay is extended by members that came meanwhile."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.initial_delay_ms is not None and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        delay_ms = min(shard.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        shard.deadlines.set(turn, shard.key("join", group.group_id), turn.now_ms + delay_ms)
        return
    complete_join(shard, turn, group)


def sync_due(shard: Shard, turn: Turn, group: ClassicGroup) -> None:
    """Members that never asked for their assignment are dropped, and the others start over."""
    if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.pending_sync:
        return
    for member_id in sorted(group.pending_sync):
        remove_member(shard, turn, group, member_id)
    prepare_rebalance(shard, turn, group)


def session_due(shard: Shard, turn: Turn, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_members:
        group.pending_members.discard(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE and group.all_joined:
            complete_join(shard, turn, group)
        return
    member = group.members.get(member_id)
    if member is None or member.heartbeat_satisfied:
        return
    remove_member(shard, turn, group, member_id)
    if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        prepare_or_complete(shard, turn, group)
    elif group.state is ClassicState.PREPARING_REBALANCE and group.all_joined:
        complete_join(shard, turn, group)
