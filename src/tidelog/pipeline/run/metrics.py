"""What a runner does, as Prometheus metrics over HTTP: `tidelog_pipeline_…`, all with the label `pipeline`.

batches_total, rows_total, dead_letters_total, files_total, written_bytes_total, notices_total
batch_seconds                           how long batches take, from plan to commit
last_commit_timestamp_seconds, table_version
committed_offset, end_offset, lag       by topic and partition
"""

from __future__ import annotations

from typing import Any

from tidelog.pipeline.land.progress_events import BatchCommitted, Event, Notice, RunProgress, StepReached

_PREFIX = "tidelog_pipeline"


class Metrics:
    """A listener that counts. `port` 0 takes a free one."""

    def __init__(self, pipeline: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._name = pipeline
        self.registry = CollectorRegistry()
        self._server: Any = None
        self._metrics: dict[str, Any] = {}
        for name, what in (
            ("batches", "Batches committed"),
            ("rows", "Rows committed to the table"),
            ("dead_letters", "Records committed to the dead-letter table"),
            ("files", "Parquet files committed"),
            ("written_bytes", "Bytes of the Parquet files committed"),
            ("notices", "What a person should know: brokers that do not answer, records that are gone"),
        ):
            self._add(Counter, name, what)
        self._add(Histogram, "batch_seconds", "Seconds from the plan of a batch to its commit")
        self._add(Gauge, "last_commit_timestamp_seconds", "When the last batch was committed")
        self._add(Gauge, "table_version", "Version of the Delta table")
        for name, what in (
            ("committed_offset", "Next offset: everything below is in the table"),
            ("end_offset", "End of the partition's log"),
            ("lag", "Offsets between the table and the end of the log"),
        ):
            labels = ["pipeline", "topic", "partition"]
            self._metrics[name] = Gauge(f"{_PREFIX}_{name}", what, labels, registry=self.registry)

    def _add(self, kind: Any, name: str, what: str) -> None:
        self._metrics[name] = kind(f"{_PREFIX}_{name}", what, ["pipeline"], registry=self.registry).labels(self._name)

    def serve(self, port: int, host: str = "0.0.0.0") -> int:
        """Serves the metrics until `close`; the port."""
        from prometheus_client import start_http_server

        self._server, _ = start_http_server(port, host, self.registry)
        return int(self._server.server_port)

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def __call__(self, event: Event) -> None:
        metrics = self._metrics
        if isinstance(event, BatchCommitted):
            metrics["batches"].inc()
            metrics["rows"].inc(event.rows)
            metrics["dead_letters"].inc(event.dead_letters)
            metrics["files"].inc(event.files)
            metrics["written_bytes"].inc(event.size_bytes)
            metrics["batch_seconds"].observe(event.seconds)
        elif isinstance(event, Notice):
            metrics["notices"].inc()
        elif isinstance(event, RunProgress):
            self._show(event)
        else:
            assert isinstance(event, StepReached)

    def _show(self, progress: RunProgress) -> None:
        self._metrics["table_version"].set(progress.table_version)
        if progress.last_commit_ms is not None:
            self._metrics["last_commit_timestamp_seconds"].set(progress.last_commit_ms / 1000)
        for partition in progress.partitions:
            labels = (self._name, partition.topic, str(partition.partition))
            self._metrics["committed_offset"].labels(*labels).set(partition.committed)
            self._metrics["end_offset"].labels(*labels).set(partition.end)
            self._metrics["lag"].labels(*labels).set(partition.lag)
