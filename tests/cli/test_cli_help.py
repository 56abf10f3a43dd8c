"""Help, usage and what stands around every command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from cli_shell import Shell

from tidelog.cli.main import COMMANDS, tidelog


def commands() -> Iterator[tuple[str, ...]]:
    context = click.Context(tidelog)
    for name in COMMANDS:
        command = tidelog.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, verb) for verb in command.commands)
        else:
            yield (name,)


PATHS = list(commands())


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_explains_itself_with_examples_that_name_it(alone: Shell, path: tuple[str, ...]) -> None:
    shown = alone(*path, "--help").stdout
    assert alone(*path, "-h").stdout == shown
    _, _, examples = shown.partition("Examples:")
    assert f"tidelog {' '.join(path)}" in examples


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_example_is_a_command_with_options_that_exist(alone: Shell, path: tuple[str, ...]) -> None:
    _, _, examples = alone(*path, "--help").stdout.partition("Examples:")
    for line in examples.split("\n\n")[0].splitlines():
        for example in re.findall(r"tidelog ((?:'[^']*'|[^'|<>)#])+)", line):
            context: click.Context = click.Context(tidelog, info_name="tidelog")
            command: click.Command = tidelog
            words = shlex.split(example)
            while isinstance(command, click.Group):
                found = command.get_command(context, words.pop(0))
                assert found is not None, line
                command = found
            options = {flag for parameter in command.params for flag in parameter.opts}
            assert {word for word in words if re.match(r"--?[a-zA-Z]", word)} <= options, line


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_can_speak_json(path: tuple[str, ...]) -> None:
    command: click.Command = tidelog
    for word in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(tidelog), word)
        assert found is not None
        command = found
    (output,) = [parameter for parameter in command.params if "-o" in parameter.opts]
    assert isinstance(output.type, click.Choice) and "json" in output.type.choices


@pytest.mark.parametrize("given", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]], ids=str)
def test_errors_are_json_where_the_output_is(run: Shell, alone: Shell, given: list[str]) -> None:
    def told(shell: Shell, *arguments: str, code: int) -> dict[str, str]:
        answer = shell(*arguments, *given, code=code)
        assert answer.stdout == ""
        (line,) = answer.stderr.splitlines()
        error: dict[str, str] = json.loads(line)
        return error

    assert told(run, "topic", "describe", "no-such", code=4)["error"] == "there is no topic no-such"
    assert "is it running" in told(alone, "topic", "list", code=3)["hint"]
    assert told(alone, "topic", "create", "--nonsense", "t", code=2)["error"].startswith("No such option")
    assert "Did you mean describe?" in told(alone, "topic", "descrbe", code=2)["error"]
    assert told(alone, "config", "show", "-X", "num.partitions=x", code=2)["hint"].startswith("num.partitions takes")


def test_what_was_done_is_json_where_the_output_is(run: Shell, topic: str) -> None:
    changed = run.json("topic", "alter", topic, "--set", "retention.ms=7d", "--set", "segment.bytes=64MiB")
    assert changed["set"] == {"retention.ms": "604800000", "segment.bytes": "67108864"}
    assert run.json("config", "set", "topic", topic, "retention.bytes=1GB")["set"] == {"retention.bytes": "1000000000"}
    assert run.json("topic", "describe", topic)["config"] == {
        "retention.bytes": "1000000000",
        "retention.ms": "604800000",
        "segment.bytes": "67108864",
    }
    assert run.json("config", "unset", "topic", topic, "retention.ms")["unset"] == ["retention.ms"]
    assert run.json("topic", "delete", topic, "--dry-run")["would_delete"] == [topic]
    deleted = run("topic", "delete", topic, "no-such", "--if-exists", "--yes", "-o", "json")
    assert json.loads(deleted.stdout) == {"deleted": [topic], "would_delete": [], "missing": ["no-such"]}
    assert all(json.loads(line)["note"] for line in deleted.stderr.splitlines())


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "before = set(sys.modules)\n"
        "from tidelog.cli.main import tidelog\n"
        "assert CliRunner().invoke(tidelog, ['--help']).exit_code == 0\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    ours = {name for name in imported if name.startswith("tidelog")}
    assert ours == {"tidelog", "tidelog.cli", "tidelog.cli.main", "tidelog.cli.options"}
    assert not imported & {"asyncio", "dataclasses", "json", "rich", "socket", "struct"}


def test_a_mistyped_command_gets_a_suggestion(alone: Shell) -> None:
    assert "Did you mean consume?" in alone("consum", code=2).stderr
    assert "Did you mean describe?" in alone("topic", "descrbe", code=2).stderr


def test_what_a_command_does_not_know_is_a_usage_error(alone: Shell) -> None:
    for arguments in (
        ["topic", "list", "--nonsense"],
        ["topic", "create"],
        ["topic", "create", "t", "-c", "novalue"],
        ["topic", "alter", "t"],
        ["topic", "list", "-b", "host:port"],
        ["consume", "t", "--from", "yesteryear"],
        ["consume", "t", "--follow", "--until", "5"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "--grep", "("],
        ["consume", "t", "-p", "x"],
        ["produce", "t", "-i", "json", "-K", ":"],
        ["produce", "t", "-d", ""],
        ["consume"],
        ["consume", "t", "-o", "json", "-d", ","],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "--until", "5"],
        ["group", "reset", "g", "--to", "earliest"],
        ["group", "reset", "g", "--all-topics"],
        ["config", "unset", "topic", "t"],
        ["config", "set", "topic", "t", "retention.sm=1"],
    ):
        assert alone(*arguments, code=2).stdout == "", arguments


def test_a_broker_that_cannot_be_reached_is_code_3_and_says_what_to_do(alone: Shell) -> None:
    for arguments in (
        ["topic", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["group", "list"],
        ["cluster", "describe"],
    ):
        told = alone(*arguments, code=3).stderr
        assert "127.0.0.1:1" in told and "is it running" in told


def test_what_does_not_exist_is_code_4_and_suggests_what_does(run: Shell, topic: str) -> None:
    assert f"did you mean {topic}?" in run("topic", "describe", topic + "x", code=4).stderr
    run("consume", "nothing-like-it", code=4)
    run("topic", "offsets", topic, "-p", "17", code=4)
    run("config", "explain", "nothing.like.it", code=4)
    assert "did you mean retention.ms?" in run("config", "explain", "retention.m", code=4).stderr
    run("config", "describe", "broker", "4711", code=4)


def test_a_traceback_is_shown_only_when_asked_for(alone: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tidelog.client.cluster.Cluster.describe", broken)
    told = alone("topic", "list", code=1).stderr
    assert "a bug" in told and "Traceback" not in told and "--debug" in told
    for arguments in (["--debug", "topic", "list"], ["topic", "list", "--debug"]):
        with pytest.raises(RuntimeError, match="a bug"):
            alone(*arguments)


def test_a_denial_is_code_5(alone: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.client.errors import error_for
    from tidelog.wire.errors import ErrorCode

    def denied(*_: object) -> None:
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t")

    monkeypatch.setattr("tidelog.client.cluster.Cluster.describe", denied)
    assert "ACL" in alone("topic", "list", code=5).stderr


def test_the_version_tells_the_protocol(alone: Shell) -> None:
    assert "Apache Kafka 4.3" in alone("version").stdout
    assert alone("--version").stdout == alone("version").stdout.splitlines()[0] + "\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_for_the_shell(alone: Shell, shell: str) -> None:
    assert f"_TIDELOG_COMPLETE={shell}_complete" in alone("completion", shell).stdout


def test_topics_and_groups_are_completed(run: Shell, topic: str, client: object) -> None:
    from click.shell_completion import ShellComplete

    complete = ShellComplete(tidelog, {}, "tidelog", "_TIDELOG_COMPLETE")
    bootstrap = run._environment["TIDELOG_BOOTSTRAP"]
    assert bootstrap is not None
    client.groups.commit(f"of-{topic}", {(topic, 0): 0})  # type: ignore[attr-defined]
    for arguments, expected in (
        (["consume", "-b", bootstrap], topic),
        (["topic", "delete", "-b", bootstrap], topic),
        (["group", "describe", "-b", bootstrap], f"of-{topic}"),
    ):
        typed = expected[:-2]
        assert expected in [item.value for item in complete.get_completions(arguments, typed)], arguments
    assert complete.get_completions(["consume", "-b", "127.0.0.1:1"], "t") == []
    assert "retention.ms=" in [item.value for item in complete.get_completions(["topic", "create", "-c"], "retention")]
