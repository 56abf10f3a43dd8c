"""Carries out what the controller decided: partitions come into service and go, configurations take effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tidelog.control.events import ConfigChanged, Event, PartitionChanged, PartitionsAdded, TopicCreated, TopicDeleted
from tidelog.control.model import Partition as Assignment
from tidelog.control.model import ResourceType, Topic
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.node.placing import Placing
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host


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


class Assignments:
    """`residents` are the coordinators, by the topic that each of them lives on."""

    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        residents: Mapping[str, Resident],
        groups: GroupEvents,
        host: Host,
    ) -> None:
        self._cluster = cluster
        self._data = data
        self._residents = residents
        self._groups = groups
        self._host = host
        self.placing = Placing(cluster, self._place, host)

    def carry_out(self, events: list[Event]) -> None:
        # First, for a coordinator that loads its partition compares topic ids.
        self._tell_groups(events)
        for event in events:
            if isinstance(event, TopicCreated):
                self._place_all(event.topic, event.topic.partitions)
            elif isinstance(event, PartitionsAdded):
                self._place_all(event.topic, event.partitions)
            elif isinstance(event, PartitionChanged):
                self._place_all(event.topic, [event.after])
            elif isinstance(event, TopicDeleted):
                self._drop(event.topic)
                self._groups.topic_deleted(event.topic)
            elif isinstance(event, ConfigChanged):
                self._configure(event)

    def _tell_groups(self, events: list[Event]) -> None:
        changed = {
            event.topic.name: self._cluster.image.topics.get(event.topic.name)
            for event in events
            if isinstance(event, (TopicCreated, TopicDeleted, PartitionsAdded))
        }
        if changed:
            self._groups.topics_changed(changed)

    def _place_all(self, topic: Topic, assignments: Iterable[Assignment]) -> None:
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.sized(len(topic.partitions))
        for assigned in assignments:
            if self._cluster.id in assigned.replicas:
                self.placing.place(topic, assigned)

    def _place(self, topic: Topic, assigned: Assignment) -> None:
        partition = self._data.place(topic, assigned)
        if partition is None:
            return
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.leadership_changed(partition)
        self._data.parking.wake(partition.key)

    def _drop(self, topic: Topic) -> None:
        resident = self._residents.get(topic.name)
        if resident is not None:
            resident.sized(None)
        for assigned in topic.partitions:
            index = assigned.partition_index
            self.placing.forget((topic.name, index))
            if resident is not None:
                resident.removed(index)
            self._data.remove(topic.name, index)
        self._data.on_work_left()

    def _configure(self, event: ConfigChanged) -> None:
        resource, topics = event.resource, self._cluster.image.topics
        if resource.type == ResourceType.TOPIC:
            topic = topics.get(resource.name)
            if topic is not None:
                self._data.reconfigure(topic)
        elif resource.type == ResourceType.GROUP:
            self._groups.configure_group(resource.name, event.after)
        elif resource.type == ResourceType.BROKER and resource.name in ("", str(self._cluster.id)):
            changed, warnings = self._cluster.load_dynamic(event.after, per_broker=bool(resource.name))
            for warning in warnings:
                self._host.notice(warning)
            if changed:
                for topic in topics.values():
                    self._data.reconfigure(topic)
