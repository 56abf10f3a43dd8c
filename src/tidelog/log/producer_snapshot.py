"""The producer snapshot (`.snapshot`): what a partition knew of its producers, up to the offset that names the file.

    version   int16   1
    crc       uint32  CRC-32C of all bytes after this field
    count     int32
    and for each producer:
        producer id        int64
        epoch              int16
        last sequence      int32   of its last batch; -1 where none is remembered
        last offset        int64   of its last batch; -1 where none is remembered
        offset delta       int32   from the first to the last record of that batch
        timestamp          int64   the largest of its last batch or marker
        coordinator epoch  int32   of its last marker; -1 before the first
        txn first offset   int64   of its open transaction; -1 where none is open

Only the last batch is kept, so after a restart a duplicate of an older one is out of order instead. A snapshot that is
torn or damaged is worth nothing, and the log is read from an older one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.wire.batch import crc32c

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_FROM: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """The bytes are no snapshot, or no longer the one that was written."""


class ProducerSnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerSnapshotEntry]:
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc != crc32c(data[_CRC_FROM:]):
        raise CorruptSnapshot(f"the CRC says {crc:08x}, the bytes {crc32c(data[_CRC_FROM:]):08x}")
    if len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} producers do not fit {len(data)} bytes")
    return [ProducerSnapshotEntry._make(entry) for entry in _ENTRY.iter_unpack(data[_HEAD.size :])]
