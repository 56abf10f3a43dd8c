"""Faults of disks and processes: what was acknowledged is served again, what is damaged never is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from bench import raw
from confluent_kafka import Consumer, KafkaError, TopicPartition
from faultkit import batch

from tidelog.testing.broker import BrokerFailed, RunningBroker

KAFKA_STORAGE_ERROR = 56
Connect = Callable[[], raw.Connection]


def produce(connection: raw.Connection, topic: str, *values: bytes) -> raw.Produced:
    return connection.produce(raw.produce_frame(topic, 0, batch(*values)))


def read_all(broker: RunningBroker, topic: str) -> list[bytes]:
    """Every value of partition 0, as a stock client sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            break
        assert message.offset() == len(found)
        found.append(message.value())
    consumer.close()
    return found


def segment_of(broker: RunningBroker, topic: str) -> Path:
    return broker.data_dir / f"{topic}-0" / "00000000000000000000.log"


def test_a_killed_broker_serves_everything_that_it_acknowledged(broker: RunningBroker) -> None:
    for life in range(3):
        with raw.Connection(broker.host, broker.port) as connection:
            connection.ask(raw.auto_create_frame("t"))
            for number in range(200):
                produced = produce(connection, "t", b"%d" % (life * 200 + number))
                assert produced == raw.Produced(0, life * 200 + number)
        broker.kill()
        broker.start()
    assert read_all(broker, "t") == [b"%d" % number for number in range(600)]


@pytest.mark.parametrize("damage", ["cut one byte", "cut many", "garbage", "flipped bit in the last batch"])
def test_a_damaged_tail_is_cut_at_the_last_whole_batch(broker: RunningBroker, damage: str) -> None:
    with raw.Connection(broker.host, broker.port) as connection:
        connection.ask(raw.auto_create_frame("t"))
        for number in range(50):
            produce(connection, "t", b"%d" % number)
    broker.kill()
    path = segment_of(broker, "t")
    data = path.read_bytes()
    if damage == "cut one byte":
        data, left = data[:-1], 49
    elif damage == "cut many":
        data, left = data[: len(data) // 2], None
    elif damage == "garbage":
        data, left = data + b"\xde\xad\xbe\xef" * 100, 50
    else:
        data, left = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], 49
    path.write_bytes(data)
    broker.start()
    kept = read_all(broker, "t")
    assert kept == [b"%d" % number for number in range(len(kept))]
    assert left is None or len(kept) == left
    with raw.Connection(broker.host, broker.port) as connection:
        assert produce(connection, "t", b"next") == raw.Produced(0, len(kept))
    assert read_all(broker, "t")[-1] == b"next"


def test_lost_indexes_are_rebuilt(broker: RunningBroker) -> None:
    with raw.Connection(broker.host, broker.port) as connection:
        connection.ask(raw.auto_create_frame("t"))
        for number in range(300):
            produce(connection, "t", b"%d" % number + b"x" * 100)
    broker.kill()
    for ending in (".index", ".timeindex"):
        segment_of(broker, "t").with_suffix(ending).unlink()
    broker.start()
    assert len(read_all(broker, "t")) == 300


def test_a_second_broker_on_the_same_directory_is_refused_with_a_clear_message(broker: RunningBroker) -> None:
    with pytest.raises(BrokerFailed, match="another broker uses the data directory"):
        RunningBroker(data_dir=broker.data_dir).start()
    with raw.Connection(broker.host, broker.port) as connection:
        connection.ask(raw.auto_create_frame("t"))
        assert produce(connection, "t", b"x").error_code == 0


#: `tidelog serve` in a process whose files may not grow past 64 KiB: writes then fail as on a full disk
SMALL_FILES = (
    sys.executable,
    "-c",
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536));"
    " sys.argv[0] = 'tidelog'; from tidelog.cli.main import main; main()",
    "serve",
)


def test_a_write_that_fails_is_not_acknowledged_and_leaves_the_others_alone() -> None:
    config = {"log.index.size.max.bytes": "4096"}
    with RunningBroker(config, command=SMALL_FILES) as broker:
        with raw.Connection(broker.host, broker.port) as connection:
            connection.ask(raw.auto_create_frame("full"))
            connection.ask(raw.auto_create_frame("other"))
            acknowledged = []
            for number in range(100):
                value = b"%d" % number + b"x" * 1000
                produced = produce(connection, "full", value)
                if produced.error_code == 0:
                    acknowledged.append(value)
                else:
                    assert produced.error_code == KAFKA_STORAGE_ERROR
            assert 0 < len(acknowledged) < 100
            assert produce(connection, "other", b"lives on").error_code == 0
        broker.kill()
        with RunningBroker(data_dir=broker.data_dir) as roomy:
            assert read_all(roomy, "full") == acknowledged
            assert read_all(roomy, "other") == [b"lives on"]


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for 4 MiB."""
    place = tmp_path / "volume"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill_to_the_last_block(path: Path) -> None:
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def fill_last_block_of_journal(broker: RunningBroker, connection: raw.Connection) -> None:
    """Creates topics until there is hardly a byte left in the block that the next entry would go to."""
    journal = broker.data_dir / "tidelog-metadata.journal"
    number = 0
    while -journal.stat().st_size % 4096 > 200:
        connection.ask(raw.auto_create_frame(f"filler-{number}"))
        number += 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_disk_without_a_free_block_is_started_on_and_read_from_and_written_to_once_there_is_room(
    small_volume: Path, clean: bool
) -> None:
    with RunningBroker(data_dir=small_volume / "data") as broker:
        with raw.Connection(broker.host, broker.port) as connection:
            connection.ask(raw.auto_create_frame("t"))
            assert produce(connection, "t", b"before").error_code == 0
            fill_last_block_of_journal(broker, connection)
        if clean:
            broker.stop()
        else:
            broker.kill()
        fill_to_the_last_block(small_volume / "filler")
        broker.start()
        with raw.Connection(broker.host, broker.port) as connection:
            assert produce(connection, "t", b"x" * 10_000).error_code == KAFKA_STORAGE_ERROR
            assert read_all(broker, "t") == [b"before"]
            (small_volume / "filler").unlink()
            assert produce(connection, "t", b"after") == raw.Produced(0, 1)
            fill_to_the_last_block(small_volume / "filler")
        broker.stop()
        last_word = broker.stderr().splitlines()[-1]
        assert "could not be shut down cleanly" in last_word and "No space left on device" in last_word
        broker.start()
        assert read_all(broker, "t") == [b"before", b"after"]


def test_flush_on_every_append_is_acknowledged_after_the_flush() -> None:
    with RunningBroker({"log.flush.interval.messages": "1"}) as broker:
        with raw.Connection(broker.host, broker.port) as connection:
            connection.ask(raw.auto_create_frame("t"))
            for number in range(20):
                assert produce(connection, "t", b"%d" % number) == raw.Produced(0, number)
        assert len(read_all(broker, "t")) == 20


def test_a_clean_stop_and_start_keeps_cluster_and_topic_ids(broker: RunningBroker) -> None:
    with raw.Connection(broker.host, broker.port) as connection:
        connection.ask(raw.auto_create_frame("t"))
    cluster_id = broker.cluster_id
    topic_id = (broker.data_dir / "t-0" / "partition.metadata").read_text()
    assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    broker.start()
    assert broker.cluster_id == cluster_id
    assert (broker.data_dir / "t-0" / "partition.metadata").read_text() == topic_id
