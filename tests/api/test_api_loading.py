"""What arrives while a coordinator loads its partition: ends of transactions, and deletions of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from api_site import Site, Workers

from tidelog.coordinator.coordination import CHUNK_BYTES
from tidelog.wire.errors import ErrorCode

OK = 0
NOTHING = -1
GROUP = "g"
Identity = tuple[int, int]


@pytest.fixture
def site(new_site: Callable[..., Site]) -> Site:
    one = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    made = new_site(**one)
    made.topic("t", 50)
    for kind in (0, 1):
        made.ask(10, 4, key_type=kind, coordinator_keys=["x"])
    return made


@contextmanager
def started_again(site: Site, clean: bool = True) -> Iterator[Workers]:
    """Within, the coordinators load as far as the workers are let; afterwards they have."""
    site.stop(clean)
    workers = Workers()
    with workers.held():
        site.start(workers)
        assert fetched(site) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        yield workers
    assert fetched(site) == OK


def initialise(site: Site) -> Identity:
    answer = site.ask(22, 4, transactional_id="x", transaction_timeout_ms=60_000)
    return answer.producer_id, answer.producer_epoch


def commit_in_transaction(site: Site, identity: Identity, partition: int, offset: int) -> None:
    producer_id, epoch = identity
    asked = [{"name": "t", "partitions": [{"partition_index": partition, "committed_offset": offset}]}]
    who = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch}
    answer = site.ask(28, 5, group_id=GROUP, topics=asked, **who)
    assert answer.topics[0].partitions[0].error_code == OK


def end(site: Site, identity: Identity, commit: bool) -> Identity:
    producer_id, epoch = identity
    answer = site.ask(26, 5, transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=commit)
    assert answer.error_code == OK
    return answer.producer_id, answer.producer_epoch


def commit(site: Site, topic: str, offset: int, group: str = GROUP, partitions: int = 1, metadata: str = "") -> None:
    asked = [
        {"partition_index": at, "committed_offset": offset, "committed_metadata": metadata} for at in range(partitions)
    ]
    answer = site.ask(8, 8, group_id=group, topics=[{"name": topic, "partitions": asked}])
    assert {p.error_code for p in answer.topics[0].partitions} == {OK}


def more_than_a_chunk(site: Site) -> None:
    """Other groups fill the partition, so that loading pauses between what stands before and behind this."""
    before = site.broker.data.partition("__consumer_offsets", 0).log.size_bytes
    while site.broker.data.partition("__consumer_offsets", 0).log.size_bytes - before <= CHUNK_BYTES:
        commit(site, "t", 1, "another", 50, "m" * 4000)


def fetched(site: Site) -> int:
    (found,) = site.ask(9, 8, groups=[{"group_id": GROUP, "topics": []}]).groups
    code: int = found.error_code
    return code


def committed(site: Site, topic: str = "t", partitions: int = 1) -> list[int]:
    asked = [{"name": topic, "partition_indexes": list(range(partitions))}]
    (found,) = site.ask(9, 8, groups=[{"group_id": GROUP, "topics": asked}], require_stable=True).groups
    assert {p.error_code for p in found.topics[0].partitions} == {OK}
    return [p.committed_offset for p in found.topics[0].partitions]


def delete(site: Site, topic: str) -> None:
    (deleted,) = site.ask(20, 6, topics=[{"name": topic}], timeout_ms=1000).responses
    assert deleted.error_code == OK


@pytest.mark.parametrize("first", [True, False], ids=["committed", "aborted"])
def test_a_transaction_that_ends_while_its_offsets_load_leaves_the_one_before_as_it_ended(
    site: Site, first: bool
) -> None:
    identity = initialise(site)
    commit_in_transaction(site, identity, 0, 100)
    more_than_a_chunk(site)
    identity = end(site, identity, first)
    commit_in_transaction(site, identity, 1, 7)
    with started_again(site) as workers:
        workers.step()
        end(site, identity, not first)
    after = [100, NOTHING] if first else [NOTHING, 7]
    assert committed(site, partitions=2) == after
    site.stop()
    site.start()
    assert committed(site, partitions=2) == after


def test_a_topic_that_is_deleted_while_its_offsets_load_takes_them_with_it(site: Site) -> None:
    site.topic("gone")
    commit(site, "gone", 123)
    commit(site, "t", 5)
    with started_again(site):
        delete(site, "gone")
    assert committed(site, "gone") == [NOTHING]
    site.topic("gone")
    assert (committed(site, "gone"), committed(site)) == ([NOTHING], [5])


@pytest.mark.parametrize("when", ["before the crash", "after it"])
def test_offsets_of_a_deleted_topic_are_not_given_to_the_next_of_its_name_where_a_crash_kept_them(
    site: Site, when: str
) -> None:
    site.topic("gone")
    commit(site, "gone", 123)
    commit(site, "t", 5)
    # The deletion is decided, and the broker dies before the coordinator has come to write it down.
    site.stop()
    site.start(Workers(idle=True))
    delete(site, "gone")
    if when == "before the crash":
        site.topic("gone")
    site.stop(clean=False)
    site.start()
    if when == "after it":
        site.topic("gone")
    assert (committed(site, "gone"), committed(site)) == ([NOTHING], [5])
    commit(site, "gone", 7)
    site.stop()
    site.start()
    assert (committed(site, "gone"), committed(site)) == ([7], [5])


def test_offsets_of_a_deleted_topic_are_not_given_to_the_next_of_its_name_where_the_disk_was_full(site: Site) -> None:
    site.topic("gone")
    commit(site, "gone", 123)
    site.disk.fail_writes_after(0)
    delete(site, "gone")
    site.disk.fail_writes_after(1 << 30)
    assert committed(site, "gone") == [123]
    site.topic("gone")
    assert committed(site, "gone") == [NOTHING]
