"""Group members as the tests drive them: a librdkafka consumer polled on a thread of its own."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

#: A rebalance must be quick enough for a test, and a session short enough to expire in one.
QUICK = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
}
CLASSIC_TIMES = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}


def member_settings(bootstrap: str, group: str, protocol: str = "classic", **extra: Any) -> dict[str, Any]:
    """`protocol` is classic (the clients' assignors) or consumer (the broker's, KIP-848)."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, **QUICK}
    if protocol == "classic":
        # The broker sets these for members of the newer protocol.
        settings |= CLASSIC_TIMES
    return {**settings, **{name.replace("_", "."): value for name, value in extra.items()}}


class Member:
    """Polls until it is stopped; keeps what it read and which partitions it holds."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], protocol: str = "classic", **extra: Any) -> None:
        self.consumer = Consumer(member_settings(bootstrap, group, protocol, **extra))
        self.held: set[tuple[str, int]] = set()
        self.read: list[tuple[int, int, bytes]] = []
        self.errors: list[KafkaError] = []
        self.rebalances = 0
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self.held |= {(at.topic, at.partition) for at in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.held -= {(at.topic, at.partition) for at in partitions}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked(consumer, partitions)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                messages = self.consumer.consume(100, 0.05)
                for message in messages:
                    if message.error() is not None:
                        self.errors.append(message.error())
                    else:
                        self.read.append((message.partition(), message.offset(), message.value()))
                if messages:
                    self._commit()
        except BaseException as failure:
            self._failure = failure

    def _commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            # A rebalance that begins between reading and committing takes the right to commit away.
            self.errors.append(error.args[0])

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.held}

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def pause(self) -> None:
        """Stops polling and stays a member, for as long as its heartbeats go on."""
        self._stopping.set()
        self._thread.join(30)
        self.check()

    def leave(self) -> None:
        """Leaves the group in good order."""
        self.pause()
        self.consumer.close()
