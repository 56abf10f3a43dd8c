"""Handlers in processes of their own, for work that keeps a CPU busy, or that may crash or hang.

Each worker has a process, started when it first needs one. The message goes down a pipe, what the handler returned or
raised comes back. A process that dies, or takes too long and is killed, fails this attempt of this message and nothing
else; the next message gets a new one. The handler must be importable (a function of a module, not a lambda): processes
are spawned, for forking a process with threads and open connections is not safe.

When this process is killed its children read the end of their pipes, and end.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from typing import Any

from tidelog.workers.crews import Handler
from tidelog.workers.message import Message, Reject, Send, said_by, sends_of

_spawning = multiprocessing.get_context("spawn")


class HandlerDied(Exception):
    """The process of a handler ended in the middle of a message."""


class HandlerTimedOut(Exception):
    """The handler took longer than it may."""


class RaisedElsewhere(Exception):
    """What a handler raised in its process: the type's name and what it said."""


class ProcessCaller:
    def __init__(self, handler: Handler, timeout_s: float | None) -> None:
        self._handler = handler
        self._timeout_s = timeout_s
        self._process: SpawnProcess | None = None
        self._pipe: Pipe | None = None

    def __call__(self, message: Message) -> tuple[Send, ...]:
        pipe = self._ready()
        try:
            pipe.send(message)
            if not pipe.poll(self._timeout_s):
                self.close()
                raise HandlerTimedOut(f"not done after {self._timeout_s} s: its process was killed")
            how, what = pipe.recv()
        except (EOFError, OSError) as error:
            raise HandlerDied(f"its process ended with {self._exit_code()}") from error
        if how == "rejected":
            raise Reject(what)
        if how == "raised":
            raise _raised(*what)
        sends: tuple[Send, ...] = what
        return sends

    def _ready(self) -> Pipe:
        if self._pipe is None or self._process is None or not self._process.is_alive():
            self.close()
            self._pipe, theirs = _spawning.Pipe()
            self._process = _spawning.Process(target=_serve, args=(theirs, self._handler), daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _exit_code(self) -> str:
        process, self._process = self._process, None
        if process is None:
            return "an unknown exit code"
        process.join(1)
        code = process.exitcode
        self._process = process
        self.close()
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._pipe = self._process = None


def _raised(kind: str, said: str, trace: str) -> Exception:
    """An exception of the type's name, for people; the type itself may not be known here."""
    error = type(kind, (RaisedElsewhere,), {})(said)
    error.add_note(trace)
    found: Exception = error
    return found


def _serve(pipe: Pipe, handler: Handler) -> None:
    """The life of a handler's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the workers, who finish what is under way
    pid = os.getpid()
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            return
        answer = _answer(handler, message)
        if os.getpid() != pid:
            os._exit(0)  # the child of a handler that forked
        pipe.send_bytes(answer)


def _answer(handler: Handler, message: Message) -> bytes:
    answer: tuple[str, Any]
    try:
        answer = ("returned", sends_of(handler(message)))
        return pickle.dumps(answer)
    except Reject as error:
        answer = ("rejected", said_by(error))
    except BaseException as error:
        answer = ("raised", (type(error).__name__, said_by(error), traceback.format_exc()))
    return pickle.dumps(answer)
