"""Requests that no client sends: refused in a bounded way, and nothing of them is kept."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pytest
from api_site import Exchange, Site

from tidelog.api.table import ROUTES
from tidelog.wire.apis import ApiKey
from tidelog.wire.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import build_batch

MIB = 1 << 20


@pytest.fixture
def left_behind() -> Iterator[list[Any]]:
    """After the test: the errors and tracebacks that only the cyclic collector would have freed."""
    gc.collect()
    gc.disable()
    found: list[Any] = []
    yield found
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found += [thing for thing in gc.garbage if isinstance(thing, (BaseException, TracebackType))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == []


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_refused_bomb_leaves_nothing_to_the_cyclic_collector(
    new_site: Any, left_behind: list[Any], codec: int
) -> None:
    site = new_site(**{"tidelog.max.decompressed.bytes": str(MIB)})
    site.topic("t")
    bomb = bytes(build_batch([(site.clock.wall_ms(), None, bytes(2 * MIB), None)], codec=codec))
    assert site.produce("t", bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    two = [{"name": "t", "partition_data": [{"index": 0, "records": bomb}] * 2}]
    answer = site.ask(0, 9, acks=-1, timeout_ms=1000, topic_data=two)
    assert [p.error_code for p in answer.responses[0].partition_responses] == [ErrorCode.MESSAGE_TOO_LARGE] * 2


def test_refused_transactional_records_leave_nothing_to_the_cyclic_collector(
    site: Site, left_behind: list[Any]
) -> None:
    site.topic("t")
    records = bytes(
        build_batch([(site.clock.wall_ms(), None, b"x", None)], producer_id=7, producer_epoch=0, base_sequence=5)
    )
    transactional = bytearray(records)
    assert site.produce("t", records).error_code == 0
    transactional[22] |= 0x10
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(transactional)}]}]
    answer = site.ask(0, 11, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=asked)
    assert answer.responses[0].partition_responses[0].error_code != 0


def sent_by_hand(site: Site, api_key: int, version: int) -> Exchange:
    exchange = Exchange()
    frame = bytearray(struct.pack(">hhih", api_key, version, 41, 4) + b"test" + bytes(64))
    site.dispatch(exchange, memoryview(frame))  # type: ignore[arg-type]
    return exchange


@pytest.mark.parametrize("key", [key for key in ROUTES if key != ApiKey.API_VERSIONS])
def test_a_version_that_is_not_served_closes_the_connection_and_says_so(site: Site, key: int) -> None:
    route = ROUTES[key]
    unserved = [route.max_version + 1, *([route.min_version - 1] if route.min_version else [])]
    for version in unserved:
        exchange = sent_by_hand(site, key, version)
        assert exchange.closed and exchange.frame is None
        served = f"versions {route.min_version} to {route.max_version}"
        assert f"{ApiKey(key).name} v{version} from 'test'" in site.notices[-1]
        assert served in site.notices[-1]
    assert len(site.notices) == len(unserved)


def test_api_versions_of_a_version_to_come_is_answered_in_version_0(site: Site) -> None:
    exchange = sent_by_hand(site, ApiKey.API_VERSIONS, 99)
    assert exchange.frame is not None
    correlation_id, code, count = struct.unpack_from(">ihi", exchange.frame, 4)
    assert (correlation_id, code, count) == (41, ErrorCode.UNSUPPORTED_VERSION, len(ROUTES))
