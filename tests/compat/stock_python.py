"""confluent-kafka (librdkafka), kafka-python and aiokafka behind the face of `stock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import aiokafka
import kafka
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from stock import READ_TIMEOUT_S, Message, Produce, ProduceFailed, Read, Record, StockClient, until


class ConfluentClient(StockClient):
    name = "confluent"

    def write(self, topic: str, messages: Sequence[Message], how: Produce) -> list[tuple[int, int]]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": how.acks,
                "compression.type": how.codec,
                "enable.idempotence": how.idempotent,
                "message.max.bytes": how.max_request_bytes,
                "linger.ms": how.linger_ms,
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
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
        }
        return Consumer({**settings, **{name.replace("_", "."): value for name, value in config.items()}})

    def fetch(self, topic: str, count: int, how: Read) -> list[Record]:
        consumer = self.consumer(isolation_level=how.isolation, max_partition_fetch_bytes=how.max_partition_bytes)
        start = OFFSET_BEGINNING if how.offset is None else how.offset
        # librdkafka looks a logical offset up half a second later when it does not know the leader yet.
        consumer.list_topics(topic, READ_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, start) for partition in how.partitions])
        records: list[Record] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            while until(deadline, count, records):
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

    def write(self, topic: str, messages: Sequence[Message], how: Produce) -> list[tuple[int, int]]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=how.acks if how.acks == "all" else int(how.acks),
            compression_type=None if how.codec == "none" else how.codec,
            enable_idempotence=how.idempotent,
            max_request_size=how.max_request_bytes,
            linger_ms=how.linger_ms,
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
        return [(at.partition, at.offset if how.acks != "0" else -1) for at in placed]

    def fetch(self, topic: str, count: int, how: Read) -> list[Record]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=how.isolation,
            max_partition_fetch_bytes=how.max_partition_bytes,
        )
        records: list[Record] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            assigned = [kafka.TopicPartition(topic, partition) for partition in how.partitions]
            consumer.assign(assigned)
            if how.offset is None:
                consumer.seek_to_beginning(*assigned)
            else:
                for partition in assigned:
                    consumer.seek(partition, how.offset)
            while until(deadline, count, records):
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

    def write(self, topic: str, messages: Sequence[Message], how: Produce) -> list[tuple[int, int]]:
        async def work() -> list[tuple[int, int]]:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                acks=how.acks if how.acks == "all" else int(how.acks),
                compression_type=None if how.codec == "none" else how.codec,
                enable_idempotence=how.idempotent,
                max_request_size=how.max_request_bytes,
                linger_ms=how.linger_ms,
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

    def fetch(self, topic: str, count: int, how: Read) -> list[Record]:
        async def work() -> list[Record]:
            records: list[Record] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            async with aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level=how.isolation,
                max_partition_fetch_bytes=how.max_partition_bytes,
            ) as consumer:
                assigned = [AioTopicPartition(topic, partition) for partition in how.partitions]
                consumer.assign(assigned)
                if how.offset is None:
                    await consumer.seek_to_beginning(*assigned)
                else:
                    for partition in assigned:
                        consumer.seek(partition, how.offset)
                while until(deadline, count, records):
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
