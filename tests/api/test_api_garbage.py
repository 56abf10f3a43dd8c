"""Requests leave nothing behind that only the cyclic collector frees: while it runs, nobody is served.

Its runs are far apart as long as requests are freed when they are answered. A request that is held by what it holds
itself brings one about every few thousand requests, and each looks at tens of thousands of objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from api_site import Site, batch

pytestmark = pytest.mark.layouts

TIMES = 20


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    made = new_site(**{"transaction.state.log.num.partitions": "1"})
    made.topic("t")
    return made


@pytest.fixture
def collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def garbage_of(step: Callable[[], object]) -> int:
    """What many such steps leave to the collector; what is made once, on first use, does not count."""
    step()
    gc.collect()
    for _ in range(TIMES):
        step()
    return gc.collect()


def fetch(site: Site, offset: int) -> Any:
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}]
    return site.send(1, 11, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)


@pytest.mark.usefixtures("collector")
def test_of_records(site: Site) -> None:
    assert garbage_of(lambda: site.produce("t", 1)) == 0
    assert garbage_of(lambda: fetch(site, 0).answer) == 0


@pytest.mark.usefixtures("collector")
def test_of_fetches_that_wait(site: Site) -> None:
    site.produce("t", 1)
    end = 1

    def poll(ends: Callable[[], object]) -> None:
        waiting = fetch(site, end)
        assert not waiting.exchange.answered
        ends()
        assert waiting.exchange.answered

    def woken() -> None:
        nonlocal end
        poll(lambda: site.produce("t", 1))
        end += 1

    assert garbage_of(woken) == 0
    assert garbage_of(lambda: poll(lambda: site.pass_time(500))) == 0


@pytest.mark.usefixtures("collector")
def test_of_transactions(site: Site) -> None:
    site.ask(10, 4, key_type=1, coordinator_keys=["x"])
    producer = site.ask(22, 5, transactional_id="x", transaction_timeout_ms=10_000)
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}

    def transaction() -> None:
        # The end of each gives the producer its next epoch, in which it begins to count anew.
        records = batch(1, **identity, base_sequence=0, transactional=True)
        asked = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
        written = site.ask(0, 12, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=asked)
        assert written.responses[0].partition_responses[0].error_code == 0
        ended = site.ask(26, 5, transactional_id="x", **identity, committed=True)
        assert ended.error_code == 0
        identity.update(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)

    assert garbage_of(transaction) == 0
