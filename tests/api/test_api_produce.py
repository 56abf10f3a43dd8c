from __future__ import annotations

from collections.abc import Callable

import pytest
from api_site import UNKNOWN_ID, Site, batch

from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.layouts

OK = 0


def test_a_topic_without_partitions_is_not_answered(site: Site) -> None:
    site.topic("t")
    answer = site.ask(0, 9, acks=1, timeout_ms=0, topic_data=[{"name": "t", "partition_data": []}])
    assert answer.responses == []


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_transactional_batch_needs_a_transactional_id(site: Site, version: int) -> None:
    site.topic("t")
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    refused = site.produce("t", data, version=version)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.base_offset == -1
    assert site.broker.data.partition("t", 0).log.log_end_offset == 0


def test_a_refusal_tells_where_the_log_begins_unless_the_log_was_not_asked(site: Site) -> None:
    site.topic("t", cleanup_policy="compact,delete")
    site.produce("t", 3)
    site.ask(21, 2, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}], timeout_ms=0)
    out_of_order = batch(1, producer_id=5, producer_epoch=0, base_sequence=7)
    site.produce("t", batch(1, producer_id=5, producer_epoch=0, base_sequence=0))
    refused = site.produce("t", out_of_order)
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)
    damaged = bytearray(batch())
    damaged[30] ^= 1
    refused = site.produce("t", bytes(damaged))
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_acks_that_do_not_exist_are_refused(site: Site) -> None:
    site.topic("t")
    assert site.produce("t", acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_unknown_topic_is_named_as_it_was_asked_for(site: Site) -> None:
    assert site.produce("nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [{"topic_id": UNKNOWN_ID, "partition_data": [{"index": 0, "records": batch()}]}]
    (topic,) = site.ask(0, 13, acks=1, timeout_ms=0, topic_data=asked).responses
    assert topic.topic_id == UNKNOWN_ID
    assert topic.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_internal_topics_are_written_by_the_broker_and_by_an_admin_client_only(site: Site) -> None:
    site.ask(10, 4, key_type=0, coordinator_keys=["g"])
    assert site.produce("__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": batch()}]}]
    answer = site.ask(0, 9, client_id="__admin_client", acks=1, timeout_ms=0, topic_data=asked)
    assert answer.responses[0].partition_responses[0].error_code == OK


def test_every_part_of_a_request_is_written_though_another_is_refused(site: Site) -> None:
    site.topic("t")
    parts = [{"index": index, "records": batch()} for index in (0, 7, 0)]
    (topic,) = site.ask(0, 9, acks=-1, timeout_ms=0, topic_data=[{"name": "t", "partition_data": parts}]).responses
    told = [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses]
    assert told == [(0, OK, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (0, OK, 1)]


def test_acks_zero_is_silent_and_an_error_closes_the_connection(site: Site) -> None:
    site.topic("t")
    part = [{"index": 0, "records": batch()}]
    assert site.send(0, 9, acks=0, timeout_ms=0, topic_data=[{"name": "t", "partition_data": part}]).exchange.silent
    assert site.send(0, 9, acks=0, timeout_ms=0, topic_data=[{"name": "x", "partition_data": part}]).exchange.closed


def test_a_topic_that_flushes_on_append_is_acknowledged_after_the_flush(site: Site) -> None:
    site.topic("t", flush_messages="1")
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}]
    with site.workers.held():
        sent = site.send(0, 9, acks=1, timeout_ms=1000, topic_data=asked)
        assert not sent.exchange.answered
    assert sent.answer.responses[0].partition_responses[0].error_code == OK


@pytest.mark.parametrize("acks", [1, -1])
def test_a_flush_that_does_not_end_is_answered_in_time(site: Site, acks: int) -> None:
    site.topic("t", flush_messages="1")
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}]
    with site.workers.held():
        sent = site.send(0, 9, acks=acks, timeout_ms=1000, topic_data=asked)
        site.pass_time(2000)
        code = sent.answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.REQUEST_TIMED_OUT
    assert site.reports == []


def test_fewer_in_sync_than_the_minimum_refuses_acks_all_only(new_site: Callable[..., Site]) -> None:
    site = new_site()
    site.topic("t", min_insync_replicas="2")
    assert site.produce("t", acks=1).error_code == OK
    # A minimum above the number of replicas means all of them.
    assert site.produce("t", acks=-1).error_code == OK
