"""A program as a handler: it is run once for each message, with the value on its standard input.

    TIDELOG_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP, _ATTEMPT     where the message stands, and which attempt this is
    TIDELOG_KEY         the key; not set where it is null, or has a NUL byte, which no variable can hold
    TIDELOG_KEY_BASE64  the key in base64; not set where it is null
    TIDELOG_NULL        1 where the value is null, for which the standard input is empty
    TIDELOG_HEADER_…    headers: the name in capitals, with _ for what is neither a letter nor a digit

    exit code 0         it is handled
    exit code 65        it never will be (EX_DATAERR): a dead letter at once
    any other           this attempt failed; the last line of its standard error says why

Its standard output is passed on, or, with `to`, each line becomes a record there with the key of the message.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tidelog.workers.handler_processes import HandlerDied, HandlerTimedOut
from tidelog.workers.message import Message, Reject, Send

NEVER: Final = 65
_LONGEST_REASON: Final = 2000


class ProgramFailed(Exception):
    """A program ended with something else than 0."""


class Program:
    def __init__(self, command: Sequence[str], to: str | None = None, timeout_s: float | None = None) -> None:
        self._command = list(command)
        self._to = to
        self._timeout_s = timeout_s
        self._running: set[int] = set()

    def kill(self) -> None:
        """Ends those that run."""
        for pid in list(self._running):
            _kill_group(pid)

    def __call__(self, message: Message) -> list[Send]:
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(message),
            # Ctrl-C is for the workers, who finish what is under way; and a group of its own can be killed as a whole.
            start_new_session=True,
        ) as process:
            self._running.add(process.pid)
            try:
                out, err = process.communicate(message.value or b"", self._timeout_s)
            except subprocess.TimeoutExpired:
                raise HandlerTimedOut(f"{self._command[0]} was killed: not done after {self._timeout_s} s") from None
            finally:
                if process.poll() is None:
                    _kill_group(process.pid)
                    process.wait()
                self._running.discard(process.pid)
        self._judge(process.returncode, err)
        if self._to is None:
            sys.stdout.buffer.write(out)
            sys.stdout.buffer.flush()
            return []
        return [Send(self._to, line, message.key) for line in out.splitlines()]

    def _judge(self, code: int, err: bytes) -> None:
        if code == 0:
            sys.stderr.buffer.write(err)
            sys.stderr.buffer.flush()
            return
        lines = err.decode("utf-8", "replace").strip().splitlines()
        said = lines[-1][:_LONGEST_REASON] if lines else ""
        if code == NEVER:
            raise Reject(said or f"{self._command[0]} ended with exit code {code}")
        if code < 0:
            raise HandlerDied(f"{self._command[0]} was ended by signal {-code}" + (f": {said}" if said else ""))
        raise ProgramFailed(f"{self._command[0]} ended with exit code {code}" + (f": {said}" if said else ""))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def environment(message: Message) -> dict[bytes, bytes]:
    told: dict[str, bytes] = {
        "TOPIC": message.topic.encode(),
        "PARTITION": b"%d" % message.partition,
        "OFFSET": b"%d" % message.offset,
        "TIMESTAMP": b"%d" % message.timestamp_ms,
        "ATTEMPT": b"%d" % message.attempt,
    }
    if message.key is not None:
        told["KEY"] = message.key
        told["KEY_BASE64"] = base64.b64encode(message.key)
    if message.value is None:
        told["NULL"] = b"1"
    for name, value in message.headers:
        told["HEADER_" + re.sub(r"[^A-Z0-9]", "_", name.upper())] = value or b""
    ours = {b"TIDELOG_" + name.encode(): value for name, value in told.items() if b"\0" not in value}
    theirs = {name: value for name, value in os.environb.items() if not name.startswith(b"TIDELOG_HEADER_")}
    return {**theirs, **ours}
