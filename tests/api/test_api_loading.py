"""What arrives while a coordinator loads its partition: ends of transactions, and deletions of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from api_site import Site, Workers

from tidelog.coordinator.coordination import CHUNK_BYTES
from tidelog.wire.batch import iter_headers
from tidelog.wire.errors import ErrorCode

OK = 0
NOTHING = -1
GROUP = "g"
Identity = tuple[int, int]
#: where these begin in a batch
OFFSET, LEADER_EPOCH, CHECKSUM = 0, 12, 17


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


# --- damage -------------------------------------------------------------------------------------------


def flips(site: Site, topic: str) -> Iterator[tuple[int, int]]:
    """Starts the broker with one bit after the other flipped, and says of which batch and of which of its bytes.

    In all batches but the last one, and not in what says where they end: these the log itself checks.
    """
    site.stop()
    stored = site.disk.content(f"{site.directory}/data-0/{topic}-0/{0:020}.log")
    whole = bytes(stored)
    for number, (begin, header) in enumerate(list(iter_headers(whole))[:-1]):
        for byte in (OFFSET, LEADER_EPOCH, *range(CHECKSUM, header.size_bytes, 16)):
            stored[begin + byte] ^= 4
            site.notices.clear()
            site.start()
            yield number, byte
            site.stop()
            stored[:] = whole
    site.start()


def test_a_flipped_bit_costs_groups_one_batch_and_never_becomes_another_offset(site: Site) -> None:
    commit(site, "t", 41)
    commit(site, "t", 9, "another")
    commit(site, "t", 42)
    commit(site, "t", 10, "another")
    for number, byte in flips(site, "__consumer_offsets"):
        damaged = [line for line in site.notices if "__consumer_offsets-0 is damaged" in line]
        if byte == LEADER_EPOCH:
            assert (committed(site), damaged) == ([42], [])
        else:
            assert committed(site) == [41 if number == 2 else 42]
            assert f"at offsets {number} to {number} is lost" in damaged[0] and "tidelog doctor --deep" in damaged[0]
    assert committed(site) == [42]


def test_a_flipped_bit_never_becomes_another_state_of_a_transaction(site: Site) -> None:
    producer_id, epoch = initialise(site)
    initialise(site)
    for number, byte in flips(site, "__transaction_state"):
        assert number == 0
        (found,) = site.ask(65, 0, transactional_ids=["x"]).transaction_states
        if byte == LEADER_EPOCH:
            assert (found.error_code, found.producer_id, found.producer_epoch) == (OK, producer_id, epoch + 1)
        else:
            assert found.error_code == ErrorCode.NOT_COORDINATOR
            assert "__transaction_state-0 cannot be loaded" in site.notices[-1]


def test_offsets_of_a_transaction_that_is_damaged_are_not_guessed(site: Site) -> None:
    identity = initialise(site)
    commit_in_transaction(site, identity, 0, 5)
    end(site, identity, commit=True)
    commit(site, "t", 9, "another")
    for _, byte in flips(site, "__consumer_offsets"):
        if byte == LEADER_EPOCH:
            assert committed(site) == [5]
        else:
            assert fetched(site) == ErrorCode.NOT_COORDINATOR


def test_a_damaged_partition_that_is_moved_away_is_made_anew_and_has_a_coordinator_again(site: Site) -> None:
    initialise(site)
    initialise(site)
    site.stop()
    path = f"{site.directory}/data-0/__transaction_state-0"
    site.disk.content(f"{path}/{0:020}.log")[80] ^= 4
    site.start()
    (told,) = [line for line in site.notices if "cannot be loaded" in line]
    assert f"Restore {path} from a backup" in told and "stop the broker and move it away" in told
    site.stop()
    site.disk.rename(path, f"{site.directory}/kept")
    site.start()
    assert initialise(site)[1] == 0
