"""Carries out a plan for moving replicas: throttles, starts, waits with progress, and elects the leaders planned.

The requests are the ones that Kafka's own tools send, so this works against Apache Kafka as well. A throttle is set as
`kafka-reassign-partitions` sets it: a rate on the brokers concerned, and on the topics the replicas that it is for. It
is removed when the moves are done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.output import Column, Row, plural, show_table, tell, warn
from tidelog.cli.progress import Progress
from tidelog.client.errors import Refused
from tidelog.client.replica_plans import Assignment, Replicas, moved_replicas
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.cluster import ClusterInfo, NodeInfo

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
#: a broker's log directories that get nothing new, or `*`
CORDON: Final = "cordoned.log.dirs"
POLL_S: Final = 0.3


def assignment_of(described: ClusterInfo) -> Assignment:
    """Where the replicas of all partitions are."""
    return {
        TopicPartition(topic.name, p.partition): tuple(p.replicas)
        for topic in described.topics.values()
        for p in topic.partitions.values()
    }


def as_rows(before: Mapping[TopicPartition, Replicas], plan: Mapping[TopicPartition, Replicas]) -> list[Row]:
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "from": list(before.get(at, ())),
            "to": list(plan[at]),
            "copies": len(set(plan[at]) - set(before.get(at, ()))),
        }
        for at in sorted(plan)
    ]


def show_plan(rows: list[Row]) -> None:
    columns = [
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", right=True),
        Column("REPLICAS", "from"),
        Column("PLANNED", "to"),
    ]
    show_table(rows, columns)


def summary(before: Mapping[TopicPartition, Replicas], plan: Mapping[TopicPartition, Replicas]) -> str:
    copies = moved_replicas(before, plan)
    return f"{plural(len(plan), 'partition')} to change, {plural(copies, 'replica')} to copy"


class PlannedMoves:
    """One plan, being carried out."""

    def __init__(self, client: Client, before: Assignment, plan: Assignment, rate: int | None) -> None:
        self._client = client
        self._before = before
        self._plan = plan
        self._rate = rate
        self.failed: dict[TopicPartition, str] = {}

    def carry_out(self) -> None:
        """Returns when everything that could be moved is moved, and led as planned; the rest is in `failed`."""
        if self._rate is not None:
            self._throttle(self._rate)
        for at, error in self._client.admin.reassign(self._plan).items():
            if error is not None:
                self.failed[at] = str(error)
                warn(str(error))
        started = [at for at in self._plan if at not in self.failed]
        try:
            self._await(started)
        except KeyboardInterrupt:
            tell(
                "the moves go on: `tidelog cluster reassign` shows them, `tidelog cluster reassign --cancel` ends them"
            )
            raise
        if self._rate is not None:
            unthrottle(self._client, self._plan, self._brokers())
        self._verify(started)
        self._lead([at for at in started if at not in self.failed])

    def _await(self, started: list[TopicPartition]) -> None:
        ours = set(started)
        with Progress("moved", len(ours)) as progress:
            while left := len(ours & self._client.admin.reassignments().keys()):
                progress.update(len(ours) - left)
                time.sleep(POLL_S)

    def _verify(self, started: list[TopicPartition]) -> None:
        """Somebody else may have cancelled or changed a move meanwhile."""
        now = assignment_of(self._client.describe({at.topic for at in started})) if started else {}
        for at in started:
            if set(now.get(at, ())) != set(self._plan[at]):
                self.failed[at] = f"{at} has its replicas on {list(now.get(at, ()))}, not where they were planned"
                warn(self.failed[at])

    def _lead(self, moved: list[TopicPartition]) -> None:
        if not moved:
            return
        topics = self._client.describe({at.topic for at in moved}).topics
        astray = [at for at in moved if topics[at.topic].partitions[at.partition].leader != self._plan[at][0]]
        if not astray:
            return
        for at, error in self._client.admin.elect_leaders(astray).items():
            if error is not None:
                self.failed[at] = str(error)
                warn(str(error))

    # --- throttling ---------------------------------------------------------------------------------

    def _brokers(self) -> set[int]:
        return {broker for at in self._plan for broker in (*self._before.get(at, ()), *self._plan[at])}

    def _throttle(self, rate: int) -> None:
        admin = self._client.admin
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for at, replicas in self._plan.items():
            before = self._before.get(at, ())
            leaders.setdefault(at.topic, []).extend(f"{at.partition}:{broker}" for broker in before)
            coming = [broker for broker in replicas if broker not in before]
            followers.setdefault(at.topic, []).extend(f"{at.partition}:{broker}" for broker in coming)
        for topic in leaders:
            named = {LEADERS: ",".join(leaders[topic]), FOLLOWERS: ",".join(followers[topic])}
            admin.alter_configs("topic", topic, set={name: text for name, text in named.items() if text})
        for broker in sorted(self._brokers() & self._client.describe([]).nodes.keys()):
            admin.alter_configs("broker", str(broker), set=dict.fromkeys(RATES, str(rate)))


def unthrottle(client: Client, partitions: Iterable[TopicPartition], brokers: Iterable[int]) -> None:
    """Removes what a throttle has set."""
    for topic in sorted({at.topic for at in partitions}):
        client.admin.alter_configs("topic", topic, delete=(LEADERS, FOLLOWERS))
    alive = client.describe([]).nodes
    for broker in sorted(set(brokers) & alive.keys()):
        client.admin.alter_configs("broker", str(broker), delete=RATES)


# --- brokers that are to get nothing new ----------------------------------------------------------------


def cordon(client: Client, brokers: Iterable[int]) -> None:
    """Keeps new partitions off brokers that are there, until `uncordon`."""
    for broker in brokers:
        try:
            client.admin.alter_configs("broker", str(broker), set={CORDON: "*"})
        except Refused as error:  # an Apache Kafka of before 4.3 has no such setting
            warn(f"new partitions may still be placed on broker {broker}: {error}")


def uncordon(client: Client, brokers: Iterable[int]) -> None:
    for broker in sorted(brokers):
        client.admin.alter_configs("broker", str(broker), delete=(CORDON,))


def open_brokers(client: Client, nodes: Iterable[NodeInfo]) -> dict[int, str | None]:
    """Those that take new replicas, with their racks."""
    found = {}
    for node in nodes:
        entries = client.admin.describe_configs("broker", str(node.id), [CORDON])
        if not any(entry.value == "*" for entry in entries):
            found[node.id] = node.rack
    return found


def outcome_of(rows: list[Row], moves: PlannedMoves | None) -> dict[str, Any]:
    """What was planned and done, as data."""
    failed = {} if moves is None else moves.failed
    errors = {str(at): text for at, text in failed.items()}
    return {"done": moves is not None and not failed, "moves": rows, "errors": errors}
