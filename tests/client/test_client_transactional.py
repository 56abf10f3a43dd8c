"""Transactions written by the small client: read_committed readers see the committed, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tidelog.client import Client, ClientError
from tidelog.client.errors import Fenced, Refused, Unreachable
from tidelog.client.producer import Encoded
from tidelog.client.transactional import Prepared, TransactionalProducer
from tidelog.testing.broker import RunningBroker
from tidelog.wire.batch import HEADER_SIZE
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch

pytestmark = pytest.mark.layouts

Named = Callable[[str], str]


def committed(client: Client, topic: str, partitions: int = 1) -> list[bytes]:
    return sorted(
        record.value or b""
        for partition in range(partitions)
        for record in client.read(topic, partition, isolation="read_committed")
    )


def eventually(claim: Callable[[], bool], timeout_s: float = 20) -> bool:
    deadline = time.monotonic() + timeout_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.05)
    return claim()


def assert_committed(client: Client, topic: str, expected: list[bytes], partitions: int = 1) -> None:
    """The end of a transaction is answered before its markers are written."""
    eventually(lambda: committed(client, topic, partitions) == expected)
    assert committed(client, topic, partitions) == expected


@pytest.fixture(params=[1, 2], ids=["first-protocol", "second-protocol"])
def protocol(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def test_the_cluster_says_which_protocol_is_spoken(client: Client, unique: Named) -> None:
    assert client.transactional_producer(unique("id"))._protocol == 2


def test_histories_of_transactions_show_readers_exactly_the_committed(
    client: Client, new_topic: Callable[..., str], unique: Named, protocol: int
) -> None:
    """Random transactions of three ids over two topics, takeovers among them, against a list of the committed."""
    random = Random(7)
    topics = [new_topic(partitions=2), new_topic(partitions=1)]
    names = [unique("id") for _ in range(3)]
    producers = {name: client.transactional_producer(name, protocol=protocol) for name in names}
    expected: dict[str, list[bytes]] = {topic: [] for topic in topics}
    number = 0
    for _ in range(40):
        name = random.choice(names)
        producer = producers[name]
        producer.begin()
        written: list[tuple[str, bytes]] = []
        for _ in range(random.choice([0, 1, 5, 200])):
            topic, value = random.choice(topics), b"%06d" % number
            producer.send(topic, value, key=value if random.random() < 0.5 else None)
            written.append((topic, value))
            number += 1
            if random.random() < 0.02:
                producer.flush()
        end = random.choice(["commit", "commit", "abort", "takeover", "prepared"])
        if end == "abort":
            producer.abort()
        elif end == "takeover":
            producer.flush()
            producers[name] = client.transactional_producer(name, protocol=protocol)
        else:
            if end == "commit":
                producer.commit()
            else:
                prepared = producer.prepare()
                assert (prepared is None) == (not written)
                if prepared is not None:
                    assert client.transactions.end([prepared], committed=True) == {prepared: None}
                    producers[name] = client.transactional_producer(name, protocol=protocol)
            for topic, value in written:
                expected[topic].append(value)
    for producer in producers.values():
        producer.begin()
        producer.commit()
    # The end of a transaction is answered before its markers are written.
    assert eventually(lambda: not any(client.transactions.describe(name).is_open for name in names))
    for topic, partitions in zip(topics, (2, 1), strict=True):
        assert_committed(client, topic, expected[topic], partitions)


def test_a_producer_whose_id_was_taken_is_fenced(client: Client, topic: str, unique: Named, protocol: int) -> None:
    name = unique("id")
    first = client.transactional_producer(name, protocol=protocol)
    first.begin()
    first.send(topic, b"zombie")
    first.flush()
    second = client.transactional_producer(name, protocol=protocol)
    first.send(topic, b"zombie too")
    with pytest.raises(Fenced, match=name) as raised:
        first.commit()
    assert raised.value.hint and "another producer" in raised.value.hint
    with pytest.raises(Fenced):
        first.send(topic, b"never")
    first.abort()
    second.begin()
    second.send(topic, b"alive")
    second.commit()
    assert_committed(client, topic, [b"alive"])


def test_a_transaction_that_outlasts_its_timeout_is_fenced_and_unseen(
    client: Client, topic: str, unique: Named, protocol: int
) -> None:
    producer = client.transactional_producer(unique("id"), timeout_ms=1000, protocol=protocol)
    producer.begin()
    producer.send(topic, b"too slow")
    prepared = producer.prepare()
    assert prepared is not None
    assert eventually(lambda: not client.transactions.describe(prepared.transactional_id).is_open)
    outcome = client.transactions.end([prepared], committed=True)[prepared]
    assert isinstance(outcome, ClientError) and not outcome.retriable
    with pytest.raises(Fenced):
        producer.commit()
    assert_committed(client, topic, [])


def test_a_timeout_that_the_brokers_do_not_allow_says_what_to_set(client: Client, unique: Named) -> None:
    with pytest.raises(Refused, match="86400000 ms") as raised:
        client.transactional_producer(unique("id"), timeout_ms=86_400_000)
    assert "transaction.max.timeout.ms" in (raised.value.hint or "")


def test_prepared_transactions_are_ended_from_elsewhere_as_often_as_one_likes(
    client: Client, broker: Any, new_topic: Callable[..., str], unique: Named
) -> None:
    topic = new_topic(partitions=3)
    prepared: list[Prepared] = []
    for number in range(12):
        producer = client.transactional_producer(unique("id"))
        producer.begin()
        producer.send(topic, b"%02d" % number, partition=number % 3)
        made = producer.prepare()
        assert made is not None
        prepared.append(made)
        with pytest.raises(Refused, match="prepared"):
            producer.send(topic, b"later")
    kept, dropped = prepared[::2], prepared[1::2]
    with Client(broker.bootstrap) as elsewhere:
        ends = elsewhere.transactions
        assert committed(client, topic, 3) == []
        for _ in range(3):
            assert ends.end(kept, committed=True) == dict.fromkeys(kept)
            assert ends.end(dropped, committed=False) == dict.fromkeys(dropped)
        assert all(isinstance(outcome, ClientError) for outcome in ends.end(dropped, committed=True).values())
        nobody = Prepared(unique("id"), 4711, 0)
        assert isinstance(ends.end([nobody], committed=True)[nobody], Fenced)
    assert_committed(client, topic, [b"%02d" % number for number in range(0, 12, 2)], 3)
    found = client.transactions.describe_all([each.transactional_id for each in prepared] + [nobody.transactional_id])
    assert found[nobody.transactional_id] is None and len(found) == 13


def test_an_id_is_taken_only_from_whom_it_was_expected_to_be(client: Client, topic: str, unique: Named) -> None:
    name = unique("id")
    bogus = (0, 0)
    first = client.transactional_producer(name, expected=bogus)  # it was nobody's
    with pytest.raises(Fenced):
        client.transactional_producer(name, expected=bogus)
    assert first._producer is not None
    client.transactional_producer(name, expected=first._producer)
    second = client.transactional_producer(name)
    with pytest.raises(Fenced):
        client.transactional_producer(name, expected=first._producer)
    second.begin()
    second.send(topic, b"second")
    second.commit()
    assert_committed(client, topic, [b"second"])


def test_a_failed_transaction_can_only_be_aborted_and_the_next_one_succeeds(
    client: Client, new_topic: Callable[..., str], unique: Named, protocol: int
) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    producer = client.transactional_producer(unique("id"), protocol=protocol)
    producer.begin()
    producer.send(topic, b"small")
    producer.flush()
    producer.send(topic, bytes(2000))
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        producer.commit()
    with pytest.raises(Refused, match="must be aborted"):
        producer.commit()
    with pytest.raises(Refused, match="must be aborted"):
        producer.begin()
    producer.abort()
    producer.begin()
    for _ in range(30):
        producer.send(topic, b"x" * 90)
    producer.commit()
    assert_committed(client, topic, [b"x" * 90] * 30)


def test_batches_that_come_encoded_are_split_where_the_broker_takes_less(
    client: Client, new_topic: Callable[..., str], unique: Named
) -> None:
    topic = new_topic(**{"max.message.bytes": "1000"})
    values = [b"%03d" % number + bytes(number * 7 % 50) for number in range(100)]
    for codec in range(len(CODEC_NAMES)):
        records: list[Any] = [(1000 + i, None, value, [("h", b"1")]) for i, value in enumerate(values)]
        payload = build_batch(records, codec=codec)[HEADER_SIZE:]
        producer = client.transactional_producer(unique("id"), compression=CODEC_NAMES[codec])
        producer.begin()
        producer.send(topic, b"before", partition=0, timestamp_ms=7)
        producer.send_encoded(topic, 0, Encoded(payload, codec, len(records), 1000, 1000 + len(values) - 1))
        producer.send(topic, b"behind", partition=0, timestamp_ms=7)
        producer.commit()
    expected = [(7, b"before"), *((1000 + i, value) for i, value in enumerate(values)), (7, b"behind")]
    assert eventually(lambda: len(committed(client, topic)) == len(expected) * len(CODEC_NAMES))
    read = [(r.timestamp, r.value) for r in client.read(topic, 0, isolation="read_committed")]
    assert read == expected * len(CODEC_NAMES)


def test_an_end_whose_answer_was_lost_is_not_taken_for_another(tidelog_broker: RunningBroker) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 1)
        producer = client.transactional_producer("id")
        for number in range(3):
            producer.begin()
            producer.send("t", b"%d" % number)
            producer.flush()
            _break_the_next_answer(client, producer)
            producer.commit() if number != 1 else producer.abort()
        assert_committed(client, "t", [b"0", b"2"])


def _break_the_next_answer(client: Client, producer: TransactionalProducer) -> None:
    connection = producer._coordinator
    assert connection is not None

    class Breaking:
        closed = False

        def __getattr__(self, name: str) -> object:
            return getattr(connection, name)

        def call(self, *args: Any) -> object:
            connection.call(*args)
            connection.close()
            self.closed = True
            raise Unreachable("cut")

    producer._coordinator = Breaking()  # type: ignore[assignment]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_broker_that_goes_in_the_middle_of_a_transaction_does_not_end_it(
    tidelog_broker: RunningBroker, how: str, protocol: int
) -> None:
    with Client(tidelog_broker.bootstrap) as client:
        client.admin.create_topic("t", 2)
        producer = client.transactional_producer("id", protocol=protocol)
        expected = []
        for number in range(4):
            producer.begin()
            producer.send("t", b"%d first" % number)
            producer.flush()
            if how == "kill":
                tidelog_broker.kill()
                tidelog_broker.start()
            else:
                tidelog_broker.restart()
            producer.send("t", b"%d second" % number)
            if number == 2:
                producer.abort()
            else:
                producer.commit()
                expected += [b"%d first" % number, b"%d second" % number]
        assert_committed(client, "t", expected, 2)


def test_a_transaction_goes_through_its_states_in_order(client: Client, topic: str, unique: Named) -> None:
    producer = client.transactional_producer(unique("id"))
    for early in (producer.flush, producer.commit, producer.abort, lambda: producer.send(topic, b"x")):
        with pytest.raises(Refused):
            early()
    producer.begin()
    with pytest.raises(Refused, match="is open"):
        producer.begin()
    producer.abort()
    producer.begin()
    assert producer.prepare() is None
    producer.begin()
    producer.commit()
    with pytest.raises(Refused, match="must not be empty"):
        client.transactional_producer("")
    # The coordinator has heard of none of these.
    assert client.transactions.describe(producer.transactional_id).state == "Empty"
    with pytest.raises(ClientError) as raised:
        client.transactions.describe(unique("id"))
    assert raised.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
