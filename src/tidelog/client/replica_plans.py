"""Plans for moving replicas between brokers. Nothing here asks a broker: a plan is made from values, and is a value.

An assignment says which brokers hold a partition, the preferred leader first. A plan is a part of an assignment: what
is to change. `brokers` are the brokers that may hold replicas, with their racks; a replica on any other broker stays
where it is, unless the plan is made to move it.

- `balanced` spreads replicas and preferred leaders evenly, with few moves: nothing moves but from a broker that has
  too many to one that has too few, and leaders change by changing the order of replicas, which moves no data. Of what
  could move, the topic that is shared least evenly comes first: the busy ones get their part of a new broker, too.
- `without` takes everything off some brokers.
- `with_factor` gives partitions more or fewer replicas.

No plan puts the replicas of a partition on fewer racks than they were on, and `balanced` spreads them over more racks
where it can. Brokers without a rack count as one rack.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.client.errors import Refused
from tidelog.wire.partitions import TopicPartition

Replicas = tuple[int, ...]
Assignment = dict[TopicPartition, Replicas]
Racks = Mapping[int, str | None]

PLAN_VERSION: Final = 1


def moved_replicas(before: Mapping[TopicPartition, Replicas], plan: Mapping[TopicPartition, Replicas]) -> int:
    """How many replicas must be copied."""
    return sum(len(set(replicas) - set(before.get(at, ()))) for at, replicas in plan.items())


def balanced(assignment: Mapping[TopicPartition, Replicas], brokers: Racks) -> Assignment:
    """What has to change for replicas and leaders to be spread evenly over the brokers, and over their racks."""
    if not brokers:
        return {}
    draft = _Draft(assignment, brokers)
    draft.spread_over_racks()
    draft.level_replicas()
    draft.level_leaders()
    return draft.changed()


def without(assignment: Mapping[TopicPartition, Replicas], brokers: Racks, leaving: Iterable[int]) -> Assignment:
    """What has to change for the leaving brokers to hold nothing. Raises Refused where too few others are left."""
    gone = set(leaving)
    staying = {broker: rack for broker, rack in brokers.items() if broker not in gone}
    draft = _Draft(assignment, staying, known_racks=brokers)
    for at in draft.partitions:
        for broker in [each for each in draft.at[at] if each in gone]:
            target = draft.best_target(at, instead_of=broker)
            if target is None:
                raise _too_few(at, len(draft.at[at]), len(staying))
            draft.move(at, broker, target)
    return draft.changed()


def _too_few(at: TopicPartition, replicas: int, left: int) -> Refused:
    if not left:
        return Refused("no broker would be left", hint="add the brokers that are to take over first")
    lower = f"tidelog cluster reassign {at.topic} --replication-factor {left}"
    return Refused(
        f"{at} has {replicas} replicas, and only {left} broker{'s' if left > 1 else ''} would be left",
        hint=f"add a broker, or lower the replication factor with `{lower}`",
    )


def with_factor(
    assignment: Mapping[TopicPartition, Replicas], brokers: Racks, chosen: Iterable[TopicPartition], factor: int
) -> Assignment:
    """What has to change for the chosen partitions to have so many replicas. Raises Refused without enough brokers."""
    if factor < 1:
        raise Refused(f"{factor} is no replication factor", hint="a partition needs one replica at least")
    if factor > len(brokers):
        raise Refused(f"{factor} replicas need {factor} brokers, and there are {len(brokers)}")
    draft = _Draft(assignment, brokers)
    for at in chosen:
        while len(draft.at[at]) > factor:
            draft.drop(at)
        while len(draft.at[at]) < factor:
            target = draft.best_target(at)
            assert target is not None, "there are as many brokers as replicas"
            draft.add(at, target)
    return draft.changed()


class _Draft:
    """An assignment that is being changed, with the load of each broker."""

    def __init__(
        self, assignment: Mapping[TopicPartition, Replicas], brokers: Racks, known_racks: Racks | None = None
    ) -> None:
        self._before = dict(assignment)
        self.at: dict[TopicPartition, list[int]] = {at: list(assignment[at]) for at in sorted(assignment)}
        self.partitions = list(self.at)
        self._brokers = dict(brokers)
        self._racks = dict(known_racks or brokers)
        self._rack_count = len(set(brokers.values()))
        #: the partitions on each broker, in order; all of them, and by their topics
        self._held: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in sorted(brokers)}
        self._of_topic: dict[int, dict[str, dict[TopicPartition, None]]] = {broker: {} for broker in self._held}
        for at, replicas in self.at.items():
            for broker in replicas:
                self._hold(broker, at)
        #: how many preferred leaders each broker has of each topic, while they are levelled
        self._led_of_topic: dict[int, Counter[str]] = {}

    def changed(self) -> Assignment:
        return {at: tuple(replicas) for at, replicas in self.at.items() if tuple(replicas) != self._before[at]}

    def load(self, broker: int) -> int:
        return len(self._held[broker])

    # --- changing -----------------------------------------------------------------------------------

    def _hold(self, broker: int, at: TopicPartition) -> None:
        if broker in self._held:
            self._held[broker][at] = None
            self._of_topic[broker].setdefault(at.topic, {})[at] = None

    def _release(self, broker: int, at: TopicPartition) -> None:
        if broker in self._held:
            del self._held[broker][at]
            del self._of_topic[broker][at.topic][at]

    def move(self, at: TopicPartition, source: int, target: int) -> None:
        self.at[at][self.at[at].index(source)] = target
        self._release(source, at)
        self._hold(target, at)

    def add(self, at: TopicPartition, broker: int) -> None:
        self.at[at].append(broker)
        self._hold(broker, at)

    def drop(self, at: TopicPartition) -> None:
        """Takes a replica away, but not the preferred leader: one that does not live, then one whose rack has others,
        then one on the broker with the most."""
        racks = self._racks_of(self.at[at])

        def expendable(broker: int) -> tuple[bool, bool, int]:
            lives = broker in self._held
            return not lives, racks[self._racks.get(broker)] > 1, self.load(broker) if lives else 0

        broker = max(self.at[at][1:], key=expendable)
        self.at[at].remove(broker)
        self._release(broker, at)

    # --- racks --------------------------------------------------------------------------------------

    def _racks_of(self, replicas: Iterable[int]) -> Counter[str | None]:
        return Counter(self._racks.get(broker) for broker in replicas)

    def _spread_after(self, at: TopicPartition, source: int | None, target: int) -> int:
        """On how many racks the partition would be."""
        return len(self._racks_of([broker for broker in self.at[at] if broker != source] + [target]))

    def best_target(self, at: TopicPartition, instead_of: int | None = None) -> int | None:
        """The broker for one replica more, or for one of them: most racks, then the least load."""
        free = [broker for broker in self._held if broker not in self.at[at]]
        return min(
            free,
            key=lambda broker: (-self._spread_after(at, instead_of, broker), self.load(broker), broker),
            default=None,
        )

    def spread_over_racks(self) -> None:
        """Every partition on as many racks as there are, or as it has replicas."""
        for at, replicas in self.at.items():
            while True:
                racks = self._racks_of(replicas)
                if len(racks) >= min(len(replicas), self._rack_count):
                    break
                doubled = [b for b in replicas if b in self._held and racks[self._racks.get(b)] > 1]
                source = max(doubled, key=self.load, default=None)
                target = None if source is None else self.best_target(at, source)
                if source is None or target is None or self._spread_after(at, source, target) <= len(racks):
                    break
                self.move(at, source, target)

    # --- levelling ----------------------------------------------------------------------------------

    def level_replicas(self) -> None:
        """Moves replicas from the fullest brokers to the emptiest, as long as that makes them more equal."""
        while self._level_once():
            pass

    def _level_once(self) -> bool:
        by_load = sorted(self._held, key=self.load)
        for source in reversed(by_load):
            for target in by_load:
                if self.load(source) - self.load(target) < 2:
                    break
                movable = self._movable(source, target)
                if movable is not None:
                    self.move(movable, source, target)
                    return True
        return False

    def _movable(self, source: int, target: int) -> TopicPartition | None:
        """A partition whose replica can go from one to the other: of the topic that they share least evenly, so that
        every topic gets its part of a new broker; and rather one that source does not lead."""
        here, there = self._of_topic[source], self._of_topic[target]
        for topic in sorted(here, key=lambda topic: len(there.get(topic, ())) - len(here[topic])):
            found = None
            for at in here[topic]:
                if at in self._held[target]:
                    continue
                if self._spread_after(at, source, target) < len(self._racks_of(self.at[at])):
                    continue
                if self.at[at][0] != source:
                    return at
                found = found or at
            if found is not None:
                return found
        return None

    def level_leaders(self) -> None:
        """Changes the order of replicas until no broker can be the preferred leader of one less and another of one
        more that leads two less; over several brokers if need be."""
        led: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._held}
        for at, replicas in self.at.items():
            if replicas and replicas[0] in led:
                led[replicas[0]][at] = None
        self._led_of_topic = {broker: Counter(at.topic for at in partitions) for broker, partitions in led.items()}
        while self._shift_leader(led):
            pass

    def _shift_leader(self, led: dict[int, dict[TopicPartition, None]]) -> bool:
        for source in sorted(led, key=lambda broker: -len(led[broker])):
            path = self._path_to_fewer(source, led)
            if path:
                for at, target in path:
                    replicas = self.at[at]
                    first = replicas[0]
                    place = replicas.index(target)
                    replicas[0], replicas[place] = target, first
                    del led[first][at]
                    led[target][at] = None
                    self._led_of_topic[first][at.topic] -= 1
                    self._led_of_topic[target][at.topic] += 1
                return True
        return False

    def _path_to_fewer(
        self, source: int, led: Mapping[int, Mapping[TopicPartition, None]]
    ) -> list[tuple[TopicPartition, int]]:
        """Partitions to hand on, each to the broker named beside it, so that one that leads two less gets one more."""
        came_by: dict[int, tuple[TopicPartition, int] | None] = {source: None}
        queue = deque([source])
        while queue:
            broker = queue.popleft()
            if len(led[broker]) <= len(led[source]) - 2:
                return _walked(broker, came_by)
            ours = self._led_of_topic[broker]
            #: by follower: how unevenly they share the leaders of a topic, and a partition of the worst such
            handed: dict[int, tuple[int, TopicPartition]] = {}
            for at in led[broker]:
                for follower in self.at[at][1:]:
                    if follower in led and follower not in came_by:
                        unevenness = ours[at.topic] - self._led_of_topic[follower][at.topic]
                        if follower not in handed or unevenness > handed[follower][0]:
                            handed[follower] = (unevenness, at)
            for follower, (_, at) in handed.items():
                came_by[follower] = (at, broker)
                queue.append(follower)
        return []


def _walked(end: int, came_by: Mapping[int, tuple[TopicPartition, int] | None]) -> list[tuple[TopicPartition, int]]:
    path = []
    broker = end
    while (step := came_by[broker]) is not None:
        at, before = step
        path.append((at, broker))
        broker = before
    return path


# --- Kafka's file format ----------------------------------------------------------------------------


def to_json(plan: Mapping[TopicPartition, Replicas]) -> dict[str, object]:
    """The plan as `kafka-reassign-partitions` reads it."""
    partitions = [{"topic": at.topic, "partition": at.partition, "replicas": list(plan[at])} for at in sorted(plan)]
    return {"version": PLAN_VERSION, "partitions": partitions}


def from_json(data: object) -> Assignment:
    """A plan out of such a file. Raises Refused."""
    if not isinstance(data, dict) or data.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise Refused("the plan is not a JSON object of version 1", hint='write {"version": 1, "partitions": […]}')
    plan: Assignment = {}
    partitions = data.get("partitions")
    for entry in partitions if isinstance(partitions, list) else []:
        at, replicas = _entry(entry)
        if at in plan:
            raise Refused(f"the plan names {at} twice")
        plan[at] = replicas
    if not plan:
        raise Refused("the plan names no partitions", hint='write {"version": 1, "partitions": […]}')
    return plan


def _entry(entry: object) -> tuple[TopicPartition, Replicas]:
    if isinstance(entry, dict):
        topic, partition, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
        if isinstance(topic, str) and isinstance(partition, int) and isinstance(replicas, list) and replicas:
            brokers = [broker for broker in replicas if isinstance(broker, int) and broker >= 0]
            if len(brokers) == len(set(replicas)) == len(replicas) and partition >= 0:
                return TopicPartition(topic, partition), tuple(brokers)
    raise Refused(
        f"the plan has an entry that names no partition with its replicas: {entry!r}",
        hint='write {"topic": "t", "partition": 0, "replicas": [1, 2, 3]}, and no broker twice',
    )
