"""What members of a classic group do once they have joined: sync, heartbeat, leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.deciding.decision import Ticket
from tidelog.deciding.turn import Refusal, Turn
from tidelog.group.classic_group import ClassicGroup, ClassicMember, ClassicState
from tidelog.group.classic_rebalance import (
    abandon_sync,
    answer_sync,
    complete_if_all_joined,
    park_sync,
    prepare_or_complete,
    remove_member,
    synced,
)
from tidelog.group.records import group_metadata_record
from tidelog.group.requests import MemberIdentity, Membership, Syncing
from tidelog.group.shard import Shard
from tidelog.wire.errors import ErrorCode

# Constants, because every heartbeat needs them: Python 3.11 is slow to look up a member of an enum.
_PREPARING: Final = ClassicState.PREPARING_REBALANCE
_ALIVE: Final = ErrorCode.NONE


def sync(shard: Shard, turn: Turn, group: ClassicGroup, ticket: Ticket, syncing: Syncing) -> None:
    member = _member_of_generation(group, syncing.member)
    if _differs(syncing.protocol_type, group.protocol_type) or _differs(syncing.protocol_name, group.protocol_name):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        shard.deadlines.cancel(turn, shard.key("sync", group.group_id))
    if group.state is ClassicState.STABLE:
        turn.reply(ticket, synced(group, member.assignment))
        turn.ordered = True
        return
    park_sync(shard, turn, group, member, ticket)
    if member.member_id == group.leader_id:
        _store_assignment(shard, turn, group, syncing.assignments)


def _member_of_generation(group: ClassicGroup, claimed: Membership) -> ClassicMember:
    member = group.validate_member(claimed.member_id, claimed.group_instance_id)
    if claimed.generation_id != group.generation_id:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)
    return member


def _differs(given: str | None, known: str | None) -> bool:
    return given is not None and known is not None and given != known


def _store_assignment(shard: Shard, turn: Turn, group: ClassicGroup, given: Mapping[str, bytes]) -> None:
    """The group is Stable when the record is replayed; the answers leave when it is committed."""
    assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
    turn.append(group_metadata_record(group, assignment, turn.wall_ms))
    for member in group.members.values():
        if answer_sync(shard, turn, member, synced(group, assignment[member.member_id])):
            shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)

    def undo(turn: Turn, code: ErrorCode) -> None:
        abandon_sync(shard, turn, group, code)
        prepare_or_complete(shard, turn, group)

    turn.undo.append(undo)


def heartbeat(shard: Shard, turn: Turn, group: ClassicGroup, claimed: Membership) -> ErrorCode:
    member = _member_of_generation(group, claimed)
    shard.touch_session(turn, group.group_id, member.member_id, member.session_timeout_ms)
    if group.state is _PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _ALIVE


def leave(shard: Shard, turn: Turn, group: ClassicGroup, identities: list[MemberIdentity]) -> list[ErrorCode]:
    codes = [_leave_one(shard, turn, group, identity) for identity in identities]
    if ErrorCode.NONE in codes:
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            prepare_or_complete(shard, turn, group)
        else:
            complete_if_all_joined(shard, turn, group)
    return codes


def _leave_one(shard: Shard, turn: Turn, group: ClassicGroup, identity: MemberIdentity) -> ErrorCode:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        known = group.static_members.get(instance_id) if instance_id is not None else None
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id not in group.pending_members:
        try:
            group.validate_member(member_id, instance_id)
        except Refusal as refusal:
            return refusal.code
    remove_member(shard, turn, group, member_id)
    return ErrorCode.NONE
