"""The page of metrics: read from the numbers that the rooms keep, when somebody asks for it, in slices on the loop.

A page of ten thousand partitions has over a hundred thousand lines. On a thread of its own it would take the
interpreter away from the loop again and again; in slices of about a millisecond it delays a request by one of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidelog import __version__
from tidelog.metrics.cluster_metrics import ClusterMetrics
from tidelog.metrics.delay_metrics import DelayMetrics
from tidelog.metrics.exposition import Page, labelled
from tidelog.metrics.group_metrics import GroupMetrics
from tidelog.metrics.partition_metrics import PartitionMetrics
from tidelog.metrics.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from tidelog.api.dispatch import Dispatcher
    from tidelog.broker import Broker
    from tidelog.net.server import Server
    from tidelog.timer.slices import Job

#: of Apache Kafka's broker states
RUNNING: Final = 3
STOPPING: Final = 6
_SOCKETS: Final = "kafka_server_socket_server_metrics_"


class Collector:
    """`has_zookeeper` is None for a broker that needs none."""

    def __init__(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        sockets: Server,
        is_stopping: Callable[[], bool] = lambda: False,
        has_zookeeper: Callable[[], bool] | None = None,
    ) -> None:
        self._broker = broker
        self._sockets = sockets
        self._is_stopping = is_stopping
        self._has_zookeeper = has_zookeeper
        self._partitions = PartitionMetrics(broker.data, broker.replication.isr_changes, broker.cluster.image)
        self._groups = GroupMetrics(broker.groups.room, broker.data.replicas)
        self._delays = DelayMetrics(broker.delays, broker.host.clock)
        self._requests = RequestMetrics(dispatcher, broker.host.clock.monotonic_ms())
        self._cluster = ClusterMetrics(broker.cluster)
        #: processor time of the broker's thread and real time, when they were last told
        self._busy_ns, self._told_ns = time.thread_time_ns(), time.perf_counter_ns()
        self._registry: Any = None

    def collect(self, done: Callable[[list[bytes]], None]) -> Job:
        page = Page()
        self._requests.tell(page, self._broker.host.clock.monotonic_ms())
        self._tell_network(page)
        self._tell_broker(page)
        yield None
        yield from self._partitions.tell(page)
        yield from self._groups.tell(page)
        yield from self._delays.tell(page)
        yield from self._cluster.tell(page)
        page.end_slice()
        if self._registry is None:
            # Late, and beside the loop: no broker starts later for it.
            self._registry = yield _process_registry
        from prometheus_client import generate_latest

        done([*page.chunks(), generate_latest(self._registry)])

    def _tell_network(self, page: Page) -> None:
        sockets = self._sockets
        open_now = Counter(connection.listener_name for connection in sockets.connections)
        for listener, count in open_now.items():
            page.add(f"{_SOCKETS}connection_count", count, labelled(listener=listener, networkProcessor=0))
        page.add(f"{_SOCKETS}connection_creation_total", sockets.connections_accepted)
        page.add("tidelog_connections_refused_total", sockets.connections_refused)
        page.add("tidelog_network_received_bytes_total", sockets.bytes_in)
        page.add("tidelog_network_sent_bytes_total", sockets.bytes_out)
        idle = self._idle_share()
        page.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
        page.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
        page.add("tidelog_parked_requests", len(self._broker.data.parking))

    def _idle_share(self) -> float:
        busy_ns, now_ns = time.thread_time_ns(), time.perf_counter_ns()
        share = 1 - (busy_ns - self._busy_ns) / max(1, now_ns - self._told_ns)
        self._busy_ns, self._told_ns = busy_ns, now_ns
        return round(min(max(share, 0.0), 1.0), 6)

    def _tell_broker(self, page: Page) -> None:
        cluster = self._broker.cluster
        labels = labelled(broker=cluster.id, cluster=cluster.cluster_id or "", version=__version__)
        page.add("tidelog_broker_info", 1, labels)
        page.add("kafka_server_kafkaserver_brokerstate", STOPPING if self._is_stopping() else RUNNING)
        if self._has_zookeeper is not None:
            page.add("tidelog_zookeeper_connected", int(self._has_zookeeper()))


def _process_registry() -> Any:
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    registry = CollectorRegistry()
    for collector in (ProcessCollector, GCCollector, PlatformCollector):
        collector(registry=registry)
    return registry
