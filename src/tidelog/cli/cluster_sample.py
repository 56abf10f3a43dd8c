"""What `tidelog top` knows of a cluster at one moment, and what two moments say about rates.

Everything comes over Kafka's protocol, so any cluster can be watched: how much is written is told by the ends of the
partitions, how much is read by committed offsets. Request rates, and what a broker uses of its machine, come from the
metrics of those brokers whose HTTP address is given.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.cli.output import Row
from tidelog.wire.partitions import TopicPartition

if TYPE_CHECKING:
    from tidelog.client import Client
    from tidelog.client.admin import DescribedCluster
    from tidelog.client.cluster import ClusterInfo

SHARE: Final = "share"
#: a page of many partitions is long, and only these lines of it are looked at
_WANTED: Final = (
    "kafka_network_requestmetrics_requests_total{",
    "kafka_network_requestmetrics_totaltimems{",
    "kafka_server_brokertopicmetrics_bytesin_total ",
    "kafka_server_brokertopicmetrics_bytesout_total ",
    "kafka_server_brokertopicmetrics_messagesin_total ",
    "kafka_server_socket_server_metrics_connection_count{",
    "process_cpu_seconds_total ",
    "process_resident_memory_bytes ",
    "tidelog_broker_info{",
)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: told both with and without the kind of fetcher; the kind is worth knowing
_TOLD_TWICE: Final = "Fetch"


class Metric(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Sample(NamedTuple):
    at_s: float
    cluster: DescribedCluster
    info: ClusterInfo
    ends: dict[TopicPartition, int]
    #: by broker; None for one that does not tell
    sizes: dict[int, dict[TopicPartition, int] | None]
    #: group -> its state and what it has committed
    groups: dict[str, tuple[str, dict[TopicPartition, int]]]
    #: by broker id
    metrics: dict[int, list[Metric]]
    #: why there are no metrics from an address that was given
    silent: list[str]


def take_sample(client: Client, addresses: Iterable[str]) -> Sample:
    from tidelog.client.offsets import end_offsets

    cluster = client.admin.describe_cluster()
    info = client.describe_health()
    metrics, silent = _scrape_all(addresses)
    return Sample(
        time.monotonic(),
        cluster,
        info,
        end_offsets(client.cluster, info.topics.values()),
        {node: _sizes(client, node) for node in sorted(cluster.nodes)},
        _groups(client),
        metrics,
        silent,
    )


def _sizes(client: Client, node: int) -> dict[TopicPartition, int] | None:
    from tidelog.client.errors import ClientError

    try:
        found = client.admin.log_dirs(node)
    except ClientError:
        return None
    return {TopicPartition(r.topic, r.partition): r.size_bytes for d in found for r in d.replicas if not r.is_future}


def _groups(client: Client) -> dict[str, tuple[str, dict[TopicPartition, int]]]:
    from tidelog.client.errors import ClientError

    found = {}
    for group in client.groups.list_all():
        if group.type == SHARE:
            continue  # it has no single position in a partition
        try:
            committed = client.groups.offsets(group.group_id)
        except ClientError:
            continue  # it went away just now, or nobody may see it
        found[group.group_id] = (group.state, {where: at.offset for where, at in committed.items()})
    return found


def _scrape_all(addresses: Iterable[str]) -> tuple[dict[int, list[Metric]], list[str]]:
    """The metrics of those that answer, and why the others do not. Raises Unreachable where nobody does: that is no
    broker being down, but wrong addresses."""
    from tidelog.client.errors import Unreachable

    found: dict[int, list[Metric]] = {}
    failures: list[Unreachable] = []
    for address in addresses:
        try:
            broker, metrics = _scrape(address)
            found[broker] = metrics
        except Unreachable as error:
            failures.append(error)
    if failures and not found:
        raise failures[0]
    return found, [str(error) for error in failures]


def _scrape(address: str) -> tuple[int, list[Metric]]:
    from tidelog.client.errors import Unreachable

    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            found = [_metric(line) for line in answer.read().decode().splitlines() if line.startswith(_WANTED)]
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        hint = "start the broker with --http-port, and name that port"
        raise Unreachable(f"no metrics from {address}: {why}", hint=hint) from None
    ids = [int(metric.labels["broker"]) for metric in found if metric.name == "tidelog_broker_info"]
    if not ids:
        raise Unreachable(f"what answers at {address} is not a Tidelog broker", hint="name its --http-port")
    return ids[0], found


def _metric(line: str) -> Metric:
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    return Metric(name, dict(_LABEL.findall(labels)), float(value))


# --- what two samples say ---------------------------------------------------------------------------


def picture(before: Sample, after: Sample) -> dict[str, Any]:
    """The cluster as it is, with what went on between the samples, per second."""
    partitions = [(name, p) for name, topic in after.info.topics.items() for p in topic.partitions.values()]
    return {
        "cluster_id": after.cluster.cluster_id,
        "controller_id": after.cluster.controller_id,
        "seconds": round(after.at_s - before.at_s, 3),
        "partitions": len(partitions),
        "down": [broker for broker in after.info.down if broker not in after.cluster.nodes],
        "without_metrics": after.silent,
        "under_replicated": [f"{name}-{p.partition}" for name, p in partitions if p.under_replicated],
        "offline": [f"{name}-{p.partition}" for name, p in partitions if p.leader < 0],
        "brokers": _brokers(before, after),
        "topics": sorted(_topics(before, after), key=lambda row: (-row["messages_per_s"], row["topic"])),
        "groups": sorted(_group_rows(before, after), key=lambda row: (-row["lag"], row["group"])),
        "requests": sorted(_requests(before, after), key=lambda row: (-row["per_s"], row["request"])),
    }


def _rate(before: Sample, after: Sample, grown: float) -> float:
    # What was deleted or restarted meanwhile has not been unwritten.
    return round(max(0.0, grown) / max(after.at_s - before.at_s, 0.001), 1)


def _grown(before: dict[TopicPartition, int], after: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {where: max(0, value - before.get(where, value)) for where, value in after.items()}


def _brokers(before: Sample, after: Sample) -> list[Row]:
    written = _grown(before.ends, after.ends)
    rows = []
    for node in sorted(after.cluster.nodes.values()):
        led = [
            TopicPartition(topic.name, p.partition)
            for topic in after.info.topics.values()
            for p in topic.partitions.values()
            if p.leader == node.id
        ]
        sizes = after.sizes[node.id]
        row: Row = {
            "broker": node.id,
            "address": f"{node.host}:{node.port}",
            "controller": node.id == after.cluster.controller_id,
            "leaders": len(led),
            "replicas": sum(node.id in p.replicas for t in after.info.topics.values() for p in t.partitions.values()),
            "size_bytes": None if sizes is None else sum(sizes.values()),
            "messages_per_s": _rate(before, after, sum(written.get(where, 0) for where in led)),
            **_used(before, after, node.id),
        }
        rows.append(row)
    return rows


def _used(before: Sample, after: Sample, broker: int) -> Row:
    """What a broker's metrics tell; None for one that is not asked."""
    now, then = _totals(after.metrics.get(broker, [])), _totals(before.metrics.get(broker, []))

    def per_s(name: str) -> float | None:
        return _rate(before, after, now[name] - then[name]) if name in now and name in then else None

    cpu = per_s("process_cpu_seconds_total")
    return {
        "bytes_in_per_s": per_s("kafka_server_brokertopicmetrics_bytesin_total"),
        "bytes_out_per_s": per_s("kafka_server_brokertopicmetrics_bytesout_total"),
        "requests_per_s": per_s("kafka_network_requestmetrics_requests_total"),
        "connections": int(now["kafka_server_socket_server_metrics_connection_count"]) if now else None,
        "cpu_percent": None if cpu is None else round(cpu * 100),
        "memory_bytes": int(now["process_resident_memory_bytes"]) if now else None,
    }


def _totals(metrics: list[Metric]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for metric in metrics:
        if metric.labels.get("request") != _TOLD_TWICE:
            totals[metric.name] += metric.value
    return totals


def _topics(before: Sample, after: Sample) -> Iterable[Row]:
    written = _grown(before.ends, after.ends)
    sizes, sizes_before = _largest(after.sizes.values()), _largest(before.sizes.values())
    grown = _grown(sizes_before, sizes)
    for topic in after.info.topics.values():
        places = [TopicPartition(topic.name, partition) for partition in topic.partitions]
        known = [sizes[where] for where in places if where in sizes]
        yield {
            "topic": topic.name,
            "partitions": len(places),
            "messages_per_s": _rate(before, after, sum(written.get(where, 0) for where in places)),
            "bytes_per_s": _rate(before, after, sum(grown.get(where, 0) for where in places)) if known else None,
            "size_bytes": sum(known) if known else None,
            "under_replicated": sum(p.under_replicated for p in topic.partitions.values()),
            "offline": sum(p.leader < 0 for p in topic.partitions.values()),
        }


def _largest(of_brokers: Iterable[dict[TopicPartition, int] | None]) -> dict[TopicPartition, int]:
    """The size of each partition once, not once for each replica."""
    found: dict[TopicPartition, int] = {}
    for sizes in of_brokers:
        for where, size in (sizes or {}).items():
            found[where] = max(size, found.get(where, 0))
    return found


def _group_rows(before: Sample, after: Sample) -> Iterable[Row]:
    for group, (state, committed) in after.groups.items():
        read = _grown(before.groups.get(group, ("", {}))[1], committed)
        lags = {at: max(0, after.ends[at] - offset) for at, offset in committed.items() if at in after.ends}
        yield {
            "group": group,
            "state": state,
            "topics": sorted({where.topic for where in committed}),
            "lag": sum(lags.values()),
            "read_per_s": _rate(before, after, sum(read.values())),
        }


def _requests(before: Sample, after: Sample) -> Iterable[Row]:
    counts: dict[str, float] = defaultdict(float)
    slowest: dict[tuple[str, str], float] = defaultdict(float)
    for broker, metrics in after.metrics.items():
        then = {
            (m.labels["request"], m.labels.get("version")): m.value for m in _counts(before.metrics.get(broker, []))
        }
        for metric in _counts(metrics):
            request = metric.labels["request"]
            counts[request] += max(0.0, metric.value - then.get((request, metric.labels.get("version")), 0.0))
        for metric in metrics:
            if metric.name == "kafka_network_requestmetrics_totaltimems":
                place = metric.labels["request"], metric.labels["quantile"]
                slowest[place] = max(slowest[place], metric.value)
    for request, count in counts.items():
        yield {
            "request": request,
            "per_s": _rate(before, after, count),
            "p50_ms": slowest.get((request, "0.50")),
            "p99_ms": slowest.get((request, "0.99")),
        }


def _counts(metrics: list[Metric]) -> Iterable[Metric]:
    for metric in metrics:
        if metric.name.endswith("_requests_total") and metric.labels["request"] != _TOLD_TWICE:
            yield metric
