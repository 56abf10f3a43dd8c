"""The same requests to this coordinator and to an Apache Kafka 4.3.0: the same answers.

Requests are random but mostly sensible: current identities, now and then the epoch before or after, an identity of
someone else, an end where nothing is open. Producer ids are compared by when they first appeared. Kafka writes its
markers in its own time, so where it says that a transaction is still ending it is asked again.

One difference is meant, and out of reach here: when the epochs of an id are used up, Kafka answers an InitProducerId
that names an older epoch with UNKNOWN_SERVER_ERROR; this coordinator fences it, or recognises the repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from bench.systems.java import JavaMissing
from bench.systems.kafka import ApacheKafka
from txn_script import Stage, Ticket

from tidelog.client.connection import Connection
from tidelog.txn.turn import TxnDecision
from tidelog.wire import messages
from tidelog.wire.apis import ApiKey
from tidelog.wire.errors import ErrorCode

pytestmark = [pytest.mark.java, pytest.mark.slow]

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
GROUP, OFFSETS_PARTITION = "g", 1
STRANGER = 999_999
# What Kafka says while a transaction is ending, and while it fetches its first producer ids.
PASSING = ("CONCURRENT_TRANSACTIONS", "Prepare", "COORDINATOR_LOAD_IN_PROGRESS")


class Asked(NamedTuple):
    api_key: ApiKey
    version: int
    # The request, given a producer id of the system that is asked.
    build: Callable[[int], Any]


class Ours(Stage):
    """Answers at once, and writes its markers at once."""

    def __init__(self) -> None:
        self.told: Any = None
        super().__init__(num_partitions=2)

    def ask_for(self, asked: Asked, producer_id: int) -> Any:
        self.ask("p", asked.build(producer_id), asked.version, OFFSETS_PARTITION)
        while self.in_flight:
            markers = self.in_flight.pop()
            results = dict.fromkeys(markers.partitions, ErrorCode.NONE)
            self.carry_out(self.transactions.markers_written(markers, results, self.now, self.wall))
        return self.told

    def answer(self, ticket: Ticket, message: Any) -> None:
        self.told = message

    def deliver(self, decision: TxnDecision) -> None:
        super().deliver(decision)
        self.seen.clear()


class Pair:
    """A transactional id in both systems, and the identity that its producer has there."""

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        self.kafka, self.ours = connection, Ours()
        self.transactional_id = transactional_id
        # (their producer id, ours): now, and before the last change
        self.producer, self.before = (-1, -1), (-1, -1)
        self.epoch = -1
        self.known = {-1: -1, 0: 0, STRANGER: STRANGER}

    def ask(self, asked: Asked, producer: tuple[int, int]) -> tuple[Any, Any]:
        """Both answers, with producer ids translated to ours."""
        told = _told(self.ours.ask_for(asked, producer[1]), asked.version)
        for _ in range(200):
            answer = self.kafka.call(asked.api_key, asked.build(producer[0]), asked.version)
            theirs = _told(answer, asked.version)
            if told and theirs and theirs[0] == "NONE" and len(theirs) > 1:
                self.known.setdefault(theirs[1], told[1])
            translated = tuple(self.known.get(part, "?") if at == 1 else part for at, part in enumerate(theirs))
            passing = any(word in str(theirs) for word in PASSING)
            if translated == told or not passing:
                break
            time.sleep(0.01)
        if asked.api_key in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN) and theirs[0] == "NONE" and len(theirs) > 1:
            if theirs[1] != self.producer[0]:
                self.before = self.producer
            self.producer, self.epoch = (theirs[1], told[1]), theirs[2]
        return told, translated


def _told(message: Any, version: int) -> tuple[Any, ...]:
    """(error, producer id, ...) in a form that can be compared."""
    name = type(message).__name__
    if name == "AddPartitionsToTxnResponse":
        topics = list(message.results_by_topic_v3_and_below)
        topics.extend(topic for result in message.results_by_transaction for topic in result.topic_results)
        codes = [(t.name, p.partition_index, p.partition_error_code) for t in topics for p in t.results_by_partition]
        return ("partitions", -1, *((topic, at, ErrorCode(code).name) for topic, at, code in sorted(codes)))
    if name == "DescribeTransactionsResponse":
        (state,) = message.transaction_states
        where = sorted((t.topic, p) for t in state.topics for p in t.partitions)
        labels = (state.transaction_state, state.transaction_timeout_ms, state.producer_epoch, *where)
        return (ErrorCode(state.error_code).name, state.producer_id, *labels)
    code = ErrorCode(message.error_code).name
    if name == "AddOffsetsToTxnResponse" or (name == "EndTxnResponse" and version < 5):
        return (code,)
    return (code, message.producer_id, message.producer_epoch)


def some_request(random: Random, pair: Pair) -> tuple[Asked, tuple[int, int]]:
    name, epoch, producer = pair.transactional_id, pair.epoch, pair.producer
    chance = random.random()
    if chance < 0.2:
        epoch += random.choice([-1, -1, -2, 1])
    elif chance < 0.25:
        producer = random.choice([pair.before, (STRANGER, STRANGER)])
    if pair.epoch < 0:
        producer, epoch = (-1, -1), -1
    what = "init" if pair.epoch < 0 else random.choice(["init", "add", "add", "offsets", "end", "end", "describe"])
    if what == "init":
        keeps, version = random.random() < 0.5, random.choice([3, 4, 5])
        timeout_ms = random.choice([60_000, 60_000, 60_000, 30_000, 0])

        def init(producer_id: int) -> Any:
            request = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
            if keeps:
                request.producer_id, request.producer_epoch = producer_id, epoch
            return request

        return Asked(ApiKey.INIT_PRODUCER_ID, version, init), producer
    if what == "end":
        committed, version = random.random() < 0.5, random.choice([1, 4, 5, 5, 5])
        return Asked(
            ApiKey.END_TXN,
            version,
            lambda producer_id: messages.EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=committed
            ),
        ), producer
    if what == "offsets":
        return Asked(
            ApiKey.ADD_OFFSETS_TO_TXN,
            random.choice([1, 4]),
            lambda producer_id: messages.AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP
            ),
        ), producer
    if what == "describe":
        request = messages.DescribeTransactionsRequest(transactional_ids=[name])
        return Asked(ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: request), producer
    return _some_addition(random, name, epoch), producer


def _some_addition(random: Random, name: str, epoch: int) -> Asked:
    of = messages.AddPartitionsToTxnRequest
    topics = [of.AddPartitionsToTxnTopic(name="t", partitions=random.sample(range(3), random.randrange(1, 3)))]
    version, verify_only = random.choice([1, 3, 5, 5]), random.random() < 0.4

    def add(producer_id: int) -> Any:
        if version < 4:
            return of(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        entry = of.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        return of(transactions=[entry])

    return Asked(ApiKey.ADD_PARTITIONS_TO_TXN, version, add)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    try:
        running = ApacheKafka(Path(tmp_path_factory.mktemp("kafka")), SETTINGS).start()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    with running:
        connection = Connection(running.host, running.port, "parity", 30)
        of_topic = messages.CreateTopicsRequest.CreatableTopic
        topic = of_topic(name="t", num_partitions=3, replication_factor=1)
        connection.call(ApiKey.CREATE_TOPICS, messages.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        for key_type, key in ((1, "x"), (0, GROUP)):
            _await_coordinator(connection, key_type, key)
        yield connection
        connection.close()


def _await_coordinator(connection: Connection, key_type: int, key: str) -> None:
    request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while connection.call(ApiKey.FIND_COORDINATOR, request, 4).coordinators[0].error_code:
        time.sleep(0.1)


@pytest.mark.parametrize("seed", range(6))
def test_both_give_the_same_answers(kafka: Connection, seed: int) -> None:
    random = Random(seed)
    for number in range(10):
        pair = Pair(kafka, f"parity-{seed}-{number}")
        for step in range(25):
            asked, producer = some_request(random, pair)
            ours, theirs = pair.ask(asked, producer)
            assert ours == theirs, (
                f"step {step} of {pair.transactional_id}: {asked.build(producer[1])} v{asked.version}"
            )
