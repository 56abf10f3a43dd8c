"""Checks a data directory that no broker is using: what a start would find, lose and report.

The start itself is tried, including recovery, on a disk that keeps its changes in memory. Nothing is written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.log.checkpoints import CLEAN_SHUTDOWN, LOCK, MalformedCheckpoint, MetaProperties
from tidelog.log.config import LogConfig
from tidelog.log.directories.directory_names import parse_name
from tidelog.log.directories.directory_set import found_twice, listed, read_directory_set
from tidelog.log.directories.generation import GENERATION
from tidelog.log.directories.layout import SHARED, layout_of
from tidelog.log.directories.log_dirs import LogDirs
from tidelog.log.directories.recovery import read_notes, read_topic_id
from tidelog.log.disk import Disk
from tidelog.log.errors import LogError
from tidelog.log.log import Log
from tidelog.log.overlay_disk import OverlayDisk
from tidelog.log.shared.queue_segment import QueueSegment
from tidelog.metadata.embedded import JOURNAL_NAME, SNAPSHOT_NAME, CorruptMetadata, read_store
from tidelog.metadata.place import PLACE_NAME
from tidelog.node.adoption import placement_of, topic_configs, written_by
from tidelog.wire.batch import crc_matches
from tidelog.wire.partitions import TopicPartition


class Checkup(NamedTuple):
    partitions: int
    #: the last stop was in good order
    clean: bool
    #: what is damaged or lost, in words
    damages: list[str]
    #: None where there is nothing in it yet
    layout: str | None = None


def is_data_directory(path: str) -> bool:
    return any(os.path.exists(f"{path}/{name}") for name in ("meta.properties", JOURNAL_NAME, SNAPSHOT_NAME))


def is_in_use(path: str) -> bool:
    """Whether a broker runs on the directory."""
    try:
        fd = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(fd)
    return False


def check_data(path: str, deep: bool = False, beside: Iterable[str] = ()) -> Checkup:
    """Tries a start on the directory; `deep` reads every batch besides. May raise OSError.

    What belongs to one partition must not lie in two directories: `beside` are others that the broker uses, in addition
    to those that this one names.
    """
    clean = os.path.exists(f"{path}/{CLEAN_SHUTDOWN}")
    damages: list[str] = []
    policies: dict[str, tuple[str, ...]] = {}
    known = True
    tree = None
    try:
        stored = read_store(path)
        damages += stored.losses
        # A broker on ZooKeeper has none of it here, but counts its directories.
        known = stored.tree.zxid > 0 or any(os.path.exists(f"{path}/{name}") for name in (PLACE_NAME, GENERATION))
        tree = list(stored.tree.walk("/")) if stored.tree.zxid > 0 else None
        for topic, config in topic_configs(tree or ()).items():
            policies[topic] = tuple(each.strip() for each in config.get("cleanup.policy", "delete").split(","))
    except CorruptMetadata as error:
        damages.append(f"the metadata is damaged, and a broker would not start: {error}")
    disk = OverlayDisk()
    # As it is: the start that is tried knows of this directory only.
    together = read_directory_set(disk, [path]).paths
    try:
        meta = written_by(disk, [path]) or MetaProperties("unknown", 0, bytes(16))
        # A directory tells its layout; how large files of a commit log become does not matter here.
        layout = layout_of(disk, path)
        commit_bytes = 1 << 30 if layout == SHARED else None
        logs = LogDirs(
            [path],
            disk,
            lambda topic: LogConfig(cleanup_policy=policies.get(topic, ("delete",))),
            commit_bytes=commit_bytes,
        )
        logs.open(meta.node_id, meta.cluster_id, int(time.time() * 1000))
    except (LogError, MalformedCheckpoint) as error:
        return Checkup(0, clean, [*damages, str(error)])
    damages += logs.take_notices()
    others = {*map(os.path.abspath, beside), *together.values()} - {os.path.abspath(path)}
    twice = {key: (path, other) for other in sorted(others) for key in _also_in(disk, other, logs)}
    if twice:
        damages.append(f"a broker would not start on both directories: {found_twice(twice)}")
    if tree is not None and len(together) < 2:
        # With several directories they may lie in another one.
        absent = placement_of(tree, meta.node_id).topic_ids.keys() - logs.logs.keys() - logs.dirs[0].unopened.keys()
        if absent:
            damages.append(f"nothing is left in {path} of {listed(absent)}: a broker would recreate them empty")
    if not known and logs.logs:
        damages.append(f"{path}/{JOURNAL_NAME} is missing: the topics' configurations are lost")
    if deep:
        damages += [damage for log in logs.logs.values() for damage in damaged_batches(log)]
    return Checkup(len(logs.logs), clean, damages, layout)


def _also_in(disk: Disk, other: str, logs: LogDirs) -> Iterator[TopicPartition]:
    """The partitions that lie in another directory too, and that a start could not tell apart."""
    try:
        names = [entry.name for entry in disk.list(other) if entry.is_dir]
    except OSError:
        # It is missing, which a start tells.
        return
    for name in names:
        key, kind = parse_name(name) or (None, "")
        log = logs.logs.get(key) if key is not None and not kind else None
        if log is None:
            continue
        same = read_topic_id(disk, f"{other}/{name}") in (None, log.topic_id)
        if same and read_notes(disk, f"{other}/{name}").moves == log.notes.moves:
            yield log.key


class _Damage(NamedTuple):
    first_offset: int
    last_offset: int
    path: str
    #: where the first batch begins, and the last one
    first: int
    last: int

    @property
    def where(self) -> str:
        return (
            f"at byte {self.first}" if self.first == self.last else f"in batches from byte {self.first} to {self.last}"
        )


def _damaged_ranges(segment: QueueSegment) -> Iterator[_Damage]:
    found: _Damage | None = None
    for queued, path, at in segment.damaged():
        if found is not None and (found.path, found.last_offset + 1) == (path, queued.base_offset):
            found = found._replace(last_offset=queued.last_offset, last=at)
            continue
        if found is not None:
            yield found
        found = _Damage(queued.base_offset, queued.last_offset, path, at, at)
    if found is not None:
        yield found


def damaged_batches(log: Log) -> Iterator[str]:
    """One line for each segment in which a batch is not as it was written; in the shared layout for each such batch, or
    for neighbours in one file together."""
    for segment in log.segments:
        if isinstance(segment, QueueSegment):
            for n in range(segment.queue.count):
                if not segment.queue.is_sound(n):
                    yield f"entry {n + 1} of {segment.log_path} is damaged"
            for damage in _damaged_ranges(segment):
                offsets = f"offsets {damage.first_offset} to {damage.last_offset} of partition {log.partition}"
                yield f"{offsets} of topic {log.topic} are damaged: {damage.path} {damage.where}"
            continue
        position, offset = 0, segment.base_offset
        for position, header, data in segment.batches(0):
            if not crc_matches(data, 0, header):
                break
            position += header.size_bytes
            offset = header.next_offset
        if position < segment.size:
            yield (
                f"partition {log.partition} of topic {log.topic} is damaged from offset {offset} on: "
                f"{segment.log_path} at byte {position}"
            )
