"""The three stock Python clients behind one face, so that one test speaks through each of them.

Only what the tests ask of every client is here: produce a list of messages and learn where each one went, read a
number of records from named partitions, and look offsets up. What a single client can do more is tested directly.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import aiokafka
import kafka
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    #: 0 is CreateTime, 1 is LogAppendTime, as on the wire
    timestamp_type: int


class ProduceFailed(Exception):
    """The broker refused a message; `code` is Kafka's error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class ReadTimeout(AssertionError):
    """Fewer records came than the test waited for."""


def eventually(holds: Callable[[], Any], timeout_s: float = 15) -> Any:
    """What `holds` returns once it is true. A broker may carry a change out a moment after it has acknowledged it."""
    deadline = time.monotonic() + timeout_s
    while not (value := holds()):
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)
    return value


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Makes a topic and returns when each of its partitions has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new])[name].result(30)

    def usable() -> bool:
        known = admin.list_topics(timeout=30).topics.get(name)
        leaders = [one.leader for one in known.partitions.values()] if known else []
        return len(leaders) == partitions and min(leaders) >= 0

    eventually(usable)


class StockClient(ABC):
    name: ClassVar[str]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        """Partition and offset of each message, in the order given; with acks 0 the offsets are unknown (-1)."""

    @abstractmethod
    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        offset: int | None = None,
        isolation: str = "read_uncommitted",
        max_partition_bytes: int = 1_048_576,
    ) -> list[Record]:
        """At least `count` records of the partitions from `offset` (default: the earliest), as they came."""

    @abstractmethod
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Beginning and end offset."""

    @abstractmethod
    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset at or after a time; None where there is none."""


def _until(deadline: float, count: int, have: Sequence[object]) -> bool:
    if len(have) >= count:
        return False
    if time.monotonic() > deadline:
        raise ReadTimeout(f"{len(have)} of {count} records came")
    return True


class ConfluentClient(StockClient):
    name = "confluent"

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "message.max.bytes": max_request_bytes,
                "linger.ms": linger_ms,
            }
        )
        placed: dict[int, tuple[int, int]] = {}
        failed: list[KafkaError] = []

        def delivered(at: int) -> Any:
            def report(error: KafkaError | None, message: Any) -> None:
                if error is not None:
                    failed.append(error)
                else:
                    offset = message.offset()
                    placed[at] = (message.partition(), -1 if offset is None else offset)

            return report

        for at, message in enumerate(messages):
            stamp = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                headers=list(message.headers) or None,
                on_delivery=delivered(at),
                **stamp,
            )
            producer.poll(0)
        assert producer.flush(READ_TIMEOUT_S) == 0
        if failed:
            raise ProduceFailed(failed[0].code(), failed[0].str())
        return [placed[at] for at in range(len(messages))]

    def consumer(self, **config: Any) -> Consumer:
        """A consumer without a group; librdkafka wants a group name all the same."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "unused", "fetch.wait.max.ms": 50}
        return Consumer(
            {**settings, "auto.offset.reset": "error", **{k.replace("_", "."): v for k, v in config.items()}}
        )

    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        offset: int | None = None,
        isolation: str = "read_uncommitted",
        max_partition_bytes: int = 1_048_576,
    ) -> list[Record]:
        consumer = self.consumer(isolation_level=isolation, max_partition_fetch_bytes=max_partition_bytes)
        start = OFFSET_BEGINNING if offset is None else offset
        # librdkafka looks a logical offset up half a second later when it does not know the leader yet.
        consumer.list_topics(topic, READ_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
        records: list[Record] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            while _until(deadline, count, records):
                for message in consumer.consume(min(500, count - len(records)), 0.2):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    records.append(confluent_record(message))
        finally:
            consumer.close()
        return records

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self.consumer()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_TIMEOUT_S)
        finally:
            consumer.close()
        return low, high

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = self.consumer()
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], READ_TIMEOUT_S)
        finally:
            consumer.close()
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None


def confluent_record(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(
        message.partition(), message.offset(), message.key(), message.value(), headers, timestamp_ms, kind - 1
    )


class KafkaPythonClient(StockClient):
    name = "kafka-python"

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=max_request_bytes,
            linger_ms=linger_ms,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(READ_TIMEOUT_S)
            placed = [future.get(READ_TIMEOUT_S) for future in futures]
        except kafka.errors.BrokerResponseError as error:
            raise ProduceFailed(error.errno, str(error)) from error
        finally:
            producer.close()
        return [(at.partition, at.offset if acks != "0" else -1) for at in placed]

    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        offset: int | None = None,
        isolation: str = "read_uncommitted",
        max_partition_bytes: int = 1_048_576,
    ) -> list[Record]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=isolation,
            max_partition_fetch_bytes=max_partition_bytes,
        )
        records: list[Record] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            assigned = [kafka.TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            if offset is None:
                consumer.seek_to_beginning(*assigned)
            else:
                for partition in assigned:
                    consumer.seek(partition, offset)
            while _until(deadline, count, records):
                for polled in consumer.poll(timeout_ms=200).values():
                    records.extend(python_record(one) for one in polled)
        finally:
            consumer.close()
        return records

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.bootstrap)
        at = kafka.TopicPartition(topic, partition)
        try:
            return consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
        finally:
            consumer.close()

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        consumer = kafka.KafkaConsumer(bootstrap_servers=self.bootstrap)
        at = kafka.TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({at: timestamp_ms})[at]
        finally:
            consumer.close()
        return None if found is None else found.offset


def python_record(record: Any) -> Record:
    """A record of kafka-python or aiokafka; aiokafka's forks of the same code name the fields alike."""
    return Record(
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers or ()),
        record.timestamp,
        record.timestamp_type,
    )


class AiokafkaClient(StockClient):
    name = "aiokafka"

    @staticmethod
    def _run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(asyncio.wait_for(work, READ_TIMEOUT_S + 30))

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        max_request_bytes: int = 1_000_000,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        async def work() -> list[tuple[int, int]]:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=acks if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=max_request_bytes,
                linger_ms=linger_ms,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                placed = await asyncio.gather(*futures)
            # With acks 0 aiokafka has no metadata to give.
            return [(-1, -1) if at is None else (at.partition, at.offset) for at in placed]

        try:
            return self._run(work())
        except aiokafka.errors.BrokerResponseError as error:
            raise ProduceFailed(error.errno, str(error)) from error

    def read(
        self,
        topic: str,
        count: int,
        *,
        partitions: Iterable[int] = (0,),
        offset: int | None = None,
        isolation: str = "read_uncommitted",
        max_partition_bytes: int = 1_048_576,
    ) -> list[Record]:
        async def work() -> list[Record]:
            records: list[Record] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level=isolation,
                max_partition_fetch_bytes=max_partition_bytes,
            ) as consumer:
                assigned = [AioTopicPartition(topic, partition) for partition in partitions]
                consumer.assign(assigned)
                if offset is None:
                    await consumer.seek_to_beginning(*assigned)
                else:
                    for partition in assigned:
                        consumer.seek(partition, offset)
                while _until(deadline, count, records):
                    for polled in (await consumer.getmany(timeout_ms=200)).values():
                        records.extend(python_record(one) for one in polled)
            return records

        return self._run(work())

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def work() -> tuple[int, int]:
            at = AioTopicPartition(topic, partition)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
                return (await consumer.beginning_offsets([at]))[at], (await consumer.end_offsets([at]))[at]

        return self._run(work())

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def work() -> int | None:
            at = AioTopicPartition(topic, partition)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
                found = (await consumer.offsets_for_times({at: timestamp_ms}))[at]
            return None if found is None else found.offset

        return self._run(work())


CLIENTS: tuple[type[StockClient], ...] = (ConfluentClient, KafkaPythonClient, AiokafkaClient)
