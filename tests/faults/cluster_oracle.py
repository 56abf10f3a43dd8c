"""Load on a cluster, and a verdict on what became of it: the judge of every fault that a test inflicts.

    python -m tests.faults.cluster_oracle --bootstrap HOST:PORT --seconds 60 [--data-dir DIR ...]

Idempotent producers and transactional ones write numbered records with stock clients while consumers read along. What
is claimed afterwards:

    acknowledged      every acknowledged record is there, at the offset that was acknowledged
    once              no record is there twice (producers are idempotent)
    order             the records of one producer are in the order in which it sent them, per partition
    progress          writers go on and come to an end, and readers reach it
    dense             a plain topic has no gaps in its offsets
    agreement         all readers saw the same record at the same offset, whenever they read it
    forward           no reader's poll skipped a record or went back
    atomic            of a transaction, read_committed shows everything or nothing: everything if its commit was
                      acknowledged, nothing if its abort was
    identical         replicas are byte-identical up to the last committed record (given the data directories)

A record whose acknowledgement never came may be there or not. Nothing here reads the broker's code.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.cluster_judge import (
    Outcomes,
    Place,
    Told,
    Verdict,
    judge_agreement,
    judge_plain,
    judge_transacted,
    unlike_replicas,
)

#: how long a client goes on trying before a record counts as not delivered
DELIVERY_MS = 120_000


class PlainWriter(threading.Thread):
    """Sends numbered records to all partitions in turn, a few hundred on their way at once."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, rate: int, size: int) -> None:
        super().__init__(name=name, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": DELIVERY_MS,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                "topic.metadata.refresh.interval.ms": 5_000,
            }
        )
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._filling = "." * size
        self._stopping = threading.Event()
        self.acknowledged: dict[str, Told] = {}
        self.failed: dict[str, KafkaError] = {}
        #: why it could not go on
        self.fatal: list[str] = []
        #: monotonic times of acknowledgements, to find the longest pause
        self.times: list[float] = []
        self.sent = 0

    def run(self) -> None:
        try:
            self._run()
        except KafkaException as error:
            self.fatal.append(str(error))

    def _run(self) -> None:
        pause, due = 20 / self._rate, time.monotonic()
        while not self._stopping.is_set():
            for _ in range(20):
                self._send()
            due = max(due + pause, time.monotonic() - 1)  # what a stall has cost is not made up for
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(DELIVERY_MS / 1000 + 10)

    def _send(self) -> None:
        value = f"{self.name}:{self.sent}:{self._filling}"
        with contextlib.suppress(BufferError):  # the queue is full while a leader is away
            self._producer.produce(self._topic, value, partition=self.sent % self._partitions, callback=self._delivered)
            self.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        key = message.value().decode().rsplit(":", 1)[0]
        if error is not None:
            self.failed[key] = error
            return
        self.acknowledged[key] = (message.partition(), message.offset())
        self.times.append(time.monotonic())

    def stop(self) -> None:
        self._stopping.set()


def longest_pause_s(times: list[float]) -> float:
    return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


class TransactionalWriter(threading.Thread):
    """One transaction after the other over all partitions; every third one is aborted on purpose."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._servers = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self.outcomes = Outcomes()
        #: monotonic times at which transactions ended
        self.times: list[float] = []
        self.fatal: list[str] = []

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                producer = self._open()
                while not self._stopping.is_set():
                    self._transaction(producer, f"{self.name}:{number}", wanted=number % 3 != 2)
                    self.times.append(time.monotonic())
                    number += 1
            except KafkaException as error:
                self.outcomes.unknown.add(f"{self.name}:{number}")
                self.fatal.append(str(error))
                number += 1
                time.sleep(0.2)

    def _open(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
            }
        )
        _until_done(producer.init_transactions)
        return producer

    def _transaction(self, producer: Producer, key: str, wanted: bool) -> None:
        producer.begin_transaction()
        for partition in range(self._partitions):
            producer.produce(self._topic, f"{key}:{partition}", partition=partition)
        if wanted:
            self.outcomes.unknown.add(key)
            try:
                _until_done(producer.commit_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                _until_done(producer.abort_transaction)
                self.outcomes.aborted.add(key)
            else:
                self.outcomes.committed.add(key)
            self.outcomes.unknown.discard(key)
        else:
            producer.flush(DELIVERY_MS / 1000)
            _until_done(producer.abort_transaction)
            self.outcomes.aborted.add(key)


def _until_done(call: object) -> None:
    """A transactional call is repeated as long as the client says that it may be."""
    deadline = time.monotonic() + DELIVERY_MS / 1000
    while True:
        try:
            call(5.0)  # type: ignore[operator]
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


class Reader(threading.Thread):
    """Reads every partition from the start and remembers what it saw where."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, isolation: str) -> None:
        super().__init__(name=name, daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"oracle-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                "topic.metadata.refresh.interval.ms": 5_000,
            }
        )
        self._places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        self._stopping = threading.Event()
        self.seen: dict[Place, str] = {}
        self.position: dict[int, int] = defaultdict(lambda: -1)
        #: the last offset at which a partition was found to end
        self.reached: dict[int, int] = {}
        self.errors: list[str] = []

    def run(self) -> None:
        self._consumer.assign(self._places)
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self.reached[message.partition()] = message.offset()
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self.errors.append(f"{self.name} was told {error}")
            return
        partition, offset = message.partition(), message.offset()
        if offset <= self.position[partition]:
            self.errors.append(f"{self.name} got {partition}@{offset} after {self.position[partition]}")
        self.position[partition] = offset
        assert message.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE
        self.seen[partition, offset] = message.value().decode().rstrip(".").rstrip(":")

    def read_to(self, ends: dict[int, int], timeout_s: float = 60) -> bool:
        """Waits until everything below `ends` has been read; whether it was."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # A position does not pass the marker that ends a partition; the notice of its end does.
            if all(self.reached.get(partition, -1) >= end for partition, end in ends.items() if end > 0):
                return True
            time.sleep(0.1)
        return False

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._consumer.close()


class ClusterOracle:
    """`start`, let faults happen, `finish`: the verdict."""

    def __init__(
        self,
        bootstrap: str,
        *,
        partitions: int = 6,
        replication_factor: int = 3,
        min_insync: int = 2,
        writers: int = 2,
        transactional: int = 1,
        rate: int = 500,
        size: int = 100,
    ) -> None:
        self.bootstrap = bootstrap
        run = uuid.uuid4().hex[:8]
        self.plain, self.transacted = f"plain-{run}", f"transacted-{run}"
        self.partitions = partitions
        self._topic_config = {"min.insync.replicas": str(min_insync)}
        self._replication_factor = replication_factor
        self.writers = [
            PlainWriter(bootstrap, self.plain, partitions, f"writer-{n}", rate, size) for n in range(writers)
        ]
        self.transactors = [
            TransactionalWriter(bootstrap, self.transacted, partitions, f"txn-{run}-{n}") for n in range(transactional)
        ]
        self.readers = [
            Reader(bootstrap, self.plain, partitions, "plain reader", "read_uncommitted"),
            Reader(bootstrap, self.transacted, partitions, "committed reader", "read_committed"),
        ]

    def start(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = [
            NewTopic(name, self.partitions, self._replication_factor, config=self._topic_config)
            for name in (self.plain, self.transacted)
        ]
        for created in admin.create_topics(wanted, operation_timeout=30).values():
            created.result(60)
        for thread in (*self.writers, *self.transactors, *self.readers):
            thread.start()

    @property
    def client_errors(self) -> list[str]:
        """What clients were told that they had to handle themselves."""
        told = [
            f"{writer.name}: {key} was not delivered: {e}"
            for writer in self.writers
            for key, e in writer.failed.items()
        ]
        told += [f"{writer.name}: {error}" for writer in self.transactors for error in writer.fatal]
        return told + [error for reader in self.readers for error in reader.errors]

    def acknowledged_in(self, partition: int) -> int:
        return sum(at == partition for writer in self.writers for at, _ in list(writer.acknowledged.values()))

    @property
    def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    def wait_for_acknowledgements(self, more: int, timeout_s: float = 60) -> bool:
        """Whether this many records more were acknowledged in time: the cluster serves (again)."""
        wanted, deadline = self.acknowledged + more, time.monotonic() + timeout_s
        while self.acknowledged < wanted:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def finish(self, data_dirs: Sequence[str | Path] = ()) -> Verdict:
        """Stops the load, reads everything once more with fresh consumers, and judges."""
        verdict = Verdict()
        for thread in (*self.writers, *self.transactors):
            thread.stop()
        for thread in (*self.writers, *self.transactors):
            thread.join(DELIVERY_MS / 1000 + 30)
            if thread.is_alive():
                verdict.broken("progress", f"{thread.name} cannot finish")
        for writer in self.writers:
            for error in writer.fatal:
                verdict.broken("progress", f"{writer.name} cannot go on: {error}")
        fresh = [
            Reader(self.bootstrap, self.plain, self.partitions, "fresh plain reader", "read_uncommitted"),
            Reader(self.bootstrap, self.transacted, self.partitions, "fresh committed reader", "read_committed"),
        ]
        for reader in fresh:
            reader.start()
        plain_ends, transacted_ends = self._ends(self.plain), self._ends(self.transacted)
        for reader, ends in zip([*self.readers, *fresh], [plain_ends, transacted_ends] * 2, strict=True):
            if not reader.read_to(ends):
                verdict.broken("progress", f"{reader.name} did not reach the end {ends}: it is at {reader.position}")
            reader.stop()
            for error in reader.errors:
                verdict.broken("forward", error)
        judge_plain([writer.acknowledged for writer in self.writers], fresh[0].seen, plain_ends, verdict)
        for writer in self.transactors:
            judge_transacted(writer.outcomes, fresh[1].seen, self.partitions, verdict)
        for along, after in zip(self.readers, fresh, strict=True):
            judge_agreement(along.name, along.seen, after.seen, verdict)
        if data_dirs:
            for name, ends in ((self.plain, plain_ends), (self.transacted, transacted_ends)):
                for problem in unlike_replicas(data_dirs, name, ends):
                    verdict.broken("identical", problem)
        verdict.figures = {
            "acknowledged": self.acknowledged,
            "not acknowledged": sum(len(writer.failed) for writer in self.writers),
            "committed": sum(len(writer.outcomes.committed) for writer in self.transactors),
            "aborted": sum(len(writer.outcomes.aborted) for writer in self.transactors),
            "unknown": sum(len(writer.outcomes.unknown) for writer in self.transactors),
            "longest pause s": round(max((longest_pause_s(w.times) for w in self.writers), default=0.0), 1),
            "between transactions s": round(max((longest_pause_s(w.times) for w in self.transactors), default=0.0), 1),
        }
        return verdict

    def _ends(self, topic: str) -> dict[int, int]:
        asking = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "oracle-ends"})
        try:
            found = {}
            for partition in range(self.partitions):
                deadline = time.monotonic() + 60
                while True:
                    try:
                        found[partition] = asking.get_watermark_offsets(TopicPartition(topic, partition), 5)[1]
                        break
                    except KafkaException:
                        if time.monotonic() > deadline:
                            raise
            return found
        finally:
            asking.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--replication-factor", type=int, default=3)
    parser.add_argument("--min-insync", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--transactional", type=int, default=1)
    parser.add_argument("--data-dir", action="append", default=[])
    options = parser.parse_args()
    oracle = ClusterOracle(
        options.bootstrap,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        min_insync=options.min_insync,
        rate=options.rate,
        transactional=options.transactional,
    )
    oracle.start()
    time.sleep(options.seconds)
    verdict = oracle.finish(options.data_dir)
    print(verdict)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
