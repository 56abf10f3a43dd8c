"""Carries out the controller's decisions: opens and closes partitions, and applies configurations.

Thousands of partitions take seconds, mostly in the file system. So a few are done in each iteration of the loop, and
the controller makes no other decision until all are done. Meanwhile the image is ahead, as in Apache Kafka: clients are
told that a partition that is still to be created has no leader here yet, and they ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from tidelog.control.driver import Then
from tidelog.control.events import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    Event,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.control.model import NO_LEADER, NO_STATE, ResourceType, Topic
from tidelog.control.model import Partition as Assignment
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.placing import Placing
from tidelog.node.replication import Replication
from tidelog.node.unfit_replicas import UnfitReplicas
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.timer.slices import Job, Slices
from tidelog.wire.partitions import TopicPartition

#: of one turn, after which others are served
SLICE_MS: Final = 5

Turns: TypeAlias = Generator[None, None, None]


class Resident(Protocol):
    """A coordinator, as far as it follows the partitions of the topic that it lives on."""

    def sized(self, partitions: int | None) -> None: ...

    def leadership_changed(self, partition: Partition) -> None: ...

    def removed(self, index: int) -> None: ...


class GroupEvents(Protocol):
    """What groups must hear of: topics that come, grow and go, and settings of their own."""

    def topics_changed(self, topics: Mapping[str, Topic | None]) -> None: ...

    def topic_deleted(self, topic: Topic) -> None: ...

    def configure_group(self, group_id: str, overrides: Mapping[str, str]) -> None: ...


class DelayEvents(Protocol):
    """What the deliverer of delay topics must hear of."""

    def leadership_changed(self, partition: Partition) -> None: ...

    def removed(self, key: TopicPartition) -> None: ...

    def configured(self, topic: str) -> None: ...


class Assignments:
    """`residents` are the coordinators, by the topic that each of them lives on; `unfit` knows which replicas here
    cannot lead, whatever the controller says."""

    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        residents: Mapping[str, Resident],
        groups: GroupEvents,
        delays: DelayEvents,
        replication: Replication,
        unfit: UnfitReplicas,
        host: Host,
    ) -> None:
        self._cluster = cluster
        self._data = data
        self.unfit = unfit
        self._residents = residents
        self._groups = groups
        self._delays = delays
        self._replication = replication
        self._host = host
        self.placing = Placing(cluster, self._place, host)
        self._lane = Slices(host, 0)
        self._slice_end_ms = 0
        #: not while the broker starts: it serves nobody before it has taken up all that it is assigned
        self.others_are_served = False
        #: partitions that were found to be lost, and are not begun anew yet
        self._lost: set[TopicPartition] = set()

    def carry_out(self, events: list[Event]) -> Callable[[Then], None] | None:
        """None where all is done; otherwise it goes on in the turns to come, and calls what is handed in at the end."""
        self._slice_end_ms = self._host.clock.monotonic_ms() + SLICE_MS
        # First, for a coordinator that loads its partition compares topic ids.
        self._tell_groups(events)
        self._cluster.unplaced = {e.topic.name for e in events if isinstance(e, (TopicCreated, PartitionsAdded))}
        turns = self._each(events)
        try:
            next(turns)
        except StopIteration:
            return None
        return lambda then: self._go_on(turns, then)

    def _go_on(self, turns: Turns, then: Then) -> None:
        self._lane.add(self._rest(turns, then))

    def _rest(self, turns: Turns, then: Then) -> Job:
        try:
            yield from turns
        except Exception as error:
            self._host.report("a decision of the controller could not be carried out", error)
        then()

    def _each(self, events: list[Event]) -> Turns:
        for event in events:
            if isinstance(event, TopicCreated):
                yield from self._place_all(event.topic, event.topic.partitions)
                self._cluster.unplaced.discard(event.topic.name)
            elif isinstance(event, PartitionsAdded):
                yield from self._place_all(event.topic, event.partitions)
                self._cluster.unplaced.discard(event.topic.name)
            elif isinstance(event, PartitionChanged):
                yield from self._place_all(event.topic, [event.after])
            elif isinstance(event, TopicDeleted):
                yield from self._drop(event.topic)
            elif isinstance(event, ConfigChanged):
                self._configure(event)
                yield from self._let_others()
            elif isinstance(event, BrokerRegistered):
                is_new = event.before is None or event.before.epoch != event.broker.epoch
                self._replication.broker_registered(event.broker.broker_id, is_new)
            elif isinstance(event, BrokerUnregistered):
                self._data.broker_gone(event.broker.broker_id)
        if any(isinstance(event, (TopicDeleted, PartitionChanged)) for event in events):
            self._data.on_work_left()

    def _let_others(self) -> Turns:
        """Others have their turn, where this one has taken its time."""
        clock = self._host.clock
        if self.others_are_served and clock.monotonic_ms() >= self._slice_end_ms:
            yield
            self._slice_end_ms = clock.monotonic_ms() + SLICE_MS

    def _tell_groups(self, events: list[Event]) -> None:
        topics = {
            event.topic.name: self._cluster.image.topics.get(event.topic.name)
            for event in events
            if isinstance(event, (TopicCreated, TopicDeleted, PartitionsAdded))
        }
        # Without an id it is not served yet, and is told of again.
        changed = {name: topic for name, topic in topics.items() if topic is None or any(topic.topic_id)}
        if changed:
            self._groups.topics_changed(changed)

    def _place_all(self, topic: Topic, assignments: Sequence[Assignment]) -> Turns:
        """The last one first: those that are there serve while others are still made, and if the broker dies meanwhile
        and its metadata is lost as well, the directories must tell how many partitions the topic has (`adoption`)."""
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.sized(len(topic.partitions))
        is_known = any(topic.topic_id)
        for assigned in reversed(assignments):
            # Without a state it has no leader yet, and an old Kafka's topic has no id: it is told of again.
            if self._cluster.id in assigned.replicas and assigned.partition_epoch != NO_STATE and is_known:
                self.placing.place(topic, assigned)
                yield from self._let_others()
            elif (topic.name, assigned.partition_index) in self._data.logs.logs:
                self._move_away(topic, assigned.partition_index)
                yield from self._let_others()

    def _place(self, topic: Topic, assigned: Assignment) -> None:
        key = TopicPartition(topic.name, assigned.partition_index)
        if self._is_lost(key, assigned):
            self._lost.add(key)
        is_lost = key in self._lost
        is_fit = self.unfit.is_fit(key, assigned) and not is_lost
        if assigned.leader == self._cluster.id and (not is_fit or self._cluster.is_of_before(assigned)):
            # What this broker held then it may have lost: nobody leads here before the controller has decided anew.
            assigned = assigned._replace(leader=NO_LEADER)
        partition = self._data.place(topic, assigned)
        if partition is None:
            return
        self.unfit.decided(partition.log, assigned)
        if is_lost:
            self._data.logs.mark_incomplete(partition.log, True)
            self._lost.discard(key)
            self.unfit.doubt(key)
        self._replication.placed(partition)
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.leadership_changed(partition)
        self._delays.leadership_changed(partition)
        self._data.wake_all(partition.key)

    def _is_lost(self, key: TopicPartition, assigned: Assignment) -> bool:
        """Whether this broker is counted on for a log that it does not have any more: it finds so when it starts. One
        that is led by what is left (`recovering`) begins anew, and so does one that was made a moment ago."""
        cluster, logs = self._cluster, self._data.logs
        if not cluster.is_shared or self.others_are_served or cluster.id not in assigned.isr:
            return False
        if key in logs.logs or key in logs.out_of_reach:
            return False
        is_old = assigned.state_zxid < cluster.broker_epoch
        return is_old or (not assigned.recovering and (assigned.leader == NO_LEADER or assigned.leader_epoch > 0))

    def stop_leading(self) -> None:
        """Another broker may lead by now what this one led: nothing is served until the controller says who does."""
        for partition in list(self._data.replicas.partitions.values()):
            if partition.is_leader:
                partition.retire()
                resident = self._residents.get(partition.topic)
                if resident is not None:
                    resident.leadership_changed(partition)
                self._delays.leadership_changed(partition)
                self._data.wake_all(partition.key)

    def take_offline(self, key: TopicPartition) -> None:
        """The log is lost with its directory: whoever waits for this replica is told to look elsewhere."""
        partition = self._data.replicas.remove(*key)
        if partition is None:
            return
        self._replication.removed(partition)
        partition.retire()
        resident = self._residents.get(partition.topic)
        if resident is not None:
            resident.removed(partition.index)
        self._data.wake_all(key)

    def _move_away(self, topic: Topic, index: int) -> None:
        """Stops a replica that other brokers have now, and removes its files, unless it has come back meanwhile."""
        assigned = self._cluster.image.partition(topic.name, index)
        if assigned is not None and self._cluster.id in assigned.replicas:
            return
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.removed(index)
        self._remove(topic.name, index)

    def _remove(self, topic: str, index: int) -> None:
        key = TopicPartition(topic, index)
        self._delays.removed(key)
        self.placing.forget(key)
        self._lost.discard(key)
        partition = self._data.replicas.partitions.get(key)
        if partition is not None:
            self._replication.removed(partition)
        self._data.remove(topic, index)

    def _drop(self, topic: Topic) -> Turns:
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.sized(None)
        for assigned in topic.partitions:
            if resident is not None:
                resident.removed(assigned.partition_index)
            self._remove(topic.name, assigned.partition_index)
            yield from self._let_others()
        self._groups.topic_deleted(topic)

    def _configure(self, event: ConfigChanged) -> None:
        resource, topics = event.resource, self._cluster.image.topics
        if resource.type == ResourceType.TOPIC:
            topic = topics.get(resource.name)
            if topic is not None:
                self._data.reconfigure(topic)
                self._delays.configured(topic.name)
        elif resource.type == ResourceType.GROUP:
            self._groups.configure_group(resource.name, event.after)
        elif resource.type == ResourceType.BROKER and resource.name in ("", str(self._cluster.id)):
            changed, warnings = self._cluster.load_dynamic(event.after, per_broker=bool(resource.name))
            for warning in warnings:
                self._host.notice(warning)
            if changed:
                for topic in topics.values():
                    self._data.reconfigure(topic)
