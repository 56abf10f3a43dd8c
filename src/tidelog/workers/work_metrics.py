"""What workers tell Prometheus: plain numbers that they count anyway, read when somebody asks.

prometheus_client.REGISTRY.register(WorkCollector(workers))
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from tidelog.workers.parallel import Workers


class WorkCollector(Collector):
    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        now = self._workers.progress()
        group = [self._workers.options.group]
        records = CounterMetricFamily(
            "tidelog_workers_messages",
            "Messages by what became of them: handled; failed, per attempt; retried; dead, to the dead-letter topic; "
            "skipped, finished before a restart.",
            labels=["group", "outcome"],
        )
        for outcome in ("handled", "failed", "retried", "dead", "skipped"):
            records.add_metric([*group, outcome], getattr(now, outcome))
        yield records
        for name, value, said in (
            ("in_flight", now.in_flight, "Messages that are being handled."),
            ("pending", now.pending, "Messages that were received and are not finished."),
            ("waiting_for_retry", now.waiting_for_retry, "Messages that failed and wait for another attempt."),
            ("partitions", now.partitions, "Partitions that are assigned."),
            ("paused_partitions", now.paused, "Partitions from which nothing is fetched, for want of room."),
            ("lag", now.lag, "Records of the assigned partitions that are not finished."),
        ):
            if value is not None:
                gauge = GaugeMetricFamily(f"tidelog_workers_{name}", said, labels=["group"])
                gauge.add_metric(group, value)
                yield gauge
        seconds = SummaryMetricFamily("tidelog_workers_handler_seconds", "Time in the handler.", labels=["group"])
        seconds.add_metric(group, count_value=now.handled + now.failed, sum_value=now.handler_seconds)
        yield seconds
