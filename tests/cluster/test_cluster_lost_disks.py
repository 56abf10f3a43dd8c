"""What is lost: brokers that come back with empty log directories, and a store that was restored from an old copy."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from replica_cluster import ReplicaCluster

from tidelog.control.leadership import ElectionType
from tidelog.control.model import NO_LEADER
from tidelog.control.nodes import broker_path
from tidelog.log.directories.directory_set import DIRECTORY_SET
from tidelog.log.disk import read_file, replace_file
from tidelog.log.memory_disk import MemoryDisk, MemoryFile
from tidelog.metadata.memory import MemoryEnsemble
from tidelog.metadata.store import Create, Delete


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    cluster = ReplicaCluster(3)
    yield cluster
    cluster.check()


def all_die(cluster: ReplicaCluster) -> None:
    """At the same moment, so that nobody sees anybody else go."""
    for node in [cluster.kill(broker, expire=False) for broker in list(cluster.nodes)]:
        cluster.expire(node)


def remove_tree(disk: MemoryDisk, path: str) -> None:
    for entry in list(disk.list(path)):
        if entry.is_dir:
            remove_tree(disk, f"{path}/{entry.name}")
        else:
            disk.remove(f"{path}/{entry.name}")
    disk.remove_dir(path)


def forget_directory(disk: MemoryDisk, path: str, forgotten: str) -> None:
    """An operator removes the line of a directory that is lost for good."""
    file = f"{path}/{DIRECTORY_SET}"
    lines = read_file(disk, file).decode().splitlines(keepends=True)
    replace_file(disk, file, "".join(line for line in lines if not line.endswith(f"={forgotten}\n")).encode())


def copy_of(disk: MemoryDisk, path: str = "/data", into: MemoryDisk | None = None) -> MemoryDisk:
    """What a backup made now would hold."""
    copy = into or MemoryDisk()
    copy.mkdir(path)
    for entry in disk.list(path):
        if entry.is_dir:
            copy_of(disk, f"{path}/{entry.name}", copy)
        else:
            replace_file(copy, f"{path}/{entry.name}", read_file(disk, f"{path}/{entry.name}"))
    return copy


class Forbidding(MemoryDisk):
    """A disk with one file that may not be opened."""

    forbidden = ""

    def open(self, path: str, *how: Any, **more: Any) -> MemoryFile:
        if path == self.forbidden:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().open(path, *how, **more)


def only_in_sync(cluster: ReplicaCluster) -> None:
    """Broker 1 alone has what was written last; then all die."""
    cluster.topic()
    cluster.topic("u")
    cluster.write("t", 5)
    cluster[2].kill()
    cluster[3].kill()
    cluster.run_until(lambda: cluster.isr() == (1,) == cluster.isr("u"))
    cluster.write("t", 5)
    all_die(cluster)


def ends(cluster: ReplicaCluster) -> list[int]:
    return [cluster[broker].partition().log.log_end_offset for broker in (1, 2, 3)]


def test_when_all_have_died_a_broker_without_its_disk_leads_nothing_though_it_is_back_first(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic(min_insync_replicas="2")
    cluster.write("t", 5)
    all_die(cluster)
    cluster[1].lose_disk()
    cluster[1].start()
    cluster.run(1_000)
    assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (2, 3))
    cluster[1].kill()
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER, "it has begun an empty log, and still has nothing"
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr() == (1, 3))
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert ends(cluster) == [5, 5, 5]
    assert len(cluster.contents()) == 1


def test_when_all_have_died_a_broker_with_one_of_its_disks_missing_waits_for_one_that_has_everything() -> None:
    cluster = ReplicaCluster(3, log_dirs="/a,/b")
    for name in ("t", "u"):
        cluster.topic(name)
        cluster.write(name, 5)
    all_die(cluster)
    (lost,) = [name for name in ("t", "u") if cluster[1].disk.exists(f"/b/{name}-0")]
    remove_tree(cluster[1].disk, "/b")
    cluster[1].start()
    cluster.run(1_000)
    assert [(cluster.leader(name, 0), cluster.isr(name)) for name in ("t", "u")] == [(NO_LEADER, (2, 3))] * 2
    cluster[2].start()
    cluster[3].start()
    cluster.run(1_000)
    assert cluster.isr(lost) == (2, 3), "it is offline on the broker that does not have it"
    cluster[1].kill()
    cluster[1].start()
    for name in ("t", "u"):
        cluster.run_until(lambda name=name: cluster.isr(name) == (1, 2, 3))  # type: ignore[misc]
        assert [cluster[broker].partition(name).log.log_end_offset for broker in (1, 2, 3)] == [5, 5, 5]
    cluster.check()


def test_a_missing_directory_that_is_given_up_while_the_broker_runs_stays_given_up() -> None:
    cluster = ReplicaCluster(3, log_dirs="/a,/b")
    for name in ("t", "u"):
        cluster.topic(name)
    (lost,) = [name for name in ("t", "u") if cluster[1].disk.exists(f"/b/{name}-0")]
    cluster.write(lost, 5)
    cluster[1].kill()
    cluster.start(1, log_dirs="/a")
    cluster.run(1_000)
    assert cluster.isr(lost) == (2, 3)
    forget_directory(cluster[1].disk, "/a", "/b")
    cluster.run(60_000)
    cluster[1].kill()
    cluster.start(1, log_dirs="/a")
    cluster.run_until(lambda: cluster.isr(lost) == (1, 2, 3))
    assert cluster[1].partition(lost).log.log_end_offset == 5
    cluster.check()


def test_the_last_in_sync_leads_what_it_has_with_one_of_its_disks_missing() -> None:
    cluster = ReplicaCluster(2, log_dirs="/a,/b")
    for name in ("t", "u"):
        cluster.topic(name, (1, 2))
    (kept,) = [name for name in ("t", "u") if cluster[1].disk.exists(f"/a/{name}-0")]
    cluster[2].kill()
    cluster.run_until(lambda: cluster.isr(kept) == (1,))
    cluster.write(kept, 5)
    all_die(cluster)
    remove_tree(cluster[1].disk, "/b")
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader(kept, 0) == 1)
    assert cluster[1].partition(kept).log.log_end_offset == 5


def test_an_election_by_hand_prefers_a_replica_that_was_behind_to_the_last_in_sync_without_its_disk(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic()
    cluster.write("t", 5)
    cluster[2].kill()
    cluster[3].kill()
    cluster.run_until(lambda: cluster.isr() == (1,))
    all_die(cluster)
    cluster[1].lose_disk()
    for broker in (1, 2, 3):
        cluster[broker].start()
    cluster.run(1_000)
    assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))
    cluster.elect(ElectionType.UNCLEAN)
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert ends(cluster) == [5, 5, 5]


def test_an_election_by_hand_takes_a_broker_without_its_disk_where_there_is_no_other(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 5)
    all_die(cluster)
    cluster[1].lose_disk()
    cluster[1].start()
    cluster.run(1_000)
    assert cluster.leader("t", 0) == NO_LEADER
    cluster.elect(ElectionType.UNCLEAN)
    assert cluster.leader("t", 0) == 1


def test_brokers_that_all_lost_their_disks_begin_anew(cluster: ReplicaCluster) -> None:
    cluster.topic()
    cluster.topic("single", (2,))
    cluster.write("t", 5)
    all_die(cluster)
    for broker in (1, 2, 3):
        cluster[broker].lose_disk()
    for broker in (1, 2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    cluster.write("t", 1)
    cluster.write("single", 1)
    assert ends(cluster) == [1, 1, 1]


def test_a_broker_that_has_copied_everything_after_it_lost_its_disk_is_as_good_as_any(cluster: ReplicaCluster) -> None:
    cluster.topic(replicas=(1, 2))
    cluster.write("t", 5)
    cluster[1].kill()
    cluster[1].lose_disk()
    cluster[1].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2))
    cluster[2].kill()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    # Somebody removes its registration: it registers again, and is the only one that has everything.
    cluster.ensemble.connect().submit([Delete(broker_path(1))], lambda result: None)
    cluster.run(1_000)
    cluster.write("t", 1)
    assert cluster[1].partition().log.log_end_offset == 6


@pytest.mark.parametrize("sign", ["transactions", "epochs"])
def test_a_store_that_was_restored_from_an_old_copy_costs_no_topic_its_records(
    cluster: ReplicaCluster, sign: str
) -> None:
    cluster.topic("old")
    copy = deepcopy(cluster.ensemble.tree)
    cluster.topic("young")
    if sign == "transactions":
        for number in range(20):  # the store goes on: its copy is that much older
            cluster.topic(f"z-{number}", replicas=(1,))
        cluster.run(60_000)  # the brokers write down how far it is
    else:
        for broker in (1, 2, 3):
            cluster[broker].kill()
            cluster.run(1_000)
            cluster.write("old")  # under the next leader's epoch
            cluster[broker].start()
            cluster.bring_in_sync()
        for _ in range(100):  # the copy has gone on, too
            copy.apply([Create("/somebody", b""), Delete("/somebody")], 1)
    for broker in (1, 2, 3):
        cluster.kill(broker, expire=False)
    for session in (1, 2, 3):  # those of the copy are over
        copy.apply([Delete(path) for path in copy.ephemerals(session)], session)
    cluster.ensemble = MemoryEnsemble()
    cluster.ensemble.tree = copy
    for broker in (1, 2, 3):
        cluster[broker].start()
        node = cluster[broker].node
        assert set(node.broker.data.logs.logs) == {("old", 0)}
        told = " ".join(node.notices)
        assert "restored from an old copy" in told and "young-0" in told and "set aside" in told
        kept = [entry.name for entry in cluster.disks[broker].list("/data") if entry.name.startswith("young-0.")]
        assert kept and kept[0].endswith("-stray")


@pytest.mark.parametrize("others", [False, True])
def test_the_last_in_sync_without_its_disk_leads_nothing_however_often_it_starts(
    cluster: ReplicaCluster, others: bool
) -> None:
    only_in_sync(cluster)
    cluster[1].lose_disk()
    for _ in range(3):
        cluster[1].start()
        if others:
            cluster[2].start()
            cluster.topic("new", (1, 2))  # a log that is as it should be
        cluster.run(3_000)
        assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))
        if others:
            cluster.delete_topic("new")
            cluster[2].kill()
        cluster[1].kill()


def test_the_last_in_sync_without_its_disk_leads_nothing_in_a_later_session_or_under_another_controller(
    cluster: ReplicaCluster,
) -> None:
    only_in_sync(cluster)
    cluster[1].lose_disk()
    cluster[2].start()
    cluster[1].start()
    cluster[3].start()
    for broker in (1, 2):
        cluster.run(3_000)
        assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))
        if broker == 1:  # it registers again, and says nothing of what it has told
            cluster.ensemble.connect().submit([Delete(broker_path(1))], lambda result: None)
        else:
            assert cluster.controller.id == 2
            cluster[2].kill()
    cluster.run(3_000)
    assert cluster.controller.id != 2
    assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))


def test_the_last_in_sync_leads_with_what_is_left_where_an_operator_wants_it(cluster: ReplicaCluster) -> None:
    only_in_sync(cluster)
    cluster[1].lose_disk()
    for _ in range(2):
        cluster[1].start()
        cluster.run(3_000)
        assert cluster.leader("t", 0) == NO_LEADER
        cluster[1].kill()
    cluster[1].start()
    cluster.elect(ElectionType.UNCLEAN)
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    cluster.write("t", 2)
    for broker in (1, 1):
        cluster[broker].kill()
        cluster[broker].start()
        cluster.run_until(lambda: cluster.leader("t", 0) == 1 and cluster[1].partition().is_leader)
    assert cluster[1].partition().log.log_end_offset == 2


def test_when_all_have_died_a_broker_on_an_old_copy_of_its_disk_leads_nothing_though_it_is_back_first(
    cluster: ReplicaCluster,
) -> None:
    cluster.topic(min_insync_replicas="2")
    cluster.write("t", 5)
    copy = copy_of(cluster.disks[1])
    cluster.run(120_000)
    cluster.write("t", 5)
    all_die(cluster)
    cluster.disks[1] = copy
    for _ in range(2):
        cluster[1].start()
        cluster.run(3_000)
        assert cluster.leader("t", 0) == NO_LEADER
        if _ == 0:
            assert "/data was restored from an old copy" in " ".join(cluster[1].node.notices)
            cluster[1].kill()
    cluster[3].start()
    cluster.run_until(lambda: cluster.isr() == (1, 3))
    cluster[2].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3))
    assert ends(cluster) == [10, 10, 10]
    cluster[2].kill()
    cluster[3].kill()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)


def test_the_last_in_sync_on_an_old_copy_of_its_disk_leads_nothing(cluster: ReplicaCluster) -> None:
    cluster.topic()
    copy = copy_of(cluster.disks[1])
    cluster.run(120_000)
    cluster.delete_topic("t")
    only_in_sync(cluster)
    own = copy_of(cluster.disks[1])
    cluster.disks[1] = copy_of(copy)
    cluster[1].start()
    cluster.run(3_000)
    assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))
    cluster[1].kill()
    cluster.disks[1] = own
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert cluster[1].partition().log.log_end_offset == 10, "the right disk is back"


def test_a_broker_that_was_killed_at_any_start_is_not_taken_for_an_old_copy(cluster: ReplicaCluster) -> None:
    only_in_sync(cluster)
    for _ in range(3):
        cluster.begin(1)
        cluster[1].kill()
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert cluster[1].partition().log.log_end_offset == 10


def test_a_partition_has_no_leader_while_the_directory_of_its_last_in_sync_is_lost() -> None:
    cluster = ReplicaCluster(3, log_dirs="/a,/b")
    for name in ("t", "u"):
        cluster.topic(name)
        cluster.write(name, 5)
    for broker in (2, 3):
        cluster[broker].kill()
    cluster.run_until(lambda: cluster.isr() == (1,) == cluster.isr("u"))
    (lost,) = [name for name in ("t", "u") if cluster[1].disk.exists(f"/b/{name}-0")]
    (failing,) = [each for each in cluster[1].node.broker.data.logs.dirs if each.path == "/b"]
    failing.fail(OSError(5, "Input/output error"))
    cluster.run(3_000)
    assert (cluster.leader(lost, 0), cluster.isr(lost)) == (NO_LEADER, (1,))
    cluster[2].start()
    cluster.run(3_000)
    assert (cluster.leader(lost, 0), cluster.isr(lost)) == (NO_LEADER, (1,)), "it was behind"
    cluster.elect_preferred(lost)
    assert cluster.leader(lost, 0) == NO_LEADER
    cluster[1].kill()
    cluster[1].start()  # the disk works again
    cluster.run_until(lambda: cluster.leader(lost, 0) == 1)
    assert cluster[1].partition(lost).log.log_end_offset == 5


def test_a_partition_has_no_leader_while_the_log_of_its_last_in_sync_cannot_be_opened(cluster: ReplicaCluster) -> None:
    only_in_sync(cluster)
    disk = Forbidding()
    copy_of(cluster.disks[1], into=disk)
    cluster.disks[1] = disk
    disk.forbidden = "/data/t-0/00000000000000000000.log"
    cluster[1].start()
    cluster.run(3_000)
    assert (cluster.leader("t", 0), cluster.isr()) == (NO_LEADER, (1,))
    assert cluster.leader("u", 0) == 1
    cluster[1].kill()
    disk.forbidden = ""
    cluster[1].start()
    cluster.run_until(lambda: cluster.leader("t", 0) == 1)
    assert cluster[1].partition().log.log_end_offset == 10
    cluster.reports.clear()  # it was told that the log cannot be opened


def test_followers_are_in_sync_again_after_the_store_was_restored_from_an_old_copy(cluster: ReplicaCluster) -> None:
    cluster.topic()
    copy = deepcopy(cluster.ensemble.tree)
    for broker in (1, 2, 3):
        cluster[broker].kill()
        cluster.run(1_000)
        cluster.write()  # under the next leader's epoch
        cluster[broker].start()
        cluster.bring_in_sync()
    for session in (1, 2, 3):  # those of the copy are over
        copy.apply([Delete(path) for path in copy.ephemerals(session)], session)
    for _ in range(100):
        copy.apply([Create("/somebody", b""), Delete("/somebody")], 1)
    for broker in (1, 2, 3):
        cluster.kill(broker, expire=False)
    cluster.ensemble = MemoryEnsemble()
    cluster.ensemble.tree = copy
    for broker in (1, 2, 3):
        cluster[broker].start()
    cluster.run_until(lambda: cluster.isr() == (1, 2, 3) and cluster.leader("t", 0) != NO_LEADER)
    cluster.agree()
    cluster.write("t", 2)
    assert ends(cluster) == [5, 5, 5]
    assert len(cluster.contents()) == 1
