"""The metadata is lost, and the broker takes up what it finds in its log directories."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from api_site import Site, StillClock, Workers

from tidelog.metadata.memory import MemoryEnsemble
from tidelog.wire.errors import ErrorCode

OK = 0
#: hashes to 103: to another partition of six than of seven
GROUP = "g"
OFFSETS = "__consumer_offsets"
SEVEN = {"offsets.topic.num.partitions": "7", "transaction.state.log.num.partitions": "7"}


class TickingClock(StillClock):
    """Whoever asks has taken his time, so that others have their turn."""

    def monotonic_ms(self) -> int:
        self.now_ms += 10
        return self.now_ms


class SlowTurns(Workers):
    """One turn of the loop at a time, as a test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.waiting.append(callback)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def lose_metadata(site: Site, clean: bool = False) -> None:
    """The broker dies, and starts again in the directories alone."""
    site.stop(clean)
    site.ensemble = MemoryEnsemble()


def commit(site: Site, offset: int) -> int:
    asked = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    code: int = site.ask(8, 8, group_id=GROUP, topics=asked).topics[0].partitions[0].error_code
    return code


def committed(site: Site) -> int:
    asked = [{"name": "t", "partition_indexes": [0]}]
    (found,) = site.ask(9, 8, groups=[{"group_id": GROUP, "topics": asked}]).groups
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


def partitions_of(site: Site, topic: str) -> int:
    (found,) = site.ask(3, 9, topics=[{"name": topic}]).topics
    assert found.error_code == OK
    return len(found.partitions)


def test_offsets_committed_while_their_topic_was_still_being_created_are_found(new_site: Callable[..., Site]) -> None:
    site = new_site(**SEVEN)
    site.topic("t")
    site.stop()
    site.clock, workers = TickingClock(), SlowTurns()
    site.start(workers)
    site.send(10, 4, key_type=0, coordinator_keys=[GROUP])
    while (code := commit(site, 42)) != OK:
        assert code == ErrorCode.NOT_COORDINATOR
        workers.turn()
    assert len([key for key in site.broker.data.logs.logs if key.topic == OFFSETS]) < 7
    lose_metadata(site)
    site.start()
    assert committed(site) == 42


@pytest.mark.parametrize("grown", [False, True], ids=["created", "grown"])
def test_a_topic_that_was_still_being_made_has_all_its_partitions(new_site: Callable[..., Site], grown: bool) -> None:
    site = new_site()
    if grown:
        site.topic("t", 2)
    site.stop()
    site.clock, workers = TickingClock(), SlowTurns()
    site.start(workers)
    if grown:
        site.send(37, 3, topics=[{"name": "t", "count": 7, "assignments": None}], timeout_ms=1000)
    else:
        site.send(19, 7, topics=[{"name": "t", "num_partitions": 7, "replication_factor": 1}], timeout_ms=1000)
    assert len(site.broker.data.logs.logs) < 7
    lose_metadata(site)
    site.start()
    assert partitions_of(site, "t") == 7


def lose_directories(site: Site, topic: str, partitions: range) -> None:
    for index in partitions:
        path = f"{site.directory / 'data-0'}/{topic}-{index}"
        for entry in site.disk.list(path):
            site.disk.remove(f"{path}/{entry.name}")
        site.disk.remove_dir(path)


def test_offsets_are_found_where_the_last_partitions_of_their_topic_are_missing(new_site: Callable[..., Site]) -> None:
    site = new_site(**SEVEN)
    site.topic("t")
    site.ask(10, 4, key_type=0, coordinator_keys=[GROUP])
    assert commit(site, 42) == OK
    lose_metadata(site)
    lose_directories(site, OFFSETS, range(6, 7))
    site.start()
    assert (committed(site), partitions_of(site, OFFSETS)) == (42, 7)


def test_a_transactional_id_keeps_its_producer_where_the_last_partitions_are_missing(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(**SEVEN)
    site.ask(10, 4, key_type=1, coordinator_keys=["g"])
    before = site.ask(22, 4, transactional_id="g", transaction_timeout_ms=60_000)
    lose_metadata(site)
    lose_directories(site, "__transaction_state", range(6, 7))
    site.start()
    after = site.ask(22, 4, transactional_id="g", transaction_timeout_ms=60_000)
    assert (after.error_code, after.producer_id, after.producer_epoch) == (OK, before.producer_id, 1)


def test_more_partitions_that_are_set_since_do_not_hide_the_offsets_of_those_that_are_there(
    new_site: Callable[..., Site],
) -> None:
    site = new_site(**SEVEN)
    site.topic("t")
    site.ask(10, 4, key_type=0, coordinator_keys=[GROUP])
    assert commit(site, 42) == OK
    lose_metadata(site)
    site._settings["offsets.topic.num.partitions"] = "50"
    site.start()
    assert (committed(site), partitions_of(site, OFFSETS)) == (42, 7)


def test_a_partition_whose_directory_cannot_be_opened_counts_among_those_of_its_topic(
    new_site: Callable[..., Site],
) -> None:
    site = new_site()
    site.topic("t", 3)
    lose_metadata(site)
    path = f"{site.directory}/data-0/t-2/partition.metadata"
    site.disk.remove(path)
    site.disk.mkdir(path)
    site.start()
    assert [line for line in site.notices if "partition 2 of topic t is offline" in line]
    assert partitions_of(site, "t") == 3
    site.reports.clear()
