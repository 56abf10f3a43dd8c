"""Batches and logs for the tests of the log room."""

from __future__ import annotations

from tidelog.log.config import LogConfig
from tidelog.log.directories.claim import Claim
from tidelog.log.directories.recovery import create_log, open_log
from tidelog.log.disk import Disk, SystemDisk
from tidelog.log.log import Log
from tidelog.log.log_dir import LogDir
from tidelog.wire.batch import patch_place, read_header
from tidelog.wire.records import build_batch, iter_records

KEY = ("t", 0)
TOPIC_ID = b"the topic of the"
#: how large a file of the commit log becomes
COMMIT_BYTES = 10_000
#: set by `--layout`
in_shared_layout = False
NOW_MS = 10_000_000


def produced(
    count: int = 1, timestamp: int = 1000, value: bytes = b"value", codec: int = 0, key: bytes | None = None
) -> memoryview:
    """What a producer sends: one batch of `count` records."""
    return memoryview(build_batch([(timestamp, key, value, None)] * count, codec=codec))


def stamped(timestamps: list[int], value: bytes = b"value", codec: int = 0) -> memoryview:
    """What a producer sends: one batch, a record for each timestamp."""
    return memoryview(build_batch([(timestamp, None, value, None) for timestamp in timestamps], codec=codec))


def fetched(base_offset: int, leader_epoch: int, batch: memoryview) -> memoryview:
    """What a follower fetches: the batch as a leader stored it."""
    placed = memoryview(bytearray(batch))
    patch_place(placed, 0, base_offset, read_header(placed).length, leader_epoch)
    return placed


def new_log(disk: Disk, path: str, config: LogConfig | None = None) -> Log:
    disk.mkdir(path)
    topic_id = TOPIC_ID if in_shared_layout else None
    return create_log(_directory(disk, path), KEY, config or LogConfig(), NOW_MS, topic_id)


def _directory(disk: Disk, path: str) -> LogDir:
    directory = LogDir(disk, path)
    if in_shared_layout:
        directory.open_commit_log(COMMIT_BYTES)
    return directory


def system_log(path: object, config: LogConfig | None = None) -> Log:
    return new_log(SystemDisk(), str(path), config)


def reopened(log: Log, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
    """The same directory opened anew, as after a clean stop or a crash."""
    directory = _directory(log.directory.disk, log.directory.path)
    return open_log(directory, log.path, KEY, log.config, Claim(clean, recovery_point, log_start_offset), NOW_MS)


def append(
    log: Log, count: int = 1, timestamp: int = 1000, value: bytes = b"value", leader_epoch: int | None = None
) -> None:
    """In the newest leader epoch that the log knows, unless another is given."""
    epoch = max(log.leader_epochs.latest, 0) if leader_epoch is None else leader_epoch
    log.append_as_leader(produced(count, timestamp, value), epoch, NOW_MS)


def values(log: Log, offset: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records from `offset` on, read as a consumer would."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset if offset is None else offset
    while at < log.log_end_offset:
        piece = log.read(at, 1 << 20, log.log_end_offset)
        if piece is None:
            break
        found += [(record.offset, record.value) for record in iter_records(piece.read()) if record.offset >= at]
        at = piece.next_offset
    return found
