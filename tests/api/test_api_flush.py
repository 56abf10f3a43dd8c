"""Topics that are flushed before they acknowledge: coordinators and markers wait for the flush as producers do."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from api_site import Asked, Site, batch

from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.layouts

OK = 0
ONE_PARTITION = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture
def flushed(new_site: Callable[..., Site]) -> Site:
    """Every append is flushed before it is acknowledged."""
    made = new_site(**ONE_PARTITION, **{"log.flush.interval.messages": "1"})
    made.topic("t")
    made.ask(10, 4, key_type=0, coordinator_keys=["g"])
    made.ask(10, 4, key_type=1, coordinator_keys=["x"])
    return made


def commit(site: Site, offset: int) -> Asked:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    return site.send(8, 7, group_id="g", generation_id_or_member_epoch=-1, topics=topics)


def committed_code(asked: Asked) -> int:
    code: int = asked.answer.topics[0].partitions[0].error_code
    return code


def open_transaction(site: Site) -> tuple[int, int]:
    answer = site.ask(22, 4, transactional_id="x", transaction_timeout_ms=10_000)
    identity = answer.producer_id, answer.producer_epoch
    records = batch(1, producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True)
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    answer = site.ask(0, 12, transactional_id="x", acks=-1, timeout_ms=1000, topic_data=asked)
    assert answer.responses[0].partition_responses[0].error_code == OK
    return identity


def end(site: Site, identity: tuple[int, int]) -> Asked:
    return site.send(26, 5, transactional_id="x", producer_id=identity[0], producer_epoch=identity[1], committed=True)


def state(site: Site) -> str:
    (found,) = site.ask(65, 0, transactional_ids=["x"]).transaction_states
    text: str = found.transaction_state
    return text


def is_flushed(site: Site, topic: str) -> bool:
    log = site.broker.data.partition(topic, 0).log
    return log.recovery_point == log.log_end_offset


def test_an_offset_commit_is_answered_after_the_flush(flushed: Site) -> None:
    with flushed.workers.held():
        sent = commit(flushed, 5)
        assert not sent.exchange.answered
    assert committed_code(sent) == OK and is_flushed(flushed, "__consumer_offsets")


def test_the_internal_topics_own_setting_counts_too(new_site: Callable[..., Site]) -> None:
    site = new_site(**ONE_PARTITION)
    site.topic("t")
    site.ask(10, 4, key_type=0, coordinator_keys=["g"])
    with site.workers.held():
        assert commit(site, 5).exchange.answered
    change = {"name": "flush.messages", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configs": [change]}
    assert site.ask(44, 1, resources=[resource]).responses[0].error_code == OK
    with site.workers.held():
        sent = commit(site, 6)
        assert not sent.exchange.answered
    assert committed_code(sent) == OK


def test_an_offset_commit_whose_flush_fails_is_not_acknowledged(flushed: Site) -> None:
    flushed.disk.fail("sync", errno.EIO)
    assert committed_code(commit(flushed, 5)) != OK
    assert flushed.reports
    flushed.reports.clear()


def test_a_sync_that_works_after_one_that_failed_acknowledges_nothing(flushed: Site) -> None:
    flushed.produce("t")
    with flushed.workers.held():
        asked = [{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}]
        sent = [flushed.send(0, 9, acks=1, timeout_ms=1000, topic_data=asked) for _ in range(2)]
        flushed.disk.fail("sync", errno.EIO)
    codes = [each.answer.responses[0].partition_responses[0].error_code for each in sent]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert flushed.reports
    flushed.reports.clear()


def test_a_transaction_ends_step_by_step_each_after_the_flush_of_the_one_before(flushed: Site) -> None:
    identity = open_transaction(flushed)
    data = flushed.broker.data.partition("t", 0)
    with flushed.workers.held():
        sent = end(flushed, identity)
        assert not sent.exchange.answered and state(flushed) == "PrepareCommit"
        assert data.log.log_end_offset == 1
        flushed.workers.step()
        assert sent.answer.error_code == OK and is_flushed(flushed, "__transaction_state")
        # The marker is written, and the transaction is not over before it is on the device.
        assert data.log.log_end_offset == 2 and state(flushed) == "PrepareCommit"
        flushed.workers.step()
        assert is_flushed(flushed, "t") and state(flushed) == "CompleteCommit"
    assert data.last_stable_offset == 2


def test_markers_wait_until_the_end_of_their_transaction_is_flushed_even_if_there_is_no_room_at_first(
    flushed: Site,
) -> None:
    identity = open_transaction(flushed)
    data = flushed.broker.data.partition("t", 0)
    # The next flush has leader epochs to write.
    flushed.broker.data.partition("__transaction_state", 0).log.leader_epochs.changes += 1
    with flushed.workers.held():
        sent = end(flushed, identity)
        flushed.disk.fail_writes_after(0)
        # The flush that housekeeping asked for, then the one that the answer waits for.
        flushed.workers.step()
        flushed.workers.step()
        assert sent.answer.error_code != OK
        flushed.disk.room_bytes = None
        assert data.log.log_end_offset == 1 and state(flushed) == "PrepareCommit"
        flushed.pass_time(1000)
        flushed.workers.step()
        assert data.log.log_end_offset == 2
    assert state(flushed) == "CompleteCommit" and data.last_stable_offset == 2


def test_a_marker_that_somebody_else_asks_for_is_answered_after_the_flush(flushed: Site) -> None:
    producer_id, epoch = open_transaction(flushed)
    topics = [{"name": "t", "partition_indexes": [0]}, {"name": "none", "partition_indexes": [0]}]
    marker = {"producer_id": producer_id, "producer_epoch": epoch, "transaction_result": False, "topics": topics}
    with flushed.workers.held():
        sent = flushed.send(27, 1, markers=[marker | {"coordinator_epoch": 0}])
        assert not sent.exchange.answered
    (result,) = sent.answer.markers
    assert [topic.partitions[0].error_code for topic in result.topics] == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert is_flushed(flushed, "t")
    assert flushed.ask(27, 1, markers=[]).markers == []
