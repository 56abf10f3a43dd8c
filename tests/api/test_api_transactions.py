"""What the broker does around transactions: producer ids that run out, requests that no transaction stands behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api_site import Site, batch

from tidelog.txn.records import transaction_record
from tidelog.txn.state import TransactionState
from tidelog.txn.transaction import Transaction
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch

pytestmark = pytest.mark.layouts

OK = 0
STATE = "__transaction_state"
LAST_EPOCH = 32766
TIMEOUT_MS = 10_000


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    made = new_site(**{"transaction.state.log.num.partitions": "1"})
    made.topic("t")
    return made


def initialise(site: Site, name: str = "x") -> tuple[int, int]:
    site.ask(10, 4, key_type=1, coordinator_keys=[name])
    answer = site.ask(22, 4, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    assert answer.error_code == OK
    return answer.producer_id, answer.producer_epoch


def store(site: Site, producer_id: int, epoch: int, name: str = "x") -> None:
    """As if the producer had come this far: the record that its last end would have left."""
    wall_ms = site.clock.wall_ms()
    at_rest = Transaction(name, producer_id, epoch, TIMEOUT_MS, TransactionState.EMPTY, wall_ms, producer_id)
    key, value, _ = transaction_record(at_rest, 2)
    record = build_batch([(wall_ms, key, value, None)])
    site.broker.data.partition(STATE, 0).append(memoryview(record), -1, wall_ms)


def write(site: Site, identity: tuple[int, int], name: str | None = "x", sequence: int = 0, version: int = 12) -> int:
    producer_id, epoch = identity
    records = batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    answer = site.ask(0, version, transactional_id=name, acks=-1, timeout_ms=1000, topic_data=asked)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def end(site: Site, identity: tuple[int, int], name: str = "x", commit: bool = True) -> Any:
    return site.ask(26, 5, transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=commit)


def stable(site: Site) -> int:
    offset: int = site.broker.data.partition("t", 0).last_stable_offset
    return offset


def grown_old(site: Site) -> tuple[int, int]:
    """A producer that has used up its epochs, with a transaction open, on a broker that has just started."""
    producer_id, _ = initialise(site)
    store(site, producer_id, LAST_EPOCH)
    site.stop()
    site.start()
    identity = producer_id, LAST_EPOCH
    assert write(site, identity) == OK
    return identity


def test_a_producer_whose_epochs_are_used_up_can_end_its_transaction_after_a_restart(site: Site) -> None:
    identity = grown_old(site)
    # No id is at hand after a start, and this request has the block asked for.
    assert end(site, identity).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ended = end(site, identity)
    assert (ended.error_code, ended.producer_epoch) == (OK, 0)
    assert ended.producer_id > identity[0]
    assert stable(site) == 2


def test_a_producer_whose_epochs_are_used_up_is_timed_out_after_a_restart(site: Site) -> None:
    grown_old(site)
    site.pass_time(TIMEOUT_MS)
    assert stable(site) == 0
    site.pass_time(1000)
    assert stable(site) == 2


# --- brokers that ask for several transactions ----------------------------------------------------------


def asked_for(identity: tuple[int, int], name: str, index: int = 0, verify_only: bool = False) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": identity[0],
        "producer_epoch": identity[1],
        "verify_only": verify_only,
        "topics": [{"name": "t", "partitions": [index]}],
    }


def added(site: Site, version: int, *transactions: dict[str, Any]) -> dict[str, list[tuple[str, int, int]]]:
    answer = site.ask(24, version, transactions=list(transactions))
    assert answer.error_code == OK and answer.results_by_topic_v3_and_below == []
    return {
        result.transactional_id: [
            (topic.name, partition.partition_index, partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("coordinator_partitions", ["1", "50"])
def test_a_broker_that_asks_for_several_transactions_is_answered_once_for_all(
    new_site: Callable[..., Site], version: int, coordinator_partitions: str
) -> None:
    site = new_site(**{"transaction.state.log.num.partitions": coordinator_partitions})
    site.topic("t")
    identities = {name: initialise(site, name) for name in "abc"}
    assert added(
        site,
        version,
        asked_for(identities["a"], "a"),
        asked_for(identities["a"], "b"),
        asked_for(identities["c"], "c", verify_only=True),
    ) == {
        "a": [("t", 0, OK)],
        "b": [("t", 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING)],
        "c": [("t", 0, ErrorCode.TRANSACTION_ABORTABLE)],
    }
    assert [described(site, name) for name in "abc"] == [("Ongoing", ["t"]), ("Empty", []), ("Empty", [])]


def test_a_broker_that_asks_for_no_transaction_is_answered(site: Site) -> None:
    assert added(site, 5) == {}


def test_of_two_entries_for_a_transaction_the_last_counts(site: Site) -> None:
    site.topic("u")
    identity = initialise(site)
    last = asked_for(identity, "x") | {"topics": [{"name": "u", "partitions": [0]}]}
    assert added(site, 5, asked_for(identity, "x"), last) == {"x": [("u", 0, OK)]}
    (state,) = site.ask(65, 0, transactional_ids=["x"]).transaction_states
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("u", [0])]


def test_what_another_broker_adds_to_a_transaction_must_exist_here(site: Site) -> None:
    """Otherwise nobody would write its marker in the end."""
    identity, other = initialise(site), initialise(site, "y")
    unknown = asked_for(identity, "x") | {"topics": [{"name": "t", "partitions": [0, 7]}]}
    assert added(site, 5, unknown, asked_for(other, "y")) == {
        "x": [("t", 0, ErrorCode.OPERATION_NOT_ATTEMPTED), ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        "y": [("t", 0, OK)],
    }
    (state,) = site.ask(65, 0, transactional_ids=["x"]).transaction_states
    assert state.topics == []


# --- what is no part of a transaction -------------------------------------------------------------------


def test_a_produce_without_a_transactional_id_leaves_nothing_behind_for_the_transaction(site: Site) -> None:
    identity = initialise(site)
    site.ask(
        24,
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
    )
    stray = write(site, identity, name=None, sequence=0, version=11)
    assert stray == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Had the stray batch been seen as the first of the transaction, this one would be out of order.
    assert write(site, identity, sequence=3, version=11) == OK


@pytest.mark.parametrize("version", [11, 12])
def test_one_request_writes_in_the_transaction_of_one_producer(site: Site, version: int) -> None:
    """The coordinator knows one of them. Verified with it, the other would hold up readers for ever."""
    site.topic("two", 2)
    first, other = initialise(site), initialise(site, "y")
    parts = [
        {
            "index": index,
            "records": batch(1, producer_id=who, producer_epoch=epoch, base_sequence=0, transactional=True),
        }
        for index, (who, epoch) in enumerate((other, first))
    ]
    asked = [{"name": "two", "partition_data": parts}]
    answer = site.ask(0, version, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=asked)
    refused = [p.error_code for p in answer.responses[0].partition_responses]
    assert refused == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert site.broker.data.partition("two", 0).log.log_end_offset == 0
    assert described(site) == ("Empty", [])


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_without_a_group_are_refused_before_they_are_part_of_a_transaction(site: Site, version: int) -> None:
    site.ask(10, 4, key_type=0, coordinator_keys=["g"])
    producer_id, epoch = initialise(site)
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    who = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch}
    answer = site.ask(28, version, group_id="", topics=asked, **who)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert described(site) == ("Empty", [])


def described(site: Site, name: str = "x") -> tuple[str, list[str]]:
    (state,) = site.ask(65, 0, transactional_ids=[name]).transaction_states
    return state.transaction_state, [topic.topic for topic in state.topics]
