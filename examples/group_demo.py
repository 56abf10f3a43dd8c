"""A consumer group at work: three consumers, one of which dies and one joins, and the lag of each partition meanwhile.

The consumers are confluent-kafka in processes of their own, so that one can be killed as a crash would. Its partitions
lag until its session is over; then the others take them. On a terminal the table is redrawn as it happens, elsewhere a
line is printed now and then.

    python -m examples.group_demo member BOOTSTRAP NAME      # one of the consumers
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tidelog.client import Client
from tidelog.client.errors import ClientError

TOPIC = "payments"
GROUP = "accounting"
PARTITIONS = 6
RECORDS_PER_S = 600
#: the shortest that a broker allows by default
SESSION_TIMEOUT_MS = 6_000
STEP_TIMEOUT_S = 40
LINE_EVERY_S = 2.0
BAR_RECORDS = 40


def be_a_member(bootstrap: str, name: str) -> None:
    """Reads and commits until it is told to stop."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    consumer.subscribe([TOPIC])
    while not stopping.is_set():
        if consumer.consume(500, timeout=0.2):
            consumer.commit()
    consumer.close()


class Members:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def join(self, name: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "member", self._bootstrap, name]
        # A member that runs into the broker's end has nothing to tell.
        self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes.pop(name).wait()

    def end(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(30)


class Load:
    """Some records every tenth of a second, from a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            for number in range(RECORDS_PER_S // 10):
                self._producer.produce(TOPIC, b"a payment", partition=number % PARTITIONS)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(30)


class Watch:
    """Who holds which partition and how far behind the group is there; drawn, or told in lines."""

    def __init__(self, client: Client, console: Console, live: Live | None) -> None:
        self.owners: dict[int, str] = {}
        self.lags: dict[int, int] = {}
        self._client = client
        self._console = console
        self._live = live
        self._began = time.monotonic()
        self._told_at = 0.0

    def look(self) -> None:
        # While the first member is on its way there is no group to describe.
        with contextlib.suppress(ClientError):
            members = self._client.groups.describe(GROUP).members
            self.owners = {partition: member.client_id for member in members for _, partition in member.assignment}
        committed = self._client.groups.offsets(GROUP)
        for partition, end in self._client.offsets(TOPIC).items():
            at = committed.get((TOPIC, partition))
            self.lags[partition] = end.offset - (at.offset if at else 0)

    def until(self, what: str, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while True:
            self.look()
            done = reached()
            self._show(what, at_once=done)
            if done:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: not within {STEP_TIMEOUT_S} s; lag {self.lags}, held by {self.owners}")
            time.sleep(0.25)

    def for_a_while(self, what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.until(what, lambda: time.monotonic() > end)

    def held_by(self, *names: str) -> bool:
        return len(self.owners) == PARTITIONS and set(self.owners.values()) == set(names)

    def caught_up(self, most: int = RECORDS_PER_S // 4) -> bool:
        return sum(self.lags.values()) <= most

    def _show(self, what: str, at_once: bool) -> None:
        elapsed = time.monotonic() - self._began
        if self._live is not None:
            self._live.update(self._table(f"{elapsed:5.1f} s  {what}"), refresh=True)
        elif at_once or time.monotonic() - self._told_at > LINE_EVERY_S:
            self._told_at = time.monotonic()
            places = (f"{p}:{lag} {self.owners.get(p, '-')}" for p, lag in sorted(self.lags.items()))
            self._console.print(f"{elapsed:5.1f} s  {what:30} lag {', '.join(places)}", highlight=False, soft_wrap=True)

    def _table(self, title: str) -> Table:
        table = Table("partition", "held by", title=title, title_justify="left", min_width=70)
        table.add_column("lag", justify="right", min_width=6)
        table.add_column("", min_width=42)
        for partition, lag in sorted(self.lags.items()):
            bar = "█" * min(42, -(-lag // BAR_RECORDS))
            table.add_row(str(partition), self.owners.get(partition, "-"), str(lag), f"[cyan]{bar}[/cyan]")
        return table


def show(bootstrap: str, console: Console) -> None:
    """Runs the group on a broker that is there already."""
    console.print(f"\n[bold]A group of three consumers, {RECORDS_PER_S} records a second; one dies, one joins[/bold]")
    members = Members(bootstrap)
    with Client(bootstrap) as client, contextlib.ExitStack() as stack:
        client.admin.create_topic(TOPIC, PARTITIONS)
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if console.is_terminal else None
        watch = Watch(client, console, live)
        load = Load(bootstrap)
        try:
            for name in ("ann", "ben", "cleo"):
                members.join(name)
            watch.until("ann, ben and cleo join", lambda: watch.held_by("ann", "ben", "cleo") and watch.caught_up())
            watch.for_a_while("all is well", 1.5)
            members.kill("ben")
            watch.until("ben was killed", lambda: watch.held_by("ann", "cleo"))
            watch.until("ann and cleo took over", watch.caught_up)
            members.join("dora")
            watch.until("dora joins", lambda: watch.held_by("ann", "cleo", "dora"))
            load.stop()
            watch.until("no more records: lag 0", lambda: watch.caught_up(0))
        finally:
            load.stop()
            members.end()


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        be_a_member(*sys.argv[2:])
    else:
        show(sys.argv[1], Console())
