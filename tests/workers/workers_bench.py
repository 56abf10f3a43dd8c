"""A bench to try workers on: a topic and a group of its own, and everything around them through stock clients."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.workers import Workers, WorkProgress

_numbers = itertools.count()
GIVE_UP_S = 60


def eventually(condition: Callable[[], Any], what: str = "", most_s: float = GIVE_UP_S, every_s: float = 0.01) -> None:
    until = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(every_s)


class Bench:
    def __init__(self, bootstrap: str) -> None:
        number = f"{os.getpid()}-{next(_numbers)}"
        self.bootstrap = bootstrap
        self.topic, self.group = f"topic-{number}", f"group-{number}"
        self.out = f"out-{number}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._started: list[tuple[Workers, threading.Thread]] = []

    def create(self, name: str | None = None, partitions: int = 1) -> None:
        name = name or self.topic
        self.admin.create_topics([NewTopic(name, partitions)])[name].result(30)
        # A broker of several may hear of it later.
        eventually(lambda: len(self.admin.list_topics(name, timeout=10).topics[name].partitions) == partitions, name)

    def write(self, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = 0, **options: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for key, value in records:
            producer.produce(self.topic, value, key, partition=partition, **options)
        assert producer.flush(30) == 0

    def workers(self, handler: Any, concurrency: int = 8, **options: Any) -> Workers:
        settings = {"backoff_s": 0.01, "commit_interval_s": 0.05, **options}
        return Workers(self.topic, self.group, handler, concurrency, bootstrap=self.bootstrap, **settings)

    def work(self, handler: Any, concurrency: int = 8, **options: Any) -> WorkProgress:
        """Until everything is handled."""
        return self.workers(handler, concurrency, **options).run(until_end=True)

    def start(self, handler: Any, concurrency: int = 8, **options: Any) -> tuple[Workers, threading.Thread]:
        workers = self.workers(handler, concurrency, **options)
        thread = threading.Thread(target=workers.run, daemon=True)
        thread.start()
        self._started.append((workers, thread))
        return workers, thread

    def stop(self) -> None:
        for workers, _ in self._started:
            workers.stop()
        for _, thread in self._started:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive(), "workers did not stop"
        self._started.clear()

    def committed(self, partition: int = 0) -> TopicPartition:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        (found,) = consumer.committed([TopicPartition(self.topic, partition)], timeout=30)
        consumer.close()
        return found

    def read(self, topic: str, count: int) -> list[Any]:
        """Committed records of partition 0, until there are so many and no more."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"{self.group}-reader", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        until = time.monotonic() + GIVE_UP_S
        while time.monotonic() < until:
            record = consumer.poll(1)
            if record is not None and record.error() is None:
                found.append(record)
            elif record is not None and len(found) >= count:
                break
        consumer.close()
        return found
