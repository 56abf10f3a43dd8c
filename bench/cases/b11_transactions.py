"""B11: transactions: short ones one after the other, a stream cut into transactions of 100 ms, and idempotence.

A short transaction begins, writes ten records over six partitions, and commits; a transaction counts when the commit
was acknowledged. The stream hands records over as fast as the client takes them and commits every 100 ms. After both,
a read_committed reader must get every record. The last variants are the same produce run with and without idempotence,
and what idempotence leaves of the throughput within one system.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from confluent_kafka import Producer

from bench import clients
from bench.measure import Benchmark, Sample, Scale
from bench.systems.process import BrokerProcess

RECORD_BYTES = 100
SHORT_RECORDS = 10
SHORT_S = 6.0
SHORT_WARMUP_S = 4.0
CUT_S = 0.1
STREAM_S = 6.0
STREAM_WARMUP_S = 2.0
#: one to two seconds' worth on two cores, as in B1
IDEMPOTENT_RECORDS = 1_500_000
IDEMPOTENT_PAIRS = 5
_PIECE = 2_000


def transactional(broker: BrokerProcess) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": f"bench-{uuid.uuid4().hex[:12]}",
            "linger.ms": 0,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    return producer


def short_transactions(broker: BrokerProcess, topic: str, seconds: float) -> tuple[int, float]:
    """GroupOffset transactions, and the seconds that they took."""
    producer = transactional(broker)
    values = clients.payloads(RECORD_BYTES, SHORT_RECORDS)
    count = 0
    began = time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds:
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % clients.PARTITIONS)
        producer.commit_transaction(60)
        count += 1
    return count, taken


def stream(broker: BrokerProcess, topic: str, seconds: float) -> tuple[int, int, float]:
    """Transactions, records, and the seconds to the last commit."""
    producer = transactional(broker)
    values = clients.payloads(RECORD_BYTES)
    piece = [{"value": values[number % len(values)]} for number in range(_PIECE)]
    transactions = records = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        producer.begin_transaction()
        cut = time.perf_counter() + CUT_S
        while time.perf_counter() < cut:
            queued = producer.produce_batch(topic, piece)
            records += queued
            if queued < _PIECE:
                producer.poll(0.01)
                for message in piece:
                    message.pop("_error", None)
        producer.commit_transaction(60)
        transactions += 1
    return transactions, records, time.perf_counter() - began


def read_back(broker: BrokerProcess, topic: str, records: int) -> None:
    """librdkafka reads read_committed unless it is told otherwise; it fails where fewer records come."""
    clients.librdkafka_consume(broker.bootstrap, topic, records)


def run(broker: BrokerProcess, scale: Scale, directory: Path) -> Iterator[Sample]:
    topic = clients.new_topic(broker.bootstrap)
    warm, _ = short_transactions(broker, topic, scale.seconds(SHORT_WARMUP_S))
    count, taken = short_transactions(broker, topic, scale.seconds(SHORT_S))
    read_back(broker, topic, (warm + count) * SHORT_RECORDS)
    clients.delete_topic(broker.bootstrap, topic)
    yield Sample(f"transactions of {SHORT_RECORDS} records", count / taken, "txn/s", "higher")

    topic = clients.new_topic(broker.bootstrap)
    _, warm, _ = stream(broker, topic, scale.seconds(STREAM_WARMUP_S))
    count, records, taken = stream(broker, topic, scale.seconds(STREAM_S))
    read_back(broker, topic, warm + records)
    clients.delete_topic(broker.bootstrap, topic)
    yield Sample("100 ms transactions, throughput", records * RECORD_BYTES / taken / 1e6, "MB/s", "higher")
    yield Sample("100 ms transactions, commits", count / taken, "txn/s", "higher")
    yield from idempotence(broker, scale)


def idempotence(broker: BrokerProcess, scale: Scale) -> Iterator[Sample]:
    """Pairs of runs, each side first in turn: single runs differ by the machine more than by the broker."""
    count = scale.of(IDEMPOTENT_RECORDS)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for pair in range(IDEMPOTENT_PAIRS):
        for idempotent in (False, True) if pair % 2 else (True, False):
            rates[idempotent].append(produce_rate(broker, count, idempotent))
    yield Sample("produce, plain", median(rates[False]), "MB/s", "higher")
    yield Sample("produce, idempotent", median(rates[True]), "MB/s", "higher")
    left = median(after / before for before, after in zip(rates[False], rates[True], strict=True))
    yield Sample("produce, idempotent ÷ plain", left, "", "higher", goal=0.97, goal_of="value")


def produce_rate(broker: BrokerProcess, count: int, idempotent: bool) -> float:
    """MB/s of records produced; all of them must have arrived."""
    os.sync()
    topic = clients.new_topic(broker.bootstrap)
    values = clients.payloads(RECORD_BYTES)
    taken = clients.librdkafka_produce(broker.bootstrap, topic, values, count, "all", "none", idempotent)
    arrived = clients.end_offsets(broker.bootstrap, topic)
    assert arrived == count, f"{count} records were acknowledged, the log holds {arrived}"
    clients.delete_topic(broker.bootstrap, topic)
    return count * RECORD_BYTES / taken / 1e6


BENCHMARK = Benchmark("B11", "transactions", run)
