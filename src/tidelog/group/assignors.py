"""The server-side assignors of consumer groups: `uniform` and `range`.

Both get the members with their topics and their former assignment, and give every partition of every subscribed topic
to exactly one member that is subscribed to it. They are deterministic: the same input gives the same assignment.

uniform
    Balanced over all topics together, and sticky: a member keeps what it has unless that would leave another with less.
    Where all members read the same topics the loads differ by one at most. Where they do not, partitions go to the
    least loaded subscriber, topics with few subscribers first, and then move from the most to the least loaded
    subscriber of a topic for as long as that makes the two more equal.
range
    Topic by topic, members in order (static ones first, by instance id), each a consecutive range; so members with the
    same topics get the same partitions of equally partitioned topics, which is what joining them needs. Not sticky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.group.consumer_group import Assignment

Partitions = dict[bytes, set[int]]


class MemberSpec(NamedTuple):
    instance_id: str | None
    subscribed: frozenset[bytes]
    # The target assignment it had so far.
    assigned: Assignment


Members = Mapping[str, MemberSpec]
Counts = Mapping[bytes, int]
Assignor = Callable[[Members, Counts], dict[str, Partitions]]


def assign_range(members: Members, partition_counts: Counts) -> dict[str, Partitions]:
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in order:
        for topic_id in members[member_id].subscribed:
            subscribers.setdefault(topic_id, []).append(member_id)
    assignment: dict[str, Partitions] = {member_id: {} for member_id in order}
    for topic_id in sorted(subscribers):
        takers = subscribers[topic_id]
        quota, extra = divmod(partition_counts[topic_id], len(takers))
        start = 0
        for place, member_id in enumerate(takers):
            end = start + quota + (place < extra)
            if end > start:
                assignment[member_id][topic_id] = set(range(start, end))
            start = end
    return assignment


def assign_uniform(members: Members, partition_counts: Counts) -> dict[str, Partitions]:
    subscriptions = {spec.subscribed for spec in members.values()}
    if len(subscriptions) == 1:
        return _uniform_same_topics(members, partition_counts)
    return _UniformMixed(members, partition_counts).assign()


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def _kept(spec: MemberSpec, partition_counts: Counts) -> Partitions:
    """What of its former assignment the member may still have."""
    return {
        topic_id: {p for p in partitions if p < partition_counts[topic_id]}
        for topic_id, partitions in spec.assigned.items()
        if topic_id in spec.subscribed
    }


def _uniform_same_topics(members: Members, partition_counts: Counts) -> dict[str, Partitions]:
    topics = sorted(next(iter(members.values())).subscribed)
    total = sum(partition_counts[topic_id] for topic_id in topics)
    quota, extra = divmod(total, len(members))
    assignment = {member_id: _kept(spec, partition_counts) for member_id, spec in members.items()}
    taken: set[tuple[bytes, int]] = set()
    # The members with most keep most: they are the ones that may hold one more than the others.
    by_load = sorted(assignment, key=lambda m: -_size(assignment[m]))
    for member_id in by_load:
        have = assignment[member_id]
        limit = quota + (extra > 0)
        size = 0
        for topic_id in sorted(have):
            for partition in sorted(have[topic_id]):
                if size < limit and (topic_id, partition) not in taken:
                    size += 1
                    taken.add((topic_id, partition))
                else:
                    have[topic_id].discard(partition)
        extra -= size > quota
    free = [(t, p) for t in topics for p in range(partition_counts[t]) if (t, p) not in taken]
    at = 0
    for member_id in members:
        have = assignment[member_id]
        size = _size(have)
        limit = quota + (extra > 0 and size <= quota)
        if size <= quota and limit > quota:
            extra -= 1
        for topic_id, partition in free[at : at + max(limit - size, 0)]:
            have.setdefault(topic_id, set()).add(partition)
        at += max(limit - size, 0)
    return {member_id: _pruned(have) for member_id, have in assignment.items()}


def _size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def _pruned(partitions: Partitions) -> Partitions:
    return {topic_id: indexes for topic_id, indexes in partitions.items() if indexes}


class _UniformMixed:
    """Members with different subscriptions."""

    def __init__(self, members: Members, partition_counts: Counts) -> None:
        self.counts = partition_counts
        self.assignment = {member_id: _kept(spec, partition_counts) for member_id, spec in members.items()}
        self.rank = {member_id: place for place, member_id in enumerate(members)}
        self.subscribers: dict[bytes, list[str]] = {}
        for member_id, spec in members.items():
            for topic_id in spec.subscribed:
                self.subscribers.setdefault(topic_id, []).append(member_id)
        self.owner: dict[tuple[bytes, int], str] = {}
        for member_id, partitions in self.assignment.items():
            for topic_id, indexes in partitions.items():
                for partition in sorted(indexes):
                    if self.owner.setdefault((topic_id, partition), member_id) != member_id:
                        indexes.discard(partition)
        self.load = {member_id: _size(partitions) for member_id, partitions in self.assignment.items()}
        # The harder a topic is to spread, the earlier it is placed.
        self.topics = sorted(
            self.subscribers,
            key=lambda t: (-partition_counts[t] / len(self.subscribers[t]), len(self.subscribers[t]), t),
        )

    def assign(self) -> dict[str, Partitions]:
        for topic_id in self.topics:
            for partition in range(self.counts[topic_id]):
                if (topic_id, partition) not in self.owner:
                    self._give(topic_id, partition, self._least_loaded(topic_id))
        moved = True
        while moved:
            moved = False
            for topic_id in self.topics:
                while self._even_out(topic_id):
                    moved = True
        return {member_id: _pruned(partitions) for member_id, partitions in self.assignment.items()}

    def _least_loaded(self, topic_id: bytes) -> str:
        return min(self.subscribers[topic_id], key=lambda m: (self.load[m], self.rank[m]))

    def _give(self, topic_id: bytes, partition: int, member_id: str) -> None:
        before = self.owner.get((topic_id, partition))
        if before is not None:
            self.assignment[before][topic_id].discard(partition)
            self.load[before] -= 1
        self.owner[topic_id, partition] = member_id
        self.assignment[member_id].setdefault(topic_id, set()).add(partition)
        self.load[member_id] += 1

    def _even_out(self, topic_id: bytes) -> bool:
        """Move one partition if that brings two subscribers closer; the sum of squared loads falls, so this ends."""
        givers = [m for m in self.subscribers[topic_id] if self.assignment[m].get(topic_id)]
        if not givers:
            return False
        giver = max(givers, key=lambda m: (self.load[m], -self.rank[m]))
        taker = self._least_loaded(topic_id)
        if self.load[giver] - self.load[taker] <= 1:
            return False
        self._give(topic_id, max(self.assignment[giver][topic_id]), taker)
        return True
