"""What topics, partitions and log directories have to tell."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.metrics.catalog import BROKER_COUNTERS, TOPIC_COUNTERS
from tidelog.metrics.exposition import labelled
from tidelog.replica.traffic import Traffic

if TYPE_CHECKING:
    from tidelog.control.image import Image
    from tidelog.metrics.exposition import Page
    from tidelog.node.data_plane import DataPlane
    from tidelog.node.isr_changes import IsrChanges
    from tidelog.replica.partition import Partition
    from tidelog.timer.slices import Job

#: partitions or topics of one slice, which takes about a millisecond
SLICE_ITEMS: Final = 100


class PartitionMetrics:
    def __init__(self, data: DataPlane, isr_changes: IsrChanges, image: Image) -> None:
        self._data = data
        self._image = image
        self._isr_changes = isr_changes

    def tell(self, page: Page) -> Job:
        yield from self._topics(page)
        yield from self._partitions(page)
        self._directories(page)

    def _topics(self, page: Page) -> Job:
        replicas = self._data.replicas
        total = Traffic()
        total.add(replicas.past)
        for at, (topic, traffic) in enumerate(list(replicas.traffic.items()), 1):
            total.add(traffic)
            labels = labelled(topic=topic)
            for attribute, name in TOPIC_COUNTERS.items():
                page.add(name, getattr(traffic, attribute), labels)
            if at % SLICE_ITEMS == 0:
                page.end_slice()
                yield None
        for attribute, name in (TOPIC_COUNTERS | BROKER_COUNTERS).items():
            page.add(name, getattr(total, attribute))
        page.add("kafka_server_replicamanager_isrshrinks_total", self._isr_changes.shrinkages)
        page.add("kafka_server_replicamanager_isrexpands_total", self._isr_changes.expansions)

    def _partitions(self, page: Page) -> Job:
        known = list(self._data.replicas.partitions.values())
        counts = _Counts()
        left = iter(known)
        while some := list(islice(left, SLICE_ITEMS)):
            _tell_logs(page, some)
            _tell_led(page, [partition for partition in some if partition.is_leader], counts, self._image)
            page.end_slice()
            yield None
        manager = "kafka_server_replicamanager_"
        page.add(f"{manager}partitioncount", len(known))
        page.add(f"{manager}leadercount", counts.led)
        page.add(f"{manager}underreplicatedpartitions", counts.under_replicated)
        page.add(f"{manager}underminisrpartitioncount", counts.under_minimum)
        page.add(f"{manager}atminisrpartitioncount", counts.at_minimum)

    def _directories(self, page: Page) -> None:
        logs = self._data.logs
        failed = 0
        for directory in logs.dirs:
            labels = labelled(logdirectory=directory.path)
            offline = directory.failure is not None
            failed += offline
            page.add("kafka_log_logmanager_logdirectoryoffline", int(offline), labels)
            if offline:
                continue
            try:
                usage = logs.disk.usage(directory.path)
            except OSError:
                continue  # whoever writes to it next will find out
            page.add("tidelog_log_directory_size_bytes", usage.total_bytes, labels)
            page.add("tidelog_log_directory_free_bytes", usage.usable_bytes, labels)
        page.add("kafka_log_logmanager_offlinelogdirectorycount", failed)
        page.add("kafka_server_replicamanager_offlinereplicacount", len(logs.offline))


class _Counts:
    __slots__ = ("at_minimum", "led", "under_minimum", "under_replicated")

    def __init__(self) -> None:
        self.led = 0
        self.under_replicated = 0
        self.under_minimum = 0
        self.at_minimum = 0


def _place(partition: Partition) -> str:
    # The name of a topic has nothing in it that would have to be escaped.
    return f'{{topic="{partition.topic}",partition="{partition.index}"}}'


def _tell_logs(page: Page, some: list[Partition]) -> None:
    size, start = page.lines("kafka_log_log_size"), page.lines("kafka_log_log_logstartoffset")
    end, segments = page.lines("kafka_log_log_logendoffset"), page.lines("kafka_log_log_numlogsegments")
    for partition in some:
        log, at = partition.log, _place(partition)
        size.append(f"kafka_log_log_size{at} {log.size_bytes}\n")
        start.append(f"kafka_log_log_logstartoffset{at} {log.log_start_offset}\n")
        end.append(f"kafka_log_log_logendoffset{at} {log.log_end_offset}\n")
        segments.append(f"kafka_log_log_numlogsegments{at} {len(log.segments)}\n")


def _tell_led(page: Page, led: list[Partition], counts: _Counts, image: Image) -> None:
    cluster, topic = "kafka_cluster_partition_", "kafka_topic_partition_"
    under, below = page.lines(f"{cluster}underreplicated"), page.lines(f"{cluster}underminisr")
    at_least, newest = page.lines(f"{cluster}atminisr"), page.lines(f"{topic}current_offset")
    oldest, leader = page.lines(f"{topic}oldest_offset"), page.lines(f"{topic}leader")
    preferred, replicas = page.lines(f"{topic}leader_is_preferred"), page.lines(f"{topic}replicas")
    in_sync, lacking = page.lines(f"{topic}in_sync_replica"), page.lines(f"{topic}under_replicated_partition")
    counts.led += len(led)
    for partition in led:
        at = _place(partition)
        have, want = len(partition.isr), len(partition.replicas)
        minimum = min(partition.log.config.min_insync_replicas, want)
        assigned = image.partition(partition.topic, partition.index)
        # A replica that is being added has yet to be filled: nobody is to be called for that.
        filling = 0 if assigned is None else len(assigned.adding)
        is_under, is_below, is_at = int(have < want - filling), int(have < minimum), int(have == minimum)
        counts.under_replicated += is_under
        counts.under_minimum += is_below
        counts.at_minimum += is_at
        under.append(f"{cluster}underreplicated{at} {is_under}\n")
        below.append(f"{cluster}underminisr{at} {is_below}\n")
        at_least.append(f"{cluster}atminisr{at} {is_at}\n")
        newest.append(f"{topic}current_offset{at} {partition.high_watermark}\n")
        oldest.append(f"{topic}oldest_offset{at} {partition.log.log_start_offset}\n")
        leader.append(f"{topic}leader{at} {partition.leader_id}\n")
        preferred.append(f"{topic}leader_is_preferred{at} {int(partition.replicas[0] == partition.leader_id)}\n")
        replicas.append(f"{topic}replicas{at} {want}\n")
        in_sync.append(f"{topic}in_sync_replica{at} {have}\n")
        lacking.append(f"{topic}under_replicated_partition{at} {is_under}\n")
