"""Damages to a broker's disk, and what a stock client sees of them afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bench import raw
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tidelog.testing.broker import RunningBroker

VALUE = b"x" * 1000
IN_A_BATCH = 10
#: segments of a mebibyte: the smallest that a topic may ask for
CONFIG = {"log.segment.bytes": str(1 << 20), "log.flush.offset.checkpoint.interval.ms": "500"}
RECORDS = 4_000
ABORTED = 20
JOURNAL = "tidelog-metadata.journal"


class Volume(Exception):
    """A small volume cannot be had here; the message says why."""


class SmallVolume:
    """A tmpfs of its own; needs the right to mount."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self.path = Path(tempfile.mkdtemp(prefix="tidelog-volume-"))

    def __enter__(self) -> SmallVolume:
        options = ("-o", f"size={self._size_bytes}")
        try:
            made = subprocess.run(
                ["mount", "-t", "tmpfs", *options, "tmpfs", str(self.path)], capture_output=True, text=True
            )
        except OSError as error:
            self.path.rmdir()
            raise Volume(f"there is no mount command: {error}") from None
        if made.returncode:
            self.path.rmdir()
            raise Volume(f"a tmpfs cannot be mounted: {made.stderr.strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)
        self.path.rmdir()

    def fill(self) -> None:
        """Leaves no room for anything."""
        with open(self.path / "fill", "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def make_room(self) -> None:
        (self.path / "fill").unlink()


# --- clients ----------------------------------------------------------------------------------------


def produce(broker: RunningBroker, topic: str, *values: bytes) -> raw.Produced:
    with raw.Connection(broker.host, broker.port) as connection:
        return connection.produce(raw.produce_frame(topic, 0, raw.record_batch(list(values), now_ms())))


def produce_many(broker: RunningBroker, topic: str, count: int) -> None:
    with raw.Connection(broker.host, broker.port) as connection:
        connection.ask(raw.auto_create_frame(topic))
        for _ in range(0, count, IN_A_BATCH):
            batch = raw.record_batch([VALUE] * IN_A_BATCH, now_ms())
            assert connection.produce(raw.produce_frame(topic, 0, batch)).error_code == 0


def abort_some(broker: RunningBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "aborting", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(topic, b"aborted", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)


def consumer(broker: RunningBroker, **more: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "log_level": 0,
            **more,
        }
    )


class Served(NamedTuple):
    offsets: list[int]
    #: of aborted transactions; a reader of what is committed must see none
    aborted: int
    error: str = ""


def served(broker: RunningBroker, topic: str, seconds: float = 20) -> Served:
    """All that a reader of committed records gets, from the beginning."""
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, 0)])
    offsets, aborted, error = [], 0, "no end was reached"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error():
            at_end = message.error().code() == KafkaError._PARTITION_EOF
            error = "" if at_end else message.error().str()
            if at_end or not message.error().retriable():
                break
            continue
        offsets.append(message.offset())
        aborted += message.value() == b"aborted"
    reader.close()
    return Served(offsets, aborted, error)


def offsets_served(broker: RunningBroker, topic: str) -> list[int]:
    found = served(broker, topic)
    assert not found.error and not found.aborted, found.error
    return found.offsets


def commit(broker: RunningBroker, topic: str, offset: int) -> None:
    member = consumer(broker)
    member.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    member.close()


def committed(broker: RunningBroker, topic: str) -> int:
    member = consumer(broker)
    (found,) = member.committed([TopicPartition(topic, 0)], timeout=30)
    member.close()
    return int(found.offset)


def now_ms() -> int:
    return int(time.time() * 1000)


def notices(broker: RunningBroker) -> list[str]:
    """What the broker has said so far, of weight."""
    found = []
    for line in broker.stderr(lines=10_000).splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if said["level"] in ("warning", "error"):
                found.append(said["message"])
    return found


def await_notice(broker: RunningBroker, words: str, seconds: float = 60) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for notice in notices(broker):
            if words in notice:
                return notice
        time.sleep(0.1)
    raise AssertionError(f"nothing was said of {words!r}: {notices(broker)}")


# --- damages ----------------------------------------------------------------------------------------


def segments(partition: Path, suffix: str = ".log") -> list[Path]:
    return sorted(partition.glob(f"*{suffix}"))


def cut(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


def flip(path: Path, at: float) -> None:
    """One bit, at this share of the file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 4
    path.write_bytes(data)


def append_junk(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\xde\xad\xbe\xef" * 64)


def remove_segment(log: Path) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        log.with_suffix(suffix).unlink(missing_ok=True)


def remove_indexes(partition: Path) -> None:
    for suffix in (".index", ".timeindex"):
        for path in segments(partition, suffix):
            path.unlink()


class Damage(NamedTuple):
    #: changes the files under the directory of topic `t`'s partition
    apply: Callable[[Path], None]
    #: how many of the records a reader may miss at most
    may_lose: int = 0
    #: the broker must say something of it
    is_told: bool = True


#: the records of a segment, and a batch more
A_SEGMENT = 1_100

DAMAGES: dict[str, Damage] = {
    "tail cut by 5 bytes": Damage(lambda p: cut(segments(p)[-1], 5), ABORTED + 1),
    "tail cut in half": Damage(lambda p: cut(segments(p)[-1], segments(p)[-1].stat().st_size // 2), A_SEGMENT),
    "junk after the last batch": Damage(lambda p: append_junk(segments(p)[-1])),
    "bit flipped in the last segment": Damage(lambda p: flip(segments(p)[-1], 0.5), A_SEGMENT, is_told=False),
    "last segment empty": Damage(lambda p: os.truncate(segments(p)[-1], 0), A_SEGMENT),
    "middle segment empty": Damage(lambda p: os.truncate(segments(p)[1], 0), A_SEGMENT),
    "last segment missing": Damage(lambda p: remove_segment(segments(p)[-1]), A_SEGMENT),
    "middle segment missing": Damage(lambda p: remove_segment(segments(p)[1]), A_SEGMENT),
    "offset and time indexes missing": Damage(remove_indexes, is_told=False),
    "transaction index missing": Damage(lambda p: segments(p, ".txnindex")[0].unlink(), is_told=False),
    "transaction index cut": Damage(lambda p: cut(segments(p, ".txnindex")[0], 34), is_told=False),
    "metadata journal cut by 3 bytes": Damage(lambda p: cut(p.parent / JOURNAL, 3)),
    "metadata journal missing": Damage(lambda p: (p.parent / JOURNAL).unlink()),
}


def await_checkpoint(broker: RunningBroker, topic: str, offset: int, seconds: float = 60) -> None:
    """The broker has lived for a while: its checkpoints speak of all that it holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            if f"{topic} 0 {offset}" in (broker.data_dir / "replication-offset-checkpoint").read_text().splitlines():
                return
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint of {topic} at {offset}")


@contextlib.contextmanager
def damaged(damage: Damage, clean: bool) -> Iterator[RunningBroker]:
    """A broker that was filled, stopped, damaged and started again."""
    with RunningBroker(CONFIG) as broker:
        produce_many(broker, "t", RECORDS)
        abort_some(broker, "t", ABORTED)
        produce_many(broker, "other", 100)
        commit(broker, "t", 42)
        if clean:
            broker.stop()
        else:
            await_checkpoint(broker, "t", RECORDS + ABORTED + 1)
            broker.kill()
        damage.apply(broker.data_dir / "t-0")
        broker.start()
        yield broker
