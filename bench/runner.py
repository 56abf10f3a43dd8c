"""Runs benchmarks side by side: every round measures each system once, and the order alternates.

Each system gets a fresh broker with an empty directory for each benchmark and round, so that nothing leaks from one
measurement into the next. Files that were used are emptied and stay until the end of the run: ext4 without a journal
does not reuse an inode for minutes after it was freed, and looks at each of these whenever a file is made. Whoever is
measured after somebody's ten thousand partitions were removed would make its own ten times more slowly.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.measure import Benchmark, Sample, Scale, Series
from bench.systems.kafka import ApacheKafka
from bench.systems.process import BrokerProcess
from bench.systems.tidelog import EarlierTidelog, Tidelog

SYSTEMS: dict[str, type[BrokerProcess]] = {"kafka": ApacheKafka, "tidelog": Tidelog, "before": EarlierTidelog}


class Results:
    def __init__(self, beside: str = "kafka") -> None:
        self.beside = beside
        self.series: dict[tuple[str, str], Series] = {}

    def add(self, benchmark: str, system: str, sample: Sample) -> None:
        key = (benchmark, sample.variant)
        if key not in self.series:
            described = (sample.variant, sample.unit, sample.better, sample.goal, sample.goal_of)
            self.series[key] = Series(benchmark, *described, self.beside)
        self.series[key].values.setdefault(system, []).append(sample.value)

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series.values())


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure_once(benchmark: Benchmark, system: str, scale: Scale, parent: Path, results: Results) -> None:
    directory = Path(tempfile.mkdtemp(prefix=f"{benchmark.id}-{system}-", dir=parent))
    broker = SYSTEMS[system](directory / "broker", benchmark.config)
    try:
        if benchmark.started:
            broker.start()
        for sample in benchmark.run(broker, scale, directory):
            results.add(benchmark.id, system, sample)
            say(f"    {system:8} {sample.variant:44} {sample.value:12,.2f} {sample.unit}")
    except Exception:
        say(f"    {system}: the broker's log ends with\n{broker.log_tail(2000)}")
        raise
    finally:
        broker.kill()
        give_room_back(directory)


def give_room_back(directory: Path) -> None:
    """Empties all files, except those that may have another name elsewhere."""
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size:
                    os.truncate(path, 0)


def run(benchmarks: list[Benchmark], systems: list[str], rounds: int, scale: Scale, parent: Path) -> Results:
    results = Results("before" if "before" in systems else "kafka")
    for benchmark in benchmarks:
        for number in range(rounds):
            began = time.monotonic()
            say(f"{benchmark.id} {benchmark.title}, round {number + 1} of {rounds}")
            for system in systems if number % 2 == 0 else systems[::-1]:
                measure_once(benchmark, system, scale, parent, results)
            say(f"    took {time.monotonic() - began:.0f} s")
    return results
