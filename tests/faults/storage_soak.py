"""What a broker stores, through kills under load: `python -m tests.faults.storage_soak --layout shared --kills 50`.

An idempotent producer writes numbered records to many partitions all the time. The broker is killed at random moments,
and started again on the same files. Segments are short; of one topic nearly everything is deleted at once, so that
files are rolled, released and, in the shared layout, reclaimed meanwhile. In the end a stock consumer reads everything:

    nothing lost    every record that was acknowledged is there, at the offset that was acknowledged
    nothing twice   no record is there twice

With `--flush` every append is flushed before it is acknowledged.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from tests.faults.delay_soak import read_all

from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

KEPT, SHORT = "kept", "short-lived"
PATIENCE_S = 120.0
CONFIG = {
    "log.segment.bytes": str(1 << 20),
    "shared.segment.bytes": str(1 << 20),
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.segment.delete.delay.ms": "100",
}


class Plan(NamedTuple):
    layout: str
    kills: int
    partitions: int = 40
    flush: bool = False
    seed: int = 1


class Verdict(NamedTuple):
    acknowledged: int
    lost: list[str]
    twice: list[bytes]

    @property
    def is_good(self) -> bool:
        return self.acknowledged > 0 and not self.lost and not self.twice


class Load:
    """A producer that writes until it is told to stop, and what was acknowledged."""

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        self._producer = Producer(
            {**settings, "message.timeout.ms": 0, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )
        self._plan = plan
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        #: value by place, of the topic that is kept
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.errors: list[KafkaError] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when everything is acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        assert not left, f"{left} records were never acknowledged"

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            partition = number % self._plan.partitions
            try:
                self._producer.produce(KEPT, b"%d" % number, partition=partition, on_delivery=self._delivered)
                self._producer.produce(SHORT, bytes(1000), partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            if number % 50 == 0:
                time.sleep(0.005)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()


def create_topics(bootstrap: str, plan: Plan) -> None:
    flush = {"flush.messages": "1"} if plan.flush else {}
    with Client(bootstrap, timeout_s=30) as client:
        client.admin.create_topic(KEPT, plan.partitions, configs=flush)
        short = {"retention.ms": "1000", "segment.ms": "1000", "segment.bytes": str(1 << 20)}
        client.admin.create_topic(SHORT, plan.partitions, configs={**short, **flush})


def run(plan: Plan, directory: Path) -> Verdict:
    chance = random.Random(plan.seed)
    broker = RunningBroker({**CONFIG, "log.layout": plan.layout}, data_dir=directory / "data", log=directory / "log")
    with broker:
        create_topics(broker.bootstrap, plan)
        load = Load(broker.bootstrap, plan)
        load.start()
        try:
            for _ in range(plan.kills):
                time.sleep(chance.uniform(0.1, 2.5))
                broker.kill()
                broker.start()
        finally:
            load.stop()
        assert not load.errors, load.errors[:3]
        found = read_all(broker.bootstrap, KEPT, plan.partitions)
    there = {(message.partition(), message.offset()): message.value() for each in found.values() for message in each}
    lost = [f"{place}: {value!r}" for place, value in load.acknowledged.items() if there.get(place) != value]
    twice = [value for value, times in Counter(there.values()).items() if times > 1]
    return Verdict(len(load.acknowledged), lost, twice)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=("partitioned", "shared"), default="shared")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=40)
    parser.add_argument("--flush", action="store_true", help="flush every append before it is acknowledged")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    plan = Plan(chosen.layout, chosen.kills, chosen.partitions, chosen.flush, chosen.seed)
    with tempfile.TemporaryDirectory(prefix="tidelog-soak-") as directory:
        verdict = run(plan, Path(directory))
    print(f"{verdict.acknowledged} records acknowledged, {len(verdict.lost)} lost, {len(verdict.twice)} twice")
    for line in verdict.lost[:10]:
        print(f"lost: {line}")
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
