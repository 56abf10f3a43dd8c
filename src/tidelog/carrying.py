"""What the controller decided is carried out on this broker: logs are made and dropped, settings taken, groups told.

Thousands of partitions take seconds, most of them in the file system, so they are done a few in each turn of the loop,
and the controller decides nothing else before all are. The image is ahead meanwhile, as it is in Apache Kafka: of a
partition that is still to be made clients are told that it has no leader here yet, and they ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tidelog.control.events import ConfigChanged, Event, PartitionChanged, PartitionsAdded, TopicCreated, TopicDeleted
from tidelog.group.topics import Topic as GroupTopic
from tidelog.slices import Slices

if TYPE_CHECKING:
    from tidelog.broker import Broker
    from tidelog.control.model import Partition as Assignment
    from tidelog.control.model import Topic
    from tidelog.slices import Job

#: of one turn, after which others are served
SLICE_MS: Final = 5

Then: TypeAlias = Callable[[], None]
Turns: TypeAlias = Generator[None, None, None]


class Carrying:
    __slots__ = ("_broker", "_lane", "_slice_end_ms", "_unplaced", "others_are_served")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lane = Slices(broker.workers, broker.report, 0)
        self._slice_end_ms = 0
        #: not while the broker starts: it serves nobody before it has taken up all that it is assigned
        self.others_are_served = False
        #: names of topics some partitions of which are still to be made
        self._unplaced: set[str] = set()

    def carry_out(self, events: list[Event]) -> Callable[[Then], None] | None:
        """None where all is done; otherwise it goes on in the turns to come, and calls what is handed in at the end."""
        self._slice_end_ms = self._broker.clock.monotonic_ms() + SLICE_MS
        # First, for a coordinator that loads its partition compares topic ids.
        self._tell_groups_of_topics(events)
        self._unplaced = {event.topic.name for event in events if isinstance(event, (TopicCreated, PartitionsAdded))}
        turns = self._each(events)
        try:
            next(turns)
        except StopIteration:
            return None
        return lambda then: self._go_on(turns, then)

    def is_placing(self, topic: str) -> bool:
        return topic in self._unplaced

    def _go_on(self, turns: Turns, then: Then) -> None:
        self._lane.add(self._rest(turns, then))

    def _rest(self, turns: Turns, then: Then) -> Job:
        try:
            yield from turns
        except Exception as error:
            self._broker.report("what the controller decided could not be carried out", error)
        then()

    def _each(self, events: list[Event]) -> Turns:
        for event in events:
            if isinstance(event, TopicCreated):
                yield from self._place_all(event.topic, event.topic.partitions)
                self._unplaced.discard(event.topic.name)
            elif isinstance(event, PartitionsAdded):
                yield from self._place_all(event.topic, event.partitions)
                self._unplaced.discard(event.topic.name)
            elif isinstance(event, PartitionChanged):
                yield from self._place_all(event.topic, [event.after])
            elif isinstance(event, TopicDeleted):
                yield from self._drop(event.topic)
            elif isinstance(event, ConfigChanged):
                self._broker.configure(event)
                yield from self._let_others()
        if any(isinstance(event, TopicDeleted) for event in events):
            self._broker.on_housekeeping_due()

    def _let_others(self) -> Turns:
        """Others have their turn, where this one has taken its time."""
        clock = self._broker.clock
        if self.others_are_served and clock.monotonic_ms() >= self._slice_end_ms:
            yield
            self._slice_end_ms = clock.monotonic_ms() + SLICE_MS

    def _place_all(self, topic: Topic, assignments: Sequence[Assignment]) -> Turns:
        broker = self._broker
        coordination = broker.coordination_on(topic.name)
        if coordination is not None:
            coordination.sized(len(topic.partitions))
        for assigned in assignments:
            if broker.id in assigned.replicas:
                broker.placing.place(topic, assigned)
                yield from self._let_others()

    def _drop(self, topic: Topic) -> Turns:
        broker = self._broker
        coordination = broker.coordination_on(topic.name)
        if coordination is not None:
            coordination.sized(None)
        for assigned in topic.partitions:
            broker.drop(topic.name, assigned.partition_index)
            yield from self._let_others()
        now_ms, wall_ms = broker.clock.monotonic_ms(), broker.clock.wall_ms()
        for decision in broker.groups.on_topic_deleted(topic.name, topic.topic_id, now_ms, wall_ms):
            broker.group_coordination.carry_out(decision)

    def _tell_groups_of_topics(self, events: list[Event]) -> None:
        broker = self._broker
        changes: dict[str, GroupTopic | None] = {}
        for event in events:
            if isinstance(event, (TopicCreated, TopicDeleted, PartitionsAdded)):
                name = event.topic.name
                topic = broker.image.topics.get(name)
                changes[name] = None if topic is None else GroupTopic(name, topic.topic_id, len(topic.partitions))
        if changes:
            for decision in broker.groups.on_topics_changed(
                changes, broker.clock.monotonic_ms(), broker.clock.wall_ms()
            ):
                broker.group_coordination.carry_out(decision)
