"""A real broker in its own process, for tests and programs.

    with RunningBroker({"num.partitions": "3"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The broker is `tidelog serve` on a free port of the loopback interface, with its own data directory, which is removed
when the broker is closed. It is ready when it prints one line with its address to standard output; nothing is polled.
Its standard error is kept, and the end of it is part of the message if the broker fails.

It runs in its own process group, so that Ctrl-C on the terminal stops the tests, and the tests stop the broker. It does
not get the KAFKA_ variables of the environment, which would configure it without the test's knowledge.

    new --start--> running --pause--> paused --resume--> running --stop, kill--> stopped --start--> running
    any --close--> closed: stopped, and the data directory removed
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

READY = re.compile(rb"tidelog ready on (\S+):(\d+) \(broker (-?\d+), cluster (\S+)(?:, http (\S+))?, data (.+)\)\s*")
SERVE = (sys.executable, "-m", "tidelog.cli.main", "serve")
#: what every broker is started with, unless its own configuration says otherwise
DEFAULTS: dict[str, str] = {}
_TAIL_LINES = 40
_TAIL_BYTES = 65536

_running: weakref.WeakSet[RunningBroker] = weakref.WeakSet()


class BrokerFailed(RuntimeError):
    """The broker did not start, did not stop, or ended by itself."""


class Running:
    """What is started, and closed at the end of a `with`; its scratch directory goes then, where it has one."""

    _scratch: Path | None

    def start(self) -> Self:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._clear()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerFailed as failure:
            if error is None:
                raise
            error.add_note(str(failure))  # the first error is the one to look at

    def _clear(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class RunningBroker(Running):
    """`command` is what is run instead of `tidelog serve`; it gets the same arguments. `runner` is a command that runs
    the command line which follows it. `log` is the file for its standard error, and `environment` what the process gets
    instead of this one's without its KAFKA_ variables."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        command: Sequence[str] = SERVE,
        runner: Sequence[str] = (),
        log: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.config = dict(config or {})
        self.host = host
        self.port = port
        self.broker_id = -1
        self.cluster_id = ""
        #: where its metrics are, as host:port; with tidelog.http.port only
        self.http: str | None = None
        self._command = tuple(command)
        self._runner = tuple(runner)
        self._environment = environment
        self._timeout_s = timeout_s
        self._scratch = Path(tempfile.mkdtemp(prefix="tidelog-")) if data_dir is None or log is None else None
        self.data_dir = Path(data_dir or f"{self._scratch}/data")
        self.log = Path(log or f"{self._scratch}/stderr.log")
        self._process: subprocess.Popen[bytes] | None = None
        #: where in the log the words of the process begin; those before are of earlier ones
        self._first_words = 0
        self._expected_to_run = False

    @property
    def bootstrap(self) -> str:
        """What a client calls bootstrap.servers."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, negative for a signal; None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> Self:
        """Starts the broker and returns when it is ready; on the port that it had, if it ran before."""
        self.launch()
        self.await_ready()
        return self

    def launch(self) -> None:
        """Starts the broker and does not wait; `await_ready` comes next."""
        if self.running:
            raise BrokerFailed(f"the broker is already running on {self.bootstrap}")
        with open(self.log, "ab") as stderr:
            self._first_words = stderr.tell()
            self._process = subprocess.Popen(
                [*self._runner, *self._command, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment if self._environment is not None else _environment(),
                process_group=0,
            )
        _running.add(self)

    def await_ready(self) -> None:
        """Returns when the broker that was launched is ready."""
        try:
            self._hear_ready()
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        self._expected_to_run = True

    @property
    def arguments(self) -> list[str]:
        """What follows `tidelog serve` on the command line."""
        arguments = ["--data-dir", str(self.data_dir), "--host", self.host, "--port", str(self.port)]
        for name, value in {**DEFAULTS, **self.config}.items():
            arguments += ["-X", f"{name}={value}"]
        return arguments

    def stop(self) -> int:
        """Asks the broker to stop and waits for it; its exit code."""
        if not self.running:
            return self._ended()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process hears nothing else
        self._expected_to_run = False
        try:
            return self._reap(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)
            raise BrokerFailed(self._told(f"the broker did not stop within {self._timeout_s:g} s")) from None

    def kill(self) -> None:
        """Ends the broker at once, as a crash would."""
        self._expected_to_run = False
        self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stops the broker if it runs, and starts it again with the same data on the same port."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freezes the process: its sockets stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stops the broker and removes its data, unless the data directory was given."""
        try:
            failure = self.failure()
            if failure is not None:
                raise BrokerFailed(failure)
            self.stop()
        finally:
            self._expected_to_run = False
            _running.discard(self)
            self._clear()

    def failure(self) -> str | None:
        """How the broker ended and its last words, if it ended by itself; None if it runs or was stopped."""
        if self.running or not self._expected_to_run:
            return None
        return self._told(f"the broker exited unexpectedly with exit code {self._ended()}")

    def stderr(self, lines: int = _TAIL_LINES) -> str:
        """The last lines that the broker wrote to its standard error."""
        return self._tail(0, lines)

    def _tail(self, start: int, lines: int = _TAIL_LINES) -> str:
        """The last lines of the log, from a position in it on."""
        try:
            with open(self.log, "rb") as file:
                file.seek(max(start, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def __repr__(self) -> str:
        return f"RunningBroker({self.bootstrap}, {'running' if self.running else 'stopped'})"

    def _hear_ready(self) -> None:
        process = self._process
        assert process is not None and process.stdout is not None
        output = process.stdout
        deadline = time.monotonic() + self._timeout_s
        heard = b""
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([output], [], [], left_s)[0]:
                raise BrokerFailed(self._told(f"the broker was not ready within {self._timeout_s:g} s"))
            chunk = os.read(output.fileno(), 4096)
            if not chunk:
                code = self._reap(self._timeout_s)
                raise BrokerFailed(self._told(f"the broker did not start; its exit code is {code}"))
            heard += chunk
            *lines, heard = heard.split(b"\n")
            for line in lines:
                if match := READY.fullmatch(line):
                    self._note_ready(match)
                    # Whatever else it prints must not fill the pipe and block it.
                    threading.Thread(target=_drain, args=(output,), daemon=True).start()
                    return

    def _note_ready(self, match: re.Match[bytes]) -> None:
        self.host = match[1].decode().strip("[]")
        self.port = int(match[2])
        self.broker_id = int(match[3])
        self.cluster_id = match[4].decode()
        self.http = match[5].decode() if match[5] else None

    def _signal(self, number: signal.Signals) -> None:
        if self.running:  # otherwise the number may belong to somebody else by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self.running:
            self._signal(number)
            self._reap(self._timeout_s)

    def _reap(self, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def _ended(self) -> int:
        return 0 if self._process is None or self._process.returncode is None else self._process.returncode

    def _told(self, what: str) -> str:
        tail = self._tail(self._first_words)
        command = " ".join(self._command)
        return f"{what} ({command})\n--- its standard error ---\n{tail}" if tail else f"{what} ({command})"


def _environment() -> dict[str, str]:
    """Ours without KAFKA_ variables, and with this very tidelog first on the path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment


def _drain(output: BinaryIO) -> None:
    with output:
        while output.read(4096):
            pass


@atexit.register
def _leave_nothing_running() -> None:
    for broker in list(_running):
        broker.kill()
        broker._clear()
