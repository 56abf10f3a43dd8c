"""What the controller has to tell of the cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.control.model import NO_LEADER, Partition
from tidelog.metrics.exposition import labelled

if TYPE_CHECKING:
    from tidelog.metrics.exposition import Page
    from tidelog.node.cluster_view import ClusterView
    from tidelog.timer.slices import Job

#: partitions of one slice
SLICE_PARTITIONS: Final = 2000
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"


class ClusterMetrics:
    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def tell(self, page: Page) -> Job:
        image = self._cluster.image
        is_active = image.controller_id == self._cluster.id
        offline = displaced = partitions = looked_at = 0
        topics = list(image.topics.values()) if is_active else []
        for topic in topics:
            partitions += len(topic.partitions)
            page.add("kafka_topic_partitions", len(topic.partitions), labelled(topic=topic.name))
            offline += sum(p.leader == NO_LEADER for p in topic.partitions)
            displaced += sum(_is_displaced(p) for p in topic.partitions)
            looked_at += len(topic.partitions)
            if looked_at >= SLICE_PARTITIONS:
                looked_at = 0
                page.end_slice()
                yield None
        page.add(f"{_CONTROLLER}activecontrollercount", int(is_active))
        page.add(f"{_CONTROLLER}offlinepartitionscount", offline)
        page.add(f"{_CONTROLLER}preferredreplicaimbalancecount", displaced)
        page.add(f"{_CONTROLLER}globaltopiccount", len(topics))
        page.add(f"{_CONTROLLER}globalpartitioncount", partitions)
        page.add(f"{_CONTROLLER}activebrokercount", len(image.brokers) if is_active else 0)
        if is_active:
            self._tell_as_controller(page)

    def _tell_as_controller(self, page: Page) -> None:
        image = self._cluster.image
        stats = "kafka_controller_controllerstats_"
        page.add(f"{stats}leaderelectionrateandtimems_count", image.elections)
        page.add(f"{stats}uncleanleaderelections_total", image.unclean_elections)
        page.add("kafka_brokers", len(image.brokers))
        for broker in image.brokers.values():
            for endpoint in broker.endpoints[:1]:
                labels = labelled(id=broker.broker_id, address=f"{endpoint.host}:{endpoint.port}")
                page.add("kafka_broker_info", 1, labels)


def _is_displaced(partition: Partition) -> bool:
    return partition.leader not in (partition.replicas[0], NO_LEADER)
