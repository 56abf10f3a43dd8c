"""What was acknowledged is served after stops and kills: transactions, topics created again, directories that go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from api_site import START_MS, Site, batch

from tidelog.metadata.memory import MemoryEnsemble
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.layouts

OK = 0
READ_COMMITTED = 1
CHECKPOINT = "replication-offset-checkpoint"


def transaction(site: Site, records: int = 3, commit: bool = True) -> None:
    """One transaction of a producer on partition 0 of topic t, from its beginning to its end."""
    site.ask(10, 4, key_type=1, coordinator_keys=["tx"])
    producer = site.ask(22, 4, transactional_id="tx", transaction_timeout_ms=60_000)
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = {"v3_and_below_transactional_id": "tx", "v3_and_below_topics": [{"name": "t", "partitions": [0]}]}
    added |= {f"v3_and_below_{name}": value for name, value in who.items()}
    answer = site.ask(24, 3, **added)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == OK
    data = batch(records, base_sequence=0, transactional=True, **who)
    asked = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    produced = site.ask(0, 9, transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=asked)
    assert produced.responses[0].partition_responses[0].error_code == OK
    assert site.ask(26, 3, transactional_id="tx", committed=commit, **who).error_code == OK


def fetched(site: Site, topic: str = "t", index: int = 0, isolation_level: int = 0) -> tuple[int, int, int, int]:
    """(error, high watermark, last stable offset, offsets from 0 on that a reader is given)."""
    asked = [{"topic": topic, "partitions": [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}]
    answer = site.ask(
        1,
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        topics=asked,
    )
    found = answer.responses[0].partitions[0]
    records = bytes(found.records or b"")
    count = 0
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        count += int.from_bytes(records[23:27], "big") + 1
        records = records[size:]
    return found.error_code, found.high_watermark, found.last_stable_offset, count


@pytest.mark.parametrize("idle_ms", [0, 70_000], ids=["at once", "after a minute of idling"])
@pytest.mark.parametrize("stop_between", [True, False])
def test_committed_transactions_are_visible_after_the_kill_of_an_idle_broker(
    site: Site, idle_ms: int, stop_between: bool
) -> None:
    site.topic("t")
    for commit in (True, False, True):
        transaction(site, commit=commit)
    if stop_between:
        site.stop()
        site.start()
    for _ in range(idle_ms // 1000):
        site.pass_time(1000)
    site.stop(clean=False)
    site.start()
    assert fetched(site, isolation_level=READ_COMMITTED) == (OK, 12, 12, 12)


def test_high_watermarks_are_written_as_often_as_is_set(new_site: Callable[..., Site]) -> None:
    site = new_site(**{"replica.high.watermark.checkpoint.interval.ms": "3000"})
    site.topic("t")
    site.produce("t", 4)
    path = f"{site.broker.data.logs.dirs[0].path}/{CHECKPOINT}"
    for _ in range(2):
        site.pass_time(1000)
    assert not site.disk.exists(path)
    for _ in range(2):
        site.pass_time(1000)
    assert bytes(site.disk.content(path)) == b"0\n1\nt 0 4\n"
    written = site.disk.counts["rename"]
    for _ in range(10):
        site.pass_time(1000)
    assert site.disk.counts["rename"] == written  # nothing has moved


# --- topics created again


def delete_topic(site: Site, name: str) -> None:
    (deleted,) = site.ask(20, 4, topic_names=[name], timeout_ms=0).responses
    assert deleted.error_code == OK


@pytest.mark.parametrize("stopped", [True, False])
def test_a_topic_created_again_keeps_what_it_acknowledged(site: Site, stopped: bool) -> None:
    site.topic("t")
    site.produce("t", 1000)
    partitions = [{"partition_index": 0, "offset": 900}]
    site.ask(21, 2, topics=[{"name": "t", "partitions": partitions}], timeout_ms=0)
    if stopped:
        site.stop()
        site.start()
    else:
        site.housekeeping.checkpoint()
    delete_topic(site, "t")
    site.topic("t")
    assert site.produce("t", 100).base_offset == 0
    site.stop(clean=False)
    site.start()
    assert fetched(site) == (OK, 100, 100, 100)
    assert site.produce("t").base_offset == 100


@pytest.mark.files
def test_a_deletion_that_a_kill_interrupted_leaves_nothing_behind(site: Site) -> None:
    site.topic("t", partitions=2)
    site.produce("t", 3)
    # The store knows of the deletion, and the process ends before a file is touched.
    site.broker.assignments._drop = lambda topic: iter(())  # type: ignore[method-assign, assignment, return-value]
    delete_topic(site, "t")
    site.stop(clean=False)
    site.start()
    site.topic("t")
    assert site.produce("t").base_offset == 0
    for _ in range(120):
        site.pass_time(1000)
    path = site.broker.data.logs.dirs[0].path
    assert [entry.name for entry in site.disk.list(path) if entry.is_dir] == ["t-0"]


# --- directories that go and come back


@pytest.fixture
def two(new_site: Callable[..., Site]) -> Site:
    site = new_site(dirs=2)
    site.topic("t", partitions=2, retention_ms="12345")
    for index in (0, 1):
        site.produce("t", 10 + index, partition=index)
    return site


def index_in(site: Site, at: int) -> int:
    ((_, index),) = site.broker.data.logs.dirs[at].logs
    return index


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_partitions_of_a_missing_directory_answer_with_a_storage_error_until_it_is_back(two: Site, clean: bool) -> None:
    path, index = two.broker.data.logs.dirs[1].path, index_in(two, 1)
    two.stop(clean)
    two.disk.rename(path, f"{path}.away")
    two.start()
    assert two.produce("t", 1, partition=index).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert fetched(two, index=index)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert two.produce("t", 1, partition=1 - index).base_offset == 11 - index
    two.topic("u")
    assert two.produce("u").error_code == OK
    assert two.notices and all(f"t-{index}" in notice and path in notice for notice in two.notices)
    two.stop(clean)
    for entry in two.disk.list(path):
        two.disk.remove(f"{path}/{entry.name}")
    two.disk.remove_dir(path)
    two.disk.rename(f"{path}.away", path)
    two.start()
    assert fetched(two, index=index) == (OK, 10 + index, 10 + index, 10 + index)
    assert two.produce("t", 1, partition=index).base_offset == 10 + index
    assert fetched(two, "u")[3] == 1


def test_a_topic_created_again_while_its_directory_is_missing_is_the_one_that_counts(two: Site) -> None:
    path, index = two.broker.data.logs.dirs[1].path, index_in(two, 1)
    two.stop()
    two.disk.rename(path, f"{path}.away")
    two.start()
    delete_topic(two, "t")
    two.topic("t", partitions=2)
    assert two.produce("t", 3, partition=index).base_offset == 0
    two.stop(clean=False)
    for entry in two.disk.list(path):
        two.disk.remove(f"{path}/{entry.name}")
    two.disk.remove_dir(path)
    two.disk.rename(f"{path}.away", path)
    two.start()
    assert fetched(two, index=index) == (OK, 3, 3, 3)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.files
def test_the_segment_that_a_restart_goes_on_with_keeps_to_its_topics_settings(site: Site, clean: bool) -> None:
    site.topic("t", segment_index_bytes="120", index_interval_bytes="0")

    def write() -> list[int]:
        for number in range(40):
            assert site.produce("t", batch(1, timestamp_ms=START_MS + number)).error_code == OK
        return [segment.base_offset for segment in site.broker.data.partition("t", 0).log.segments]

    bases = write()
    assert len(bases) > 3
    site.stop(clean)
    site.start()
    # No index is longer than its topic allows: the segment in hand is rolled when it is as full as the others were.
    longest = max(end - begin for begin, end in pairwise(bases))
    assert max(end - begin for begin, end in pairwise([*write(), 80])) <= longest


def test_a_preallocated_segment_is_no_loss_after_a_kill(site: Site) -> None:
    site.topic("t", preallocate="true", segment_bytes="1048576")
    site.produce("t", 3)
    site.stop(clean=False)
    site.start()
    assert site.notices == []
    assert site.produce("t").base_offset == 3


def test_topics_whose_configuration_is_lost_with_the_metadata_lose_nothing_to_retention(site: Site) -> None:
    site.topic("t", retention_ms="-1")
    site.produce("t", batch(5, timestamp_ms=START_MS - 30 * 86_400_000))
    site.stop()
    site.ensemble = MemoryEnsemble()
    site.start()
    assert any("nothing is deleted from them until you set retention.ms" in notice for notice in site.notices)
    site.housekeeping.retain()
    log = site.broker.data.partition("t", 0).log
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)
