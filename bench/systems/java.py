"""Apache Kafka's jars, resolved once with Maven, and the JVMs that run its tools.

The jars named by `tests/java/pom.xml` are copied into `.cache/kafka-4.3.0/libs` of the repository on first use, and
the few Java classes of `tests/java/src` are compiled beside them into `classes`. Both are rebuilt when what they
are made from has changed: a stamp file holds the hash. A file lock keeps parallel test workers from racing, and a
directory appears only when it is complete.

A JVM that starts for each tool call costs a second or more; `JavaShell` keeps one and runs the tools' main methods in
it, one after the other (see `tests/java/src/tidelog/judge/Shell.java`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

KAFKA_VERSION = "4.3.0"
REPOSITORY = Path(__file__).resolve().parents[2]
JAVA_SOURCES = REPOSITORY / "tests" / "java"
CACHE = REPOSITORY / ".cache" / f"kafka-{KAFKA_VERSION}"

QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.awt.headless=true")
#: For short-lived tools: the first tier of the compiler only, the collector with the least start-up cost.
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", *QUIET)


class JavaMissing(RuntimeError):
    """Java or Maven is not installed, or Maven could not resolve the jars."""


class ToolTimeout(RuntimeError):
    """A Java tool did not end in the time it was given; its JVM has been killed."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    exit_code: int
    out: str
    err: str

    def check(self) -> ToolResult:
        """Itself, where the tool succeeded; otherwise an error that shows what the tool said."""
        if self.exit_code != 0:
            raise AssertionError(f"exit code {self.exit_code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}")
        return self

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.strip()]

    def json(self) -> Any:
        """The last line of the output, which the drivers of `tests/java/src` print as JSON."""
        return json.loads(self.lines[-1])


def _executable(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaMissing(
            f"{name} is not on PATH; Apache Kafka's own tools need it (on Debian: apt-get install {package})"
        )
    return path


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run_build_step(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise JavaMissing(f"{what} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def _build(target: Path, digest: str, fill: Any) -> None:
    """Has `fill(directory)` make `target`, unless it was made from the same input before."""
    stamp = target.with_suffix(".stamp")
    if target.is_dir() and stamp.is_file() and stamp.read_text() == digest:
        return
    partial = target.with_suffix(".partial")
    for old in (partial, target):
        shutil.rmtree(old, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    partial.rename(target)
    stamp.write_text(digest)


def _digest(paths: list[Path]) -> str:
    state = hashlib.sha256()
    for path in paths:
        state.update(path.name.encode())
        state.update(path.read_bytes())
    return state.hexdigest()


def jars(pom: Path, libs: Path, what: str) -> Path:
    """`libs`, with the jars that a pom names in it; fetched on first use."""
    _executable("java", "openjdk-17-jdk-headless")

    def fetch(directory: Path) -> None:
        maven = _executable("mvn", "maven")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        _run_build_step([maven, "-q", "-B", "-f", str(pom), *goal], f"fetching {what} with Maven")

    with _locked(libs.parent / "lock"):
        _build(libs, _digest([pom]), fetch)
    return libs


@cache
def classpath() -> str:
    """The class path with Apache Kafka, its tools and our drivers; made on first use."""
    pom = JAVA_SOURCES / "pom.xml"
    sources = sorted((JAVA_SOURCES / "src").rglob("*.java"))
    libs, classes = jars(pom, CACHE / "libs", "Apache Kafka's jars"), CACHE / "classes"

    def compile_drivers(directory: Path) -> None:
        javac = _executable("javac", "openjdk-17-jdk-headless")
        command = [javac, "-nowarn", "-proc:none", "--release", "17", "-cp", f"{libs}/*", "-d", str(directory)]
        _run_build_step([*command, *map(str, sources)], "compiling the Java drivers")

    with _locked(CACHE / "lock"):
        _build(classes, _digest([pom]) + _digest(sources), compile_drivers)
    return f"{classes}:{libs}/*"


def java_command(class_name: str, *args: str, jvm_flags: tuple[str, ...] = FAST_START) -> list[str]:
    return [_executable("java", "openjdk-17-jdk-headless"), *jvm_flags, "-cp", classpath(), class_name, *args]


def run_tool(
    class_name: str,
    *args: str,
    stdin: str | None = None,
    timeout: float = 60,
    jvm_flags: tuple[str, ...] = FAST_START,
) -> ToolResult:
    """Runs one Java tool in a JVM of its own."""
    command = java_command(class_name, *args, jvm_flags=jvm_flags)
    try:
        done = subprocess.run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise ToolTimeout(f"{class_name} still ran after {timeout} s: {error.stdout!r} {error.stderr!r}") from error
    return ToolResult(done.returncode, done.stdout, done.stderr)


class JavaShell:
    """A JVM that runs tools one after the other; started with the first call, and again after one that hung."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._one_at_a_time = threading.Lock()

    def run(self, class_name: str, *args: str, stdin: str | None = None, timeout: float = 60) -> ToolResult:
        with self._one_at_a_time:
            return self._run(class_name, args, stdin, timeout)

    def _run(self, class_name: str, args: tuple[str, ...], stdin: str | None, timeout: float) -> ToolResult:
        process = self._started()
        assert process.stdin is not None
        command = {"main": class_name, "args": list(args), "stdin": stdin or ""}
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise ToolTimeout(f"{class_name} {' '.join(args)} still ran after {timeout} s") from None
        if answer is None:
            self.close()
            raise RuntimeError(f"the JVM ended while it ran {class_name} {' '.join(args)}")
        fields = json.loads(answer)
        return ToolResult(fields["exit"], fields["out"], fields["err"])

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                java_command("tidelog.judge.Shell"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
            threading.Thread(target=self._read, args=(self._process, self._answers), daemon=True).start()
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put(None)
