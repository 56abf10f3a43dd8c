"""A pipeline on a real Spark, through many lives: its runner is killed, its Python workers are killed, brokers restart.

A feeder goes on producing meanwhile and keeps what was acknowledged. When the last life is over, a run to the end must
find every acknowledged record once in one of the two tables.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.systems.spark import QUICK_TO_START, prepare_environment
from confluent_kafka import Producer
from pipeline_site import Site, value_of

SPARK = f"""
[spark.conf]
spark.driver.memory = "600m"
spark.driver.extraJavaOptions = "{QUICK_TO_START}"
"""


class Feeder:
    """Produces without end; what was acknowledged is in `site.acknowledged`."""

    def __init__(self, site: Site, per_s: int) -> None:
        self._site = site
        self._per_s = per_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(60)

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._site.bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
        )

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                at = (message.topic(), message.partition(), message.offset())
                self._site.acknowledged[at] = message.value()

        number = 0
        while not self._ending.wait(0.05):
            for _ in range(self._per_s // 20):
                partition = number % self._site.partitions
                producer.produce(
                    self._site.topic, value_of(number, self._site.growing), partition=partition, on_delivery=delivered
                )
                number += 1
            producer.poll(0)
        producer.flush(30)


class Lives:
    """The runner's lives, one after the other. `faults` counts what was done to it."""

    def __init__(self, site: Site, restart_broker: Callable[[], None] | None, seed: int) -> None:
        self._site = site
        self._restart_broker = restart_broker
        self._dice = random.Random(seed)
        self._file = site.directory / "p.toml"
        self._log = site.directory / "runner.log"
        self.faults: Counter[str] = Counter()
        prepare_environment()

    def live(self) -> None:
        """One life, from its start to its violent end."""
        dice = self._dice
        limits = f"max_records_per_batch = {dice.randrange(50, 3000)}\ntasks = {dice.randrange(1, 6)}"
        self._write(limits, 'interval = "50ms"')
        process = self._start()
        assert process.stdout is not None
        if dice.random() < 0.15:
            time.sleep(dice.uniform(0.5, 6))  # while it starts
            self.faults["killed while starting"] += 1
        else:
            for _ in range(dice.randrange(1, 6)):
                if not process.stdout.readline():
                    raise AssertionError(f"the runner ended by itself: {self.log_tail()}")
                if dice.random() < 0.4:
                    self._kill_worker(process.pid)
                if self._restart_broker is not None and dice.random() < 0.1:
                    self._restart_broker()
                    self.faults["broker restarted while it ran"] += 1
            time.sleep(dice.choice([0, 0, dice.uniform(0, 0.3)]))
            self.faults["killed while running"] += 1
        process.kill()
        process.wait()
        process.stdout.close()

    def finish(self) -> None:
        """The last run, to the end."""
        self._write("max_records_per_batch = 100000", "once = true")
        process = self._start()
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{out}\n{self.log_tail()}"

    def _write(self, limits: str, trigger: str) -> None:
        text = self._site.text('format = "json"\nschema = "id BIGINT"', None, "", trigger, limits, "local[2]")
        self._file.write_text(text + SPARK)

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tidelog.cli.main", "pipeline", "run", str(self._file), "-o", "json"]
        with open(self._log, "a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ))

    def _kill_worker(self, runner: int) -> None:
        workers = [pid for pid, command in descendants(runner) if "pyspark.daemon" in command]
        if workers:
            try:
                os.kill(self._dice.choice(workers), signal.SIGKILL)
                self.faults["Python workers killed"] += 1
            except ProcessLookupError:
                pass

    def log_tail(self) -> str:
        return self._log.read_text()[-3000:] if self._log.exists() else ""


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Processes below a process, with their command lines."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            try:
                yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            yield from descendants(child)
