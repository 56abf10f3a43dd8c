"""Writes what handlers returned, at once: a message is finished when all of it was acknowledged.

Until then its key waits, too: were the next message of the key finished first, and this process killed, the first one
would be repeated after the second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Producer, TopicPartition

from tidelog.workers.backlog import PartitionWork, WorkItem
from tidelog.workers.message import Send
from tidelog.workers.offset_tracker import Committable
from tidelog.workers.workplace import Workplace

_POLL_S: Final = 0.1
_FLUSH_S: Final = 10.0
#: The record is at fault, not the broker: another time will not help, but the next record may well be written.
UNFIT: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD}


class NotWritten(Exception):
    """A topic does not take what a handler returned."""


def as_offsets(commits: Iterable[tuple[PartitionWork, Committable]]) -> list[TopicPartition]:
    """For the client, which would send the metadata "" as a NUL."""
    return [
        TopicPartition(*work.name, at.offset, at.metadata) if at.metadata else TopicPartition(*work.name, at.offset)
        for work, at in commits
    ]


def produce(producer: Producer, send: Send, on_delivery: Any = None) -> None:
    """Hands a record to the producer, and waits where its queue is full."""
    options: dict[str, Any] = {} if send.partition is None else {"partition": send.partition}
    if on_delivery is not None:
        options["on_delivery"] = on_delivery
    while True:
        try:
            producer.produce(send.topic, send.value, send.key, headers=list(send.headers), **options)
            return
        except BufferError:
            producer.poll(_POLL_S)


class AtOnce:
    """The producer is made when there is something to write."""

    def __init__(self, place: Workplace, config: Mapping[str, Any]) -> None:
        self._place = place
        self._config = dict(config)
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._is_closed = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="tidelog-workers-deliveries", daemon=True)

    def deliver(self, item: WorkItem, sends: tuple[Send, ...]) -> None:
        producer = self._opened()
        left = len(sends)
        lock = threading.Lock()

        failed: list[tuple[KafkaError, str]] = []

        def acknowledged(error: KafkaError | None, written: Any) -> None:
            nonlocal left
            if error is not None:
                failed.append((error, written.topic()))
            with lock:
                left -= 1
                is_last = left == 0
            if is_last and failed:
                self._failed(item, *failed[0])
            elif is_last:
                self._place.settled(item)

        for send in sends:
            produce(producer, send, acknowledged)

    def _failed(self, item: WorkItem, error: KafkaError, topic: str) -> None:
        said = f"{topic} did not take what it led to: {error.str()}"
        if error.code() in UNFIT:
            self._place.not_written(item, NotWritten(said))
        else:
            self._place.gave_up(item, f"{item.message.place}: {said}")

    def _opened(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._config)
                self._poller.start()
            return self._producer

    def _poll(self) -> None:
        assert self._producer is not None
        while not self._is_closed.is_set():
            self._producer.poll(_POLL_S)

    def close(self) -> None:
        with self._lock:
            producer = self._producer
        if producer is not None:
            producer.flush(0 if self._place.failure else _FLUSH_S)
            self._is_closed.set()
            self._poller.join()
            self._producer = None  # ends its connections
