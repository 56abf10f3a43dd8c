"""`tidelog work`: a program for each record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_shell import Shell

from tidelog.client import Client
from tidelog.client.producer import Message


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    def made(script: str) -> str:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return made


def test_a_program_gets_the_value_and_where_the_record_stands(
    run: Shell, client: Client, topic: str, program: Callable[[str], str], tmp_path: Path
) -> None:
    headers = (("content-type", b"text"),)
    client.produce(topic, [Message(b"v", b"k", headers)], partition=1)
    client.produce(topic, [Message(None)], partition=2)
    out = tmp_path / "out"
    script = program(
        f'echo "$TIDELOG_PARTITION $TIDELOG_OFFSET $TIDELOG_ATTEMPT ${{TIDELOG_KEY-none}} ${{TIDELOG_KEY_BASE64-none}} '
        f'${{TIDELOG_NULL-0}} ${{TIDELOG_HEADER_CONTENT_TYPE-}} $(cat)" >> {out}'
    )
    told = run("work", topic, "--group", f"{topic}-g", "--exec", script, "--until-end", "-o", "json")
    assert json.loads(told.stdout) == {"handled": 2, "skipped": 0, "failed": 0, "retried": 0, "dead": 0}
    assert sorted(line.split() for line in out.read_text().splitlines()) == [
        ["1", "0", "1", "k", "aw==", "0", "text", "v"],
        ["2", "0", "1", "none", "none", "1"],
    ]


def test_the_exit_code_and_the_last_line_of_stderr_say_what_became_of_a_record(
    run: Shell, client: Client, topic: str, program: Callable[[str], str]
) -> None:
    client.produce(topic, [b"good", b"bad", b"never", b"killed"], partition=0)
    script = program(
        "read v\n"
        "case $v in bad) echo first >&2; echo last >&2; exit 7;; never) exit 65;; killed) kill -9 $$;; esac\n"
        "echo done"
    )
    arguments = ("--attempts", "2", "--backoff", "10ms", "--until-end", "--dead-letters", f"{topic}-dead")
    told = run("work", topic, "-g", f"{topic}-g", "--exec", script, *arguments)
    assert told.stdout == "done\n"
    assert "1 record handled, 3 dead letters" in told.stderr
    dead = {r.value: dict(r.headers) for r in client.read(f"{topic}-dead", 0)}
    assert dead[b"bad"]["tidelog-dead-reason"].endswith(b"ended with exit code 7: last")
    assert (dead[b"bad"]["tidelog-dead-attempts"], dead[b"never"]["tidelog-dead-attempts"]) == (b"2", b"1")
    assert dead[b"killed"]["tidelog-dead-reason"].endswith(b"was ended by signal 9")


def test_what_is_printed_goes_to_another_topic_exactly_once(
    run: Shell, client: Client, topic: str, program: Callable[[str], str]
) -> None:
    client.produce(topic, [Message(b"%d" % n, b"k") for n in range(4)], partition=0)
    client.admin.create_topic(f"{topic}-out", 1)
    script = program("read v; echo $v; echo again $v")
    arguments = ("--to", f"{topic}-out", "--transactional-id", topic, "--until-end")
    run("work", topic, "-g", f"{topic}-g", "--exec", script, *arguments)
    until = time.monotonic() + 30
    # The end of a transaction is answered before its markers are written.
    while len(found := [(r.key, r.value) for r in client.read(f"{topic}-out", 0, isolation="read_committed")]) < 8:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    assert found == [(b"k", value) for n in range(4) for value in (b"%d" % n, b"again %d" % n)]


def test_stop_on_failure_ends_with_1_and_the_reason(
    run: Shell, client: Client, topic: str, program: Callable[[str], str]
) -> None:
    client.produce(topic, [b"v"], partition=0)
    arguments = ("--attempts", "1", "--stop-on-failure", "--until-end")
    told = run("work", topic, "-g", f"{topic}-g", "--exec", program("exit 3"), *arguments, code=1)
    assert f"{topic}-0 at offset 0 failed at attempt 1: ProgramFailed" in told.stderr


def test_what_is_wrong_is_said_before_anything_is_begun(run: Shell, topic: str) -> None:
    assert "no program './none'" in run("work", topic, "-g", "g", "--exec", "./none", code=2).stderr
    assert "there is no topic nothing" in run("work", "nothing", "-g", "g", "--exec", "true", code=4).stderr
    arguments = ("--dead-letters", "d", "--stop-on-failure")
    assert "cannot be combined" in run("work", topic, "-g", "g", "--exec", "true", *arguments, code=2).stderr
    assert "is not a duration" in run("work", topic, "-g", "g", "--exec", "true", "--backoff", "soon", code=2).stderr


def test_ctrl_c_lets_programs_finish_and_a_second_one_kills_them(
    bootstrap: str, client: Client, topic: str, program: Callable[[str], str], tmp_path: Path
) -> None:
    client.produce(topic, [b"v"], partition=0)
    go_on, began, ended = tmp_path / "go", tmp_path / "began", tmp_path / "ended"
    script = program(f"echo $$ > {began}; while [ ! -e {go_on} ]; do sleep 0.05; done; touch {ended}")

    def started(group: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "tidelog.cli.main",
            "work",
            topic,
            "-b",
            bootstrap,
            "-g",
            group,
            "--exec",
            script,
        ]
        working = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while not (began.exists() and began.read_text()):
            assert time.monotonic() < until and working.poll() is None
            time.sleep(0.02)
        working.send_signal(signal.SIGINT)
        assert working.stderr is not None
        assert "stopping after the records in hand" in working.stderr.readline()
        return working

    working = started(f"{topic}-1")
    go_on.touch()
    _, told = working.communicate(timeout=60)
    assert (working.returncode, told) == (0, "1 record handled\n") and ended.exists()
    for path in (go_on, began, ended):
        path.unlink()
    working = started(f"{topic}-2")
    pid = int(began.read_text())
    working.send_signal(signal.SIGINT)
    _, told = working.communicate(timeout=60)
    assert working.returncode == 130 and "interrupted" in told
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < until, "the program is still there"
        time.sleep(0.02)
    assert not ended.exists()
