from __future__ import annotations

from typing import Any

import pytest
from api_site import UNKNOWN_ID, Site, batch

from tidelog.wire.errors import ErrorCode

OK = 0


def fetch(site: Site, version: int, *partitions: dict[str, Any], topic: str = "t", **request: Any) -> Any:
    asked = [{"partition_max_bytes": 1 << 20, **partition} for partition in partitions]
    named = {"topic_id": site.broker.cluster.topic_id(topic)} if version >= 13 else {"topic": topic}
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **request}
    if version < 15:
        fields.setdefault("replica_id", -1)
    if version >= 7:
        fields.setdefault("session_epoch", -1)
    return site.ask(1, version, topics=[{**named, "partitions": asked}], **fields)


def one(site: Site, version: int, offset: int = 0, topic: str = "t", **partition: Any) -> Any:
    answer = fetch(site, version, {"partition": 0, "fetch_offset": offset, **partition}, topic=topic)
    return answer.responses[0].partitions[0]


@pytest.fixture
def filled(site: Site) -> Site:
    """Four batches of three records in partition 0 of topic t."""
    site.topic("t", partitions=2)
    for _ in range(4):
        site.produce("t", 3)
    return site


@pytest.mark.parametrize("version", [4, 11, 13, 18])
def test_a_fetch_inside_a_batch_brings_the_whole_batch(filled: Site, version: int) -> None:
    assert bytes(one(filled, version, 4).records) == bytes(one(filled, version, 3).records)
    assert len(one(filled, version, 3).records) == 3 * len(one(filled, version, 9).records)


@pytest.mark.parametrize("version", [4, 11, 13, 18])
def test_an_empty_fetch_is_empty_records_not_null(filled: Site, version: int) -> None:
    found = one(filled, version, 12)
    assert (found.error_code, bytes(found.records), found.high_watermark) == (OK, b"", 12)


@pytest.mark.parametrize("offset", [-1, 13])
def test_an_offset_that_is_not_there_tells_no_aborted_transactions(filled: Site, offset: int) -> None:
    found = one(filled, 11, offset)
    assert (found.error_code, found.high_watermark, found.aborted_transactions) == (
        ErrorCode.OFFSET_OUT_OF_RANGE,
        -1,
        None,
    )


def test_a_partition_that_is_not_there_has_an_empty_list_of_aborted_transactions(filled: Site) -> None:
    found = fetch(filled, 11, {"partition": 9, "fetch_offset": 0}).responses[0].partitions[0]
    assert (found.error_code, found.aborted_transactions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_the_first_batch_comes_whatever_its_size_and_the_limit_is_shared(filled: Site) -> None:
    filled.produce("t", 3, partition=1)
    both = ({"partition": 0, "fetch_offset": 0}, {"partition": 1, "fetch_offset": 0})
    first, second = fetch(filled, 11, *both, max_bytes=1).responses[0].partitions
    assert (len(first.records) > 0, len(second.records)) == (True, 0)
    assert second.high_watermark == 3


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, OK), (-2, OK), (0, OK), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_an_epoch_that_the_leader_does_not_know_is_refused(filled: Site, epoch: int, code: int) -> None:
    assert one(filled, 11, current_leader_epoch=epoch).error_code == code


def test_a_log_that_went_another_way_is_told_where(filled: Site) -> None:
    diverging = one(filled, 13, 100, last_fetched_epoch=0).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 12)
    assert one(filled, 13, 12, last_fetched_epoch=0).diverging_epoch is None


@pytest.mark.parametrize("version", [4, 7, 12, 13])
def test_an_isolation_level_that_does_not_exist_is_refused(filled: Site, version: int) -> None:
    answer = fetch(filled, version, {"partition": 0, "fetch_offset": 0}, isolation_level=2)
    assert ErrorCode.INVALID_REQUEST in (answer.error_code, answer.responses[0].partitions[0].error_code)


def test_who_is_no_follower_may_not_fetch_as_one(filled: Site) -> None:
    def as_replica(replica: int, epoch: int) -> int:
        wanted = {"partition": 0, "fetch_offset": 0, "current_leader_epoch": epoch}
        answer = fetch(filled, 12, wanted, replica_id=replica)
        code: int = answer.responses[0].partitions[0].error_code
        return code

    assert as_replica(5, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert as_replica(5, 0) == ErrorCode.UNKNOWN_LEADER_EPOCH
    # The replica verification tool reads as -2, which is a consumer.
    assert as_replica(-2, 0) == OK


def test_a_fetch_waits_for_enough_bytes_and_an_append_wakes_it(filled: Site) -> None:
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 12, "partition_max_bytes": 1 << 20}]}]
    waiting = filled.send(1, 11, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
    assert not waiting.exchange.answered
    filled.produce("t", 1)
    assert len(waiting.answer.responses[0].partitions[0].records) > 0


def test_a_fetch_that_waited_in_vain_is_answered_empty(filled: Site) -> None:
    topics = [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 12, "partition_max_bytes": 1 << 20}]}]
    waiting = filled.send(1, 11, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
    filled.pass_time(499)
    assert not waiting.exchange.answered
    filled.pass_time(1)
    assert bytes(waiting.answer.responses[0].partitions[0].records) == b""


def test_an_error_in_any_partition_answers_at_once(filled: Site) -> None:
    asked = [{"partition": index, "fetch_offset": 12 - 12 * index, "partition_max_bytes": 100} for index in (0, 1)]
    topics = [{"topic": "t", "partitions": [*asked, {"partition": 9, "fetch_offset": 0, "partition_max_bytes": 100}]}]
    sent = filled.send(1, 11, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
    assert [p.error_code for p in sent.answer.responses[0].partitions] == [OK, OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# --- sessions ---------------------------------------------------------------------------------------


def session(site: Site, session_id: int, epoch: int, *offsets: tuple[int, int], forget: tuple[int, ...] = ()) -> Any:
    partitions = [{"partition": at, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for at, offset in offsets]
    return site.ask(
        1,
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[{"topic": "t", "partitions": partitions}] if partitions else [],
        forgotten_topics_data=[{"topic": "t", "partitions": list(forget)}] if forget else [],
    )


def told(answer: Any) -> list[int]:
    return [p.partition_index for topic in answer.responses for p in topic.partitions]


def test_a_session_is_granted_even_without_partitions(filled: Site) -> None:
    assert session(filled, 0, 0).session_id != 0


def test_an_incremental_fetch_tells_only_what_is_new(filled: Site) -> None:
    begun = session(filled, 0, 0, (0, 12), (1, 0))
    assert told(begun) == [0, 1]
    assert told(session(filled, begun.session_id, 1)) == []
    filled.produce("t", 1, partition=1)
    assert told(session(filled, begun.session_id, 2)) == [1]


def test_a_partition_that_is_added_and_forgotten_in_one_request_is_forgotten(filled: Site) -> None:
    begun = session(filled, 0, 0, (0, 12))
    assert told(session(filled, begun.session_id, 1, (1, 0), forget=(1,))) == []
    filled.produce("t", 1, partition=1)
    assert told(session(filled, begun.session_id, 2)) == []


def test_offsets_are_told_again_after_a_divergence_for_who_cuts_its_log_takes_no_note_of_them(filled: Site) -> None:
    partition = {"partition": 0, "fetch_offset": 100, "last_fetched_epoch": 0}
    begun = fetch(filled, 12, partition, session_epoch=0)
    (found,) = begun.responses[0].partitions
    assert (found.diverging_epoch.end_offset, found.high_watermark) == (12, 12)
    cut = {"session_id": begun.session_id, "session_epoch": 1}
    (found,) = fetch(filled, 12, {**partition, "fetch_offset": 12}, **cut).responses[0].partitions
    assert found.high_watermark == 12
    assert told(session(filled, begun.session_id, 2)) == []


def test_sessions_refuse_unknown_ids_and_epochs_out_of_turn(filled: Site) -> None:
    assert session(filled, 12345, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    begun = session(filled, 0, 0, (0, 12))
    assert session(filled, begun.session_id, 5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session(filled, begun.session_id, 1).error_code == OK
    assert session(filled, begun.session_id, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_topic_id_is_told_per_partition(site: Site) -> None:
    answer = site.ask(
        1,
        13,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=100,
        session_epoch=-1,
        topics=[
            {"topic_id": UNKNOWN_ID, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10}]}
        ],
    )
    assert answer.error_code == OK
    assert answer.responses[0].topic_id == UNKNOWN_ID
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_records_come_as_they_were_written(site: Site) -> None:
    site.topic("t")
    sent = batch(3, codec=1)
    site.produce("t", sent)
    assert bytes(one(site, 13).records)[61:] == sent[61:]
