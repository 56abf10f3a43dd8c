"""Logs that a start finds damaged, and cuts: their brokers lead them only where nobody else is known to have more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from replica_cluster import ReplicaCluster, batch

from tidelog.control.leadership import ElectionType
from tidelog.control.model import NO_LEADER
from tidelog.control.nodes import broker_path
from tidelog.log.disk import read_file
from tidelog.log.memory_disk import MemoryDisk
from tidelog.log.shared import COMMIT_DIRECTORY
from tidelog.log.shared.commit_entry import HEAD_SIZE, MAGIC
from tidelog.log.shared.commit_log import CommitLog
from tidelog.metadata.store import Delete

WRITTEN = 5


@pytest.fixture(params=["partitioned", "shared"])
def cluster(request: pytest.FixtureRequest) -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3, log_layout=request.param)
    yield cluster
    cluster.check()


def fill(cluster: ReplicaCluster, *topics: str) -> None:
    for topic in topics:
        for number in range(WRITTEN):
            cluster.write(topic, batch(1, f"{topic}, number {number}".encode()))


def all_die(cluster: ReplicaCluster) -> None:
    """At the same moment, so that nobody sees anybody else go."""
    for node in [cluster.kill(broker, expire=False) for broker in list(cluster.nodes)]:
        cluster.expire(node)


def damage(disk: MemoryDisk, topic: str, number: int, path: str = "/data") -> None:
    """Turns a bit of one record over, wherever it is stored."""
    for entry in list(disk.list(path)):
        below = f"{path}/{entry.name}"
        if entry.is_dir:
            damage(disk, topic, number, below)
        elif (at := read_file(disk, below).find(f"{topic}, number {number}".encode())) >= 0:
            disk.open(below).write(b"?", at)


def all_die_and_damage(cluster: ReplicaCluster, *brokers: int) -> None:
    all_die(cluster)
    for broker in brokers:
        damage(cluster[broker].disk, "t", 2)


def tear(disk: MemoryDisk, topic: str, path: str = "/data") -> None:
    """A batch that was being written, and that nobody has heard of, is cut off by the death of the process."""
    file = f"{path}/{topic}-0/{0:020d}.log"
    disk.open(file).write(batch(1, b"torn")[:40], len(read_file(disk, file)))


def ends(cluster: ReplicaCluster, brokers: Sequence[int] = (1, 2, 3)) -> list[int]:
    return [cluster[broker].partition().log.log_end_offset for broker in brokers]


@pytest.mark.parametrize("number", [0, 2, WRITTEN - 1])
@pytest.mark.parametrize("is_followed", [False, True])
def test_when_all_have_died_a_broker_whose_log_is_damaged_waits_for_one_whose_log_is_whole(
    cluster: ReplicaCluster, number: int, is_followed: bool
) -> None:
    """In the shared layout what is damaged may be the last that there is of its partition, or of all."""
    cluster.topic("t")
    cluster.topic("u")
    fill(cluster, *("tu" if is_followed else "ut"))
    all_die(cluster)
    damage(cluster[1].disk, "t", number)
    cluster[1].start()
    cluster.run(1_000)
    assert (cluster.leader("t", 0), cluster.isr("t")) == (NO_LEADER, (1, 2, 3))
    assert cluster.leader("u", 0) == 1, "what is whole does not wait"
    cluster[1].kill()
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER, "nothing can be seen of the damage any more, and it is still there"
    cluster.ensemble.connect().submit([Delete(broker_path(1))], lambda result: None)
    cluster.run(5_000)
    assert (cluster.leader("t", 0), cluster.leader("u", 0)) == (NO_LEADER, 1), "registering again makes it no better"
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 3))
    assert ends(cluster, (1, 3)) == [WRITTEN] * 2
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert len(cluster.contents()) == 1


def test_a_log_that_was_damaged_is_as_good_as_any_once_it_is_copied(cluster: ReplicaCluster) -> None:
    cluster.topic("t")
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    for broker in (1, 2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    all_die(cluster)
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert ends(cluster, (1,)) == [WRITTEN]
    assert not cluster.stored.brokers[1].damaged


def test_a_damaged_log_leads_where_all_are_damaged(cluster: ReplicaCluster) -> None:
    cluster.topic("t")
    fill(cluster, "t")
    all_die_and_damage(cluster, 1, 2, 3)
    for broker in (1, 2):
        cluster[broker].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER, "the third one may have more"
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert ends(cluster) == [2, 2, 2]


def test_a_damaged_log_leads_where_an_operator_wants_it(cluster: ReplicaCluster) -> None:
    cluster.topic("t")
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster.elect(ElectionType.UNCLEAN)
    cluster[2].start()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert ends(cluster) == [2, 2, 2]


def test_a_damaged_log_leads_where_nobody_else_was_in_sync(cluster: ReplicaCluster) -> None:
    cluster.topic("t")
    cluster.topic("single", replicas=(1,))
    fill(cluster, "t", "single")
    cluster[2].kill()
    cluster[3].kill()
    cluster.run_until(lambda: cluster.isr("t") == (1,))
    all_die_and_damage(cluster, 1)
    damage(cluster[1].disk, "single", 3)
    for broker in (1, 2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert ends(cluster) == [2, 2, 2]
    assert (cluster.leader("single", 0), cluster[1].partition("single").log.log_end_offset) == (1, 3)


@pytest.mark.parametrize("target", [(1, 4), (1,)])
def test_no_reassignment_makes_a_damaged_log_lead(target: tuple[int, ...]) -> None:
    cluster = ReplicaCluster(4)
    cluster.topic("t")
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    cluster[1].start()
    cluster[4].start()
    cluster.reassign_unheard(target)
    cluster.run(3_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster[2].start()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == target)
    assert ends(cluster, target) == [WRITTEN] * len(target)
    cluster.check()


def test_damage_that_others_see_costs_the_broker_its_place_in_the_isr_until_it_has_copied_what_it_lost(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic("t")
    fill(cluster, "t")
    cluster[1].kill()
    damage(cluster[1].disk, "t", 2)
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert ends(cluster) == [WRITTEN] * 3
    assert len(cluster.contents()) == 1


def test_a_batch_that_a_killed_process_was_writing_is_not_damage() -> None:
    cluster = ReplicaCluster(3)
    cluster.topic("t")
    fill(cluster, "t")
    all_die(cluster)
    for broker in (1, 2):
        tear(cluster[broker].disk, "t")
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert ends(cluster, (1,)) == [WRITTEN]
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2))
    cluster.check()


def test_zeros_in_the_place_of_batches_are_damage() -> None:
    cluster = ReplicaCluster(3)
    cluster.topic("t")
    fill(cluster, "t")
    all_die(cluster)
    file = cluster[1].disk.open(f"/data/t-0/{0:020d}.log")
    data = file.pread(1 << 20, 0)
    cut = len(data) * 4 // WRITTEN  # all batches are of the same size
    file.write(bytes(len(data) - cut), cut)
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster.check()


@pytest.mark.parametrize("is_of_topic", [False, True])
def test_room_that_was_made_in_advance_is_not_damage_and_damage_in_it_is_seen(is_of_topic: bool) -> None:
    """A broker opens its logs before it knows the settings of their topics."""
    cluster = ReplicaCluster(3, log_segment_bytes="1048576", log_preallocate="false" if is_of_topic else "true")
    cluster.topic("t", **({"preallocate": "true"} if is_of_topic else {}))
    fill(cluster, "t")
    all_die(cluster)
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert not cluster.stored.brokers[1].damaged
    for broker in (2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    all_die(cluster)
    file = cluster[1].disk.open(f"/data/t-0/{0:020d}.log")
    end = file.pread(1 << 20, 0).rindex(f"number {WRITTEN - 1}".encode()) + len("number 4") + 1
    file.write(batch(1, bytes(1000) + b"torn")[:80], end)
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert (ends(cluster, (1,)), cluster.stored.brokers[1].damaged) == ([WRITTEN], frozenset()), "a torn write"
    for broker in (2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    all_die(cluster)
    damage(cluster[1].disk, "t", WRITTEN - 1)
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster.check()


def test_one_that_waits_with_a_damaged_log_leads_where_the_others_have_lost_more(cluster: ReplicaCluster) -> None:
    cluster.topic("t", replicas=(1, 2))
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster[2].lose_disk()
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2))
    assert ends(cluster, (1, 2)) == [2, 2]


def test_where_unclean_elections_are_allowed_a_damaged_member_of_the_isr_does_not_wait(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic("t", unclean_leader_election_enable="true")
    cluster.write("t", batch(1, b"before"))
    cluster[3].kill()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2))
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    cluster[1].start()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 3))
    assert ends(cluster, (1, 3)) == [3, 3]


def test_a_damaged_log_of_which_nobody_knows_the_topic_waits_as_well() -> None:
    cluster = ReplicaCluster(3)
    cluster.topic("t")
    fill(cluster, "t")
    all_die_and_damage(cluster, 1)
    cluster[1].disk.remove("/data/t-0/partition.metadata")
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster[2].start()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3))
    assert ends(cluster) == [WRITTEN] * 3


@pytest.mark.parametrize("fate", ["one byte of its head", "its head is zeros", "all of it is zeros"])
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("dies_again", [False, True])
def test_damage_that_belongs_to_nobody_knows_whom_has_all_partitions_wait(
    fate: str, is_last: bool, dies_again: bool
) -> None:
    cluster = ReplicaCluster(3, log_layout="shared")
    cluster.topic("t")
    cluster.topic("u")
    fill(cluster, *("ut" if is_last else "tu"))
    all_die(cluster)
    disk = cluster[1].disk
    commit = disk.open(f"/data/{COMMIT_DIRECTORY}/{0:020d}.commit")
    data, magic = commit.pread(1 << 20, 0), MAGIC.to_bytes(4, "big")
    value = data.index(b"t, number 4")
    entry, end = data.rindex(magic, 0, value), data.find(magic, value)
    if fate == "one byte of its head":
        commit.write(b"?", entry)
    else:
        commit.write(bytes(HEAD_SIZE if "head" in fate else (end if end >= 0 else len(data)) - entry), entry)
    if dies_again:
        # The start that finds it does not come to open the logs.
        CommitLog(disk, "/data", 1 << 30).tail()
    cluster[1].start()
    cluster.run(1_000)
    assert (cluster.leader("t", 0), cluster.leader("u", 0)) == (NO_LEADER, NO_LEADER)
    cluster[2].start()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr("t") == (1, 2, 3) == cluster.isr("u"))
    assert ends(cluster) == [WRITTEN] * 3
    cluster.check()
