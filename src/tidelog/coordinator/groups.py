"""The group coordinator over the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.by_name import ByName
from tidelog.config.group_config import effective_group
from tidelog.control.model import Topic
from tidelog.coordinator.coordination import Coordination, name_the_byte
from tidelog.deciding.decision import Decision
from tidelog.deciding.storage_errors import translated
from tidelog.group.config import GroupConfig
from tidelog.group.groups import Groups, random_uuid
from tidelog.group.topics_image import Topic as GroupTopic
from tidelog.node.data_plane import DataPlane
from tidelog.node.internal_topics import OFFSETS_TOPIC
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.wire.errors import ErrorCode
from tidelog.wire.partitions import TopicPartition


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

    # --- what others may hear of groups -------------------------------------------------------------

    def when_settled(self, partitions: Collection[int], done: Callable[[Mapping[int, ErrorCode]], None]) -> None:
        """Calls `done` when everything that these partitions hold now is committed, which is mostly at once. It gets
        those of which that cannot be said, because it took too long or another broker leads now, and what to answer."""
        left = len(partitions)
        errors: dict[int, ErrorCode] = {}

        def settled(index: int, error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if error is not ErrorCode.NONE:
                errors[index] = translated(error)
            if not left:
                done(errors)

        if not partitions:
            done(errors)
        for index in partitions:
            held = self._data.held(TopicPartition(self.topic, index))
            if held is None:
                settled(index, ErrorCode.NONE)
            else:
                self._data.when_committed(held, self._commit_timeout_ms(), partial(settled, index))

    # --- what groups must hear of -------------------------------------------------------------------

    def topics_changed(self, topics: Mapping[str, Topic | None]) -> None:
        """Topics that were created, have grown, or (None) are gone."""
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
