"""`make run`: a demonstration of everything, checked at each step.

A real broker receives a million orders from a standard client, is killed (-9) and started again. The orders are read
back by confluent-kafka as a member of a consumer group, and by Tidelog's own client directly from record batches; both
must see every order once and in order per partition. A group of three consumers loses one member and gains one. Then a
Spark pipeline loads the orders into a Delta table while more arrive, is killed in the middle, continues, and the table
is checked. A leader in a cluster of three brokers is killed under load, and nothing is lost. At the end you get a table
of what happened, and a chart.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples import cluster_demo, group_demo, pipeline_demo
from tidelog.client import Client
from tidelog.testing.broker import RunningBroker

TOPIC = pipeline_demo.TOPIC
GROUP = "make-run"
PARTITIONS = 6
console = Console(stderr=False)


class Tally:
    """The oracle: partition p must give the numbers p, p + 6, p + 12, … in this order, each once."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.seen = 0
        self._next = list(range(PARTITIONS))

    def add(self, partition: int, value: bytes) -> None:
        number = int(value[7 : value.index(b",")])
        if number != self._next[partition]:
            raise SystemExit(f"partition {partition}: expected event {self._next[partition]}, got {number}")
        self._next[partition] = number + PARTITIONS
        self.seen += 1


def produce(bootstrap: str, events: int, progress: Progress) -> float:
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
            "acks": "all",
            # The broker is killed later on, and librdkafka would tell.
            "log_level": 0,
            "on_delivery": lambda error, _: failed.append(str(error)) if error else None,
        }
    )
    task = progress.add_task("produce with confluent-kafka, acks=all", total=events)
    started = time.perf_counter()
    for number in range(events):
        payload = pipeline_demo.order(number)
        while True:
            try:
                producer.produce(TOPIC, payload, key=b"%d" % (number % 1009), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 20_000 == 0:
            producer.poll(0)
            progress.update(task, completed=number)
    producer.flush()
    if failed:
        raise SystemExit(f"{len(failed)} events were not acknowledged, the first because: {failed[0]}")
    progress.update(task, completed=events)
    return time.perf_counter() - started


def read_with_confluent(bootstrap: str, events: int) -> Iterator[tuple[int, bytes]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    seen = 0
    while seen < events:
        batch = consumer.consume(10_000, timeout=30)
        if not batch:
            raise SystemExit(f"nothing more came after {seen} of {events} events")
        for message in batch:
            if message.error():
                raise SystemExit(f"reading failed: {message.error()}")
            yield message.partition(), message.value()
        seen += len(batch)
    consumer.commit(asynchronous=False)
    consumer.close()


def read_with_tidelog(bootstrap: str) -> Iterator[tuple[int, bytes]]:
    with Client(bootstrap) as client:
        for partition in range(PARTITIONS):
            for record in client.read(TOPIC, partition, from_offset="earliest", until_offset="latest"):
                yield partition, record.value


def check(title: str, records: Iterator[tuple[int, bytes]], events: int, progress: Progress) -> float:
    tally = Tally(events)
    task = progress.add_task(title, total=events)
    started = time.perf_counter()
    for partition, value in records:
        tally.add(partition, value)
        if tally.seen % 20_000 == 0:
            progress.update(task, completed=tally.seen)
    progress.update(task, completed=tally.seen)
    if tally.seen != events:
        raise SystemExit(f"{title}: {tally.seen} of {events} events came back")
    return time.perf_counter() - started


def crash(broker: RunningBroker) -> None:
    broker.kill()
    started = time.perf_counter()
    broker.start()
    console.print(f"The broker was killed, and is ready again after {(time.perf_counter() - started) * 1000:.0f} ms.")


def tell(*arguments: str, bootstrap: str) -> None:
    """What the command line says."""
    console.print(f"\n[bold]$ tidelog {' '.join(arguments)}[/bold]")
    command = [sys.executable, "-m", "tidelog.cli.main", *arguments, "--bootstrap", bootstrap]
    console.out(subprocess.run(command, check=True, capture_output=True, text=True).stdout, highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("build/run"), help="where the table and the picture go")
    options = parser.parse_args()
    events: int = options.events
    started = time.perf_counter()
    with RunningBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        ready_ms = (time.perf_counter() - started) * 1000
        console.print(f"A broker is ready on [bold]{broker.bootstrap}[/bold] after {ready_ms:.0f} ms.")
        with Client(broker.bootstrap) as client:
            client.admin.create_topic(TOPIC, PARTITIONS)
        columns = (TextColumn("{task.description:42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            took = {"produce": produce(broker.bootstrap, events, progress)}
            crash(broker)
            took["read, confluent-kafka"] = check(
                "read with confluent-kafka", read_with_confluent(broker.bootstrap, events), events, progress
            )
            took["read, tidelog.client"] = check(
                "read with tidelog.client", read_with_tidelog(broker.bootstrap), events, progress
            )
        tell("topic", "describe", TOPIC, bootstrap=broker.bootstrap)
        group_demo.show(broker.bootstrap, console)
        lake = new_directory(options.out)
        story = pipeline_demo.show(broker.bootstrap, console, lake, events, PARTITIONS)
        tell("pipeline", "status", str(lake / "orders.toml"), bootstrap=broker.bootstrap)
        tell("group", "describe", pipeline_demo.NAME, bootstrap=broker.bootstrap)
    cluster_demo.show(console)
    summarise(events, took, story, lake)
    return 0


def new_directory(path: Path) -> Path:
    """Empty, whatever an earlier run has left there."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def summarise(events: int, took: dict[str, float], story: pipeline_demo.Story, directory: Path) -> None:
    table = Table("step", "orders", "seconds", "orders/s", title="every order came back: once, and in order")
    for step, seconds in took.items():
        table.add_row(step, f"{events:,}", f"{seconds:.2f}", f"{events / seconds:,.0f}")
    rows = sum(commit.rows for commit in story.commits)
    busy_s = sum(commit.seconds for commit in story.commits)
    table.add_row("pipeline, topic → Delta table", f"{rows:,}", f"{busy_s:.2f}", f"{rows / busy_s:,.0f}")
    console.print(table)
    story.show(console)
    picture = directory / "pipeline.svg"
    pipeline_demo.draw(story, picture)
    console.print(f"The table is in [bold]{directory}/lake/orders[/bold], the picture in [bold]{picture}[/bold].")
    console.print(
        "Go on: [bold]tidelog serve --data-dir data[/bold], then [bold]tidelog pipeline --help[/bold]; see docs/."
    )


if __name__ == "__main__":
    sys.exit(main())
