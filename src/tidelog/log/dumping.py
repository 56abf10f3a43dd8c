"""What stands in the files of a log directory, in either layout, as rows for people and programs.

The files are only read, and as they are: a broker may be running on them, and have more in its memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from tidelog.log.checkpoints import (
    CHECKPOINTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    PARTITION_NOTES,
    MalformedCheckpoint,
    format_id,
    parse_lines,
)
from tidelog.log.config import LogConfig
from tidelog.log.directories.directory_names import parse_name
from tidelog.log.directories.directory_set import DIRECTORY_SET
from tidelog.log.directories.layout import CONVERSION
from tidelog.log.directories.recovery import read_topic_id
from tidelog.log.disk import AppendedFile, Disk, read_file
from tidelog.log.file_segment import FileSegment
from tidelog.log.index import OffsetIndex, TimeIndex
from tidelog.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from tidelog.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from tidelog.log.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX
from tidelog.log.shared import COMMIT_DIRECTORY, QUEUE
from tidelog.log.shared.commit_log import CHECKPOINT, COMMIT, CommitLog
from tidelog.log.shared.commit_walk import walk_file
from tidelog.log.shared.queue import Queue
from tidelog.log.stored_segments import file_segments, has_queues, queue_segments
from tidelog.log.txn_index import CorruptIndex, TxnIndex
from tidelog.wire.batch import BatchHeader, crc_matches
from tidelog.wire.compression import CODEC_NAMES
from tidelog.wire.malformed import WireError
from tidelog.wire.records import read_records

Row = dict[str, Any]
_PROPERTIES: Final = (META_PROPERTIES, PARTITION_NOTES, DIRECTORY_SET, CONVERSION)
OK: Final = "ok"
DAMAGED: Final = "damaged"


class NotDumpable(Exception):
    """The file is none of those that a log directory consists of, or cannot be one."""


def dump(disk: Disk, path: str, with_records: bool = False) -> Iterator[Row]:
    """The rows of a file, or of a directory: a partition's, that of the commit log, or a log directory.

    Raises NotDumpable; may raise OSError.
    """
    if os.path.isdir(path):
        yield from _directory(disk, path)
        return
    name = os.path.basename(path)
    suffix = name[20:] if name[:20].isdigit() else name
    base = int(name[:20]) if name[:20].isdigit() else 0
    if suffix == LOG:
        yield from _batches(disk, path, base, with_records)
    elif suffix in _BY_SUFFIX:
        try:
            yield from _BY_SUFFIX[suffix](disk, path, base)
        except (CorruptIndex, CorruptSnapshot) as error:
            raise NotDumpable(f"{path} is damaged: {error}") from None
    else:
        yield from _text_rows(disk, path, name)


# --- segments of the partitioned layout


def _batches(disk: Disk, path: str, base: int, with_records: bool) -> Iterator[Row]:
    size = disk.size(path)
    segment = FileSegment(disk, path.removesuffix(LOG), base, LogConfig(), size, 0, 0)
    end = 0
    for position, header, data in segment.batches(0):
        sound = crc_matches(data, 0, header)
        yield _batch_row(position, header, sound, data if with_records else None)
        end = position + header.size_bytes
    if end < size:
        yield {"position": end, "size_bytes": size - end, "state": DAMAGED}


def _batch_row(position: int, header: BatchHeader, sound: bool, data: memoryview | None) -> Row:
    row: Row = {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "compression": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else f"unknown {header.codec}",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "state": OK if sound else DAMAGED,
    }
    if data is not None:
        row["values"] = _records(data) if sound else []
    return row


def _records(data: memoryview) -> list[Row]:
    try:
        return [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
            }
            for record in read_records(data)
        ]
    except WireError as error:
        return [{"error": str(error)}]


def _text(value: bytes | memoryview | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "backslashreplace")


def _offset_index(disk: Disk, path: str, base: int) -> Iterator[Row]:
    index = OffsetIndex(disk, path, base, 0, disk.size(path))
    for n in range(index.count):
        offset, position = index.entry(n)
        yield {"offset": offset, "position": position}


def _time_index(disk: Disk, path: str, base: int) -> Iterator[Row]:
    index = TimeIndex(disk, path, base, 0, disk.size(path))
    for n in range(index.count):
        timestamp, offset = index.entry(n)
        yield {"timestamp": timestamp, "offset": offset}


def _txn_index(disk: Disk, path: str, base: int) -> Iterator[Row]:
    for txn in TxnIndex(AppendedFile(disk, path), base, disk.size(path)).entries():
        yield txn._asdict()


def _snapshot(disk: Disk, path: str, _: int) -> Iterator[Row]:
    for producer in decode_snapshot(read_file(disk, path)):
        yield producer._asdict()


# --- the shared layout


def _queue(disk: Disk, path: str, base: int) -> Iterator[Row]:
    queue = Queue(disk, path, base, 0, disk.size(path))
    for n in range(queue.count):
        queued = queue.glance(n)
        yield {
            "base_offset": queued.base_offset,
            "last_offset": queued.last_offset,
            "place": queued.place,
            "size_bytes": queued.size_bytes,
            "position": queued.position,
            "newest": queued.newest,
            "leader_epoch": queued.leader_epoch,
            "moved": queue.is_moved(n),
            "state": OK if queue.is_sound(n) else DAMAGED,
        }


def _commit_entries(disk: Disk, path: str, base: int) -> Iterator[Row]:
    names = _topic_names(disk, os.path.dirname(os.path.dirname(path)))
    for position, size_bytes, entry in walk_file(disk.open(path), base):
        if entry is None:
            yield {"position": position, "size_bytes": size_bytes, "state": DAMAGED}
            continue
        yield {
            "position": position,
            "kind": entry.kind.name.lower(),
            "topic": names.get(entry.owner.topic_id),
            "topic_id": format_id(entry.owner.topic_id),
            "partition": entry.owner.partition,
            "base_offset": entry.base_offset,
            "last_offset": entry.last_offset,
            "batches": len(entry.batches),
            "size_bytes": size_bytes,
            "previous": entry.previous,
            "state": OK,
        }


def _topic_names(disk: Disk, directory: str) -> dict[bytes, str]:
    """The topics that have partitions in a log directory, by their IDs."""
    names = {}
    for entry in disk.list(directory or "."):
        named = parse_name(entry.name) if entry.is_dir else None
        topic_id = read_topic_id(disk, f"{directory}/{entry.name}") if named is not None else None
        if named is not None and topic_id is not None:
            names[topic_id] = named[0].topic
    return names


_BY_SUFFIX: Final[dict[str, Callable[[Disk, str, int], Iterator[Row]]]] = {
    INDEX: _offset_index,
    TIME_INDEX: _time_index,
    TXN_INDEX: _txn_index,
    SNAPSHOT: _snapshot,
    QUEUE: _queue,
    COMMIT: _commit_entries,
}


# --- small files


def _text_rows(disk: Disk, path: str, name: str) -> Iterator[Row]:
    try:
        if name in CHECKPOINTS:
            for topic, partition, offset in parse_lines(read_file(disk, path), path, 3):
                yield {"topic": topic, "partition": int(partition), "offset": int(offset)}
        elif name == LEADER_EPOCHS:
            for epoch, offset in parse_lines(read_file(disk, path), path, 2):
                yield {"leader_epoch": int(epoch), "start_offset": int(offset)}
        elif name == CHECKPOINT:
            for (position,) in parse_lines(read_file(disk, path), path, 1):
                yield {"position": int(position)}
        elif name in (*_PROPERTIES, PARTITION_METADATA):
            separator = ":" if name == PARTITION_METADATA else "="
            for line in read_file(disk, path).decode().splitlines():
                key, _, value = line.partition(separator)
                if not key.startswith("#"):
                    yield {"name": key.strip(), "value": value.strip()}
        else:
            raise NotDumpable(f"{path} is not a file of a log directory")
    except (MalformedCheckpoint, ValueError) as error:
        raise NotDumpable(f"{path} is damaged: {error}") from None


# --- directories


def _directory(disk: Disk, path: str) -> Iterator[Row]:
    path = path.rstrip("/") or "/"
    name = os.path.basename(os.path.abspath(path))
    if name == COMMIT_DIRECTORY:
        for entry in sorted(disk.list(path)):
            if entry.name.endswith(COMMIT):
                yield {"file": entry.name, "position": int(entry.name[:20]), "size_bytes": entry.size_bytes}
    elif parse_name(name) is not None:
        yield from _segment_rows(disk, path)
    elif disk.exists(f"{path}/{META_PROPERTIES}"):
        for entry in sorted(disk.list(path)):
            if entry.is_dir and parse_name(entry.name) is not None:
                yield _partition_row(disk, path, entry.name)
    else:
        raise NotDumpable(f"{path} is not a log directory, nor one of a partition or a commit log")


def _segment_rows(disk: Disk, path: str) -> Iterator[Row]:
    is_shared = has_queues(disk, path)
    commit = CommitLog(disk, os.path.dirname(os.path.abspath(path)), 1 << 30) if is_shared else None
    for segment in file_segments(disk, path) if commit is None else queue_segments(disk, path, commit):
        yield {
            "file": os.path.basename(segment.log_path),
            "base_offset": segment.base_offset,
            "next_offset": segment.next_offset(),
            "size_bytes": segment.size,
            "max_timestamp": segment.largest.timestamp,
        }


def _partition_row(disk: Disk, path: str, name: str) -> Row:
    segments = list(_segment_rows(disk, f"{path}/{name}"))
    return {
        "partition": name,
        "layout": "shared" if has_queues(disk, f"{path}/{name}") else "partitioned",
        "segments": len(segments),
        "first_offset": segments[0]["base_offset"] if segments else None,
        "next_offset": segments[-1]["next_offset"] if segments else None,
        "size_bytes": sum(segment["size_bytes"] for segment in segments),
    }
