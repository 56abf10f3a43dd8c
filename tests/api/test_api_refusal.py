"""A request that fails as a whole is told so wherever its client looks."""

from __future__ import annotations

from typing import Any

import pytest
from api_site import Site

from tidelog.api.refusal import ECHOES, refuse
from tidelog.api.routes import ROUTES
from tidelog.wire.codec import request_codec, response_codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import encode_response
from tidelog.wire.table import Struct

INVALID_REQUEST = ErrorCode.INVALID_REQUEST
#: DescribeLogDirs has an error for each directory, none of which the request names, and from version 3 one at the top
WITHOUT_A_PLACE = {(35, 1), (35, 2)}


def filled(top: Any, struct: Struct, version: int) -> Any:
    """A message with one item in every list."""
    message = (top if not hasattr(top, struct.name) else getattr(top, struct.name))()
    for field in struct.fields:
        if field.in_version(version) and field.array:
            item: Any = {"string": "x", "int32": 3, "int8": 2}.get(field.type)
            if field.struct is not None:
                item = filled(top, field.struct, version)
            setattr(message, field.name, [item])
    return message


def errors_in(message: Any) -> list[int]:
    found = []
    for name in message.__slots_in_order__:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "__slots_in_order__"):
                found += errors_in(item)
    return found


@pytest.mark.parametrize(
    ("key", "version"), [(k, v) for k, r in ROUTES.items() for v in range(r.min_version, r.max_version + 1)]
)
def test_every_api_and_version_can_tell_an_error(key: int, version: int) -> None:
    codec = request_codec(key, version)
    body = filled(codec.message_class, codec.schema, version)
    if key == 0:
        body.acks = -1
    response = refuse(key, version, body, INVALID_REQUEST, "no")
    whole = b"".join(bytes(part) for part in encode_response(key, version, 1, response))
    at = len(whole) - len(response_codec(key, version).encode(response))
    decoded, _ = response_codec(key, version).decode(memoryview(whole), at)
    errors = errors_in(decoded)
    if (key, version) not in WITHOUT_A_PLACE:
        assert INVALID_REQUEST in errors
    assert set(errors) <= {INVALID_REQUEST, 0}
    if key in ECHOES and not any(field.name == "error_code" for field in response_codec(key, version).schema.fields):
        assert set(errors) == {INVALID_REQUEST}


def test_a_handler_that_fails_is_reported_and_answered_on_every_partition(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(type(site.broker.data), "partition", broken)
    asked = [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": -1}]}]
    (topic,) = site.ask(2, 7, replica_id=-1, topics=asked).topics
    assert (topic.name, topic.partitions[0].partition_index) == ("t", 1)
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    what, error = site.reports.pop()
    assert "LIST_OFFSETS v7" in what
    assert isinstance(error, ZeroDivisionError)
    site.reports.clear()


def test_a_failed_produce_without_acks_closes_the_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.api.produce.PendingProduce.append_all", lambda self: 1 / 0)
    asked = site.send(0, 9, acks=0, timeout_ms=0, topic_data=[{"name": "t", "partition_data": []}])
    assert asked.exchange.closed
    site.reports.clear()


def test_an_answer_that_fails_later_closes_the_connection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.api.create_topics._result", lambda *args: 1 / 0)
    asked = site.send(19, 7, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}], timeout_ms=1000)
    assert asked.exchange.closed
    assert "CREATE_TOPICS v7" in site.reports[0][0]
    site.reports.clear()


def test_a_violated_invariant_fails_the_request_and_writes_nothing(site: Site) -> None:
    site.topic("t")
    site.produce("t", 3)
    partition = site.broker.data.partition("t", 0)
    partition.high_watermark = 9
    assert site.produce("t").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    what, error = site.reports.pop()
    assert what.startswith("PRODUCE") and isinstance(error, AssertionError)
    partition.high_watermark = 3
    assert site.produce("t").base_offset == 3


def test_a_partition_that_cannot_be_taken_up_stops_no_other(site: Site) -> None:
    site.topic("a")
    topic = site.broker.cluster.image.topics["a"]
    broken = topic.partitions[0]._replace(isr=(), leader_epoch=9)
    site.broker.assignments.placing.place(topic, broken)
    what, error = site.reports.pop()
    assert what == "a-0 cannot be taken up" and isinstance(error, AssertionError)
    site.topic("b")
    assert (site.produce("a").error_code, site.produce("b").error_code) == (0, 0)
