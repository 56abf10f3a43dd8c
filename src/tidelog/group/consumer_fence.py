"""Taking members out of a consumer group, and what becomes of a group whose last modern member goes."""

from __future__ import annotations

from tidelog.deciding.turn import Turn
from tidelog.group.classic_group import ClassicGroup, ClassicMember
from tidelog.group.consumer_group import NOTHING, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_protocol import CONSUMER_PROTOCOL_TYPE, encode_assignment, version_of
from tidelog.group.consumer_records import group_epoch_record, group_tombstones, member_tombstones, regex_tombstone
from tidelog.group.records import group_metadata_record
from tidelog.group.shard import Shard


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
