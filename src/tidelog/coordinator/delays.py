"""The partitions of delay and half topics that this broker leads: each delivers its records to the topic's target.

A topic is one of them while `tidelog.delay.target` or `tidelog.half.target` is set. Its partitions begin to deliver
when this broker starts to lead them or the setting is made, and stop when it no longer leads, or the setting is taken
away: what waits then waits on, and nothing keeps retention from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.producer_ids import ProducerIds
from tidelog.node.cluster_view import ClusterView
from tidelog.node.data_plane import DataPlane
from tidelog.peers.requester import Requester
from tidelog.replica.partition import Partition
from tidelog.timer.host import Host
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.coordinator.cancelling_partition import CancellingPartition
    from tidelog.coordinator.delay_partition import DelayPartition
    from tidelog.coordinator.half_partition import HalfPartition
    from tidelog.coordinator.parcel_delivery import ParcelDelivery


class Delays:
    def __init__(
        self,
        cluster: ClusterView,
        data: DataPlane,
        producer_ids: ProducerIds,
        requester: Requester | None,
        host: Host,
    ) -> None:
        self._cluster = cluster
        self._data = data
        self._producer_ids = producer_ids
        self._requester = requester
        self._host = host
        #: made for the first partition
        self._delivery: ParcelDelivery | None = None
        self.partitions: dict[TopicPartition, CancellingPartition] = {}
        data.held_from = self.held_from

    def leadership_changed(self, partition: Partition) -> None:
        """Called after every change: delivers from what this broker leads, and nothing else."""
        known = self.partitions.get(partition.key)
        config = partition.log.config
        if not partition.is_leader or not config.waits_for:
            self.removed(partition.key)
        elif (
            known is None
            or known.partition is not partition
            or known.leader_epoch != partition.leader_epoch
            or type(known) is not _kind_of(partition)
        ):
            self._begin(partition)

    def _begin(self, partition: Partition) -> None:
        self.removed(partition.key)
        try:
            started = self.partitions[partition.key] = self._new(partition)
        except OSError as error:
            self._host.report(f"nothing is delivered from {partition.log.name}: its directory cannot be read", error)
            return
        started.start()

    def _new(self, partition: Partition) -> CancellingPartition:
        from tidelog.coordinator.parcel_delivery import ParcelDelivery

        if self._delivery is None:
            self._delivery = ParcelDelivery(self._cluster, self._data, self._requester, self._host)
        return _kind_of(partition)(
            partition, self._cluster, self._data, self._producer_ids, self._delivery, self._host, self._begin
        )

    def removed(self, key: TopicPartition) -> None:
        known = self.partitions.pop(key, None)
        if known is not None:
            known.close()

    def configured(self, topic: str) -> None:
        """The settings of a topic have changed."""
        described = self._cluster.image.topics.get(topic)
        for assigned in [] if described is None else described.partitions:
            partition = self._data.replicas.partitions.get(TopicPartition(topic, assigned.partition_index))
            if partition is not None:
                self.leadership_changed(partition)
        for known in list(self.partitions.values()):
            if topic in (known.partition.topic, known.target):
                known.go_on()

    def held_from(self, partition: Partition) -> int:
        """The first offset that retention must leave. A follower deletes what its leader has deleted."""
        if not partition.log.config.waits_for:
            return partition.high_watermark
        known = self.partitions.get(partition.key)
        if known is None or not partition.is_leader:
            return partition.log.log_start_offset
        return min(known.held_from(), partition.high_watermark)

    def close(self) -> None:
        for key in list(self.partitions):
            self.removed(key)
        if self._delivery is not None:
            self._delivery.close()


def _kind_of(partition: Partition) -> type[HalfPartition | DelayPartition]:
    # Late, as what delivers: few brokers have topics whose records wait, and the others start sooner without.
    from tidelog.coordinator.delay_partition import DelayPartition
    from tidelog.coordinator.half_partition import HalfPartition

    return HalfPartition if partition.log.config.tidelog_half_target else DelayPartition
