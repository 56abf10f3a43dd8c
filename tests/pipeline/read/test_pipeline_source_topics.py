"""What the driver asks a real broker: which partitions there are, and where positions lie in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import Producer
from stable_topics import await_stable

from tidelog.client import Client, Message
from tidelog.pipeline.offset_ranges import EARLIEST, LATEST
from tidelog.pipeline.options.given import LEDGER_TOPIC
from tidelog.pipeline.options.source_options import SourceOptions, parse
from tidelog.pipeline.read.subscribed_topics import SubscribedTopics, TopicsUnavailable
from tidelog.testing.broker import RunningBroker
from tidelog.wire.partitions import TopicPartition


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap) as one:
        yield one


@pytest.fixture
def topic(client: Client, unique: Callable[[str], str]) -> str:
    """Two partitions; offset n of either is from second n."""
    name = unique("source")
    client.admin.create_topic(name, partitions=2)
    for partition, count in enumerate((10, 4)):
        client.produce(name, [Message(b"v", timestamp_ms=1000 * n) for n in range(count)], partition=partition)
    return name


class Asked:
    """Makes `SubscribedTopics`, and counts its pauses instead of making them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.pauses = 0

    def options(self, **given: str) -> SourceOptions:
        least = {"kafka.bootstrap.servers": self._bootstrap, "startingOffsets": "earliest"}
        return parse(least | given, "batch")

    def topics(self, **given: str) -> SubscribedTopics:
        return SubscribedTopics(self.options(**given), self._pause)

    def _pause(self, _: float) -> None:
        self.pauses += 1


@pytest.fixture
def asked(broker: BrokerProcess) -> Asked:
    return Asked(broker.bootstrap)


def at(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


def test_topics_are_found_by_name_by_pattern_and_by_partition(asked: Asked, topic: str, client: Client) -> None:
    client.admin.create_topic(f"{topic}-too", partitions=1)
    both = {*at(topic, 0, 0), *at(f"{topic}-too", 0)}
    assert asked.topics(subscribe=f"{topic},{topic}-too").latest().keys() == both
    # As in the stock connector a pattern need not match the whole name.
    with asked.topics(subscribePattern=topic[1:]) as matching:
        assert matching.latest().keys() >= both
    with asked.topics(subscribePattern=f"^{topic}$") as matching:
        assert matching.latest() == at(topic, 10, 4)
    assigned = asked.topics(assign=f'{{"{topic}":[1]}}')
    assert assigned.latest() == {TopicPartition(topic, 1): 4}


def test_a_pattern_finds_topics_that_come_later(asked: Asked, topic: str, client: Client) -> None:
    with asked.topics(subscribePattern=f"{topic}-later") as matching:
        assert matching.latest() == {}
        client.admin.create_topic(f"{topic}-later", partitions=1)
        client.produce(f"{topic}-later", [b"x"])
        assert matching.latest({}) == at(f"{topic}-later", 1)
        assert matching.earliest(at(f"{topic}-later", 0)) == at(f"{topic}-later", 0)


def test_internal_topics_are_read_only_where_they_are_named(asked: Asked, client: Client, topic: str) -> None:
    client.groups.commit("somebody", {(topic, 0): 1})
    if LEDGER_TOPIC not in client.describe().topics:
        client.admin.create_topic(LEDGER_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    everything = {tp.topic for tp in asked.topics(subscribePattern=".*").latest()}
    assert topic in everything
    assert everything.isdisjoint({"__consumer_offsets", "__transaction_state", LEDGER_TOPIC})
    assert len(asked.topics(subscribe="__consumer_offsets").latest()) == 50


def test_positions_are_resolved_to_offsets(asked: Asked, topic: str, client: Client) -> None:
    client.admin.delete_records(topic, {0: 3})

    def start(**given: str) -> tuple[dict[TopicPartition, int], set[int]]:
        options = asked.options(subscribe=topic, **given)
        with SubscribedTopics(options) as topics:
            resolved = topics.resolve(options.starting, starting=True)
        return resolved.offsets, {tp.partition for tp in resolved.at_the_end}

    assert start() == (at(topic, 3, 0), set())
    assert start(startingOffsets=f'{{"{topic}":{{"0":5,"1":{EARLIEST}}}}}') == (at(topic, 5, 0), set())
    assert start(startingTimestamp="2500") == (at(topic, 3, 3), set())
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert start(startingTimestamp="7000", **latest) == (at(topic, 7, 4), {1})
    times = {"startingOffsetsByTimestamp": f'{{"{topic}":{{"0":8500,"1":1}}}}'}
    assert start(**times) == (at(topic, 9, 1), set())
    with pytest.raises(TopicsUnavailable, match=f"{topic}-1 has no record at or after 7000; ask for an earlier time"):
        start(startingTimestamp="7000")

    ends = asked.options(subscribe=topic, endingTimestamp="7000")
    with SubscribedTopics(ends) as topics:
        assert topics.resolve(ends.ending, starting=False).offsets == at(topic, 7, 4)
    ends = asked.options(subscribe=topic, endingOffsets=f'{{"{topic}":{{"0":{LATEST},"1":2}}}}')
    with SubscribedTopics(ends) as topics:
        assert topics.resolve(ends.ending, starting=False).offsets == at(topic, 10, 2)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({"0": 1}, "startingOffsets says nothing of {}-1; -1 stands for the latest offset"),
        ({"0": 1, "1": 1, "2": 1}, "startingOffsets names {}-2, which is not read"),
    ],
)
def test_offsets_name_all_partitions_and_no_others(
    asked: Asked, topic: str, offsets: dict[str, int], said: str
) -> None:
    given = str({topic: offsets}).replace("'", '"')
    options = asked.options(subscribe=topic, startingOffsets=given)
    with pytest.raises(TopicsUnavailable, match=said.format(topic)):
        SubscribedTopics(options).resolve(options.starting, starting=True)


def test_the_end_for_read_committed_is_before_the_first_open_transaction(
    asked: Asked, client: Client, topic: str, broker: BrokerProcess
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    committed = {"kafka.isolation.level": "read_committed"}
    assert asked.topics(subscribe=topic).latest() == at(topic, 11, 4)
    assert asked.topics(subscribe=topic, **committed).latest() == at(topic, 10, 4)
    producer.abort_transaction()
    await_stable(client, topic)
    assert asked.topics(subscribe=topic, **committed).latest() == at(topic, 12, 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "nobodys-topic"}, "topic nobodys-topic: there is no such topic .*; check the name"),
        ({"assign": '{"nobodys-topic":[0]}'}, "topic nobodys-topic: there is no such topic"),
    ],
)
def test_a_topic_that_does_not_exist_is_asked_for_three_times_and_then_told(
    asked: Asked, given: dict[str, str], said: str
) -> None:
    with pytest.raises(TopicsUnavailable, match=said):
        asked.topics(**given).latest()
    assert asked.pauses == 2


def test_a_partition_that_does_not_exist_is_told(asked: Asked, topic: str) -> None:
    with pytest.raises(TopicsUnavailable, match=f"option assign names {topic}-7, and there is no such partition"):
        asked.topics(assign=f'{{"{topic}":[0,7]}}').latest()


def test_no_broker_is_told_with_its_address(asked: Asked) -> None:
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "200", "subscribe": "t"}
    silent = SubscribedTopics(parse(nobody, "batch"), asked._pause)
    with pytest.raises(TopicsUnavailable, match=r"127\.0\.0\.1:1"):
        silent.latest()
    assert asked.pauses == 2


def test_a_broker_that_restarts_while_a_query_starts_is_waited_for(restarting_broker: RunningBroker) -> None:
    asked = Asked(restarting_broker.bootstrap)
    with asked.topics(subscribe="t") as topics:
        assert topics.latest() == at("t", 2)
    assert asked.pauses == 0


def test_a_topic_that_was_deleted_stops_a_reader_unless_losses_are_allowed(
    asked: Asked, topic: str, client: Client
) -> None:
    client.admin.create_topic(f"{topic}-doomed", partitions=1)
    both = f"{topic},{topic}-doomed"
    strict = asked.topics(subscribe=both)
    lenient = asked.topics(subscribe=both, failOnDataLoss="false")
    known = lenient.latest()
    assert strict.latest() == known
    client.admin.delete_topics([f"{topic}-doomed"])
    with pytest.raises(TopicsUnavailable, match="doomed"):
        strict.latest(known)
    asked.pauses = 0
    assert lenient.latest(known) == at(topic, 10, 4)
    assert lenient.earliest(known) == at(topic, 0, 0)
    assert asked.pauses == 2
    # Once that is believed, nothing is waited for any more.
    assert lenient.latest(at(topic, 10, 4)) == at(topic, 10, 4)
    assert asked.pauses == 2


def test_an_end_before_a_known_offset_is_asked_for_again_and_then_believed(asked: Asked, topic: str) -> None:
    assert asked.topics(subscribe=topic).latest(at(topic, 10, 99)) == at(topic, 10, 4)
    assert asked.pauses == 2
