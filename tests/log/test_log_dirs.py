"""A broker's log directories: clean stops, crashes, second brokers, dead disks, moves."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from logkit import NOW_MS, append, new_log, produced, values

from tidelog.log.config import LogConfig
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.log.errors import DuplicateLog, LogDirCordoned, LogDirInUse, LogDirNotFound, StorageError
from tidelog.log.memory_disk import MemoryDisk


def open_dirs(*paths: Path, config: LogConfig | None = None, cluster_id: str = "cluster") -> LogDirs:
    dirs = LogDirs([str(path) for path in paths], SystemDisk(), lambda topic: config or LogConfig())
    dirs.open(node_id=1, cluster_id=cluster_id, now_ms=NOW_MS)
    return dirs


def two_dirs(disk: MemoryDisk | None = None, config: LogConfig | None = None) -> LogDirs:
    dirs = LogDirs(["/a", "/b"], disk or MemoryDisk(), lambda topic: config or LogConfig())
    dirs.open(node_id=1, cluster_id="c", now_ms=NOW_MS)
    return dirs


@pytest.mark.parametrize("logs", [1, 10])
@pytest.mark.parametrize("clean", [True, False])
def test_what_was_appended_is_there_after_reopening(tmp_path: Path, clean: bool, logs: int) -> None:
    dirs = open_dirs(tmp_path)
    for number in range(logs):
        log = dirs.create(("t", number), NOW_MS, topic_id=bytes(range(16)))
        for _ in range(10):
            append(log, 3, leader_epoch=4)
    if clean:
        dirs.close(broker_epoch=3, high_watermarks={("t", 0): 30})
    else:
        dirs._release()
    again = open_dirs(tmp_path)
    assert again.clean_broker_epoch == (3 if clean else -1)
    assert again.high_watermarks == ({("t", 0): 30} if clean else {})
    for number in range(logs):
        log = again.logs[("t", number)]
        assert len(values(log)) == 30
        assert log.topic_id == bytes(range(16)) and log.leader_epochs.entries() == [(4, 0)]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_the_same_directory_is_told_which_one(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    with pytest.raises(LogDirInUse, match=str(tmp_path)):
        open_dirs(tmp_path)
    dirs.close()
    open_dirs(tmp_path).close()


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    open_dirs(tmp_path).close()
    with pytest.raises(StorageError, match="belongs to node 1 of cluster cluster"):
        open_dirs(tmp_path, cluster_id="other")
    open_dirs(tmp_path).close()


def test_a_directory_keeps_its_id(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    directory_id = dirs.dirs[0].directory_id
    assert directory_id != bytes(16)
    dirs.close()
    assert open_dirs(tmp_path).dirs[0].directory_id == directory_id


def test_new_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    for number in range(6):
        dirs.create(("t", number), NOW_MS)
    assert [len(directory.logs) for directory in dirs.dirs] == [3, 3]
    wished = dirs.create(("t", 9), NOW_MS, path=str(tmp_path / "b"))
    assert wished.directory is dirs.dirs[1]
    with pytest.raises(LogDirNotFound):
        dirs.create(("t", 10), NOW_MS, path="/nowhere")


def test_a_cordoned_directory_keeps_what_it_has_and_gets_nothing_new(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path / "a", tmp_path / "b")
    first = dirs.create(("t", 0), NOW_MS, path=str(tmp_path / "a"))
    dirs.cordoned = frozenset({str(tmp_path / "a")})
    for number in range(1, 4):
        assert dirs.create(("t", number), NOW_MS).directory is dirs.dirs[1]
    assert dirs.create(("t", 0), NOW_MS) is first
    with pytest.raises(LogDirCordoned, match=r"cordoned\.log\.dirs"):
        dirs.create(("t", 4), NOW_MS, path=str(tmp_path / "a"))
    dirs.cordoned = frozenset(directory.path for directory in dirs.dirs)
    with pytest.raises(LogDirCordoned):
        dirs.create(("t", 4), NOW_MS)


def test_the_same_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        dirs = open_dirs(tmp_path / name)
        dirs.create(("t", 0), NOW_MS)
        dirs.close()
    with pytest.raises(DuplicateLog, match="t-0"):
        open_dirs(tmp_path / "a", tmp_path / "b")
    open_dirs(tmp_path / "a").close()


def test_what_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    for name in ("lost+found", "__cluster_metadata-0", "notes"):
        (tmp_path / name).mkdir()
    assert open_dirs(tmp_path).logs == {}
    assert (tmp_path / "lost+found").exists()


# --- deleting


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path, config=LogConfig(file_delete_delay_ms=77))
    log = dirs.create(("t", 0), NOW_MS)
    append(log, 3)
    piece = log.read(0, 100, 3)
    dirs.delete(("t", 0))
    assert dirs.logs == {} and not (tmp_path / "t-0").exists()
    (renamed,) = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    fresh = dirs.create(("t", 0), NOW_MS)
    assert fresh.log_end_offset == 0
    (deletion,) = dirs.take_deletions()
    assert deletion.delay_ms == 77 and dirs.take_deletions() == []
    deletion()
    assert not renamed.exists()
    assert piece is not None and len(piece.read()) == piece.size_bytes


def test_a_deletion_that_a_crash_interrupted_is_taken_up_again(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    dirs.create(("t", 0), NOW_MS)
    dirs.delete(("t", 0))
    dirs._release()
    again = open_dirs(tmp_path)
    assert again.logs == {}
    for deletion in again.take_deletions():
        deletion()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_a_stray_partition_is_out_of_service_but_kept(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    append(dirs.create(("t", 0), NOW_MS), 1)
    dirs.mark_stray(("t", 0))
    dirs.close()
    again = open_dirs(tmp_path)
    assert again.logs == {} and again.take_deletions() == []
    assert [path.name[:4] for path in tmp_path.iterdir() if path.name.endswith("-stray")] == ["t-0."]


# --- a directory that fails


def test_a_dead_directory_leaves_the_others_alone() -> None:
    disk = MemoryDisk()
    dirs = two_dirs(disk)
    dead = dirs.create(("t", 0), NOW_MS, path="/a")
    alive = dirs.create(("t", 1), NOW_MS, path="/b")
    neighbour = dirs.create(("t", 2), NOW_MS, path="/a")
    append(dead, 1)
    append(neighbour, 1)
    disk.fail("write", errno.EIO)
    with pytest.raises(StorageError):
        append(dead, 1)
    with pytest.raises(StorageError):
        append(neighbour, 1)
    append(alive, 1)
    assert dirs.lose_failed() == ["/a"]
    assert set(dirs.logs) == {("t", 1)} and dirs.lose_failed() == []
    described = {description.path: description for description in dirs.describe()}
    assert described["/a"].failure is not None and described["/a"].usage is None
    assert described["/b"].failure is None and described["/b"].sizes_bytes == {("t", 1): alive.size_bytes}
    assert dirs.create(("u", 0), NOW_MS).directory.path == "/b"
    with pytest.raises(StorageError):
        dirs.create(("t", 0), NOW_MS)
    dirs.checkpoint()
    dirs.close()
    assert disk.exists("/b/.kafka_cleanshutdown") and not disk.exists("/a/.kafka_cleanshutdown")


def test_a_broker_without_a_working_directory_does_not_start() -> None:
    disk = MemoryDisk()
    dirs = LogDirs(["/a"], disk, lambda topic: LogConfig())
    disk.fail("mkdir", errno.EROFS)
    with pytest.raises(StorageError, match="/a"):
        dirs.open(1, "c", NOW_MS)


def test_a_directory_that_cannot_be_opened_does_not_keep_the_others_from_it() -> None:
    disk = MemoryDisk()
    two_dirs(disk).close()
    disk.fail("list", errno.EIO)
    dirs = two_dirs(disk)
    assert [directory.failure is None for directory in dirs.dirs] == [False, True]


def test_a_torn_recovery_checkpoint_costs_time_and_nothing_else(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    append(dirs.create(("t", 0), NOW_MS), 5)
    dirs.checkpoint()
    dirs._release()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n5\nt 0")
    assert open_dirs(tmp_path).logs[("t", 0)].log_end_offset == 5


def segments_after_a_kill(*, checkpointed: bool) -> MemoryDisk:
    """A log of twenty batches in several segments, as a kill leaves it."""
    disk = MemoryDisk(max_files=100)
    dirs = small_segments(disk)
    log = dirs.create(("t", 0), NOW_MS)
    for _ in range(20):
        append(log)
    if checkpointed:
        dirs.checkpoint({("t", 0): 20})
    dirs._release()
    return disk


def small_segments(disk: MemoryDisk, retention_bytes: int = -1) -> LogDirs:
    config = LogConfig(segment_bytes=300, retention_bytes=retention_bytes)
    dirs = LogDirs(["/data"], disk, lambda topic: config)
    dirs.open(1, "c", NOW_MS)
    return dirs


@pytest.mark.parametrize(
    ("suffixes", "checkpointed"),
    [((".log",), False), ((".log", ".index", ".timeindex"), True)],
    ids=["its log file", "all its files"],
)
def test_a_first_segment_that_is_missing_after_a_kill_is_told(suffixes: tuple[str, ...], checkpointed: bool) -> None:
    disk = segments_after_a_kill(checkpointed=checkpointed)
    for suffix in suffixes:
        disk.remove(f"/data/t-0/{0:020d}{suffix}")
    dirs = small_segments(disk)
    begins = dirs.logs["t", 0].log_start_offset
    assert begins > 0
    expected = f"partition 0 of topic t has lost offsets 0 to {begins - 1}: /data/t-0/{0:020d}.log is missing"
    assert dirs.take_notices() == [expected]
    # Once is enough.
    dirs._release()
    assert small_segments(disk).take_notices() == []


@pytest.mark.parametrize("removed", [True, False], ids=["whose files are gone", "whose files wait to be removed"])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_segments_that_retention_removed_before_a_kill_are_no_loss(checkpointed: bool, removed: bool) -> None:
    disk = segments_after_a_kill(checkpointed=checkpointed)
    dirs = small_segments(disk, retention_bytes=500)
    assert dirs.delete_old_segments(NOW_MS, lambda log: log.log_end_offset) > 0
    if removed:
        for deletion in dirs.take_deletions():
            deletion()
    dirs._release()
    for _ in range(2):
        dirs = small_segments(disk)
        assert dirs.take_notices() == [] and dirs.logs["t", 0].log_start_offset > 0
        dirs._release()


# --- from time to time


def test_checkpoints_say_where_logs_begin_and_how_far_they_are_safe(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path)
    log = dirs.create(("t", 0), NOW_MS)
    append(log, 10)
    dirs.create(("t", 1), NOW_MS)
    log.flush()
    log.advance_log_start_offset(4)
    dirs.checkpoint({("t", 0): 9, ("other", 0): 1})
    # The active segment is always recovered, so only what lies before it is claimed.
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nt 1 0\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n2\nt 0 4\nt 1 0\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 9\n"
    log.roll(NOW_MS)
    log.flush()
    dirs.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 10\nt 1 0\n"


def test_retention_runs_over_all_logs(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path, config=LogConfig(retention_ms=100))
    for number in range(3):
        append(dirs.create(("t", number), NOW_MS), 2, timestamp=10)
    assert dirs.delete_old_segments(NOW_MS, lambda log: log.log_end_offset) == 3
    assert all(log.log_start_offset == 2 for log in dirs.logs.values())


def test_flushes_that_are_due_are_handed_out_once(tmp_path: Path) -> None:
    dirs = open_dirs(tmp_path, config=LogConfig(flush_ms=100))
    log = dirs.create(("t", 0), NOW_MS)
    log.append_as_leader(produced(1), 0, NOW_MS)
    dirs.want_due_flushes(NOW_MS + 99)
    assert dirs.take_flushes() == []
    dirs.want_due_flushes(NOW_MS + 100)
    assert dirs.take_flushes() == [log] and dirs.take_flushes() == []
    log.flush()
    dirs.want_due_flushes(NOW_MS + 1000)
    assert dirs.take_flushes() == [] and log.recovery_point == 1


# --- moving between directories


def test_a_partition_moves_while_it_is_written_to() -> None:
    disk = MemoryDisk(max_files=100)
    dirs = two_dirs(disk, LogConfig(segment_bytes=700))
    log = dirs.create(("t", 0), NOW_MS, b"x" * 16, path="/a")
    for number in range(30):
        append(log, 2, value=b"%d" % number * 30, leader_epoch=number // 10)
    log.advance_log_start_offset(7)
    move = dirs.begin_move(("t", 0), "/b", NOW_MS)
    assert move is not None and dirs.futures[("t", 0)] is move.future
    for _ in range(5):
        move.step(NOW_MS, max_bytes=300)
    append(log, 2, value=b"late", leader_epoch=3)
    while not move.step(NOW_MS, max_bytes=300):
        pass
    before = values(log)
    moved = dirs.finish_move(("t", 0))
    assert dirs.logs[("t", 0)] is moved and dirs.futures == {}
    assert moved.path == "/b/t-0" and moved.directory.path == "/b" and not disk.exists("/a/t-0")
    assert values(moved) == before and moved.log_start_offset == 7
    assert moved.leader_epochs.entries() == log.leader_epochs.entries()
    assert moved.topic_id == b"x" * 16
    append(moved, 1, leader_epoch=3)
    dirs.close()
    again = two_dirs(disk).logs[("t", 0)]
    assert again.directory.path == "/b" and again.log_end_offset == 63


def test_a_move_begins_anew_when_the_log_was_cut_under_it() -> None:
    dirs = two_dirs(MemoryDisk(max_files=100))
    log = dirs.create(("t", 0), NOW_MS, path="/a")
    for _ in range(10):
        append(log, 1, value=b"old")
    move = dirs.begin_move(("t", 0), "/b", NOW_MS)
    assert move is not None and move.step(NOW_MS)
    log.truncate_to(5, NOW_MS)
    for _ in range(5):
        append(log, 1, value=b"new", leader_epoch=2)
    assert move.step(NOW_MS)
    assert values(dirs.finish_move(("t", 0)))[4:6] == [(4, b"old"), (5, b"new")]


def test_a_move_can_be_given_up_and_one_to_the_same_place_is_none() -> None:
    dirs = two_dirs()
    log = dirs.create(("t", 0), NOW_MS, path="/a")
    append(log, 1)
    assert dirs.begin_move(("t", 0), "/a", NOW_MS) is None
    assert dirs.begin_move(("t", 0), "/b", NOW_MS) is not None
    dirs.cancel_move(("t", 0))
    assert dirs.futures == {} and dirs.logs[("t", 0)] is log
    for deletion in dirs.take_deletions():
        deletion()
    assert [entry.name for entry in dirs.disk.list("/b") if entry.is_dir] == []


def test_a_move_that_a_crash_interrupted_goes_on() -> None:
    disk = MemoryDisk(max_files=100)
    dirs = two_dirs(disk)
    append(dirs.create(("t", 0), NOW_MS, path="/a"), 3)
    dirs.begin_move(("t", 0), "/b", NOW_MS)
    disk.locked.clear()
    again = two_dirs(disk)
    (move,) = again.resume_moves()
    assert move.step(NOW_MS)
    assert len(values(again.finish_move(("t", 0)))) == 3


@pytest.mark.files
def test_creating_a_log_where_one_is_in_the_way_takes_nothing_of_it() -> None:
    disk = MemoryDisk()
    log = new_log(disk, "/data")
    append(log, 3)
    assert disk.content(log.segments.active.log_path)
    again = new_log(disk, "/data")
    assert again.log_end_offset == 0 and again.size_bytes == 0
