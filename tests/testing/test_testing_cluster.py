"""A running cluster: brokers and ZooKeeper that a test starts, kills, pauses and stops, one by one or all at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tidelog.client import Client, ClientError
from tidelog.testing.broker import DEFAULTS, BrokerFailed
from tidelog.testing.cluster import RunningCluster, cluster_defaults

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.zookeeper

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(3, {"offsets.topic.num.partitions": "3", "tidelog.http.port": "0"}) as running:
        yield running


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_sync(cluster: RunningCluster, topic: str) -> list[int]:
    with Client(cluster.bootstrap) as client:
        try:
            return sorted(client.describe([topic]).topics[topic].partitions[0].isr)
        except ClientError:
            return []


def test_a_cluster_replicates_and_knows_its_brokers(cluster: RunningCluster) -> None:
    with Client(cluster.bootstrap) as client:
        described = client.admin.describe_cluster()
        assert {node.id: f"{node.host}:{node.port}" for node in described.nodes.values()} == {
            broker_id: broker.bootstrap for broker_id, broker in cluster.brokers.items()
        }
        assert described.cluster_id == cluster.cluster_id and list(cluster.brokers) == [1, 2, 3]
        assert client.admin.create_topic("replicated", 1).replication_factor == 3


def test_a_broker_that_was_killed_goes_and_comes_back_on_its_port_with_its_data(cluster: RunningCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.admin.create_topic("killed", 1)
    victim = cluster.brokers[2]
    port = victim.port
    victim.kill()
    until(lambda: in_sync(cluster, "killed") == [1, 3])
    assert not cluster.running and cluster.failure() is None
    cluster.start()
    assert victim.port == port and cluster.running
    until(lambda: in_sync(cluster, "killed") == [1, 2, 3])


def test_zookeeper_can_be_killed_and_started_again_below_running_brokers(cluster: RunningCluster) -> None:
    assert cluster.zookeeper is not None
    cluster.zookeeper.kill()
    with Client(cluster.bootstrap, timeout_s=1) as client, pytest.raises(ClientError) as caught:
        client.admin.create_topic("before-zookeeper", 1)
    assert "ZooKeeper" in f"{caught.value} {caught.value.hint}"
    for has_zookeeper in (b"0", b"1"):
        for broker in cluster.brokers.values():
            told = b"\ntidelog_zookeeper_connected %s\n" % has_zookeeper
            until(lambda broker=broker, told=told: told in urlopen(f"http://{broker.http}/metrics").read())
        cluster.start()
    with Client(cluster.bootstrap) as client:
        client.admin.create_topic("after-zookeeper", 1)
    until(lambda: in_sync(cluster, "after-zookeeper") == [1, 2, 3])


def test_stopped_and_started_again_it_has_its_topics(cluster: RunningCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.admin.create_topic("kept", 1)
    cluster.stop()
    assert not any(broker.running for broker in cluster.brokers.values())
    assert cluster.zookeeper is not None and not cluster.zookeeper.running
    cluster.start()
    until(lambda: in_sync(cluster, "kept") == [1, 2, 3])


def test_one_broker_needs_no_more_replicas_than_there_are() -> None:
    assert set(cluster_defaults(1).values()) == {"1", "200"}
    assert cluster_defaults(5)["offsets.topic.replication.factor"] == "3"


def test_what_every_broker_is_started_with_holds_in_a_cluster_unless_its_settings_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(DEFAULTS, "num.partitions", "7")
    cluster = RunningCluster(2, configs={2: {"num.partitions": "3"}}, data_dir=tmp_path, zookeeper="127.0.0.1:1")
    given = [[each for each in broker.arguments if "num.partitions" in each] for broker in cluster.brokers.values()]
    assert given == [["num.partitions=7"], ["num.partitions=3"]]


def test_leaving_stops_all_processes_and_removes_the_data(zookeeper_connect: str) -> None:
    with RunningCluster(2, command=STAND_IN, zookeeper=zookeeper_connect, configs={2: {"broker.rack": "b"}}) as cluster:
        pids = [broker.pid for broker in cluster.brokers.values()]
        assert cluster.brokers[2].config["broker.rack"] == "b" and "broker.rack" not in cluster.brokers[1].config
        assert cluster.zookeeper is None and cluster.brokers[1].config["zookeeper.connect"] == zookeeper_connect
        assert (cluster.data_dir / "broker-1.log").exists()
    assert not cluster.data_dir.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_broker_that_does_not_start_is_named_and_the_others_are_ended(zookeeper_connect: str, tmp_path: Path) -> None:
    cluster = RunningCluster(
        2, command=STAND_IN, zookeeper=zookeeper_connect, configs={2: {"stand.in": "fail"}}, data_dir=tmp_path
    )
    with pytest.raises(BrokerFailed, match=r"^broker 2: [\s\S]*the disk is on fire"):
        cluster.start()
    assert not cluster.brokers[1].running


def test_a_broker_that_ended_by_itself_is_told_of_when_the_cluster_is_closed(zookeeper_connect: str) -> None:
    with (
        pytest.raises(BrokerFailed, match=r"broker 1: the broker exited unexpectedly with exit code -9"),
        RunningCluster(2, command=STAND_IN, zookeeper=zookeeper_connect) as cluster,
    ):
        os.kill(cluster.brokers[1].pid, signal.SIGKILL)
        until(lambda: not cluster.brokers[1].running)
    assert not cluster.brokers[2].running


def test_nothing_runs_on_after_the_program_that_forgot_to_close() -> None:
    program = (
        "import sys\n"
        "from tidelog.testing.cluster import RunningCluster\n"
        "cluster = RunningCluster(2, command=sys.argv[1:]).start()\n"
        "print(cluster.zookeeper.pid, *(b.pid for b in cluster.brokers.values()), cluster.data_dir)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *STAND_IN], capture_output=True, text=True, timeout=60, check=True
    )
    *pids, data_dir = ended.stdout.split()
    assert len(pids) == 3 and not Path(data_dir).exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_fixtures_share_a_cluster_and_start_again_what_a_test_killed_or_paused(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        f"""
        import tidelog.testing.cluster as cluster
        cluster.RunningCluster.__init__.__kwdefaults__["command"] = {list(STAND_IN)!r}
        """
    )
    pytester.makepyfile(
        """
        from pathlib import Path

        def is_frozen(process):
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

        def test_kills(tidelog_cluster_session):
            tidelog_cluster_session.brokers[1].kill()
            for process in (tidelog_cluster_session.brokers[2], tidelog_cluster_session.zookeeper):
                process.pause()
            assert tidelog_cluster_session.brokers[2].config["group.initial.rebalance.delay.ms"] == "0"

        def test_finds_it_alive(tidelog_cluster_session):
            assert tidelog_cluster_session.running
            assert not is_frozen(tidelog_cluster_session.brokers[2])
            assert not is_frozen(tidelog_cluster_session.zookeeper)

        def test_more(tidelog_cluster_session, tidelog_cluster_factory):
            other = tidelog_cluster_factory(1, {"num.partitions": "3"}, zookeeper=tidelog_cluster_session.connect)
            assert list(other.brokers) == [1] and other.brokers[1].config["num.partitions"] == "3"
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q")
    result.assert_outcomes(passed=3)
