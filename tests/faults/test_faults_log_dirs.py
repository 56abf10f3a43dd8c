"""Log directories of a running broker that change their order, go, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import raw
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from faultkit import batch

from tidelog.testing.broker import BrokerFailed, RunningBroker

KAFKA_STORAGE_ERROR = 56
RECORDS = 20


def broker_on(*directories: Path) -> RunningBroker:
    return RunningBroker(data_dir=",".join(map(str, directories)))


def produce(broker: RunningBroker, partition: int) -> raw.Produced:
    with raw.Connection(broker.host, broker.port) as connection:
        return connection.produce(raw.produce_frame("t", partition, batch(b"x")))


def retention(broker: RunningBroker) -> str | None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "t")]).values()
    return str(future.result(30)["retention.ms"].value)


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two directories with a partition of topic t in each, 20 records in both."""
    first, second = tmp_path / "a", tmp_path / "b"
    with broker_on(first, second) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        (future,) = admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "987654321"})]).values()
        future.result(30)
        for partition in (0, 1):
            with raw.Connection(broker.host, broker.port) as connection:
                for number in range(RECORDS):
                    assert connection.produce(raw.produce_frame("t", partition, batch(b"x"))) == raw.Produced(0, number)
        broker.kill()
    yield first, second


def test_directories_in_another_order_keep_topics_settings_and_records(directories: tuple[Path, Path]) -> None:
    first, second = directories
    with broker_on(second, first) as broker:
        assert retention(broker) == "987654321"
        for partition in (0, 1):
            assert produce(broker, partition) == raw.Produced(0, RECORDS)


def test_without_the_directory_that_holds_the_metadata_a_broker_does_not_start(directories: tuple[Path, Path]) -> None:
    first, second = directories
    with pytest.raises(BrokerFailed, match=rf"was last in {first}"):
        broker_on(second).start()


def test_a_directory_that_cannot_be_opened_takes_its_partitions_offline_until_it_is_back(
    directories: tuple[Path, Path],
) -> None:
    first, second = directories
    (lost,) = (int(path.name[2:]) for path in second.glob("t-*"))
    second.rename(second.with_name("away"))
    second.write_bytes(b"")
    with broker_on(first, second) as broker:
        assert produce(broker, lost).error_code == KAFKA_STORAGE_ERROR
        assert produce(broker, 1 - lost) == raw.Produced(0, RECORDS)
        assert f"these partitions are offline until it is back: t-{lost}" in broker.stderr()
    assert not list(first.glob(f"t-{lost}"))
    second.unlink()
    second.with_name("away").rename(second)
    with broker_on(first, second) as broker:
        assert produce(broker, lost) == raw.Produced(0, RECORDS)
        assert produce(broker, 1 - lost) == raw.Produced(0, RECORDS + 1)
