"""The commands in README.md and docs/*.md do what is printed below them.

A ```console block is run: a line that begins with `$ ` is given to bash, and what follows, up to the next command, is
what it must print (both streams), nothing where nothing follows. `…` stands for anything within a line, and alone in
its line for any lines; how many spaces lie between words is not compared. Commands of one page share a directory and,
once the page has said `tidelog serve` or `tidelog cluster up`, its broker or cluster, which `kill %1` stops. The
```python blocks of such a page are run as well: as a test where they define one, else as a program. A ```toml block
that begins with the name of a file, `# orders.toml`, is written to that file. Where a page writes localhost:9092 or
127.0.0.1:9092, the real port is used (9093 and so on for further brokers); so it is for the port of the metrics, 9404.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SERVE = "tidelog serve"
STOP = "kill %1"
UP = "tidelog cluster up"
STARTS_SPARK = re.compile(r"SparkSession|\$ tidelog pipeline run")
NAMED_FILE = re.compile(r"# [\w.-]+\.toml")
HTTP_PORT = 9404
ANY_PORT = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0", "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


class Step(NamedTuple):
    line: int
    kind: str
    text: str
    expected: str


def blocks(page: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line number, kind, lines) of the fenced blocks."""
    kind, begun, lines = None, 0, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            if kind is None:
                kind, begun, lines = line[3:], number, []
            else:
                yield begun, kind, lines
                kind = None
        elif kind is not None:
            lines.append(line)


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for number, kind, lines in blocks(page):
        if kind == "python" or (kind == "toml" and NAMED_FILE.fullmatch(lines[0])):
            found.append(Step(number, kind, "\n".join(lines), ""))
        elif kind == "console":
            assert lines[0].startswith("$ "), f"{page.name}:{number + 1}: a console block begins with a command"
            for at, line in enumerate(lines, number + 1):
                if line.startswith("$ "):
                    found.append(Step(at, kind, line[2:], ""))
                else:
                    found[-1] = found[-1]._replace(expected=found[-1].expected + line + "\n")
    return found


RUNNABLE = [page for page in PAGES if any(step.kind == "console" for step in steps(page))]


class Session:
    """One page's directory and broker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        tools = directory / "bin"
        tools.mkdir()
        shim = tools / "tidelog"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidelog.cli.main "$@"\n')
        shim.chmod(0o755)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "TIDELOG_"))},
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._broker: subprocess.Popen[str] | None = None
        #: the real ports of what a page calls 9092, 9093 …
        self._ports = [9092]
        self._http_port = HTTP_PORT

    def run(self, step: Step) -> str:
        """What a step prints, as the page would have it."""
        if step.kind == "python":
            return self._run_python(step.text)
        if step.kind == "toml":
            name = step.text.splitlines()[0].removeprefix("# ")
            (self._directory / name).write_text(self._reached(step.text) + "\n")
            return ""
        if step.text == STOP:
            self.close()
            return ""
        if step.text.startswith(SERVE):
            return self._shown(self._serve(step.text, ANY_PORT))
        if step.text.startswith(UP):
            return self._shown(self._serve(f"{step.text} --port 0", {}))
        command = step.text.replace(f"127.0.0.1:{HTTP_PORT}", f"127.0.0.1:{self._http_port}")
        done = self._finished(["bash", "-c", command])
        return self._shown(done)

    def _serve(self, command: str, settings: dict[str, str]) -> str:
        assert self._broker is None, "a page has one broker"
        command = command.replace(f"--http-port {HTTP_PORT}", "--http-port 0")
        self._broker = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self._directory,
            env={**self._environment, **settings},
            text=True,
        )
        assert self._broker.stdout is not None
        ready = self._broker.stdout.readline()
        addresses = ready.split(" ready on ")[1].split()[0]
        self._ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", addresses)]
        self._http_port = int(found[1]) if (found := re.search(r"http 127\.0\.0\.1:(\d+)", ready)) else HTTP_PORT
        self._environment["TIDELOG_BOOTSTRAP"] = addresses
        return ready

    def _run_python(self, program: str) -> str:
        program = self._reached(program)
        is_test = "def test_" in program
        path = self._directory / ("test_page.py" if is_test else "page.py")
        path.write_text(program)
        how = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)] if is_test else [str(path)]
        done = subprocess.run(
            [sys.executable, *how],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return ""

    def _finished(self, command: list[str]) -> str:
        return subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        ).stdout

    def _reached(self, text: str) -> str:
        return text.replace("localhost:9092", f"127.0.0.1:{self._ports[0]}")

    def _shown(self, text: str) -> str:
        text = text.replace(f"http 127.0.0.1:{self._http_port}", f"http 127.0.0.1:{HTTP_PORT}")
        for number, port in enumerate(self._ports, 9092):
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{number}")
        return text

    def close(self) -> None:
        if self._broker is not None:
            self._broker.send_signal(signal.SIGTERM)
            assert self._broker.wait(timeout=60) == 0
            assert self._broker.stdout is not None
            self._broker.stdout.close()
            self._broker = None


def squeezed(text: str) -> str:
    """The port that a page shows and the real one differ in length, and with them the columns of a table."""
    return re.sub(" +", " ", text)


def pattern(expected: str) -> str:
    lines = []
    for line in expected.splitlines():
        if line == "…":
            lines.append(r"(?:.*\n)*")
        else:
            lines.append(".*".join(map(re.escape, line.split("…"))) + r"\n")
    return "".join(lines)


def marked(page: Path) -> object:
    text = page.read_text()
    marks = [pytest.mark.spark] * bool(STARTS_SPARK.search(text)) + [pytest.mark.zookeeper] * (f"$ {UP}" in text)
    return pytest.param(page, id=page.name, marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in RUNNABLE])
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    session = Session(tmp_path)
    try:
        for step in steps(page):
            printed = session.run(step)
            said = f"{page.name}:{step.line}: $ {step.text}\n--- the page\n{step.expected}--- really\n{printed}"
            assert re.fullmatch(pattern(squeezed(step.expected)), squeezed(printed)), said
    finally:
        session.close()


def test_the_pages_for_newcomers_are_run() -> None:
    assert {page.name for page in RUNNABLE} >= {"README.md", "quickstart.md", "cli.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
