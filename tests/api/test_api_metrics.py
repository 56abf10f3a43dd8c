"""What a broker counts, and what it tells of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api_site import Site, batch
from prometheus_client.parser import text_string_to_metric_families as parsed

from tidelog.metrics.catalog import FAMILIES
from tidelog.metrics.collector import Collector
from tidelog.net import Limits, Loop, Server
from tidelog.timer.slices import Slices

#: what is told of connections and of the exchanges on them; here there are none
OF_SOCKETS = {
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_requestmetrics_totaltimems_count",
    "kafka_server_socket_server_metrics_connection_count",
    "tidelog_request_duration_seconds",
}
IN = "kafka_server_brokertopicmetrics_messagesin_total"


class Watched:
    """A broker whose metrics can be asked for."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.loop = Loop(site.clock, site.timer)
        sockets = Server(self.loop, Limits(), site.dispatch)
        self.has_zookeeper = True
        self.collector = Collector(site.broker, site.dispatch, sockets, has_zookeeper=lambda: self.has_zookeeper)

    def text(self) -> str:
        pages: list[bytes] = []
        lane = Slices(self.site.broker.host, 0)
        lane.add(self.collector.collect(lambda chunks: pages.append(b"".join(chunks))))
        (page,) = pages
        return page.decode()

    def __call__(self, name: str, **labels: object) -> float | None:
        """The value of one sample; None where it is not told."""
        wanted = {label: str(value) for label, value in labels.items()}
        for family in parsed(self.text()):
            for sample in family.samples:
                if sample.name == name and sample.labels == wanted:
                    return sample.value
        return None


@pytest.fixture
def watched(site: Site) -> Iterator[Watched]:
    it = Watched(site)
    yield it
    it.loop.close()


def fetch(site: Site, topic: str, offset: int = 0, replica: int = -1) -> object:
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    asked = [{"topic": topic, "partitions": partitions}]
    return site.ask(1, 11, replica_id=replica, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=asked)


def coordinated(site: Site, group: str) -> None:
    assert site.ask(10, 4, key_type=0, coordinator_keys=[group]).coordinators[0].error_code == 0


def commit(site: Site, group: str, topic: str, offset: int) -> None:
    coordinated(site, group)
    partitions = [{"partition_index": 0, "committed_offset": offset}]
    asked = [{"name": topic, "partitions": partitions}]
    answer = site.ask(8, 7, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=asked)
    assert answer.topics[0].partitions[0].error_code == 0


def test_the_page_is_what_the_catalog_says(watched: Watched) -> None:
    watched.site.topic("t", 2)
    watched.site.topic("half", tidelog_half_target="t")
    watched.site.produce("t", 3)
    fetch(watched.site, "t")
    fetch(watched.site, "nowhere")
    commit(watched.site, "g", "t", 1)
    told = set()
    for family in parsed(watched.text()):
        name = family.name if family.name in FAMILIES else f"{family.name}_total"
        if family.name.startswith(("process_", "python_")):
            continue
        known = FAMILIES[name]
        assert (family.type, family.documentation) == (known.kind, known.meaning)
        labels = {label.strip("[]") for label in known.labels}
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} in (labels, set() if "[topic]" in known.labels else labels), sample
        told.add(name)
    assert FAMILIES.keys() - told == OF_SOCKETS


def test_records_are_counted_by_topic_and_in_all(watched: Watched) -> None:
    for topic, records in (("a", 3), ("b", 5)):
        watched.site.topic(topic)
        watched.site.produce(topic, records)
    assert (watched(IN, topic="a"), watched(IN, topic="b"), watched(IN)) == (3, 5, 8)
    assert watched("kafka_server_brokertopicmetrics_bytesin_total", topic="a") == len(batch(3))
    fetch(watched.site, "a")
    assert watched("kafka_server_brokertopicmetrics_bytesout_total", topic="a") == len(batch(3))
    assert watched("kafka_server_brokertopicmetrics_bytesout_total") == len(batch(3))


def test_a_zookeeper_that_is_away_is_told_and_a_broker_without_one_tells_nothing(watched: Watched) -> None:
    assert watched("tidelog_zookeeper_connected") == 1
    watched.has_zookeeper = False
    assert watched("tidelog_zookeeper_connected") == 0
    watched.collector._has_zookeeper = None
    assert watched("tidelog_zookeeper_connected") is None


def test_a_duplicate_is_not_counted_as_written(watched: Watched) -> None:
    watched.site.topic("t")
    once = batch(3, producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        assert watched.site.produce("t", once).base_offset == 0
    assert watched(IN, topic="t") == 3


def test_what_a_deleted_topic_counted_stays_in_the_total(watched: Watched) -> None:
    for topic in ("gone", "kept"):
        watched.site.topic(topic, 2)
        watched.site.produce(topic, 4)
    watched.site.ask(20, 5, topic_names=["gone"], timeout_ms=1000)
    assert (watched(IN, topic="gone"), watched(IN, topic="kept"), watched(IN)) == (None, 4, 8)
    watched.site.topic("gone")
    assert watched(IN, topic="gone") == 0


def test_requests_are_counted_by_api_and_version_with_their_errors(watched: Watched) -> None:
    watched.site.topic("t")
    requests, errors = (f"kafka_network_requestmetrics_{what}_total" for what in ("requests", "errors"))
    watched.site.produce("t", version=9)
    watched.site.produce("t", version=8)
    assert watched(requests, request="Produce", version=9) == watched(requests, request="Produce", version=8) == 1
    assert watched.site.produce("nowhere").error_code == 3
    assert watched(errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert watched("kafka_server_brokertopicmetrics_failedproducerequests_total") == 1
    fetch(watched.site, "t", offset=99)
    assert watched(errors, request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert watched("kafka_server_brokertopicmetrics_failedfetchrequests_total", topic="t") == 1
    coordinated(watched.site, "none")
    watched.site.ask(12, 4, group_id="none", generation_id=1, member_id="x")
    assert watched(errors, request="Heartbeat", error="UNKNOWN_MEMBER_ID") == 1


def test_fetches_of_followers_are_told_from_those_of_consumers(watched: Watched) -> None:
    watched.site.topic("t")
    for replica in (-1, -1, 5):
        fetch(watched.site, "t", replica=replica)
    requests = "kafka_network_requestmetrics_requests_total"
    told = [watched(requests, request=f"Fetch{who}", version=11) for who in ("", "Consumer", "Follower")]
    assert told == [3, 2, 1]
    series = [line.rpartition(" ")[0] for line in watched.text().splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_the_lag_of_a_group_is_what_it_has_not_read(watched: Watched) -> None:
    watched.site.topic("t")
    watched.site.produce("t", 10)
    group = 'a "group"\nof two lines'
    commit(watched.site, group, "t", 4)
    place = {"consumergroup": group, "topic": "t", "partition": 0}
    assert watched("kafka_consumergroup_current_offset", **place) == 4
    assert watched("kafka_consumergroup_lag", **place) == 6
    assert watched("kafka_consumergroup_lag_sum", consumergroup=group, topic="t") == 6
    assert watched("kafka_topic_partition_current_offset", topic="t", partition=0) == 10


def test_a_broker_alone_is_controller_of_partitions_in_good_health(watched: Watched) -> None:
    watched.site.topic("t", 3)
    manager, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
    for name, count in (("partitioncount", 3), ("leadercount", 3), ("underreplicatedpartitions", 0)):
        assert watched(f"{manager}{name}") == count
    assert watched(f"{controller}activecontrollercount") == watched(f"{controller}activebrokercount") == 1
    assert watched(f"{controller}offlinepartitionscount") == 0
    assert watched("kafka_topic_partitions", topic="t") == 3


def test_a_long_page_is_made_in_many_turns(watched: Watched) -> None:
    watched.site.topic("t", 1000)
    before = watched.site.workers.turns
    assert watched.text().count("\nkafka_log_log_size{") == 1000
    assert watched.site.workers.turns - before > 10


def test_a_replica_that_is_being_added_makes_no_partition_under_replicated(site: Site, watched: Watched) -> None:
    site.topic("t")
    partition, topic = site.broker.data.partition("t", 0), site.broker.cluster.image.topics["t"]
    partition.replicas = (0, 1)
    assert watched("kafka_server_replicamanager_underreplicatedpartitions") == 1
    topic.partitions[0] = topic.partitions[0]._replace(replicas=(0, 1), adding=(1,))
    assert watched("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert watched("kafka_cluster_partition_underreplicated", topic="t", partition=0) == 0
    partition.replicas = (0, 1, 2)
    assert watched("kafka_cluster_partition_underreplicated", topic="t", partition=0) == 1
    partition.replicas = (0,)
