"""`tidelog topic` and `tidelog cluster` against a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from cli_shell import Shell

from tidelog.client import Client
from tidelog.client.errors import NotFound
from tidelog.testing.broker import RunningBroker


def test_a_topic_is_created_listed_described_and_deleted(
    run: Shell, unique: Callable[[str], str], broker_ids: list[int]
) -> None:
    name = unique("orders")
    created = run("topic", "create", name, "-p", "2", "-c", "retention.ms=1000")
    assert created.stdout == "" and "2 partitions" in created.stderr
    assert run("topic", "list", name, "-o", "name").stdout == f"{name}\n"
    (row,) = run.json("topic", "list", name)
    assert (row["partitions"], row["replication_factor"], row["under_replicated"]) == (2, len(broker_ids), 0)
    described = run.json("topic", "describe", name)
    assert described["config"] == {"retention.ms": "1000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1]
    deleted = run("topic", "delete", name, "--yes")
    assert f"deleted {name}" in deleted.stderr
    run("topic", "describe", name, code=4)


def test_every_format_tells_the_same(run: Shell, topic: str, broker_ids: list[int]) -> None:
    for arguments in (["topic", "list", topic], ["topic", "describe", topic], ["cluster", "describe"]):
        if arguments[0] != "cluster":  # whose free space changes from one question to the next
            assert yaml.safe_load(run(*arguments, "-o", "yaml").stdout) == run.json(*arguments)
        table, wide = run(*arguments).stdout, run(*arguments, "-o", "wide").stdout
        assert max(map(len, wide.splitlines())) > max(map(len, table.splitlines()))
    header, row = run("topic", "list", topic).stdout.splitlines()
    assert header.split() == ["NAME", "PARTITIONS", "REPLICAS"]
    assert row.split() == [topic, "3", str(len(broker_ids))]


def test_names_are_chosen_by_a_pattern(run: Shell, unique: Callable[[str], str]) -> None:
    one = unique("pattern-a")
    other = unique("pattern-b")
    for name in (one, other):
        run("topic", "create", name)
    assert run("topic", "list", "pattern-a-*", "-o", "name").stdout.split() == [one]
    nothing = run("topic", "list", "nothing-*")
    assert (nothing.stdout, nothing.stderr) == ("", "no topics\n")
    assert run.json("topic", "list", "nothing-*") == []


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(run: Shell, topic: str) -> None:
    assert "--if-not-exists" in run("topic", "create", topic, code=1).stderr
    run("topic", "create", topic, "--if-not-exists")


def test_nothing_is_deleted_without_a_yes(run: Shell, client: Client, topic: str) -> None:
    assert "Use --yes" in run("topic", "delete", topic, code=2).stderr
    run("topic", "delete", topic, "--dry-run")
    client.topic(topic)
    run("topic", "delete", topic, "no-such-topic", "--yes", code=4)
    client.topic(topic)
    run("topic", "delete", topic, "no-such-topic", "--yes", "--if-exists")
    with pytest.raises(NotFound):
        client.topic(topic)


def test_internal_topics_are_deleted_only_when_that_is_said_as_well(
    tidelog_broker: RunningBroker,
) -> None:
    run = Shell(tidelog_broker.bootstrap)
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("orders", 1, 1)
        client.groups.commit("billing", {("orders", 0): 0})
        for arguments in (["--yes"], ["--dry-run"]):
            told = run("topic", "delete", "orders", "__consumer_offsets", *arguments, code=2).stderr
            assert "__consumer_offsets" in told and "--internal" in told
        run("topic", "delete", "__consumer_offsets", "--internal", code=2)
        assert client.groups.offsets("billing")[("orders", 0)].offset == 0
        run("topic", "delete", "__consumer_offsets", "--internal", "--yes")
        assert sorted(client.describe().topics) == ["orders"]


def test_a_dry_run_creates_nothing_and_still_finds_mistakes(run: Shell, unique: Callable[[str], str]) -> None:
    name = unique("dry")
    assert "would be created" in run("topic", "create", name, "--dry-run").stderr
    run("topic", "describe", name, code=4)
    run("topic", "create", name, "-r", "5", "--dry-run", code=1)
    run("topic", "create", "a/b", "--dry-run", code=1)


def test_altering_changes_settings_and_adds_partitions(run: Shell, topic: str) -> None:
    run("topic", "alter", topic, "--set", "retention.ms=5", "--set", "segment.ms=6")
    told = run("topic", "alter", topic, "--partitions", "5", "--unset", "segment.ms").stderr
    assert "partitions 3 → 5" in told
    described = run.json("topic", "describe", topic)
    assert (described["partition_count"], described["config"]) == (5, {"retention.ms": "5"})
    assert "Did you mean retention.ms?" in run("topic", "alter", topic, "--set", "retention.mss=5", code=2).stderr
    run("topic", "alter", topic, "--partitions", "2", code=1)


def test_offsets_tell_the_ends_and_where_a_time_lies(run: Shell, client: Client, topic: str) -> None:
    from tidelog.client import Message

    for stamp in (1_700_000_000_000, 1_700_000_060_000):
        client.produce(topic, [Message(b"x", timestamp_ms=stamp)], partition=1)
    rows = run.json("topic", "offsets", topic, "--at", "@1700000000001", "--newest")
    assert [(r["first_offset"], r["end_offset"], r["at"]) for r in rows] == [(0, 0, 0), (0, 2, 1), (0, 0, 0)]
    assert (rows[1]["newest_offset"], rows[1]["newest_timestamp"]) == (1, 1_700_000_060_000)
    assert len(run.json("topic", "offsets", topic, "-p", "1")) == 1


def test_truncating_deletes_the_oldest_and_shows_it_first(run: Shell, client: Client, topic: str) -> None:
    client.produce(topic, [b"x"] * 10, partition=0)
    client.produce(topic, [b"x"] * 4, partition=2)
    arguments = ["topic", "truncate", topic, "--before", "6"]
    (dry, *_) = run.json(*arguments, "--dry-run")
    assert (dry["new_first_offset"], dry["deleted"]) == (6, 6)
    assert client.offsets(topic, when="earliest")[0].offset == 0
    run(*arguments, code=2)
    rows = run.json(*arguments, "--yes")
    assert [(r["partition"], r["new_first_offset"]) for r in rows] == [(0, 6), (1, 0), (2, 4)]
    assert [at.offset for at in client.offsets(topic, when="earliest").values()] == [6, 0, 4]


def test_the_cluster_tells_brokers_and_what_is_wrong_with_partitions(
    run: Shell, topic: str, broker_ids: list[int]
) -> None:
    cluster = run.json("cluster", "describe")
    assert [broker["id"] for broker in cluster["brokers"]] == broker_ids
    assert sum(broker["controller"] for broker in cluster["brokers"]) == 1
    assert sum(broker["leaders"] for broker in cluster["brokers"]) >= 3
    assert (cluster["under_replicated"], cluster["offline"]) == ([], [])
    assert run("cluster", "describe", "-o", "name").stdout.strip() == cluster["cluster_id"]
    assert "Under-replicated  none" in run("cluster", "describe").stdout


def test_the_doctor_finds_a_broker_or_says_how_to_start_one(run: Shell, alone: Shell) -> None:
    found = {finding["check"]: finding["state"] for finding in run.json("doctor")}
    assert found["broker"] == found["advertised address"] == found["controller"] == "ok"
    told = alone("doctor", code=3).stdout
    assert "bad" in told and "tidelog serve" in told


def test_the_doctor_names_settings_that_a_broker_was_given_in_vain() -> None:
    settings = {"num.io.threads": "3", "num.partitions": "2", "log.cleaner.threads": "1"}
    with RunningBroker(settings) as broker:
        (found,) = [finding for finding in Shell(broker.bootstrap).json("doctor") if finding["check"] == "settings"]
    assert found["state"] == "note" and found["found"].endswith("without effect: num.io.threads")
