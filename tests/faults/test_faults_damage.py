"""Damage on disks: what it costs, what is said of it, and that one partition's trouble is not everybody's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from damagekit import (
    CONFIG,
    DAMAGES,
    JOURNAL,
    RECORDS,
    SmallVolume,
    Volume,
    await_notice,
    commit,
    committed,
    consumer,
    cut,
    damaged,
    notices,
    offsets_served,
    produce,
    produce_many,
    served,
)

from tidelog.testing.broker import RunningBroker

KAFKA_STORAGE_ERROR = 56


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a kill"])
def test_a_torn_last_entry_of_the_journal_costs_that_entry_alone(broker: RunningBroker, clean: bool) -> None:
    produce_many(broker, "t", 50)
    commit(broker, "t", 42)
    if clean:
        broker.stop()
    else:
        broker.kill()
    cut(broker.data_dir / JOURNAL, 3)
    broker.start()
    assert [line for line in notices(broker) if JOURNAL in line and "torn" in line]
    assert offsets_served(broker, "t") == list(range(50))
    assert committed(broker, "t") == 42
    broker.restart()
    assert committed(broker, "t") == 42


@pytest.mark.parametrize("name", ["junk after the last batch", "middle segment missing", "transaction index missing"])
def test_damage_after_a_clean_stop_costs_what_it_must_and_is_told(name: str) -> None:
    damage = DAMAGES[name]
    with damaged(damage, clean=True) as broker:
        found = served(broker, "t")
        assert not found.error and found.aborted == 0
        assert RECORDS - len(found.offsets) <= damage.may_lose
        said = [line for line in notices(broker) if "topic t" in line and "lost" in line and ".log" in line]
        assert bool(said) == damage.is_told
        assert offsets_served(broker, "other") == list(range(100))
        assert committed(broker, "t") == 42
        at = produce(broker, "t", b"next").base_offset
        assert offsets_served(broker, "t")[-1] == at


@pytest.fixture
def volume() -> Iterator[SmallVolume]:
    try:
        with SmallVolume(12 << 20) as small:
            yield small
    except Volume as error:
        pytest.skip(str(error))


def create(broker: RunningBroker, topic: str, partitions: int = 1) -> int:
    """The error code of a creation."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


def test_a_full_volume_refuses_writes_serves_reads_says_so_and_recovers_by_itself(volume: SmallVolume) -> None:
    with RunningBroker(CONFIG, data_dir=volume.path / "data") as broker:
        produce_many(broker, "t", 100)
        volume.fill()
        while (refused := produce(broker, "t", b"y" * 9000).error_code) == 0:
            pass
        assert refused == KAFKA_STORAGE_ERROR
        assert create(broker, "new", 20) == KAFKA_STORAGE_ERROR
        member = consumer(broker, **{"session.timeout.ms": 6000})
        with pytest.raises(KafkaException):
            member.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        member.close()
        await_notice(broker, "is full")
        assert len(offsets_served(broker, "t")) >= 100
        volume.make_room()
        assert produce(broker, "t", b"y" * 9000).error_code == 0
        assert create(broker, "new", 20) == 0
        commit(broker, "t", 42)
        await_notice(broker, "space again")
        assert len([line for line in notices(broker) if "is full" in line]) == 1
        produce_many(broker, "new", 10)
        broker.kill()
        broker.start()
        assert len(offsets_served(broker, "new")) == 10 and committed(broker, "t") == 42
