"""B16: as B15, with every append on the device before it is acknowledged (`flush.messages=1`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.cases import b15_shared_layout
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    flushed = {"flush.messages": "1"}
    yield from b15_shared_layout.measure(broker, scale, directory, 10.0, **flushed)


BENCHMARK = Benchmark("B16", "flushed produce to 10,000 partitions", run, started=False)
