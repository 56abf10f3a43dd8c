"""`tidelog group` against a real broker and a stock consumer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_shell import Shell
from confluent_kafka import Consumer

from tidelog.client import Client, Message


@pytest.fixture
def group(client: Client, topic: str, unique: Callable[[str], str]) -> str:
    """A group that has read 2 of 10 records in partition 0, and all of none in partition 1."""
    name = unique("group")
    stamps = [1_700_000_000_000 + number * 60_000 for number in range(10)]
    client.produce(topic, [Message(b"x", timestamp_ms=stamp) for stamp in stamps], partition=0)
    client.groups.commit(name, {(topic, 0): 2, (topic, 1): 0})
    return name


def committed(client: Client, group: str) -> dict[int, int]:
    return {partition: at.offset for (_, partition), at in client.groups.offsets(group).items()}


def test_groups_are_listed_with_their_state(run: Shell, group: str) -> None:
    (row,) = run.json("group", "list", group)
    assert (row["group"], row["state"], row["type"]) == (group, "Empty", "classic")
    assert run("group", "list", group, "-o", "name").stdout == f"{group}\n"
    assert run.json("group", "list", group, "--state", "Stable") == []
    assert run("group", "list", "nothing-*").stderr == "no groups\n"


def test_a_group_tells_its_lag(run: Shell, group: str, topic: str) -> None:
    described = run.json("group", "describe", group)
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 8)
    rows = [(row["partition"], row["committed"], row["end_offset"], row["lag"]) for row in described["offsets"]]
    assert rows == [(0, 2, 10, 8), (1, 0, 0, 0)]
    shown = run("group", "describe", group).stdout
    assert "Lag          8" in shown and topic in shown
    assert f"did you mean {group}?" in run("group", "describe", group + "x", code=4).stderr


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to", "earliest"], 0),
        (["--to", "latest"], 10),
        (["--to", "7"], 7),
        (["--to", "700"], 10),
        (["--to", "-3"], 7),
        (["--to", "@1700000000001"], 1),
        (["--to", "2023-11-14T22:16:00Z"], 3),
        (["--to", "-1h"], 10),
        (["--shift", "3"], 5),
        (["--shift", "-5"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_group_is_moved_after_a_preview(
    run: Shell, client: Client, group: str, topic: str, where: list[str], offset: int
) -> None:
    arguments = ["group", "reset", group, "--topic", f"{topic}:0", *where]
    (preview,) = run.json(*arguments, "--dry-run")
    assert (preview["committed"], preview["new_offset"], preview["change"]) == (2, offset, offset - 2)
    assert committed(client, group) == {0: 2, 1: 0}
    assert "Use --yes" in run(*arguments, code=2).stderr
    run(*arguments, "--yes")
    assert committed(client, group) == {0: offset, 1: 0}


def test_everything_a_group_committed_is_moved_together(run: Shell, client: Client, group: str, topic: str) -> None:
    run("group", "reset", group, "--all-topics", "--to", "latest", "--yes")
    assert committed(client, group) == {0: 10, 1: 0}
    run("group", "reset", group, "-t", topic, "--to", "earliest", "--yes")
    assert committed(client, group) == {0: 0, 1: 0, 2: 0}
    run("group", "reset", group, "-t", "no-such-topic", "--to", "earliest", code=4)
    run("group", "reset", group, "-t", f"{topic}:7", "--to", "earliest", code=4)


def test_a_group_is_deleted_or_only_some_of_its_offsets(run: Shell, client: Client, group: str, topic: str) -> None:
    run("group", "delete", group, code=2)
    run("group", "delete", group, "--dry-run")
    run("group", "delete", group, "--topic", f"{topic}:0", "--yes")
    assert committed(client, group) == {1: 0}
    run("group", "delete", group, "--yes")
    assert committed(client, group) == {}
    run("group", "delete", "no-such-group", "--yes", code=4)


def test_a_group_with_members_shows_them_and_is_not_moved(run: Shell, group: str, topic: str, bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "stock",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        for _ in range(200):
            consumer.poll(0.05)
            if consumer.assignment():
                break
        described = run.json("group", "describe", group)
        assert described["state"] == "Stable"
        assert [member["client"] for member in described["members"]] == ["stock"]
        assert {row["client"] for row in described["offsets"]} == {"stock"}
        told = run("group", "reset", group, "--all-topics", "--to", "earliest", "--yes", code=1).stderr
        assert "stock" in told and "stop its consumers" in told
        run("group", "delete", group, "--yes", code=1)
    finally:
        consumer.close()
