"""`python -m tests.workers.kill_soak --kills 50`: workers killed at random beside rebalances; what they promise holds.

Several processes work on one topic as a group while it is being written. They are killed (SIGKILL, and started again),
dismissed (SIGTERM) and joined by others, as the seed says. Then everything must be handled, the order per key never
broken, and nothing repeated but what a killed process had in hand. With `--exactly-once` the handlers write to another
topic in transactions, and there each record must be once, in order.

`--broker kafka` runs the same against Apache Kafka: what that one does not pass is a mistake of the check or of ours.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Self

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

from bench.systems.judged import JUDGED
from bench.systems.process import BrokerProcess
from confluent_kafka import Producer
from kill_oracle import read_journals, repeats, violations
from workers_bench import Bench, eventually

PARTITIONS = 4
KEYS = 40
RECORDS_PER_S = 300
MOST_HANDLER_S = 0.02
SESSION_TIMEOUT_MS = 3_000
SETTLE_S = 120
BROKER_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
HERE = Path(__file__).parent


class Arena:
    """A topic that is written, and the processes that work on it."""

    def __init__(
        self, bootstrap: str, directory: Path, seed: int, protocol: str = "classic", exactly_once: bool = False
    ) -> None:
        self.bench = Bench(bootstrap)
        self.bench.create(partitions=PARTITIONS)
        self._directory = directory
        self._protocol = protocol
        self._exactly_once = exactly_once
        if exactly_once:
            self.bench.create(self.bench.out)
        self._chance = random.Random(seed)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._slots = itertools.count()
        self._lives = itertools.count()
        self.killed: dict[str, int] = {}
        self.faults: Counter[str] = Counter()
        self.written: dict[str, int] = defaultdict(int)
        self._enough = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for process in self._running.values():
            process.kill()
            process.wait()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self.bench.bootstrap, "linger.ms": 2})
        chance = random.Random(1)
        while not self._enough.wait(10 / RECORDS_PER_S):
            for _ in range(10):
                number = chance.randrange(KEYS)
                key = f"key-{number}"
                producer.produce(self.bench.topic, str(self.written[key]), key, partition=number % PARTITIONS)
                self.written[key] += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    # --- processes ----------------------------------------------------------------------------------

    def start(self, slot: str | None = None) -> None:
        """A slot is a place in the group that outlives the process in it: its static member, its transactional id."""
        slot = slot or f"slot-{next(self._slots)}"
        options: dict[str, object] = {
            "bootstrap": self.bench.bootstrap,
            "concurrency": 8,
            "protocol": self._protocol,
            "commit_interval_s": 0.2,
            "transactional_id": f"{self.bench.group}-{slot}" if self._exactly_once else None,
            # A heartbeat well within the session: a live member that is taken for dead would have to repeat, too.
            "config": {
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 10,
                "group.instance.id": slot,
            },
        }
        if self._protocol == "consumer":
            # The broker sets the time, and a static member that died is kept until then.
            options["config"] = {}
        name = f"{slot}.{next(self._lives)}"
        plan = {
            "name": name,
            "journal": str(self._directory / f"{name}.journal"),
            "topic": self.bench.topic,
            "group": self.bench.group,
            "out": self.bench.out if self._exactly_once else None,
            "most_s": MOST_HANDLER_S,
            "options": options,
        }
        with (self._directory / "stderr.log").open("ab") as errors:
            self._running[name] = subprocess.Popen(
                [sys.executable, str(HERE / "kill_worker.py"), json.dumps(plan)], stderr=errors
            )

    def kill_one(self) -> None:
        name = self._chance.choice(sorted(self._running))
        process = self._running.pop(name)
        # What it wrote down before this line was before the kill.
        process.kill()
        process.wait()
        self.killed[name] = time.monotonic_ns()
        self.faults["kill"] += 1
        self.start(name.partition(".")[0])

    def dismiss_one(self) -> None:
        name = self._chance.choice(sorted(self._running))
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        self._assert_stopped(name, process)
        self.faults["leave"] += 1

    def rage(self, kills: int, most_pause_s: float = 1.0) -> None:
        while self.faults["kill"] < kills:
            time.sleep(0.2 + self._chance.random() * most_pause_s)
            fate = self._chance.random()
            if fate < 0.7 or len(self._running) < 2:
                self.kill_one()
            elif fate < 0.85 and len(self._running) > 2:
                self.dismiss_one()
            elif len(self._running) < 5:
                self.start()
                self.faults["join"] += 1

    def settle(self) -> None:
        """No more is written; the workers finish what there is, and stop.

        What a killed one had done but not committed is repeated, so that all is over only when all is committed.
        """
        self._enough.set()
        self._writer.join()
        total = sum(self.written.values())
        ends: Counter[int] = Counter()
        for key, count in self.written.items():
            ends[int(key.removeprefix("key-")) % PARTITIONS] += count

        def is_over() -> bool:
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended by itself: {self.errors()}"
            done = {(event.key, event.number) for event in self.events() if event.kind == "done"}
            return len(done) >= total and all(self.bench.committed(at).offset == end for at, end in ends.items())

        eventually(is_over, "everything handled", SETTLE_S, every_s=0.5)
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._running.items():
            self._assert_stopped(name, process)
        self._running.clear()

    def _assert_stopped(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """It ended as asked; one that was only just starting may end by the signal, if it has begun nothing."""
        journal = self._directory / f"{name}.journal"
        has_begun = journal.exists() and journal.stat().st_size > 0
        code = process.wait(SETTLE_S)
        assert code == 0 or (code == -signal.SIGTERM and not has_begun), f"{name} ended with {code}: {self.errors()}"

    def events(self) -> list:  # type: ignore[type-arg]
        return read_journals(self._directory.glob("*.journal"))

    def errors(self) -> str:
        return (self._directory / "stderr.log").read_text()[-4000:]

    # --- judgement ----------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        found = violations(self.events(), self.written, self.killed)
        if self._exactly_once:
            # Handlers may be repeated; what they have written is there once.
            found = [each for each in found if "though" not in each] + self._wrong_output()
        return found

    def _wrong_output(self) -> list[str]:
        seen: dict[str, list[int]] = defaultdict(list)
        for record in self.bench.read(self.bench.out, sum(self.written.values())):
            seen[record.key().decode()].append(int(record.value()))
        return [
            f"{key}: the output is not each number once, in order: {seen[key][:20]} …"
            for key, count in self.written.items()
            if seen[key] != list(range(count))
        ]


def run(
    system: type[BrokerProcess], directory: Path, kills: int, seed: int, protocol: str, exactly_once: bool
) -> tuple[Arena, list[str]]:
    journals = directory / "journals"
    journals.mkdir(parents=True)
    with (
        system(directory / "broker", BROKER_CONFIG) as broker,
        Arena(broker.bootstrap, journals, seed, protocol, exactly_once) as arena,
    ):
        arena.start()
        arena.start()
        eventually(lambda: any(event.kind == "done" for event in arena.events()), "the work begins", SETTLE_S)
        arena.rage(kills)
        arena.settle()
        return arena, arena.violations()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats the choices of an earlier run")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--exactly-once", action="store_true")
    parser.add_argument("--broker", choices=tuple(JUDGED), default="tidelog")
    parser.add_argument("--dir", type=Path, help="where the journals stay (default: nowhere)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-kills-") as scratch:
        directory = (options.dir or Path(scratch)) / f"seed-{options.seed}-{os.getpid()}"
        system = JUDGED[options.broker]
        arena, found = run(system, directory, options.kills, options.seed, options.protocol, options.exactly_once)
        print(
            f"{options.protocol}{', exactly once' * options.exactly_once}, seed {options.seed}: {dict(arena.faults)}, "
            f"{sum(arena.written.values())} records, {repeats(arena.events())} repeated"
        )
    for violation in found[:20]:
        print(f"  VIOLATED: {violation}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
