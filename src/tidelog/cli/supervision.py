"""Watches over the processes of a cluster on this machine, and starts again what failed.

A process failed if it ended though nobody stopped it: with an exit code other than 0, or by a signal. A broker that was
stopped in order (SIGTERM) stays down. Failed processes are started again at once, after a wait, or not at all; one that
fails to start is tried again after a wait that doubles, up to a minute.

Nothing is polled: the kernel tells when a process ends. A signal to stop is raised as `StopAsked`, wherever that is.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple, NoReturn

from tidelog.config.units import duration_ms
from tidelog.metadata.zookeeper_server import ZooKeeperFailed, ZooKeeperServer
from tidelog.testing.broker import BrokerFailed, RunningBroker
from tidelog.testing.cluster import RunningCluster

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0

Process = RunningBroker | ZooKeeperServer
Tell = Callable[[str], None]


class StopAsked(BaseException):
    """SIGTERM or SIGINT came."""


class RestartPolicy(NamedTuple):
    #: how long a failed process stays down; None for ever
    wait_s: float | None

    @classmethod
    def parse(cls, text: str) -> RestartPolicy:
        """`now`, `never` or `after:10s`. Raises ValueError."""
        if text == "never":
            return cls(None)
        if text == "now":
            return cls(0.0)
        word, colon, span = text.partition(":")
        if word != "after" or not colon:
            raise ValueError(f"{text!r} is not a policy: use now, never, or after:10s")
        return cls(duration_ms(span) / 1000)

    def wait_after(self, failures: int) -> float | None:
        """Seconds until the next attempt, when so many attempts to start have failed one after another."""
        if self.wait_s is None or not failures:
            return self.wait_s
        return max(self.wait_s, min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 10)))


@contextmanager
def stop_signals() -> Iterator[None]:
    """SIGTERM and SIGINT raise StopAsked in here."""

    def stop(number: int, _: object) -> NoReturn:
        raise StopAsked

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Supervisor:
    """`by_hand` tells how a person starts a broker that is not started again."""

    def __init__(
        self, cluster: RunningCluster, policy: RestartPolicy, tell: Tell, by_hand: Callable[[RunningBroker], str]
    ) -> None:
        self._policy = policy
        self._tell = tell
        self._by_hand = by_hand
        self._processes: dict[str, Process] = {}
        if cluster.zookeeper is not None:
            self._processes["ZooKeeper"] = cluster.zookeeper
        self._processes |= {f"broker {broker_id}": broker for broker_id, broker in cluster.brokers.items()}
        #: those that run, as far as is known
        self._up = set(self._processes)
        #: when which one is started again
        self._due: dict[str, float] = {}
        self._failures = dict.fromkeys(self._processes, 0)

    def run(self) -> None:
        """Until StopAsked is raised, or nothing is left to watch over."""
        while self._up or self._due:
            self._wait()
            for name in [name for name in self._processes if name in self._up and not self._processes[name].running]:
                self._up.remove(name)
                self._ended(name)
            now = time.monotonic()
            self._start([name for name in self._processes if self._due.get(name, now + 1) <= now])

    def _wait(self) -> None:
        """Until a process ends, or one is to be started."""
        with ExitStack() as files:
            watched = []
            for name in self._up:
                if not self._processes[name].running:
                    return
                try:
                    watched.append(os.pidfd_open(self._processes[name].pid))
                except ProcessLookupError:
                    return
                files.callback(os.close, watched[-1])
            left_s = max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None
            select.select(watched, [], [], left_s)

    def _ended(self, name: str) -> None:
        process = self._processes[name]
        code = process.exit_code
        if code == 0:
            self._tell(f"{name} was stopped. {self._how_to_start(process)}")
            return
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exited with {code}"
        self._schedule(name, how)

    def _schedule(self, name: str, how: str) -> None:
        wait_s = self._policy.wait_after(self._failures[name])
        if wait_s is None:
            self._tell(f"{name} {how}. {self._how_to_start(self._processes[name])}")
            return
        when = f"in {wait_s:g} s" if wait_s else "now"
        self._due[name] = time.monotonic() + wait_s
        self._tell(f"{name} {how}; it is started again {when}")

    def _start(self, names: list[str]) -> None:
        launched = []
        for name in names:
            del self._due[name]
            if self._attempt(name, self._processes[name].launch):
                launched.append(name)
        for name in launched:
            process = self._processes[name]
            ready = process.await_ready if isinstance(process, RunningBroker) else process.await_serving
            if self._attempt(name, ready):
                self._failures[name] = 0
                self._up.add(name)
                self._tell(f"{name} runs again, pid {process.pid}")

    def _attempt(self, name: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (BrokerFailed, ZooKeeperFailed) as error:
            if isinstance(self._processes[name], ZooKeeperServer):
                self._processes[name].kill()
            self._failures[name] += 1
            self._tell(str(error))
            self._schedule(name, "did not start")
            return False
        return True

    def _how_to_start(self, process: Process) -> str:
        if isinstance(process, ZooKeeperServer):
            return (
                "Brokers go on with what they lead, but nothing can be changed until `tidelog cluster up` is restarted"
            )
        return f"To start it by hand: {self._by_hand(process)}"
