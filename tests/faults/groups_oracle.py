"""What must be true of a group's history, whatever happened to its members. Each check gives the violations it found.

A history is what the members wrote into their journals, what was done to them, the committed offsets that were polled
meanwhile, and every commit in the order in which the offsets topic holds them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOREVER = float("inf")


@dataclass(slots=True)
class MemberHistory:
    """One member process: its journal, and the times at which it was killed or stood still."""

    name: str
    events: list[dict[str, Any]]
    killed_at: float = FOREVER
    #: from SIGSTOP to SIGCONT
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        return (event for event in self.events if event["event"] == kind)

    def processed(self) -> Iterator[tuple[int, int]]:
        for event in self.of("processed"):
            yield from ((partition, offset) for partition, offset in event["records"])

    def acknowledged(self) -> Iterator[tuple[float, int, int]]:
        """Time, partition and offset of each commit that the broker acknowledged."""
        for event in self.of("committed"):
            if event["error"] is None:
                for partition, offset in event["offsets"]:
                    yield event["at"], partition, offset


@dataclass(frozen=True, slots=True)
class Poll:
    """The committed offsets as the broker told them, asked at `began` and answered at `ended`."""

    began: float
    ended: float
    offsets: dict[int, int]


@dataclass(slots=True)
class GroupHistory:
    members: list[MemberHistory]
    #: records per partition
    ends: dict[int, int]
    polls: list[Poll] = field(default_factory=list)
    #: every commit, in the order of the offsets topic
    commits: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Tenure:
    """A member's hold of a partition, as the member saw it."""

    member: MemberHistory
    partition: int
    generation: int
    began: float
    ended: float = FOREVER
    lost: bool = False


def read_journal(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tenures(member: MemberHistory) -> list[Tenure]:
    made: list[Tenure] = []
    held: dict[int, Tenure] = {}
    for event in member.events:
        if event["event"] == "assigned":
            for partition in event["partitions"]:
                held[partition] = Tenure(member, partition, event["generation"], event["at"], member.killed_at)
                made.append(held[partition])
        elif event["event"] in ("revoked", "lost"):
            for partition in event["partitions"]:
                if partition in held:
                    held[partition].ended = event["at"]
                    held.pop(partition).lost = event["event"] == "lost"
        elif event["event"] == "leaving":
            # It reads no more from here on; not every client tells that a leaving member gives its partitions back.
            for tenure in held.values():
                tenure.ended = event["at"]
            held.clear()
    return made


def processed_at_least_once(history: GroupHistory) -> list[str]:
    seen = {record for member in history.members for record in member.processed()}
    missing = [(p, offset) for p, end in history.ends.items() for offset in range(end) if (p, offset) not in seen]
    return [f"{len(missing)} records were never processed, such as {missing[:5]}"] if missing else []


def processed_at_most_once(history: GroupHistory) -> list[str]:
    by_record: dict[tuple[int, int], list[str]] = defaultdict(list)
    for member in history.members:
        for record in member.processed():
            by_record[record].append(member.name)
    return [f"{record} was processed by {names}" for record, names in by_record.items() if len(names) > 1]


def one_owner_in_a_generation(history: GroupHistory) -> list[str]:
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for member in history.members:
        for tenure in tenures(member):
            owners[tenure.generation, tenure.partition].add(member.name)
    return [
        f"partition {partition} was given to {sorted(names)} in generation {generation}"
        for (generation, partition), names in owners.items()
        if len(names) > 1
    ]


def one_owner_at_a_time(history: GroupHistory) -> list[str]:
    """A member holds a partition until it gave it back; only one that stood still may be robbed of it, even before it
    knew that it had it."""
    by_partition: dict[int, list[Tenure]] = defaultdict(list)
    for member in history.members:
        for tenure in tenures(member):
            by_partition[tenure.partition].append(tenure)
    found = []
    for partition, held in by_partition.items():
        held.sort(key=lambda tenure: tenure.began)
        for number, first in enumerate(held):
            for second in held[number + 1 :]:
                if second.began < first.ended and second.member is not first.member and not excused(first, second):
                    found.append(
                        f"partition {partition}: {second.member.name} had it from {second.began:.3f} (generation "
                        f"{second.generation}), {first.member.name} until {first.ended:.3f} ({first.generation})"
                    )
    return found


def excused(first: Tenure, second: Tenure) -> bool:
    if any(began < second.began and ended > first.began for began, ended in first.member.pauses):
        return True
    # Given it before the other, it heard of that only when it no longer stood still, and of its loss right after.
    was_before = second.lost and second.generation < first.generation
    return was_before and any(began < first.began < ended for began, ended in second.member.pauses)


def lost_without_a_reason(history: GroupHistory) -> list[str]:
    """Partitions that were taken from members which never stood still."""
    return [
        f"{member.name} lost partition {tenure.partition} of generation {tenure.generation}"
        for member in history.members
        for tenure in tenures(member)
        if tenure.lost and not any(began < tenure.ended for began, _ in member.pauses)
    ]


def commits_never_go_back(history: GroupHistory) -> list[str]:
    found = []
    newest: dict[int, int] = {}
    for partition, offset in history.commits:
        if offset < newest.get(partition, 0):
            found.append(f"partition {partition} went back from {newest[partition]} to {offset} in the offsets topic")
        newest[partition] = offset
    seen: dict[int, int] = {}
    for poll in history.polls:
        for partition, offset in seen.items():
            if poll.offsets.get(partition, -1) < offset:
                found.append(f"partition {partition} was polled at {offset}, then at {poll.offsets.get(partition)}")
        seen = poll.offsets
    return found


def acknowledged_commits_stay(history: GroupHistory) -> list[str]:
    """Whoever asks after a commit was acknowledged is told that offset, or a later one."""
    acknowledged = sorted(one for member in history.members for one in member.acknowledged())
    found = []
    newest: dict[int, int] = {}
    at = 0
    for poll in history.polls:
        while at < len(acknowledged) and acknowledged[at][0] < poll.began:
            _, partition, offset = acknowledged[at]
            newest[partition] = max(offset, newest.get(partition, 0))
            at += 1
        for partition, offset in newest.items():
            if poll.offsets.get(partition, -1) < offset:
                told = poll.offsets.get(partition)
                found.append(f"partition {partition}: {offset} was acknowledged, later {told} was told")
    return found


def every_acknowledged_commit_is_in_the_log(history: GroupHistory) -> list[str]:
    kept = set(history.commits)
    acknowledged = {(partition, offset) for member in history.members for _, partition, offset in member.acknowledged()}
    return [f"the acknowledged commit {one} is not in the offsets topic" for one in sorted(acknowledged - kept)]


ALWAYS = (
    one_owner_in_a_generation,
    one_owner_at_a_time,
    commits_never_go_back,
    acknowledged_commits_stay,
    every_acknowledged_commit_is_in_the_log,
)


def violations(history: GroupHistory, commit: str) -> list[str]:
    delivery = processed_at_least_once if commit == "after" else processed_at_most_once
    return [violation for check in (*ALWAYS, delivery) for violation in check(history)]


def errors_of(members: Iterable[MemberHistory]) -> set[tuple[int, str]]:
    """Codes and names that the applications saw, outside of commits."""
    return {(event["code"], event["name"]) for member in members for event in member.of("error")}


def refused_commits(members: Iterable[MemberHistory]) -> set[tuple[int, str]]:
    return {tuple(event["error"]) for member in members for event in member.of("committed") if event["error"]}
