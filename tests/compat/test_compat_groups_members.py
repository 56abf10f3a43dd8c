"""Consumer groups with librdkafka, in the classic protocol and the broker-side one (KIP-848): who reads what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from bench.systems.process import BrokerProcess
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from members import Member, member_settings
from stock import Message, create_topic, eventually
from stock_python import ConfluentClient

PROTOCOLS = ("classic", "consumer")
REBALANCE_S = 45

Join = Callable[..., Member]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def join(broker: BrokerProcess, group: str, protocol: str) -> Iterator[Join]:
    """Adds members to the test's group; whoever is left leaves at the end."""
    members: list[Member] = []

    def add(*topics: str, **extra: object) -> Member:
        members.append(Member(broker.bootstrap, group, list(topics), protocol, **extra))
        return members[-1]

    yield add
    for member in members:
        if not member.stopped:
            member.leave()


def settled(members: list[Member], partitions: int) -> bool:
    """Each partition is held by exactly one member, and no member is idle."""
    for member in members:
        member.check()
    held = Counter(partition for member in members for partition in member.partitions)
    return held == Counter(range(partitions)) and all(member.held for member in members)


def values(*members: Member) -> list[bytes]:
    return sorted(value for member in members for _, _, value in member.read)


def test_a_lone_member_reads_everything_and_a_later_one_goes_on(
    join: Join, confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    confluent.produce(topic, [Message(b"%04d" % n, partition=n % 3) for n in range(300)])
    first = join(topic)
    eventually(lambda: len(first.read) >= 300, REBALANCE_S)
    first.leave()
    assert values(first) == [b"%04d" % n for n in range(300)]
    confluent.produce(topic, [Message(b"%04d" % n, partition=n % 3) for n in range(300, 400)])
    second = join(topic)
    eventually(lambda: len(second.read) >= 100, REBALANCE_S)
    second.leave()
    assert values(second) == [b"%04d" % n for n in range(300, 400)]


@pytest.mark.replicated
def test_members_share_the_partitions_as_they_come_and_go(
    join: Join, confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=6)
    members = [join(topic)]
    eventually(lambda: settled(members, 6), REBALANCE_S)
    for _ in range(2):
        members.append(join(topic))
        eventually(lambda: settled(members, 6), REBALANCE_S)
    assert sorted(len(member.partitions) for member in members) == [2, 2, 2]
    confluent.produce(topic, [Message(b"%04d" % n, partition=n % 6) for n in range(600)])
    eventually(lambda: sum(len(member.read) for member in members) >= 600, REBALANCE_S)
    gone = members.pop(0)
    gone.leave()
    eventually(lambda: settled(members, 6), REBALANCE_S)
    confluent.produce(topic, [Message(b"%04d" % n, partition=n % 6) for n in range(600, 900)])
    eventually(lambda: sum(len(member.read) for member in (gone, *members)) >= 900, REBALANCE_S)
    assert values(gone, *members) == [b"%04d" % n for n in range(900)]


def test_the_partitions_of_a_member_that_dies_are_taken_over(
    join: Join, confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=4)
    doomed, survivor = join(topic, max_poll_interval_ms=6_000), join(topic)
    eventually(lambda: settled([doomed, survivor], 4), REBALANCE_S)
    # A member that no longer polls is out when its poll interval ends, without a word to the broker.
    doomed.pause()
    eventually(lambda: survivor.partitions == {0, 1, 2, 3}, REBALANCE_S)
    confluent.produce(topic, [Message(b"%d" % n, partition=n) for n in range(4)])
    eventually(lambda: len(survivor.read) >= 4, REBALANCE_S)
    doomed.consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_each_assignor_shares_two_topics(
    broker: BrokerProcess, group: str, new_topic: Callable[..., str], strategy: str
) -> None:
    one, other = new_topic(partitions=4), new_topic(partitions=4)
    members = [Member(broker.bootstrap, group, [one, other], partition_assignment_strategy=strategy) for _ in range(2)]
    everything = {(topic, partition) for topic in (one, other) for partition in range(4)}

    def shared() -> bool:
        return members[0].held | members[1].held == everything and len(members[0].held) == len(members[1].held) == 4

    eventually(shared, REBALANCE_S)
    members[0].leave()
    eventually(lambda: members[1].held == everything, REBALANCE_S)
    members[1].leave()


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    join: Join, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=4)
    lasting = join(topic, group_instance_id="lasting")
    restarted = join(topic, group_instance_id="restarted")
    eventually(lambda: settled([lasting, restarted], 4), REBALANCE_S)
    before, held = lasting.rebalances, restarted.partitions
    restarted.leave()
    again = join(topic, group_instance_id="restarted")
    eventually(lambda: again.partitions == held, REBALANCE_S)
    assert lasting.rebalances == before
    assert lasting.partitions == {0, 1, 2, 3} - held


def test_of_two_members_with_one_instance_id_only_one_stays(
    broker: BrokerProcess, join: Join, protocol: str, group: str, topic: str
) -> None:
    """Classic groups fence the old one, broker-side groups refuse the new one until the old one has left."""
    old = join(topic, group_instance_id="same")
    eventually(lambda: old.partitions == {0}, REBALANCE_S)
    new = join(topic, group_instance_id="same")
    stays, goes = (new, old) if protocol == "classic" else (old, new)
    code = KafkaError.FENCED_INSTANCE_ID if protocol == "classic" else KafkaError.UNRELEASED_INSTANCE_ID
    eventually(lambda: {code, KafkaError._FATAL} & {error.code() for error in goes.errors}, REBALANCE_S)
    eventually(lambda: stays.partitions == {0}, REBALANCE_S)


def test_a_new_partition_is_found_by_the_group(join: Join, admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=2)
    member = join(topic, topic_metadata_refresh_interval_ms=1_000, metadata_max_age_ms=3_000)
    eventually(lambda: member.partitions == {0, 1}, REBALANCE_S)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    eventually(lambda: member.partitions == {0, 1, 2, 3}, REBALANCE_S)


def test_a_pattern_finds_topics_old_and_new(
    join: Join, broker: BrokerProcess, protocol: str, unique: Callable[[str], str]
) -> None:
    prefix = unique("pattern")
    create_topic(broker.bootstrap, f"{prefix}-a")
    member = join(f"^{prefix}-.*", topic_metadata_refresh_interval_ms=1_000, metadata_max_age_ms=3_000)
    eventually(lambda: member.held == {(f"{prefix}-a", 0)}, REBALANCE_S)
    create_topic(broker.bootstrap, f"{prefix}-b")
    eventually(lambda: member.held == {(f"{prefix}-a", 0), (f"{prefix}-b", 0)}, REBALANCE_S)


def test_offsets_are_committed_with_their_metadata(
    broker: BrokerProcess, group: str, protocol: str, new_topic: Callable[..., str], confluent: ConfluentClient
) -> None:
    topic = new_topic(partitions=3)
    consumer = Consumer(member_settings(broker.bootstrap, group, protocol))
    offsets = [TopicPartition(topic, 0, 7, metadata="seven"), TopicPartition(topic, 1, 0, metadata="")]
    consumer.commit(offsets=offsets, asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, partition) for partition in range(3)], 15)
    assert [(at.partition, at.offset) for at in committed] == [(0, 7), (1, 0), (2, OFFSET_INVALID)]
    assert committed[0].metadata == "seven"
    with pytest.raises(KafkaException) as refused:
        wrong = TopicPartition(topic, 0, 1, metadata="m" * 5_000)
        (result,) = consumer.commit(offsets=[wrong], asynchronous=False)
        raise KafkaException(result.error)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()


def test_a_commit_of_an_outsider_to_a_group_with_members_is_refused(
    broker: BrokerProcess, join: Join, group: str, protocol: str, topic: str
) -> None:
    member = join(topic)
    eventually(lambda: member.partitions == {0}, REBALANCE_S)
    outsider = Consumer(member_settings(broker.bootstrap, group, protocol))
    with pytest.raises(KafkaException) as refused:
        outsider.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    outsider.close()


def test_a_group_without_offsets_starts_where_it_is_told(
    join: Join, confluent: ConfluentClient, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    confluent.produce(topic, [Message(b"old")] * 10)
    late = join(topic, auto_offset_reset="latest")
    eventually(lambda: late.partitions == {0}, REBALANCE_S)

    def reads_what_is_new() -> bool:
        confluent.produce(topic, [Message(b"new")])
        return bool(late.read)

    eventually(reads_what_is_new, REBALANCE_S)
    assert {value for _, _, value in late.read} == {b"new"}
