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
    site.broker.partition(STATE, 0).append(memoryview(record), -1, wall_ms)


def write(site: Site, identity: tuple[int, int], name: str | None = "x", sequence: int = 0) -> int:
    producer_id, epoch = identity
    records = batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    answer = site.ask(0, 12, transactional_id=name, acks=-1, timeout_ms=1000, topic_data=asked)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def end(site: Site, identity: tuple[int, int], name: str = "x", commit: bool = True) -> Any:
    return site.ask(26, 5, transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=commit)


def stable(site: Site) -> int:
    offset: int = site.broker.partition("t", 0).last_stable_offset
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
