"""Making a new target assignment for a consumer group, and the records that tell what changed in it."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.group.assignors import ASSIGNORS, MemberSpec
from tidelog.group.consumer_group import NOTHING, Assignment, ConsumerGroup, ConsumerMember
from tidelog.group.consumer_records import target_epoch_record, target_record
from tidelog.group.topics_image import TopicsImage


def make_target(
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
