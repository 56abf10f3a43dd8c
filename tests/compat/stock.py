"""The stock clients behind one face, so that one test speaks through each of them.

Only what the tests ask of every client is here: produce a list of messages and learn where each one went, read a
number of records from named partitions, and look offsets up. What a single client can do more is tested directly.
"""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.systems.java import java_command
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
    """Makes a topic with the broker's own number of replicas, and returns when each of its partitions has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config or {})
    admin.create_topics([new])[name].result(30)

    def usable() -> bool:
        known = admin.list_topics(timeout=30).topics.get(name)
        leaders = [one.leader for one in known.partitions.values()] if known else []
        return len(leaders) == partitions and min(leaders) >= 0

    eventually(usable)


@dataclass(frozen=True, slots=True)
class Produce:
    acks: str = "all"
    codec: str = "none"
    idempotent: bool = False
    max_request_bytes: int = 1_000_000
    linger_ms: int = 5


@dataclass(frozen=True, slots=True)
class Read:
    partitions: Iterable[int] = (0,)
    #: None is the earliest
    offset: int | None = None
    isolation: str = "read_uncommitted"
    max_partition_bytes: int = 1_048_576


class StockClient(ABC):
    name: ClassVar[str]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(self, topic: str, messages: Sequence[Message], **how: Any) -> list[tuple[int, int]]:
        """Partition and offset of each message, in the order given; with acks 0 the offsets are unknown (-1)."""
        return self.write(topic, messages, Produce(**how))

    def read(self, topic: str, count: int, **how: Any) -> list[Record]:
        """At least `count` records of some partitions, as they came; see `Read`."""
        return self.fetch(topic, count, Read(**how))

    @abstractmethod
    def write(self, topic: str, messages: Sequence[Message], how: Produce) -> list[tuple[int, int]]: ...

    @abstractmethod
    def fetch(self, topic: str, count: int, how: Read) -> list[Record]: ...

    @abstractmethod
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Beginning and end offset."""

    @abstractmethod
    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset at or after a time; None where there is none."""


def until(deadline: float, count: int, have: Sequence[object]) -> bool:
    if len(have) >= count:
        return False
    if time.monotonic() > deadline:
        raise ReadTimeout(f"{len(have)} of {count} records came")
    return True


def first_lag_report(bootstrap: str, topic: str) -> str:
    """What the replica verification tool says until its first report; it reports for as long as it runs."""
    command = java_command(
        "org.apache.kafka.tools.ReplicaVerificationTool",
        *("--broker-list", bootstrap, "--topics-include", topic, "--time", "-2", "--report-interval-ms", "500"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    reports: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            reports.append(line)
            if "max lag is" in line:
                break
    finally:
        process.kill()
        process.wait()
    return "".join(reports)
