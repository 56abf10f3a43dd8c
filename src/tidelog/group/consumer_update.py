"""What follows when a member of a consumer group comes with news: the steps that all its requests share.

1. The member's record, if anything about it changed; its regular expression, if that changed.
2. The group's epoch, if what the group reads changed.
3. A new target assignment, if the group is ahead of its target and the last one is old enough.
4. The member's next step towards its target.

Nothing is applied: every step adds records, and replaying them makes the change.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.deciding.turn import Turn
from tidelog.group.assignors import ASSIGNORS, MemberSpec
from tidelog.group.config import METADATA_REFRESH_INTERVAL_MS, NO_OVERRIDES, REGEX_REFRESH_MIN_INTERVAL_MS
from tidelog.group.consumer_group import NOTHING, Assignment, ConsumerGroup, ConsumerMember, MemberState, ResolvedRegex
from tidelog.group.consumer_records import (
    current_record,
    group_epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from tidelog.group.reconcile import Reconciliation
from tidelog.group.requests import Reported
from tidelog.group.shard import Shard
from tidelog.group.topics_image import TopicsImage
from tidelog.wire.errors import ErrorCode


class Update:
    __slots__ = (
        "epoch",
        "group",
        "member",
        "names_changed",
        "regex_changed",
        "regex_resolved",
        "shard",
        "turn",
        "updated",
    )

    def __init__(
        self, shard: Shard, turn: Turn, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember
    ) -> None:
        self.shard = shard
        self.turn = turn
        self.group = group
        self.member = member
        self.updated = updated
        self.epoch = group.group_epoch
        self.names_changed = updated.subscribed_topic_names != member.subscribed_topic_names
        if updated is not member and updated != member:
            turn.append(member_record(group.group_id, updated))
        old, new = member.subscribed_topic_regex or "", updated.subscribed_topic_regex or ""
        self.regex_changed = old != new
        # Whether it is known already what the changed expression matches.
        self.regex_resolved = False
        if old or new or group.resolved:
            self._follow_regex(old, new)

    # -- regular expressions -------------------------------------------------------------------------------------

    def _follow_regex(self, old: str, new: str) -> None:
        group = self.group
        wanted = False
        if self.regex_changed:
            if old and group.count_subscribed_to_regex(old) == 1:
                self.turn.append(regex_tombstone(group.group_id, old))
            if new and group.count_subscribed_to_regex(new) == 0:
                check_regex(new)
                wanted = True
            else:
                self.regex_resolved = not new or new in group.resolved
        subscribed = group.subscribed_regexes_after(self.updated)
        key = self.shard.key("regex", group.group_id)
        last = next(iter(group.resolved.values()), None)
        if not subscribed or key in self.shard.deadlines:
            return
        if last is not None:
            age_ms = self.turn.wall_ms - last.timestamp_ms
            if 0 <= age_ms <= REGEX_REFRESH_MIN_INTERVAL_MS:
                return
            wanted |= last.version < self.shard.around.topics.version_with_new_topics
            wanted |= not 0 <= age_ms <= self.shard.config.consumer_regex_refresh_interval_ms
        if wanted or subscribed != group.resolved.keys():
            # Resolved by a turn of its own, once the member that brought it is stored.
            self.shard.deadlines.set(self.turn, key, self.turn.now_ms)

    # -- epochs --------------------------------------------------------------------------------------------------

    def bump_epoch(self, bump: bool) -> None:
        """Also where nobody asked for it, if the topics turn out to have changed."""
        group, turn = self.group, self.turn
        if not bump and turn.now_ms < group.refresh_deadline_ms:
            return
        metadata_hash = self.shard.around.topics.hash_of(group.subscribed_topics_after(self.updated))
        if bump or metadata_hash != group.metadata_hash:
            self.epoch += 1
            turn.append(group_epoch_record(group.group_id, self.epoch, metadata_hash))
        trust_metadata(group, turn)
        if group.has_partition_metadata:
            turn.append(partition_metadata_tombstone(group.group_id))

    def retarget(self) -> tuple[int, Assignment]:
        """The epoch and the assignment that the member should go to."""
        group, around = self.group, self.shard.around
        overrides = around.overrides.get(group.group_id, NO_OVERRIDES)
        interval_ms = overrides.assignment_interval_ms
        if interval_ms is None:
            interval_ms = around.config.consumer_assignment_interval_ms
        made_ms = group.assignment_timestamp_ms
        too_early = made_ms and interval_ms and made_ms <= self.turn.wall_ms < made_ms + interval_ms
        if group.assignment_epoch >= self.epoch or too_early:
            instance_id = self.updated.instance_id
            # A member that has just become static, or another instance, is known by its own id.
            member_id = self.updated.member_id
            known = member_id if instance_id is None else group.static_members.get(instance_id, member_id)
            return group.assignment_epoch, group.target.get(known, NOTHING)
        members = list(group.after(self.updated))
        assignor = group.preferred_assignor(members) or around.config.consumer_assignors[0]
        records, mine = _make_target(
            group, self.updated, members, assignor, around.topics, self.epoch, self.turn.wall_ms
        )
        self.turn.records.extend(records)
        return self.epoch, mine

    def reconcile(self, epoch: int, target: Assignment, owned: Reported, subscription_changed: bool) -> ConsumerMember:
        member, group = self.updated, self.group
        if not subscription_changed and member.is_reconciled_to(epoch):
            return member
        replaced = None if member.instance_id is None else group.static_members.get(member.instance_id)

        def held_by_other(member_id: str, topic_id: bytes, partition: int) -> bool:
            owner = group.owners.get(topic_id, NOTHING).get(partition)
            return owner is not None and owner not in (member_id, replaced)

        subscribed = self.shard.around.topics.ids_of(group.topics_of(member))
        moved = Reconciliation(member, epoch, target, subscribed, held_by_other, owned).next(subscription_changed)
        if moved != member:
            self.turn.append(current_record(group.group_id, moved))
            if not moved.uses_classic_protocol:
                self._watch_revocation(moved)
        return moved

    def _watch_revocation(self, member: ConsumerMember) -> None:
        key = self.shard.key("revoke", self.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.shard.deadlines.set(self.turn, key, self.turn.now_ms + member.rebalance_timeout_ms)
        else:
            self.shard.deadlines.cancel(self.turn, key)


def _make_target(
    group: ConsumerGroup,
    updated: ConsumerMember,
    members: Iterable[ConsumerMember],
    assignor: str,
    image: TopicsImage,
    epoch: int,
    wall_ms: int,
) -> tuple[list[CoordinatorRecord], Assignment]:
    """The records, and what is meant for `updated`; a static member inherits from the one it replaces."""
    inherits = group.static_members.get(updated.instance_id or "", updated.member_id)
    specs: dict[str, MemberSpec] = {}
    ids_by_names: dict[frozenset[str], frozenset[bytes]] = {}
    for member in members:
        names = group.topics_of(member)
        if names not in ids_by_names:
            ids_by_names[names] = frozenset(image.ids_of(names))
        former = inherits if member is updated else member.member_id
        specs[member.member_id] = MemberSpec(member.instance_id, ids_by_names[names], group.target.get(former, NOTHING))
    counts = {topic_id: image.by_id[topic_id].partition_count for ids in ids_by_names.values() for topic_id in ids}
    made = ASSIGNORS[assignor](specs, counts)
    records: list[CoordinatorRecord] = []
    mine: Assignment = NOTHING
    for member_id in specs:
        assignment = {t: frozenset(p) for t, p in made.get(member_id, {}).items()}
        if member_id == updated.member_id:
            mine = assignment
        if group.target.get(member_id) != assignment:
            records.append(target_record(group.group_id, member_id, assignment))
    records.append(target_epoch_record(group.group_id, epoch, wall_ms))
    return records, mine


def check_regex(expression: str) -> None:
    """Raises Refusal. The engine is loaded when the first expression comes: most brokers never see one."""
    from tidelog.group.regex import check

    check(expression)


def trust_metadata(group: ConsumerGroup, turn: Turn) -> None:
    """The topics need no look until something changes; if this turn is not stored, they do."""
    group.refresh_deadline_ms = turn.now_ms + METADATA_REFRESH_INTERVAL_MS

    def undo(turn: Turn, code: ErrorCode) -> None:
        group.refresh_deadline_ms = 0

    turn.undo.append(undo)


def resolve_regexes(shard: Shard, turn: Turn, group: ConsumerGroup) -> None:
    """What every expression of the group matches now; the group's epoch grows if that is something else than before."""
    from tidelog.group.regex import matching

    image = shard.around.topics
    bump = False
    after = dict(group.resolved)
    for expression in sorted(group.subscribed_regexes()):
        topics = matching(expression, image.by_name)
        before = group.resolved.get(expression)
        bump |= topics != (before.topics if before is not None else frozenset())
        after[expression] = resolved = ResolvedRegex(topics, image.version, turn.wall_ms)
        turn.append(regex_record(group.group_id, expression, resolved))
    names: set[str] = set()
    for member in group.members.values():
        names |= member.subscribed_topic_names
        if member.subscribed_topic_regex in after:
            names |= after[member.subscribed_topic_regex].topics
    metadata_hash = image.hash_of(names)
    if bump or metadata_hash != group.metadata_hash:
        turn.append(group_epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
        trust_metadata(group, turn)
