"""`tidelog config`, with and without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import Shell


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_show_tells_where_each_value_comes_from(alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=2\nlog.retention.hours=1\nsasl.jaas.config=secret\n")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "4")
    # A broker would not start with a login that it cannot ask for: the exit code says so.
    rows = alone.json("config", "show", "--config", "server.properties", "-X", "min.insync.replicas=2", code=2)
    found = {row["name"]: (row["value"], row["from"]) for row in rows}
    assert found["num.partitions"] == ("4", "KAFKA_NUM_PARTITIONS")
    assert found["log.retention.hours"] == ("1", "server.properties:2")
    assert found["min.insync.replicas"] == ("2", "-X min.insync.replicas")
    assert found["sasl.jaas.config"][0] == "[hidden]"
    assert found["listeners"] == ("PLAINTEXT://127.0.0.1:9092", "tidelog serve")
    told = alone("config", "show", "--config", "server.properties", code=2)
    assert "secret" not in told.stdout + told.stderr and "sasl.jaas.config asks for" in told.stderr


def test_show_all_lists_the_defaults_too(alone: Shell) -> None:
    assert alone("config", "show", "num.*").stderr.startswith("nothing that matches")
    rows = alone.json("config", "show", "--all", "num.p*")
    assert [(row["name"], row["value"], row["from"]) for row in rows] == [("num.partitions", "1", "default")]
    assert alone.json("config", "show", "num.partitions")[0]["value"] == "1"
    assert len(alone("config", "show", "-a", "-o", "name").stdout.split()) > 200


def test_a_mistake_says_where_and_what_would_be_right(alone: Shell, tmp_path: Path) -> None:
    assert "did you mean num.partitions?" in alone("config", "show", "-X", "num.partition=2", code=2).stderr
    (tmp_path / "bad.properties").write_text("a=1\nnum.partitions=many\n")
    told = alone("config", "show", "--config", "bad.properties", code=2).stderr
    assert "bad.properties:2" in told and "a whole number, at least 1" in told
    assert "missing.toml" in alone("config", "show", "--config", "missing.toml", code=2).stderr


def test_explain_tells_what_a_setting_takes(alone: Shell) -> None:
    (setting,) = alone.json("config", "explain", "retention.ms")["settings"]
    assert setting["kind"] == "topic" and setting["default"] == "604800000"
    assert setting["otherwise"] == "the broker's log.retention.ms"
    kinds = [s["kind"] for s in alone.json("config", "explain", "compression.type")["settings"]]
    assert kinds == ["topic", "broker"]
    assert "only at startup" in alone("config", "explain", "log.dirs").stdout
    assert "none: it is accepted and ignored" in alone("config", "explain", "num.io.threads").stdout


def test_explain_tells_whether_a_setting_has_any_effect(alone: Shell) -> None:
    def effect(name: str) -> list[str]:
        return [setting["effect"] for setting in alone.json("config", "explain", name)["settings"]]

    assert effect("min.insync.replicas") == ["yes", "yes"]
    assert effect("local.retention.ms") == ["none: it is accepted and ignored (tiered storage is not supported)"]
    (told,) = effect("ssl.client.auth")
    assert told.startswith("none, and a value other than the default stops the start: it asks for encryption")
    (told,) = effect("remote.storage.enable")
    assert told.startswith("none, and a value other than the default is refused: it asks for tiered storage")
    assert effect("listener.name.x.max.connections") == ["yes"]
    (told,) = effect("listener.name.x.num.network.threads")
    assert told.startswith("none, and any value stops the start: it asks for a setting for one listener")
    (told,) = effect("log.cleaner.threads")
    assert told.startswith("none: Tidelog always does what the default says, and ignores any other value")


def test_show_tells_which_settings_have_no_effect_and_which_stop_the_start(alone: Shell, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "num.io.threads=8\nlog.cleaner.threads=1\nprocess.roles=broker,controller\nnum.partitions=2\n"
        "listener.name.plaintext.num.network.threads=3\nssl.client.auth=required\ncontroller.listener.names=C\n"
    )
    rows = alone.json("config", "show", "--config", "server.properties", "-X", "log.cleaner.threads=2", code=2)
    assert {row["name"]: row["effect"] for row in rows} == {
        "controller.listener.names": "yes",
        "listener.name.plaintext.num.network.threads": "stops the start",
        "listeners": "yes",
        "log.cleaner.threads": "none",
        "log.dirs": "yes",
        "num.io.threads": "none",
        "num.partitions": "yes",
        "process.roles": "always so",
        "ssl.client.auth": "stops the start",
    }


def test_a_topics_settings_are_set_described_and_unset(run: Shell, topic: str) -> None:
    def shown() -> dict[str, tuple[str, str]]:
        return {row["name"]: (row["value"], row["source"]) for row in run.json("config", "describe", "topic", topic)}

    def own() -> dict[str, str]:
        assert {name: each for name, each in shown().items() if each[1] != "topic"} == inherited
        return {name: value for name, (value, source) in shown().items() if source == "topic"}

    inherited = shown()  # what the brokers were started with
    assert {source for _, source in inherited.values()} <= {"start", "all brokers"}
    assert own() == {}
    assert ("default value" in run("config", "describe", "topic", topic).stderr) == (not inherited)
    run("config", "set", "topic", topic, "retention.ms=5", "cleanup.policy=compact", "--dry-run")
    assert own() == {}
    run("config", "set", "topic", topic, "retention.ms=5", "cleanup.policy=compact")
    run("config", "set", "topic", topic, "cleanup.policy=delete", "--append")
    assert own() == {"cleanup.policy": "compact,delete", "retention.ms": "5"}
    run("config", "set", "topic", topic, "cleanup.policy=compact", "--remove")
    assert own()["cleanup.policy"] == "delete"
    told = run("config", "unset", "topic", topic, "retention.ms", "segment.ms").stderr
    assert "segment.ms is not set" in told
    assert list(own()) == ["cleanup.policy"]
    run("config", "unset", "topic", topic, "--all", code=2)
    run("config", "unset", "topic", topic, "--all", "--yes")
    assert own() == {}


def test_a_value_the_broker_refuses_is_told_in_its_words(run: Shell, topic: str) -> None:
    assert "retention.ms" in run("config", "set", "topic", topic, "retention.ms=soon", code=1).stderr
    run("config", "set", "topic", "no-such-topic", "retention.ms=1", code=4)


def test_brokers_are_configured_one_by_one_or_all_together(run: Shell, broker_ids: list[int]) -> None:
    one = str(broker_ids[-1])
    run("config", "set", "broker", "default", "log.cleaner.threads=2")
    run("config", "set", "broker", one, "log.cleaner.threads=3")
    (row,) = run.json("config", "describe", "broker", one, "log.cleaner.threads")
    assert (row["value"], row["source"]) == ("3", "broker")
    assert "2 (all brokers)" in run("config", "describe", "broker", one, "log.cleaner.threads", "-o", "wide").stdout
    for other in broker_ids[:-1]:
        (row,) = run.json("config", "describe", "broker", str(other), "log.cleaner.threads")
        assert (row["value"], row["source"]) == ("2", "all brokers")
    run("config", "unset", "broker", one, "log.cleaner.threads")
    run("config", "unset", "broker", "default", "log.cleaner.threads")
    # What always holds for all brokers is not taken for something that somebody has set.
    assert run("config", "unset", "broker", "default", "--all", "--yes").stderr == "broker default: nothing unset\n"
    (row,) = run.json("config", "describe", "broker", one, "log.cleaner.threads")
    assert (row["value"], row["source"]) == ("1", "default")


def test_an_unknown_key_is_not_found_with_a_suggestion(run: Shell, topic: str) -> None:
    told = run("config", "describe", "topic", topic, "retention.mms", code=4).stderr
    assert "did you mean retention.ms?" in told
