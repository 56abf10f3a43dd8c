"""One member of a consumer group in a process of its own, with a journal of what it held, read and committed.

It reads small batches and processes each: to process is to write the offsets into the journal. With `commit: after` a
batch is processed and then committed (at least once), with `before` it is committed and processed only if the commit
succeeded (at most once). A commit that was refused stays owed, and goes out with the next one. What was read and not
yet processed is dropped when its partition is taken away, as is what is owed for it; the next owner reads it again.

The journal is a file of JSON lines, each written by one system call, so that it is whole after `kill -9`. All stamps
are of the machine's monotonic clock, which all processes share. SIGTERM makes the member leave in good order.

    python groups_member.py '{"client": "confluent", "bootstrap": …, "group": …, "topic": …, "journal": …, …}'
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterable
from typing import Any

BATCH_RECORDS = 20
BATCH_S = 0.1
HEARTBEAT_MS = 300
COMMIT_TIMEOUT_MS = 20_000
#: Between the two steps of a batch, so that a fault may well strike there.
BETWEEN_S = 0.02


class Journal:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic(), **fields})
        os.write(self._file, line.encode() + b"\n")


class Member:
    """What the three clients have in common: holding partitions, and the order of processing and committing."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.journal = Journal(settings["journal"])
        self.stopping = False
        self.pending: list[tuple[int, int]] = []
        self.owed: dict[int, int] = {}
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def stop(self) -> None:
        self.stopping = True

    def assigned(self, partitions: Iterable[int], generation: int, member_id: str) -> None:
        given = sorted(partitions)
        self.journal.write("assigned", partitions=given, generation=generation, member_id=member_id)

    def revoked(self, partitions: Iterable[int], lost: bool = False) -> None:
        gone = set(partitions)
        self.pending = [(partition, offset) for partition, offset in self.pending if partition not in gone]
        self.owed = {partition: offset for partition, offset in self.owed.items() if partition not in gone}
        self.journal.write("lost" if lost else "revoked", partitions=sorted(gone))

    def offsets_to_commit(self) -> dict[int, int]:
        return {**self.owed, **{partition: offset + 1 for partition, offset in self.pending}}

    def process(self) -> None:
        if self.pending:
            self.journal.write("processed", records=self.pending)
        self.pending = []

    def committed(self, began: float, offsets: dict[int, int], error: Any = None) -> None:
        self.owed = {} if error is None else offsets
        self.journal.write("committed", began=began, offsets=list(offsets.items()), error=error)

    def failed(self, code: int, name: str, fatal: bool = False) -> None:
        self.journal.write("error", code=code, name=name, fatal=fatal)


class ConfluentMember(Member):
    def run(self) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": self.settings["bootstrap"],
            "group.id": self.settings["group"],
            "group.protocol": self.settings["protocol"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1_000,
            # A session must not end only because a client waits before it connects again.
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": lambda error: self.failed(error.code(), error.name(), error.fatal()),
        }
        if self.settings["protocol"] == "classic":
            settings["session.timeout.ms"] = self.settings["session_timeout_ms"]
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
            settings["partition.assignment.strategy"] = self.settings["strategy"]
        self.consumer = Consumer(settings)
        self.consumer.subscribe(
            [self.settings["topic"]],
            on_assign=lambda _, given: self.assigned((at.partition for at in given), *self._identity()),
            on_revoke=lambda _, gone: self.revoked(at.partition for at in gone),
            on_lost=lambda _, gone: self.revoked((at.partition for at in gone), lost=True),
        )
        while not self.stopping:
            self._read_batch()
            if self.pending or self.owed:
                self._settle()
        self.journal.write("leaving")
        self.consumer.close()

    def _identity(self) -> tuple[int, str]:
        """Generation (or member epoch) and member id, out of the group metadata that a transaction would carry."""
        packed: bytes = self.consumer.consumer_group_metadata()
        after_magic = packed.index(b":") + 1
        (generation,) = struct.unpack_from("<i", packed, after_magic)
        return generation, packed[after_magic + 4 :].split(b"\0")[1].decode()

    def _read_batch(self) -> None:
        deadline = time.monotonic() + BATCH_S
        while len(self.pending) < BATCH_RECORDS and not self.stopping:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            message = self.consumer.poll(left)
            if message is None:
                continue
            if message.error() is not None:
                self.failed(message.error().code(), message.error().name(), message.error().fatal())
            else:
                self.pending.append((message.partition(), message.offset()))

    def _settle(self) -> None:
        if self.settings["commit"] == "after":
            offsets = self.offsets_to_commit()
            self.process()
            time.sleep(BETWEEN_S)
            self._commit(offsets)
        elif self._commit(self.offsets_to_commit()):
            time.sleep(BETWEEN_S)
            self.process()
        else:
            self.pending = []

    def _commit(self, offsets: dict[int, int]) -> bool:
        from confluent_kafka import KafkaException, TopicPartition

        began = time.monotonic()
        topic = self.settings["topic"]
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        try:
            answered = self.consumer.commit(offsets=wanted, asynchronous=False)
            refused = [at.error for at in answered if at.error is not None]
        except KafkaException as raised:
            refused = [raised.args[0]]
        self.committed(began, offsets, [refused[0].code(), refused[0].name()] if refused else None)
        return not refused


class KafkaPythonMember(Member):
    """It asks for the committed offsets itself: the client goes on at its old position where it was expelled while it
    joined again, and is given a partition that it had before (kafka-python 3.0.12)."""

    def run(self) -> None:
        import kafka
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        member = self
        fresh: set[Any] = set()

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                generation = consumer._coordinator._generation
                fresh.update(assigned)
                member.assigned((at.partition for at in assigned), generation.generation_id, generation.member_id)

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.revoked(at.partition for at in revoked)

            def on_partitions_lost(self, lost: Any) -> None:
                member.revoked((at.partition for at in lost), lost=True)

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.settings["bootstrap"],
            group_id=self.settings["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.settings["session_timeout_ms"],
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
            fetch_max_wait_ms=100,
            metadata_max_age_ms=1_000,
        )
        # Before it joins: a leader of this client that has no metadata yet assigns nothing.
        consumer.partitions_for_topic(self.settings["topic"])
        consumer.subscribe([self.settings["topic"]], listener=Listener())
        while not self.stopping:
            read = consumer.poll(timeout_ms=int(BATCH_S * 1_000), max_records=BATCH_RECORDS)
            while fresh:
                at = fresh.pop()
                read.pop(at, None)
                if at in consumer.assignment():
                    consumer.seek(at, consumer.committed(at) or 0)
            self.pending = [(record.partition, record.offset) for records in read.values() for record in records]
            if self.pending or self.owed:
                offsets = self.offsets_to_commit()
                if self.settings["commit"] == "after":
                    self.process()
                    time.sleep(BETWEEN_S)
                    self._commit(consumer, offsets)
                elif self._commit(consumer, offsets):
                    time.sleep(BETWEEN_S)
                    self.process()
        self.journal.write("leaving")
        consumer.close()

    def _commit(self, consumer: Any, offsets: dict[int, int]) -> bool:
        import kafka
        from kafka.errors import KafkaError

        began = time.monotonic()
        topic = self.settings["topic"]
        wanted = {
            kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        try:
            consumer.commit(wanted, timeout_ms=COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            self.committed(began, offsets, [getattr(error, "errno", None), type(error).__name__])
            return False
        self.committed(began, offsets)
        return True


class AioKafkaMember(Member):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        member = self
        # Rebalances run beside the loop that reads: none may come between reading a batch and committing it.
        settling = asyncio.Lock()

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                async with settling:
                    member.revoked(at.partition for at in revoked)

            async def on_partitions_assigned(self, assigned: Any) -> None:
                coordinator = consumer._coordinator
                member.assigned((at.partition for at in assigned), coordinator.generation, coordinator.member_id)

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.settings["bootstrap"],
            group_id=self.settings["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.settings["session_timeout_ms"],
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
            fetch_max_wait_ms=100,
            metadata_max_age_ms=1_000,
        )
        consumer.subscribe([self.settings["topic"]], listener=Listener())
        await consumer.start()
        while not self.stopping:
            async with settling:
                read = await consumer.getmany(timeout_ms=0, max_records=BATCH_RECORDS)
                self.pending = [(record.partition, record.offset) for records in read.values() for record in records]
                if self.pending or self.owed:
                    await self._settle(consumer)
            await asyncio.sleep(0.02)
        self.journal.write("leaving")
        await consumer.stop()

    async def _settle(self, consumer: Any) -> None:
        offsets = self.offsets_to_commit()
        if self.settings["commit"] == "after":
            self.process()
            await asyncio.sleep(BETWEEN_S)
            await self._commit(consumer, offsets)
        elif await self._commit(consumer, offsets):
            await asyncio.sleep(BETWEEN_S)
            self.process()

    async def _commit(self, consumer: Any, offsets: dict[int, int]) -> bool:
        import aiokafka
        from aiokafka.errors import KafkaError

        began = time.monotonic()
        topic = self.settings["topic"]
        wanted = {aiokafka.TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        try:
            await asyncio.wait_for(consumer.commit(wanted), COMMIT_TIMEOUT_MS / 1_000)
        except (KafkaError, TimeoutError) as error:
            self.committed(began, offsets, [getattr(error, "errno", None), type(error).__name__])
            return False
        self.committed(began, offsets)
        return True


CLIENTS: dict[str, type[ConfluentMember] | type[KafkaPythonMember] | type[AioKafkaMember]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    CLIENTS[given["client"]](given).run()
