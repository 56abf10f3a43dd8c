"""Directories that are missing, come back, or hold what the cluster has forgotten; topics created again by name."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from logkit import NOW_MS, append, values

from tidelog.log.checkpoints import CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA, format_partition_metadata
from tidelog.log.config import LogConfig
from tidelog.log.directories.directory_set import DIRECTORY_SET, MetadataVersion, Placement
from tidelog.log.directories.judging import judge
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.disk import SystemDisk
from tidelog.log.errors import DuplicateLog, StorageError
from tidelog.log.memory_disk import MemoryDisk
from tidelog.wire.partitions import TopicPartition

T, U = ("t", 0), ("u", 0)
T_ID, U_ID, NEW_ID = (bytes(15) + bytes([number]) for number in (1, 2, 3))


class Broker:
    """Log directories, what is placed there, and restarts."""

    def __init__(self, *paths: str, config: LogConfig | None = None) -> None:
        self.disk = MemoryDisk(max_files=100)
        self.config = config or LogConfig()
        self.placed: dict[tuple[str, int], bytes | None] = {}
        self.version = 1
        self.start(*(paths or ("/a", "/b")))

    def start(self, *paths: str, whole: bool = True) -> None:
        self.dirs = LogDirs(paths, self.disk, lambda topic: self.config)
        known = frozenset(topic_id for topic_id in self.placed.values() if topic_id)
        self.dirs.open(1, "c", NOW_MS, Placement(self.placed, known, MetadataVersion(self.version), whole))
        self.version += 1
        self.dirs.remember(MetadataVersion(self.version))
        self.notices = self.dirs.take_notices()

    def restart(self, *paths: str, clean: bool = False, whole: bool = True) -> None:
        if clean:
            self.dirs.close(1)
        self.disk.locked.clear()
        self.start(*(paths or ("/a", "/b")), whole=whole)

    def create(self, key: tuple[str, int], topic_id: bytes, path: str | None = None, records: int = 0) -> None:
        self.placed[key] = topic_id
        log = self.dirs.create(key, NOW_MS, topic_id, path)
        for _ in range(records):
            append(log)

    def delete(self, key: tuple[str, int]) -> None:
        del self.placed[key]
        self.dirs.delete(key)

    def take_away(self, path: str) -> None:
        """The disk is gone; the directory that it was mounted on is there."""
        self.disk.rename(path, f"/away{path}")

    def bring_back(self, path: str) -> None:
        if self.disk.exists(path):
            for entry in self.disk.list(path):
                self.disk.remove(f"{path}/{entry.name}")
            self.disk.remove_dir(path)
        self.disk.rename(f"/away{path}", path)

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in self.disk.list(path) if entry.is_dir)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_partitions_of_a_missing_directory_are_offline_until_it_is_back(clean: bool) -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=5)
    it.create(U, U_ID, "/b", records=5)
    if clean:
        it.dirs.close(1)
    it.take_away("/b")
    for _ in range(2):  # a second start must not take the emptiness of the first one for granted
        it.restart(clean=clean)
        assert set(it.dirs.logs) == {T} and it.dirs.offline == {U}
        with pytest.raises(StorageError, match="u-0 is offline"):
            it.dirs.create(U, NOW_MS, U_ID)
        assert "/b" in it.notices[0] and "u-0" in it.notices[0]
        assert it.dirs.dirs[1].failure is not None
    it.bring_back("/b")
    it.restart(clean=clean)
    assert len(values(it.dirs.logs[U])) == 5 and it.dirs.offline == set() and it.notices == []
    append(it.dirs.logs[U])


def test_a_directory_that_is_not_named_any_more_is_missed_as_well() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.create(U, U_ID, "/b", records=1)
    it.restart("/a", "/c")
    assert it.dirs.offline == {U}
    # A new directory is used, though another one is missing.
    assert it.dirs.dirs[1].failure is None
    it.create(("v", 0), NEW_ID, "/c", records=1)
    it.restart("/a", "/b", "/c")
    assert set(it.dirs.logs) == {T, U, ("v", 0)} and it.dirs.offline == set()


def test_a_directory_from_which_nothing_is_missing_may_go() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.restart("/a")
    assert it.notices == []
    it.create(U, U_ID, records=1)
    it.restart("/a")
    assert set(it.dirs.logs) == {T, U}
    assert b"/b" not in it.disk.content(f"/a/{DIRECTORY_SET}")


def test_a_lost_directory_is_given_up_by_removing_its_line() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.create(U, U_ID, "/b", records=1)
    it.take_away("/b")
    it.restart()
    lines = bytes(it.disk.content(f"/a/{DIRECTORY_SET}")).splitlines(keepends=True)
    it.disk.content(f"/a/{DIRECTORY_SET}")[:] = b"".join(line for line in lines if not line.endswith(b"=/b\n"))
    it.restart()
    assert it.dirs.offline == set() and it.dirs.dirs[1].failure is None
    assert it.notices == ["not found in any log directory and recreated empty: u-0"]


def test_a_partition_that_was_never_made_is_made_where_no_directory_is_missing() -> None:
    """The process was killed after the topic was decided on, and before its log was made."""
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.placed[U] = U_ID
    it.restart()
    assert it.dirs.offline == set()
    assert it.dirs.create(U, NOW_MS, U_ID).log_end_offset == 0


# --- what the cluster has forgotten


def test_a_log_of_a_deleted_topic_is_removed_at_the_next_start() -> None:
    """The process was killed after the deletion was decided on, and before the files were touched."""
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    del it.placed[T]
    it.restart()
    assert it.dirs.logs == {} and "its topic was deleted" in it.notices[0]
    for deletion in it.dirs.take_deletions():
        deletion()
    assert it.names("/a") == []


def test_a_log_whose_id_may_be_torn_is_set_aside_and_not_removed() -> None:
    """The power went before the id was on the device: what is read of it now is nobody's."""
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.disk.content(f"/a/t-0/{PARTITION_METADATA}")[:] = format_partition_metadata(NEW_ID)
    it.restart()
    assert it.dirs.take_deletions() == []
    assert [name.endswith("-stray") for name in it.names("/a")] == [True]


def test_metadata_that_lost_its_end_removes_nothing() -> None:
    """The journal was torn: it has forgotten the youngest topic, whose records are there."""
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.create(U, U_ID, "/a", records=2)
    del it.placed[U]
    it.restart(whole=False)
    assert len(values(it.dirs.logs[U])) == 2 and it.dirs.take_deletions() == []


def test_metadata_from_an_old_copy_removes_nothing() -> None:
    it = Broker()
    it.version = 5
    it.restart()
    it.create(T, T_ID, "/a", records=1)
    del it.placed[T]
    it.version = 4
    it.restart()
    assert it.dirs.logs == {} and it.dirs.take_deletions() == []
    assert [name.endswith("-stray") for name in it.names("/a")] == [True]


def test_a_directory_that_comes_back_with_a_topic_of_the_same_name_changes_nothing() -> None:
    it = Broker()
    it.create(T, T_ID, "/b", records=9)
    it.create(U, U_ID, "/b", records=9)
    it.take_away("/b")
    it.restart()
    del it.placed[T]
    it.dirs.offline.discard(T)
    it.create(T, NEW_ID, records=4)
    it.bring_back("/b")
    it.restart()
    assert it.dirs.logs[T].path == "/a/t-0" and len(values(it.dirs.logs[T])) == 4
    assert it.dirs.logs[U].path == "/b/u-0" and len(values(it.dirs.logs[U])) == 9
    for deletion in it.dirs.take_deletions():
        deletion()
    assert it.names("/b") == ["u-0"]


def test_a_start_that_is_refused_leaves_the_mark_of_a_clean_stop() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.dirs.close(1)
    it.disk.mkdir("/b/t-0")
    for entry in it.disk.list("/a/t-0"):
        it.disk.open(f"/b/t-0/{entry.name}", create=True).write(it.disk.content(f"/a/t-0/{entry.name}"), 0)
    with pytest.raises(DuplicateLog):
        it.restart()
    assert it.disk.exists(f"/a/{CLEAN_SHUTDOWN}") and it.disk.exists(f"/b/{CLEAN_SHUTDOWN}")


def test_a_file_with_a_partitions_name_costs_that_partition_alone(tmp_path: Path) -> None:
    dirs = LogDirs([str(tmp_path)], SystemDisk(), lambda topic: LogConfig())
    dirs.open(1, "c", NOW_MS)
    log = dirs.create(U, NOW_MS, U_ID)
    (tmp_path / "t-0").write_bytes(b"")
    with pytest.raises(StorageError, match="t-0"):
        dirs.create(T, NOW_MS, T_ID)
    assert dirs.dirs[0].failure is None
    append(log)
    dirs.close()


def test_an_empty_meta_properties_is_written_anew() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=3)
    it.disk.content(f"/a/{META_PROPERTIES}")[:] = b""
    it.restart()
    assert len(values(it.dirs.logs[T])) == 3 and it.disk.content(f"/a/{META_PROPERTIES}")


def test_two_logs_of_one_partition_without_a_word_of_a_move_are_refused() -> None:
    it = Broker()
    it.create(T, T_ID, "/a", records=1)
    it.disk.mkdir("/b/t-0")
    for entry in it.disk.list("/a/t-0"):
        it.disk.open(f"/b/t-0/{entry.name}", create=True).write(it.disk.content(f"/a/t-0/{entry.name}"), 0)
    with pytest.raises(DuplicateLog, match="t-0 in both /a and /b"):
        it.restart()


def test_all_partitions_that_lie_in_two_directories_are_named_at_once() -> None:
    it = Broker("/a", "/b", "/c")
    for number in range(7):
        it.create(("t", number), T_ID, "/b", records=1)
    it.create(U, U_ID, "/a", records=1)
    it.take_away("/b")
    # It is given up: what lay there begins anew, and then it comes back after all.
    for path in ("/a", "/c"):
        lines = bytes(it.disk.content(f"{path}/{DIRECTORY_SET}")).decode().splitlines()
        kept = [line for line in lines if not line.endswith("=/b")]
        it.disk.open(f"{path}/{DIRECTORY_SET}", empty=True).write("\n".join(kept).encode(), 0)
    it.restart("/a", "/c")
    for number in range(7):
        it.create(("t", number), T_ID, "/c" if number else "/a", records=1)
    it.bring_back("/b")
    with pytest.raises(DuplicateLog) as refused:
        it.restart("/a", "/b", "/c")
    assert "t-0 in both /a and /b; t-1, t-2, t-3, t-4, t-5, t-6 in both /b and /c" in str(refused.value)


# --- created again under the same name


@pytest.mark.parametrize("restarted", [True, False])
def test_a_topic_created_again_does_not_inherit_checkpoints_of_the_one_before(restarted: bool) -> None:
    it = Broker("/a", config=LogConfig(segment_bytes=300))
    it.create(T, T_ID, records=50)
    it.create(U, U_ID, records=5)
    it.dirs.logs[T].flush()
    it.dirs.logs[T].advance_log_start_offset(45)
    it.dirs.logs[T].cleaned_offset = 40
    it.disk.open("/a/cleaner-offset-checkpoint", create=True).write(b"0\n1\nt 0 40\n", 0)
    it.dirs.checkpoint({T: 50, U: 5})
    it.delete(T)
    if restarted:
        it.restart("/a")
    it.create(T, NEW_ID, records=10)
    for name in ("recovery-point-offset", "log-start-offset", "replication-offset", "cleaner-offset"):
        assert b"t 0" not in bytes(it.disk.content(f"/a/{name}-checkpoint"))
    assert b"u 0 5" in bytes(it.disk.content("/a/replication-offset-checkpoint"))
    it.restart("/a")
    log = it.dirs.logs[T]
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 10, None)
    assert len(values(log)) == 10 and it.dirs.high_watermarks.get(T) is None


def test_a_topic_is_not_created_again_while_checkpoints_of_the_one_before_cannot_be_put_right() -> None:
    it = Broker("/a")
    it.create(T, T_ID, records=5)
    it.dirs.checkpoint({T: 5})
    it.delete(T)
    it.disk.fail_writes_after(0)
    with pytest.raises(StorageError, match="no space"):
        it.create(T, NEW_ID)
    it.disk.room_bytes = None
    it.create(T, NEW_ID, records=1)


# --- gaps


def test_logs_that_somebody_else_wrote_are_not_taken_for_dense() -> None:
    """A directory of Apache Kafka's: nothing tells which of its logs were compacted, or copied from one that was."""
    it = Broker("/a")
    it.create(T, T_ID)
    it.disk.remove(f"/a/{DIRECTORY_SET}")
    it.restart("/a", clean=True)
    assert it.dirs.logs[T].notes.gaps
    it.create(U, U_ID)
    it.restart("/a")
    assert it.dirs.logs[T].notes.gaps and not it.dirs.logs[U].notes.gaps


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("first", ["/a", "/b"])
def test_of_two_lives_of_a_partition_in_two_directories_the_one_is_chosen_that_belongs_here(
    first: str, clean: bool
) -> None:
    """While a directory had failed, a topic was deleted and made again. A broker among others hears of it late."""
    broker = Broker()
    broker.create(T, T_ID, first, records=3)
    broker.dirs.checkpoint({TopicPartition(*T): 3})
    failed = broker.dirs.directory(first)
    failed.fail(OSError(errno.EIO, "Input/output error"))
    broker.dirs.lose_failed()
    broker.dirs.offline.clear()
    broker.create(T, NEW_ID, "/b" if first == "/a" else "/a", records=1)
    if clean:
        broker.dirs.close(1)
    broker.disk.locked.clear()
    dirs = LogDirs(("/a", "/b"), broker.disk, lambda topic: broker.config)
    dirs.open(1, "c", NOW_MS, None, is_judged_later=True)
    placed = {TopicPartition(*T): NEW_ID}
    judge(dirs, Placement(placed, frozenset([NEW_ID]), MetadataVersion(broker.version)))
    (log,) = dirs.logs.values()
    assert (log.topic_id, log.log_end_offset) == (NEW_ID, 1)
    assert dirs.high_watermarks.get(TopicPartition(*T), 0) <= 1
    assert sum(len(directory.logs) for directory in dirs.dirs) == 1
