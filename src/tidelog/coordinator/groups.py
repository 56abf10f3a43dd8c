"""The group coordinator over the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.by_name import ByName
from tidelog.config.group_config import effective_group
from tidelog.control.model import Topic
from tidelog.coordinator.coordination import Coordination, name_the_byte
from tidelog.deciding.decision import Decision
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups, random_uuid
from tidelog.group.topics_image import Topic as GroupTopic
from tidelog.node.data_plane import DataPlane
from tidelog.node.internal_topics import OFFSETS_TOPIC
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host


class GroupCoordination(Coordination[Decision]):
    def __init__(self, config: BrokerConfig, data: DataPlane, host: Host, new_id: Callable[[], bytes]) -> None:
        self.room = Groups(GroupConfig.from_properties(ByName(config)), lambda: random_uuid(new_id))
        self._config = config
        super().__init__(OFFSETS_TOPIC, self.room, data, host, lambda: config.values.offsets_commit_timeout_ms)
        config.on_change(
            ["group.consumer.assignment.interval.ms"],
            lambda names: self.room.configure(GroupConfig.from_properties(ByName(config))),
        )

    def _batch_lost(self, partition: Partition, first_offset: int, end_offset: int) -> None:
        """Positions are committed again and again, and whoever reads from an earlier one misses nothing: that is
        better than no group having a position. What transactions have decided is not left to chance in this way."""
        self._host.notice(
            f"{partition.log.name} is damaged, and what stands at offsets {first_offset} to {end_offset - 1} is lost: "
            "groups that have committed nothing since go on from earlier positions, or where they have none from where "
            f"auto.offset.reset says. {name_the_byte(partition)}"
        )

    # --- what groups must hear of -------------------------------------------------------------------

    def topics_changed(self, topics: Mapping[str, Topic | None]) -> None:
        """TopicCreator that were created, have grown, or (None) are gone."""
        changes = {
            name: None if topic is None else GroupTopic(name, topic.topic_id, len(topic.partitions))
            for name, topic in topics.items()
        }
        for decision in self.room.on_topics_changed(changes, *self.now()):
            self.carry_out(decision)

    def topic_deleted(self, topic: Topic) -> None:
        for decision in self.room.on_topic_deleted(topic.name, topic.topic_id, *self.now()):
            self.carry_out(decision)

    def configure_group(self, group_id: str, overrides: Mapping[str, str]) -> None:
        self.room.configure_group(group_id, effective_group(overrides, self._config) if overrides else {})
