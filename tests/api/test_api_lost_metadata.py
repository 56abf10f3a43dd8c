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
