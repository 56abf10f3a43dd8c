"""`tidelog produce` and `tidelog consume` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_shell import Shell
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.client import Client, Message
from tidelog.client.group_member import GroupMember


def contents(client: Client, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in client.read(topic, partition)]


@pytest.fixture
def single(client: Client, unique: Callable[[str], str]) -> str:
    name = unique("single")
    client.admin.create_topic(name, 1, 1)
    return name


def test_producing_tells_how_far_it_is_where_there_is_no_terminal(
    run: Shell, single: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.cli.progress.LINE_EVERY_S", 0.0)
    (tmp_path / "lines").write_text("x\n" * 4000)
    *progress, last = run("produce", single, str(tmp_path / "lines")).stderr.splitlines()
    assert [line.partition("),")[0] for line in progress] == [
        f"records sent: {n},000 ({percent}%" for n, percent in ((1, 25), (2, 50), (3, 75), (4, 100))
    ]
    assert last.startswith("4000 records written")


def test_lines_become_values(run: Shell, client: Client, single: str) -> None:
    told = run("produce", single, input=b"one\n\nthree\r\nno end").stderr
    assert contents(client, single) == [(None, b"one"), (None, b""), (None, b"three\r"), (None, b"no end")]
    assert told == f"4 records written to {single} (partition 0 at 0–3)\n"


def test_lines_are_split_into_key_and_value(run: Shell, client: Client, single: str) -> None:
    run("produce", single, "-K", r"\t", "--null", "NULL", input="k\tv\tw\nk\tNULL\nNULL\tv\n")
    assert contents(client, single) == [(b"k", b"v\tw"), (b"k", None), (None, b"v")]


def test_a_line_without_a_separator_says_which_and_keeps_those_before(run: Shell, client: Client, single: str) -> None:
    told = run("produce", single, "-K", ":", input="a:1\nb:2\nc\nd:4\n", code=1).stderr
    assert "line 3" in told and "2 records written" in told
    assert contents(client, single) == [(b"a", b"1"), (b"b", b"2")]


def test_every_record_gets_what_the_options_say(run: Shell, client: Client, single: str) -> None:
    options = ["-k", "key", "-H", "a=1", "-H", "b=x=y", "--timestamp", "@1700000000000", "-z", "zstd"]
    (line,) = run.lines("produce", single, *options, input="v\n")
    assert line == {"topic": single, "partition": 0, "offset": 0, "count": 1}
    (record,) = client.read(single, 0)
    assert (record.key, record.value, record.timestamp) == (b"key", b"v", 1_700_000_000_000)
    assert record.headers == (("a", b"1"), ("b", b"x=y"))


def test_json_lines_say_everything_of_a_record(run: Shell, client: Client, topic: str) -> None:
    lines = [
        {"key": "k", "value": "v", "headers": {"h": "1"}, "timestamp": 1_700_000_000_000, "partition": 2},
        {"value": {"a": [1, "é"]}, "key_base64": "/w==", "partition": 2, "headers": [{"name": "h", "value": None}]},
        {"partition": 2},
    ]
    run("produce", topic, "-i", "json", input="".join(json.dumps(line) + "\n" for line in lines))
    records = list(client.read(topic, 2))
    assert [(r.key, r.value) for r in records] == [
        (b"k", b"v"),
        (b"\xff", '{"a":[1,"é"]}'.encode()),
        (None, None),
    ]
    assert [r.headers for r in records] == [(("h", b"1"),), (("h", None),), ()]
    assert records[0].timestamp == 1_700_000_000_000


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"valeu": 1}', '{"partition": "0"}', '{"headers": 3}', '{"key_base64": "?"}']
)
def test_a_json_line_that_is_no_record_says_which(run: Shell, topic: str, line: str) -> None:
    assert "line 1" in run("produce", topic, "-i", "json", input=line + "\n", code=1).stderr


def test_files_are_read_one_after_the_other_or_whole(
    run: Shell, client: Client, single: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "b").write_bytes(b"3\n\xff\n")
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    run("produce", single, *files)
    assert [value for _, value in contents(client, single)] == [b"1", b"2", b"3", b"\xff"]
    whole = unique("whole")
    told = run("produce", whole, "-i", "file", *files).stderr
    assert f"topic {whole} did not exist" in told
    assert [value for _, value in contents(client, whole)] == [b"1\n2\n", b"3\n\xff\n"]
    run("produce", single, str(tmp_path / "missing"), code=2)


def test_a_topic_is_not_created_where_that_was_forbidden(run: Shell, topic: str) -> None:
    told = run("produce", topic + "x", "--no-create", input="x\n", code=4).stderr
    assert f"did you mean {topic}?" in told


def test_a_broker_that_creates_no_topics_says_how_to(tidelog_broker_factory: Callable[..., Any]) -> None:
    broker = tidelog_broker_factory({"auto.create.topics.enable": "false"})
    told = Shell(broker.bootstrap)("produce", "t", "--timeout", "0.3", input="x\n", code=4).stderr
    assert "tidelog topic create t" in told


def test_each_format_shows_null_empty_and_bytes_apart(run: Shell, client: Client, single: str) -> None:
    messages = [Message(None, b"k"), Message(b"", None), Message(b"\xff\x1b[31m", b"", [("h", b"1"), ("n", None)])]
    client.produce(single, [m._replace(timestamp_ms=1_700_000_000_000) for m in messages])
    assert run("consume", single).stdout_bytes == b"<null>\n\n\xff\x1b[31m\n"
    assert run("consume", single, "--null", "NIL").stdout_bytes.startswith(b"NIL\n")
    assert run("consume", single, "-o", "raw").stdout_bytes == b"\xff\x1b[31m"
    _, *rows = run("consume", single, "-o", "table").stdout.splitlines()
    assert [row.split()[4:] for row in rows] == [["k", "<null>"], ["<null>", '""'], ['""', r"\xff\x1b[31m"]]
    assert "h=1,n=<null>" in run("consume", single, "-o", "wide").stdout
    first, second, third = run.lines("consume", single)
    assert (first["key"], first["value"]) == ("k", None)
    assert (second["key"], second["value"]) == (None, "")
    assert "value" not in third and third["value_base64"] == "/xtbMzFt"
    assert third["headers"] == [{"name": "h", "value": "1"}, {"name": "n", "value": None}]
    assert (third["topic"], third["partition"], third["offset"], third["timestamp"]) == (
        single,
        0,
        2,
        1_700_000_000_000,
    )


def test_a_template_prints_what_it_says(run: Shell, client: Client, single: str) -> None:
    client.produce(single, [Message(b"v", b"k", [("h", b"1")], 17), Message(None)])
    printed = run("consume", single, "-f", r"%t|%p|%o|%T|%k|%s|%K|%S|%h|%%\t\x41\\n\n", "-n", "1").stdout
    assert printed == f"{single}|0|0|17|k|v|1|1|h=1|%\tA\\n\n"
    assert run("consume", single, "-f", r"%k %K %s %S\n", "--from", "-1").stdout == "<null> -1 <null> -1\n"


def test_a_range_is_given_by_offsets_counts_or_times(run: Shell, client: Client, single: str) -> None:
    start = 1_700_000_000_000
    client.produce(single, [Message(b"%d" % n, timestamp_ms=start + n * 60_000) for n in range(10)])

    def values(*options: str) -> list[int]:
        return [int(line) for line in run("consume", single, *options).stdout.split()]

    assert values() == list(range(10))
    assert values("--from", "3", "--until", "6") == [3, 4, 5]
    assert values("--from", "-2") == [8, 9]
    assert values("--from", "earliest", "-n", "2") == [0, 1]
    assert values("--from", f"@{start + 60_000}", "--until", f"@{start + 180_000}") == [1, 2]
    assert values("--from", "2023-11-14T22:20:00Z") == [7, 8, 9]
    assert values("--from", "-1h") == []
    assert values("--from", "7", "--until", "1000") == [7, 8, 9]
    client.admin.delete_records(single, {0: 4})
    assert values("--from", "2") == [4, 5, 6, 7, 8, 9]
    assert "starting at 4" in run("consume", single, "--from", "2").stderr


def test_only_the_partitions_asked_for_are_read(run: Shell, client: Client, topic: str) -> None:
    for partition in range(3):
        client.produce(topic, [b"%d" % partition], partition=partition)
    assert sorted(run("consume", topic, "-p", "0,2").stdout.split()) == ["0", "2"]
    assert sorted(run("consume", topic, "-p", "1-2").stdout.split()) == ["1", "2"]
    run("consume", topic, "-p", "5", code=4)


def test_records_that_are_deleted_while_one_partition_is_read_cost_none_of_another(
    run: Shell, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(3):
        client.produce(topic, [b"%d%d" % (partition, number) for number in range(4)], partition=partition)
    read = Client.reader

    def late(self: Client, *given: Any, **options: Any) -> Any:
        client.admin.delete_records(topic, {1: 2})
        return read(self, *given, **options)

    monkeypatch.setattr(Client, "reader", late)
    told = run("consume", topic)
    assert sorted(told.stdout.split()) == ["00", "01", "02", "03", "12", "13", "20", "21", "22", "23"]
    assert f"{topic}-1: offsets 0 to 1 have since been deleted" in told.stderr


def test_several_topics_and_patterns_are_read_together(
    run: Shell, client: Client, unique: Callable[[str], str]
) -> None:
    prefix = unique("several")
    for name in ("a", "b", "c"):
        client.produce(f"{prefix}-{name}", [name.encode()])
    assert sorted(run("consume", f"{prefix}-*").stdout.split()) == ["a", "b", "c"]
    assert sorted(run("consume", f"{prefix}-b", f"{prefix}-?", f"{prefix}-b").stdout.split()) == ["a", "b", "c"]
    found = run("consume", f"{prefix}-a", f"{prefix}-c", "-o", "table").stdout.splitlines()
    assert found[0].split()[0] == "TOPIC"
    assert sorted(row.split()[0] for row in found[1:]) == [f"{prefix}-a", f"{prefix}-c"]
    assert {line["topic"] for line in run.lines("consume", f"{prefix}-*", "--max", "3")} == {
        f"{prefix}-{name}" for name in "abc"
    }
    run("consume", f"{prefix}-a", f"{prefix}-none", code=4)
    assert "no topic matches" in run("consume", f"{prefix}-x*", code=4).stderr


def test_records_are_delimited_as_asked_for(run: Shell, client: Client, single: str) -> None:
    run("produce", single, "-d", r"\0", input=b"one\ntwo\0three\0\0four")
    assert [value for _, value in contents(client, single)] == [b"one\ntwo", b"three", b"", b"four"]
    assert run("consume", single, "-d", r"\0").stdout_bytes == b"one\ntwo\0three\0\0four\0"
    assert run("consume", single, "-o", "raw", "-d", "; ").stdout_bytes == b"one\ntwo; three; ; four; "


def test_a_group_goes_on_where_it_stands_and_commits_what_was_printed(
    run: Shell, client: Client, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    for partition in range(3):
        client.produce(topic, [b"%d%d" % (partition, n) for n in range(3)], partition=partition)
    everything = [f"{partition}{n}" for partition in range(3) for n in range(3)]
    printed = run("consume", topic, "--group", group, "-n", "2").stdout.split()
    assert sum(at.offset for at in client.groups.offsets(group).values()) == 2
    printed += run("consume", topic, "--group", group).stdout.split()
    assert sorted(printed) == everything
    assert run("consume", topic, "--group", group).stdout == ""
    described = run.json("group", "describe", group)
    assert (described["type"], described["state"], described["lag"]) == ("consumer", "Empty", 0)
    late = unique("late")
    assert run("consume", topic, "--group", late, "--from", "latest").stdout == ""
    client.produce(topic, [b"new"], partition=1)
    assert run("consume", topic, "--group", late).stdout == "new\n"


def test_members_of_a_group_share_its_partitions(tidelog_broker_factory: Callable[..., Any]) -> None:
    broker = tidelog_broker_factory({"group.consumer.assignment.interval.ms": "0"})
    with Client(broker.bootstrap) as client:
        client.admin.create_topic("t", 3, 1)
        first, second = (client.group_member("g", ["t"]) for _ in range(2))

        def settle(*members: GroupMember) -> list[int]:
            """Heartbeats, without waiting for their turn, until all partitions are somebody's."""
            for _ in range(100):
                for member in members:
                    member._next_s = 0.0
                    if member.poll():
                        member.accept()
                owned = sorted(partition for member in members for _, partition in member.assignment)
                if owned == [0, 1, 2] and all(member.assignment for member in members):
                    break
            return owned

        assert settle(first, second) == [0, 1, 2]
        client.groups.commit("g", {("t", 0): 0}, first._member_id, first._epoch)
        first.leave()
        assert settle(second) == [0, 1, 2]
        second.leave()
        assert client.groups.describe("g").members == []


def test_only_what_matches_is_printed_and_counted(run: Shell, client: Client, single: str) -> None:
    client.produce(single, [Message(b"alpha", b"1"), Message(None, b"beta"), Message(b"gamma", None)])
    found = run("consume", single, "--grep", "^(alp|bet)", "-f", r"%k\n")
    assert found.stdout.split() == ["1", "beta"]
    assert "2 of 3 records matched" in found.stderr


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            Message,
            value=st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode),
            key=st.none() | st.binary(max_size=10),
            headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
            timestamp_ms=st.integers(0, 1_700_000_000_000),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_what_was_consumed_as_json_can_be_produced_again(
    run: Shell, client: Client, unique: Callable[[str], str], messages: list[Message]
) -> None:
    source, copy = unique("source"), unique("copy")
    client.produce(source, messages)
    run("produce", copy, "-i", "json", input=run("consume", source, "-o", "json").stdout_bytes)
    assert [Message(r.value, r.key, list(r.headers), r.timestamp) for r in client.read(copy, 0)] == messages
