"""`tidelog cluster balance, reassign, elect, decommission` on a real cluster of three brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_shell import Shell

from tidelog.client import Client
from tidelog.client.cluster import PartitionInfo
from tidelog.client.errors import ClientError
from tidelog.testing.cluster import RunningCluster
from tidelog.wire.partitions import TopicPartition

pytestmark = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    # Leaders move when they are told to, not by themselves.
    with RunningCluster(3, {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


@pytest.fixture
def run(cluster: RunningCluster) -> Shell:
    cluster.start()
    return Shell(cluster.bootstrap)


@pytest.fixture
def admin(cluster: RunningCluster, run: Shell) -> Iterator[Client]:
    with Client(cluster.bootstrap) as client:
        yield client
        client.admin.delete_topics(name for name, topic in client.describe().topics.items() if not topic.is_internal)


def partitions(client: Client, topic: str) -> dict[int, PartitionInfo]:
    return client.describe([topic]).topics[topic].partitions


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_balancing_shows_its_plan_and_spreads_replicas_and_leaders(run: Shell, admin: Client) -> None:
    admin.admin.create_topic("lopsided", assignments={p: [1, 2] for p in range(6)})
    planned = run("cluster", "balance", "--dry-run")
    assert "PLANNED" in planned.stdout and "partitions to change, 4 replicas to copy" in planned.stderr
    assert {tuple(p.replicas) for p in partitions(admin, "lopsided").values()} == {(1, 2)}
    refused = run("cluster", "balance", code=2)
    assert "Use --yes to confirm" in refused.stderr
    done = run("cluster", "balance", "--yes").stderr.splitlines()
    assert len(done) == 2 and done[1].endswith("partitions moved")
    after = partitions(admin, "lopsided").values()
    for broker in (1, 2, 3):
        assert sum(broker in p.replicas for p in after) == 4 and sum(p.leader == broker for p in after) == 2
    assert "nothing to move" in run("cluster", "balance", "--yes").stderr


def test_a_plan_file_is_what_a_dry_run_printed(run: Shell, admin: Client, tmp_path: Path) -> None:
    admin.admin.create_topic("planned", assignments={0: [1], 1: [1], 2: [1]})
    plan = run.json("cluster", "balance", "--dry-run")
    assert plan["version"] == 1 and len(plan["partitions"]) == 2 and not plan["done"]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert run.json("cluster", "reassign", "--plan", str(file), "--yes")["done"]
    assert sorted(p.replicas for p in partitions(admin, "planned").values()) == [[1], [2], [3]]


def test_replicas_are_placed_by_hand_and_their_number_changes(run: Shell, admin: Client) -> None:
    admin.admin.create_topic("placed", assignments={0: [1], 1: [1]})
    done = run.json("cluster", "reassign", "placed", "--replicas", "3,2", "-p", "1", "--yes", "--throttle", "50MB")
    assert done["done"] and [(move["from"], move["to"]) for move in done["moves"]] == [([1], [3, 2])]
    assert partitions(admin, "placed")[1].leader == 3 and partitions(admin, "placed")[0].replicas == [1]
    assert not _throttles(admin)
    run("cluster", "reassign", "placed", "--replication-factor", "3", "--yes")
    assert all(len(p.replicas) == len(p.isr) == 3 for p in partitions(admin, "placed").values())
    run("cluster", "reassign", "placed", "--replication-factor", "1", "--yes")
    assert [p.replicas for p in partitions(admin, "placed").values()] == [[1], [3]]


def test_a_move_under_way_is_shown_and_cancelled_with_its_throttle(run: Shell, admin: Client) -> None:
    admin.admin.create_topic("slow", assignments={0: [1]})
    run("produce", "slow", input=b"x" * 900_000)
    # As a throttle leaves it that somebody was too impatient to wait for.
    rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "1")
    for broker in "12":
        admin.admin.alter_configs("broker", broker, set=rates)
    replicas = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
    admin.admin.alter_configs("topic", "slow", set=replicas)
    run("produce", "slow", input=b"x" * 900_000)
    admin.admin.reassign({TopicPartition("slow", 0): [2]})
    described = run.json("cluster", "describe")
    assert described["moving"] == ["slow-0"]
    assert described["under_replicated"] == [], "the replica that is being added has yet to be filled"
    (listed,) = run.json("topic", "list")
    assert (listed["under_replicated"], listed["replication_factor"]) == (0, 1)
    assert run.json("topic", "describe", "slow")["under_replicated"] == 0
    moves = run.json("cluster", "reassign")
    assert moves[0]["adding"] == [2] and moves[0]["removing"] == [1]
    assert "slow" in run("cluster", "reassign").stdout
    assert run.json("cluster", "reassign", "slow", "--cancel", "--yes")["cancelled"] == ["slow-0"]
    assert "no moves under way" in run("cluster", "reassign").stderr
    assert partitions(admin, "slow")[0].replicas == [1] and not _throttles(admin, topic="slow")


def _throttles(client: Client, topic: str | None = None) -> list[Any]:
    described = [client.admin.describe_configs("broker", broker) for broker in "123"]
    if topic is not None:
        described.append(client.admin.describe_configs("topic", topic))
    return [e for entries in described for e in entries if "throttled" in e.name and not e.is_default]


def test_a_broker_is_emptied_and_what_cannot_be_is_refused(run: Shell, admin: Client) -> None:
    admin.admin.create_topic("spread", 3, 2)
    assert "broker 3 can be switched off" in run("cluster", "decommission", "3", "--yes").stderr
    assert all(3 not in p.replicas for p in partitions(admin, "spread").values())
    again = run("cluster", "decommission", "3", "--yes").stderr
    assert "nothing to move: broker 3 can be switched off" in again
    admin.admin.create_topic("since", 6, 2)
    assert all(3 not in p.replicas for p in partitions(admin, "since").values())
    assert "nothing to move" in run("cluster", "balance", "--yes").stderr
    with pytest.raises(ClientError, match="only 2 of 3 brokers take new partitions"):
        admin.admin.create_topic("wide", 1, 3)
    assert "placed there again" in run("cluster", "decommission", "3", "--undo").stderr
    admin.admin.create_topic("wide", 1, 3)
    refused = run("cluster", "decommission", "2", "3", "--yes", code=2)
    assert "has 2 replicas, and only 1 broker would be left" in refused.stderr
    assert "no broker would be left" in run("cluster", "decommission", "1", "2", "3", "--yes", code=2).stderr
    assert "there is no broker 9" in run("cluster", "decommission", "9", code=4).stderr


def test_preferred_leaders_lead_again_after_a_broker_was_away(
    run: Shell, admin: Client, cluster: RunningCluster
) -> None:
    admin.admin.create_topic("led", assignments={0: [2, 1], 1: [1, 2]})
    cluster.brokers[2].restart()
    until(lambda: all(len(p.isr) == 2 for p in partitions(admin, "led").values()))
    assert partitions(admin, "led")[0].leader == 1
    assert run.json("cluster", "describe")["not_preferred"] == ["led-0"]
    assert run.json("cluster", "elect", "--dry-run")["elections"] == [
        {"topic": "led", "partition": 0, "leader": 1, "preferred": 2, "isr": [1, 2]}
    ]
    assert "1 leader elected" in run("cluster", "elect", "led").stderr
    assert partitions(admin, "led")[0].leader == 2
    assert "all preferred replicas lead already" in run("cluster", "elect").stderr


def test_an_unclean_election_is_only_for_partitions_without_a_leader_and_asks_first(
    run: Shell, admin: Client, cluster: RunningCluster
) -> None:
    admin.admin.create_topic("lost", assignments={0: [2, 3]})
    assert "no partition is without a leader" in run("cluster", "elect", "--unclean").stderr
    cluster.brokers[2].kill()
    until(lambda: partitions(admin, "lost")[0].isr == [3])
    cluster.brokers[3].kill()
    cluster.brokers[2].start()
    until(lambda: partitions(admin, "lost")[0].leader == -1)
    assert "Records may be lost" in run("cluster", "elect", "lost", "--unclean", code=2).stderr
    assert run.json("cluster", "elect", "lost", "--unclean", "--yes")["done"]
    until(lambda: partitions(admin, "lost")[0].leader == 2)


def test_what_is_asked_wrongly_is_refused(run: Shell, admin: Client, tmp_path: Path) -> None:
    admin.admin.create_topic("asked", 1, 1)
    assert "Say where to" in run("cluster", "reassign", "asked", code=2).stderr
    assert "use 1,2,3" in run("cluster", "reassign", "asked", "--replicas", "a", code=2).stderr
    assert "only one of" in run("cluster", "reassign", "asked", "--replicas", "1", "--cancel", code=2).stderr
    assert "Name the topics" in run("cluster", "reassign", "--replicas", "1", code=2).stderr
    assert "there is no topic askd" in run("cluster", "reassign", "askd", "--replicas", "1", code=4).stderr
    assert "not a size" in run("cluster", "balance", "--throttle", "fast", code=2).stderr
    file = tmp_path / "plan.json"
    file.write_text("{")
    assert "is not JSON" in run("cluster", "reassign", "--plan", str(file), code=2).stderr


@pytest.mark.parametrize(
    ("asked", "told", "code"),
    [
        (("reassign", "asked", "--replicas", "1,77"), "there is no broker 77", 4),
        (("reassign", "asked", "--replicas", "2,1,2"), "the replicas 2,1,2 of asked-0 name a broker twice", 2),
        (("reassign", "asked", "-p", "0,3", "--replicas", "2"), "topic asked has no partition 3", 4),
        (("reassign", "asked", "-p", "3", "--replication-factor", "2"), "its only partition is 0", 4),
        (("elect", "asked", "-p", "3"), "topic asked has no partition 3", 4),
        (("reassign", "--plan", "PLAN"), "there is no topic ask\n  did you mean asked?", 4),
    ],
)
def test_a_plan_for_what_is_not_there_is_refused_before_it_is_shown(
    asked: tuple[str, ...], told: str, code: int, run: Shell, admin: Client, tmp_path: Path
) -> None:
    admin.admin.create_topic("asked", 1, 1)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "ask", "partition": 0, "replicas": [1]}]}')
    refused = run("cluster", *(str(plan) if word == "PLAN" else word for word in asked), code=code)
    assert told in refused.stderr and refused.stdout == ""


def test_a_broker_that_is_down_is_named_where_people_look(run: Shell, admin: Client, cluster: RunningCluster) -> None:
    admin.admin.create_topic("held", assignments={0: [1, 2], 1: [1, 3]})
    cluster.brokers[2].kill()
    until(lambda: 2 not in admin.describe().nodes and partitions(admin, "held")[0].isr == [1])
    described = run.json("cluster", "describe")
    assert described["down"] == [2] and [broker["id"] for broker in described["brokers"]] == [1, 3]
    told = dict(line.split(maxsplit=1) for line in run("cluster", "describe").stdout.splitlines()[:6])
    assert told["Down"] == "broker 2" and told["Under-replicated"] == "1: held-0"
    assert "broker 2 is down; 1 under-replicated: held-0\n" in run("top", "--once", "--interval", "0.1").stdout
    findings = run.json("doctor", code=1)
    (down,) = [finding for finding in findings if "is down" in finding["found"]]
    assert down["state"] == "bad" and down["found"] == "broker 2 is down, and has 1 replica"
    refused = run("cluster", "reassign", "held", "-p", "1", "--replicas", "2,3", code=4)
    assert "broker 2 is down" in refused.stderr
    # It may keep what it has, but then nobody must be surprised by the wait.
    kept = run("cluster", "reassign", "held", "-p", "0", "--replicas", "3,2", "--dry-run")
    assert "1 of these moves ends only when broker 2 is back" in kept.stderr
    assert "broker 2 can be switched off" in run("cluster", "decommission", "2", "--yes").stderr
    assert run.json("cluster", "describe")["down"] == []


def test_the_doctor_advises_on_replicas_and_looks_at_zookeeper(
    run: Shell, admin: Client, cluster: RunningCluster
) -> None:
    for name, replicas, needed in (("sound", 3, 2), ("tight", 2, 2), ("short", 2, 3), ("single", 1, 1), ("weak", 3, 1)):
        admin.admin.create_topic(name, 1, replicas, {"min.insync.replicas": str(needed)})
    findings = run.json("doctor", "--zookeeper", f"{cluster.connect}", code=1)
    advised = {
        f["found"].rpartition(": ")[2]: (f["state"], f["advice"]) for f in findings if f["check"] == "replication"
    }
    assert {name: state for name, (state, _) in advised.items()} == {
        "short": "bad",
        "tight": "note",
        "single": "note",
        "weak": "note",
    }
    assert all("min.insync.replicas" in advice for _, advice in advised.values())
    asked = [finding for finding in findings if finding["check"] == "zookeeper.connect"]
    assert [finding["state"] for finding in asked] == ["ok"] and "standalone" in asked[0]["found"]


def test_the_doctor_names_a_zookeeper_that_is_not_there(alone: Shell) -> None:
    told = alone("doctor", "--zookeeper", "127.0.0.1:1,127.0.0.1:2", code=3).stdout
    assert "127.0.0.1:1 cannot be reached: Connection refused" in told and "run one, or three" in told
    assert "is not host:port" in alone("doctor", "--zookeeper", "zk:x", code=3).stdout
