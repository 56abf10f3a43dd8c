"""`tidelog pipeline`: every verb, its exit codes, and what it says."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli_shell import Shell
from click.testing import Result
from deltalake import DeltaTable

from tidelog.client import Client, Message

DAY_MS = 86_400_000
FILE = """
name = "{name}"
[source]
topics = ["{topic}"]
[decode]
format = "json"
schema = "id BIGINT"
[table]
path = "lake"
[spark]
master = "none"
"""


@pytest.fixture
def file(tmp_path: Path, topic: str) -> Path:
    path = tmp_path / "orders.toml"
    path.write_text(FILE.format(name=topic, topic=topic))
    return path


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    with Client(bootstrap) as client:
        values = [b'{"id": %d}' % n if n % 10 else b"{" for n in range(40)]
        client.produce(topic, [Message(value) for value in values], partition=0)
    return topic


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_run_tells_its_batches_in_json_lines_and_status_agrees(run: Shell, file: Path, filled: str) -> None:
    told = lines(run("pipeline", "run", str(file), "--once"))
    assert [line["event"] for line in told] == ["batch", "end"]
    assert (told[0]["rows"], told[0]["dead_letters"], told[0]["lag"]) == (36, 4, 0)
    status = run.json("pipeline", "status", str(file))
    assert status["table"]["rows"] == 36 and status["dead_letters"]["rows"] == 4 and status["lag"] == 0
    assert status["partitions"][0]["committed"] == status["partitions"][0]["group"] == 40
    shown = run("pipeline", "status", str(file)).stdout
    assert "Dead letters  4" in shown and "COMMITTED" in shown


def test_plan_shows_the_next_batch_and_changes_nothing(run: Shell, file: Path, filled: str, tmp_path: Path) -> None:
    plan = run.json("pipeline", "plan", str(file))
    assert plan["lag"] == plan["offsets"] == 40 and plan["tasks"][0]["until"] == 40
    assert "40 offsets in 1 task" in run("pipeline", "plan", str(file)).stderr
    assert not (tmp_path / "lake").exists()
    run("pipeline", "run", str(file), "--once", "-o", "quiet")
    assert "nothing to read" in run("pipeline", "plan", str(file)).stderr


def test_status_of_a_pipeline_that_never_ran(run: Shell, file: Path, filled: str) -> None:
    assert "the pipeline has never run" in run("pipeline", "status", str(file)).stdout


def test_check_lists_what_is_there_and_what_is_missing(run: Shell, file: Path, filled: str, tmp_path: Path) -> None:
    shown = run("pipeline", "check", str(file)).stdout
    assert "PROBLEM" not in shown and "will be made" in shown and filled in shown
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "other").touch()
    file.write_text(file.read_text().replace(f'["{filled}"]', '["nowhere"]').replace('"none"', '"spak://x"'))
    problem = run("pipeline", "check", str(file), code=1)
    assert problem.stdout.count("PROBLEM") == 3
    for word in ("there is no such topic", "holds other files", "is not a Spark master"):
        assert word in problem.stderr
    found = json.loads(run("pipeline", "check", str(file), "-o", "json", code=1).stdout)
    assert all(row["hint"] for row in found if not row["ok"])


def test_check_says_what_run_says_of_a_column_to_partition_by_that_is_not_there(
    run: Shell, file: Path, filled: str, tmp_path: Path
) -> None:
    for decode in ('schema = "id BIGINT"', "infer = true"):
        text = FILE.format(name=filled, topic=filled).replace('schema = "id BIGINT"', decode)
        file.write_text(text.replace('path = "lake"', 'path = "lake"\npartition_by = ["day"]'))
        checked = run("pipeline", "check", str(file), code=1)
        assert checked.stdout.count("PROBLEM") == 1 and "the rows have no column day" in checked.stderr
        assert checked.stderr.replace("error: table: ", "error: ") == run("pipeline", "run", str(file), code=1).stderr
        assert not (tmp_path / "lake").exists()


def test_status_of_a_topic_that_was_created_again_says_what_run_says(
    run: Shell, client: Client, file: Path, filled: str
) -> None:
    run("pipeline", "run", str(file), "--once", "-o", "quiet")
    client.admin.delete_topics([filled])
    client.admin.create_topic(filled, 1, 1)
    told = run("pipeline", "run", str(file), "--once", "-o", "quiet", code=1).stderr
    shown = run("pipeline", "status", str(file), code=1)
    assert "created again" in told and shown.stderr == told and "COMMITTED" in shown.stdout


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing_behind(
    bootstrap: str, client: Client, file: Path, topic: str, tmp_path: Path
) -> None:
    """No file may grow beyond some bytes, which is refused in the way in which a full disk refuses."""
    file.write_text(file.read_text().replace("id BIGINT", "text STRING"))
    values = [json.dumps({"text": os.urandom(500).hex()}) for _ in range(100)]
    client.produce(topic, [Message(value.encode()) for value in values], partition=0)
    limited = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", limited, *run_command(file, bootstrap, "--once")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1 and "make room there" in done.stderr
    assert f"error: {tmp_path}/lake/part-" in done.stderr and ".parquet cannot be used: file too large" in done.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_mistakes_in_the_file_are_code_2_and_told_one_by_one(alone: Shell, file: Path) -> None:
    file.write_text('nmae = "x"\n[source]\ntopics = []\n')
    for verb in ("run", "plan", "status", "check", "replay", "vacuum"):
        told = alone("pipeline", verb, str(file), code=2).stderr
        assert "did you mean name?" in told and "[table] path: is missing" in told
    assert "there is no such file" in alone("pipeline", "run", "nothing.toml", code=2).stderr


def test_exit_codes_of_brokers_and_topics(alone: Shell, run: Shell, file: Path) -> None:
    for verb in ("run", "plan", "status"):
        assert "is it running" in alone("pipeline", verb, str(file), code=3).stderr
    file.write_text(file.read_text().replace("topics = [", 'topics = ["nowhere", '))
    for verb in ("run", "plan", "status"):
        assert "there is no such topic" in run("pipeline", verb, str(file), code=4).stderr
    assert "broker" in alone("pipeline", "check", str(file), code=1).stdout


def test_a_foreign_table_is_code_1_with_what_to_do(run: Shell, file: Path, filled: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "lake"), pa.table({"id": [1]}))
    told = run("pipeline", "run", str(file), "--once", code=1).stderr
    assert "somebody else wrote it" in told and "adopt = true" in told


def test_replay_shows_asks_and_replaces(run: Shell, file: Path, filled: str) -> None:
    told = run("pipeline", "replay", str(file), "--dry-run", code=1).stderr
    assert "has no table yet" in told
    run("pipeline", "run", str(file), "--once")
    assert run.json("pipeline", "replay", str(file), "--dry-run")[0]["offsets"] == 40
    assert "--yes" in run("pipeline", "replay", str(file), code=2).stderr
    done = run("pipeline", "replay", str(file), "--yes").stderr
    assert "replayed: 36 rows" in done and "4 dead letters" in done
    part = ["--topic", f"{filled}:0", "--from", "5", "--until", "15"]
    assert run.json("pipeline", "replay", str(file), *part, "--yes")["rows"] == 9
    later = run.json("pipeline", "replay", str(file), "--from", "@99999999999999", "--dry-run")
    assert later == [], "no record is that late"
    assert "not read by this pipeline" in run("pipeline", "replay", str(file), "--topic", "else", code=2).stderr
    assert run.json("pipeline", "status", str(file))["table"]["rows"] == 36


def test_a_replay_by_time_replaces_what_falls_into_it_though_timestamps_are_out_of_order(
    run: Shell, file: Path, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with Client(bootstrap) as client:
        # Time runs backwards, and one straggler is of the first day though it came last. One of them is a dead letter.
        times = [*(DAY_MS * (9 - n) for n in range(9)), DAY_MS * 8]
        values = [b"{" if n == 4 else b'{"id": %d}' % n for n in range(10)]
        # The records are old enough for retention to take them while the test runs.
        client.admin.alter_configs("topic", topic, set={"retention.ms": "-1"})
        client.produce(topic, [Message(v, timestamp_ms=t) for v, t in zip(values, times, strict=True)], partition=0)
    run("pipeline", "run", str(file), "--once")
    table = DeltaTable(tmp_path / "lake")
    table.update({"id": "-1"})
    between = ["--from", f"@{DAY_MS * 4}", "--until", f"@{DAY_MS * 7}"]
    done = run.json("pipeline", "replay", str(file), *between, "--yes")
    assert (done["rows"], done["dead_letters"]) == (5, 1), "all that is of this time, and what is between"
    found = {row["_offset"]: row["id"] for row in DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()}
    assert all(found[offset] == offset for offset in (3, 5)) and found[8] == found[9] == -1
    until = run.json("pipeline", "replay", str(file), "--until", f"@{DAY_MS * 9}", "--dry-run")
    assert [(row["start"], row["until"]) for row in until] == [(0, 10)], "the straggler is of that time"
    never = run("pipeline", "replay", str(file), "--from", f"@{DAY_MS * 20}", "--until", f"@{DAY_MS * 21}", "--yes")
    assert "nothing to replay" in never.stderr
    for later, earlier in (
        (f"@{DAY_MS * 7}", f"@{DAY_MS * 4}"),
        ("7", "4"),
        ("-2", "-5"),
        ("latest", "earliest"),
        ("latest", "4"),
    ):
        told = run("pipeline", "replay", str(file), "--from", later, "--until", earlier, "--yes", code=2).stderr
        assert "--until lies before --from" in told, (later, earlier)

    file.write_text(file.read_text().replace('path = "lake"', 'path = "lake"\nmetadata = { timestamp = false }'))
    run("pipeline", "replay", str(file), "--yes")
    told = run("pipeline", "replay", str(file), *between, "--yes", code=1).stderr
    assert "out of order" in told and "as offsets" in told


def test_a_replay_by_partition_value_reads_the_offsets_of_its_rows_again(
    run: Shell, file: Path, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    file.write_text(
        file.read_text()
        .replace('"id BIGINT"', '"id BIGINT, day DATE"')
        .replace('path = "lake"', 'path = "lake"\npartition_by = ["day"]')
    )
    with Client(bootstrap) as client:
        days = [b'"2026-01-%02d"' % (1 + n // 10) if n < 30 else b"null" for n in range(40)]
        client.produce(topic, [Message(b'{"id": %d, "day": %s}' % (n, day)) for n, day in enumerate(days)], partition=0)
    run("pipeline", "run", str(file), "--once")
    DeltaTable(tmp_path / "lake").update({"id": "-1"})

    def again(*options: str) -> list[tuple[int, int]]:
        found = run.json("pipeline", "replay", str(file), *options, "--dry-run")
        return [(row["start"], row["until"]) for row in found]

    assert again("--where", "day=2026-01-02") == [(10, 20)] and again("--where", "day=") == [(30, 40)]
    assert again("--where", "day=2026-01-02", "--from", "15") == [(15, 20)]
    assert run.json("pipeline", "replay", str(file), "--where", "day=2026-01-02", "--yes")["rows"] == 10
    ids = sorted(row["id"] for row in DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist())
    assert ids == [-1] * 30 + list(range(10, 20))
    for where, code, said in (
        ("id=3", 1, "is not partitioned by id"),
        ("day=2030-01-01", 1, "has no rows with day=2030-01-01"),
        ("day", 2, "is not COLUMN=VALUE"),
    ):
        assert said in run("pipeline", "replay", str(file), "--where", where, "--yes", code=code).stderr


def test_vacuum_lists_and_removes(run: Shell, file: Path, filled: str, tmp_path: Path) -> None:
    run("pipeline", "run", str(file), "--once")
    assert "nothing to remove" in run("pipeline", "vacuum", str(file)).stderr
    orphan = tmp_path / "lake" / "part-e0-b1-t0-0123456789ab-0.parquet"
    orphan.write_bytes(b"x" * 100)
    os.utime(orphan, (time.time() - 8 * 86400,) * 2)
    assert run("pipeline", "vacuum", str(file), "--dry-run", "-o", "name").stdout.strip() == str(orphan)
    assert orphan.exists()
    assert "removed 1 file (100 B)" in run("pipeline", "vacuum", str(file), "--yes").stderr
    assert not orphan.exists()
    assert "not a duration" in run("pipeline", "vacuum", str(file), "--older-than", "soon", code=2).stderr


def run_command(file: Path, bootstrap: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", str(file), "-b", bootstrap, *options]


def started(file: Path, bootstrap: str, *options: str) -> subprocess.Popen[str]:
    command = run_command(file, bootstrap, "-o", "json", *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def java_of(process: subprocess.Popen[str]) -> int:
    """The JVM that a run has started, or will have in a moment."""
    while process.poll() is None:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            with suppress(OSError):
                # And not the one that is only asked for its version.
                if b"org.apache.spark" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        time.sleep(0.05)
    raise AssertionError("the run has ended")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_continuous_run_stops_in_good_order(bootstrap: str, file: Path, filled: str, number: signal.Signals) -> None:
    process = started(file, bootstrap)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert first["event"] == "batch" and first["rows"] == 36
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["stopped"] is True and "stopping after this batch" in err


@pytest.mark.spark
def test_a_signal_while_spark_starts_ends_the_run_at_once_and_in_good_order(
    bootstrap: str, file: Path, filled: str, tmp_path: Path
) -> None:
    file.write_text(file.read_text().replace('"none"', '"local[1]"'))
    process = started(file, bootstrap)
    java_of(process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped before the first batch" in err
    assert not (tmp_path / "lake").exists()


def test_a_signal_while_no_broker_answers_is_no_failure(file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = started(file, f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "3")
        # From here on the run waits for an answer that never comes.
        connection, _ = silent.accept()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        connection.close()
    assert process.returncode == 0, err
    assert not (tmp_path / "lake").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_jvm_that_ends_is_told_in_one_message(bootstrap: str, file: Path, filled: str) -> None:
    file.write_text(file.read_text().replace('"none"', '"local[1]"'))
    process = started(file, bootstrap)
    assert process.stdout is not None and "batch" in process.stdout.readline()
    os.kill(java_of(process), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.count('"error"') == 1 and "Spark's JVM has ended" in err and "Traceback" not in err


def test_metrics_are_served_while_it_runs(bootstrap: str, file: Path, filled: str) -> None:
    from urllib.request import urlopen

    process = started(file, bootstrap, "--metrics-port", "0")
    try:
        assert process.stdout is not None and process.stderr is not None
        port = re.findall(r":(\d+)/metrics", process.stderr.readline())[0]
        process.stdout.readline()
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"tidelog_pipeline_rows_total" in answer.read()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


DRAWING = """
import os, sys, time
from tidelog.cli.pipeline_view import LiveTable
from tidelog.pipeline.land.progress_events import PartitionProgress, RunProgress, RunState
partitions = tuple(PartitionProgress("a-topic-with-a-long-name", n, 1, 2, 3) for n in range(3))
with LiveTable() as table:
    table(RunProgress(pipeline="p", state=RunState.READING, batch=1, partitions=partitions, rows=1, dead_letters=0,
                   files=1, rows_per_s=1.0, table_version=1, last_commit_ms=None, eta_s=None))
    os.write(1, b"\\nat rest\\n")  # not through what draws: the signal may come at any moment
    while True:
        time.sleep(1)
"""


def test_the_live_table_is_drawn_anew_when_the_terminal_gets_another_size() -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm-256color"
    process = subprocess.Popen(
        [sys.executable, "-c", DRAWING], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        seen = written_until(ours, r"name +2 +1 ")
        assert "\x1b[2J" not in seen
        termios.tcsetwinsize(ours, (24, 40))
        process.send_signal(signal.SIGWINCH)
        # Perhaps while it was still drawing, perhaps afterwards; the second time nothing else makes it draw.
        drawn = written_until(ours, r"(?s)(?=.*at rest)(?=.*\x1b\[2J(.*\n){4})", seen)
        assert widest(drawn) <= 40
        termios.tcsetwinsize(ours, (24, 30))
        process.send_signal(signal.SIGWINCH)
        assert widest(written_until(ours, r"\x1b\[2J(.*\n){4}")) <= 30
    finally:
        process.kill()
        process.wait()
        os.close(ours)


NOTICING = """
import io, signal
from tidelog.cli.pipeline_view import LiveTable
from tidelog.pipeline.land.progress_events import Notice, RunProgress, RunState

class Resized(io.StringIO):
    calls, torn, armed = 0, False, False

    def write(self, text):
        self.calls += 1
        self.torn = self.torn or self.calls > 1
        if self.armed:
            self.armed = False
            signal.raise_signal(signal.SIGWINCH)
        self.calls -= 1
        return super().write(text)

with LiveTable() as table:
    file = table._console.file = Resized()
    table(RunProgress(pipeline="p", state=RunState.READING, batch=1, partitions=(), rows=1, dead_letters=0,
                   files=1, rows_per_s=1.0, table_version=1, last_commit_ms=None, eta_s=None))
    drawn = [file.getvalue().count("p: reading")]
    for file.armed in (False, True):
        table(Notice("a broker does not answer", "wait"))
        drawn.append(file.getvalue().count("p: reading"))
print("torn" if file.torn else "whole", drawn[2] - drawn[1] - (drawn[1] - drawn[0]))
"""


def test_a_resize_while_a_notice_is_written_is_drawn_after_it() -> None:
    environment = os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-c", NOTICING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("whole 1\n"), done.stdout + done.stderr


def widest(written: str) -> int:
    """Of the lines since the terminal was cleared."""
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.rpartition("\x1b[2J")[2]).splitlines()
    return max(map(len, lines))


def written_until(terminal: int, pattern: str, written: str = "") -> str:
    """What a program has written to a terminal, after what is known already, when it has written this."""
    while not re.search(pattern, written):
        written += os.read(terminal, 4096).decode()
    return written


def test_the_live_table_has_a_line_per_partition() -> None:
    from rich.console import Console

    from tidelog.cli.pipeline_view import drawn, duration
    from tidelog.pipeline.land.progress_events import PartitionProgress, RunProgress, RunState

    progress = RunProgress(
        pipeline="orders",
        state=RunState.READING,
        batch=3,
        partitions=(PartitionProgress("orders", 0, 1000, 1500, 2000), PartitionProgress("orders", 1, 5, 5, 5)),
        rows=1005,
        dead_letters=2,
        files=4,
        rows_per_s=250.0,
        table_version=9,
        last_commit_ms=0,
        eta_s=4.0,
    )
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(drawn(progress))
    text = console.export_text().splitlines()
    assert text[0].startswith("orders: reading, batch 3, 1,005 rows, 250 rows/s, 4 files, lag 1,000, 2 dead letters")
    assert text[0].rstrip().endswith("4 s left")
    assert text[2].split() == ["orders", "0", "1,000", "1,500", "2,000", "1,000"]
    assert [duration(s) for s in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]
