"""B14: growth: what a lookup, a fetch and a produce cost when the log is 1, 10 and 100 times as long.

One partition with small segments grows; at each size the same questions are asked one at a time on one connection:
the offset of a random time, a fetch at a random offset, and one more record. All of them should cost the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import clients, raw
from bench.measure import Benchmark, Sample, Scale, percentile
from bench.systems.process import BrokerProcess

SEGMENT_BYTES = 8 << 20
BATCH_RECORDS = 256
RECORD_BYTES = 1024
#: 16 MiB, 160 MiB, 1.6 GiB: 2 to 200 segments
FIRST_BATCHES = 64
MULTIPLES = (1, 10, 100)
QUESTIONS = 400
#: Asked before any is timed: a JVM is slow until it has compiled what runs most.
WARMUP_QUESTIONS = 3_000
FIRST_MS = 1_600_000_000_000
STEP_MS = 10
FETCH_BYTES = 16_384
#: A cost that is the same at every size varies by this much between two measurements.
FLAT = 1.5
_PIPELINED = 8


class GrowingLog:
    """A topic of one partition; record n is stamped `FIRST_MS + n * STEP_MS`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.topic = clients.new_topic(broker.bootstrap, 1, **{"segment.bytes": str(SEGMENT_BYTES)})
        self.records = 0
        self._connection = raw.Connection(broker.host, broker.port)
        values = clients.payloads(RECORD_BYTES, BATCH_RECORDS)
        self._batch = raw.record_batch(values, FIRST_MS, STEP_MS)
        self._single = raw.record_batch(values[:1], FIRST_MS)

    def grow_to(self, batches: int) -> None:
        under_way = 0
        while self.records < batches * BATCH_RECORDS or under_way:
            if self.records < batches * BATCH_RECORDS and under_way < _PIPELINED:
                batch = raw.restamped(self._batch, FIRST_MS + self.records * STEP_MS)
                self._connection.socket.sendall(raw.produce_frame(self.topic, 0, batch))
                self.records += BATCH_RECORDS
                under_way += 1
            else:
                assert raw.parse_produced(self._connection.answer()).error_code == 0
                under_way -= 1

    def lookup(self, chance: random.Random) -> None:
        n = chance.randrange(self.records)
        stamp = FIRST_MS + n * STEP_MS
        answer = self._connection.ask(raw.list_offsets_frame(self.topic, 0, stamp))
        assert raw.parse_listed(answer) == (stamp, n), (raw.parse_listed(answer), stamp, n)

    def fetch(self, chance: random.Random) -> None:
        answer = self._connection.ask(raw.fetch_frame(self.topic, 0, chance.randrange(self.records), FETCH_BYTES))
        assert len(answer) > RECORD_BYTES

    def produce(self, _: random.Random) -> None:
        batch = raw.restamped(self._single, FIRST_MS + self.records * STEP_MS)
        produced = self._connection.produce(raw.produce_frame(self.topic, 0, batch))
        assert (produced.error_code, produced.base_offset) == (0, self.records)
        self.records += 1

    def close(self) -> None:
        self._connection.close()


def median_us(question: Callable[[random.Random], None], count: int) -> float:
    chance = random.Random(count)
    for _ in range(50):
        question(chance)
    taken = []
    for _ in range(count):
        began = time.perf_counter_ns()
        question(chance)
        taken.append((time.perf_counter_ns() - began) / 1e3)
    return percentile(sorted(taken), 0.5)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    log = GrowingLog(broker)
    questions = {"lookup by time": log.lookup, "fetch at a random offset": log.fetch, "produce": log.produce}
    first: dict[str, float] = {}
    log.grow_to(FIRST_BATCHES)
    for question in questions.values():
        median_us(question, scale.of(WARMUP_QUESTIONS))
    for multiple in MULTIPLES[:2] if scale.quick else MULTIPLES:
        log.grow_to(FIRST_BATCHES * multiple)
        for name, question in questions.items():
            taken_us = median_us(question, scale.of(QUESTIONS))
            yield Sample(f"{name}, {multiple}×", taken_us, "µs", "lower", goal=None)
            if multiple > 1:
                growth = taken_us / first[name]
                yield Sample(f"{name}, {multiple}× ÷ 1×", growth, "", "lower", goal=FLAT, goal_of="value")
            else:
                first[name] = taken_us
    log.close()
    clients.delete_topic(broker.bootstrap, log.topic)


BENCHMARK = Benchmark("B14", "growth of the log", run)
