"""What stands in a commit log: entries back to back, each a head of 72 bytes and what it carries.

    magic           uint32
    crc             uint32  CRC-32C of the rest of the head
    position        int64   where the entry stands in the commit log
    topic id        16 bytes
    partition       int32
    kind            int8    what it tells of the partition
    (zero)          3 bytes
    size            int32   bytes that follow the head
    last offset     int32   how far it lies behind the base offset
    base offset     int64
    previous        int64   where the partition's entry before this one stands; where its author knew of none past the
                            checkpoint, the byte before that, which is -1 at first; in a copy -1, or -2 if it belongs
                            to a log of the partition that was set aside
    check           uint32  CRC-32C of what the batches' own CRCs leave out: see below
    (zero)          4 bytes

    kind        carries                     what it tells
    BATCHES     batches, as they came       the log goes on with them, at its base offset
    CUT         nothing                     all batches that hold the base offset or later ones are gone
    START       nothing                     everything is gone, and the log begins at the base offset
    MOVED       a batch                     nothing: it is a copy of one that stood in an older file

A batch has a CRC of its own, which leaves out its offset and its leader epoch. `check` covers these, so that a flipped
bit anywhere in an entry is found.

`previous` chains the entries of a partition: where one has got lost, the next one tells. Without it a log that was cut
and went on could seem whole although it is one version up to an offset, and another one from there.

The position is part of the head so that nothing else can pass for an entry: after damage the next one is searched for,
and a record may hold any bytes, those of an entry included, but not of one that stands where the record does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.wire.batch import (
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    BatchHeader,
    InvalidBatch,
    crc32c,
    crc_matches,
    iter_headers,
)

MAGIC: Final = 0x7D1DE106
HEAD: Final = struct.Struct(">IIq16sib3xiiqqI4x")
HEAD_SIZE: Final = HEAD.size
#: in the place of `previous`
OF_A_STRAY: Final = -2
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "big")
_COVERED_AT: Final = 8
_START: Final = struct.Struct(">II")
_REST: Final = struct.Struct(">q16sib3xiiqqI4x")
_LENGTH: Final = struct.Struct(">i")


class EntryKind(IntEnum):
    BATCHES = 0
    CUT = 1
    START = 2
    MOVED = 3


class Owner(NamedTuple):
    """The partition that an entry belongs to."""

    topic_id: bytes
    partition: int


class Entry(NamedTuple):
    owner: Owner
    kind: EntryKind
    base_offset: int
    last_offset: int
    #: where it stands in the commit log
    position: int
    #: where the entry of the same partition before it stands
    previous: int
    #: the batches, and where they stand
    batches: list[tuple[int, BatchHeader]]


class Unreadable(Exception):
    """What stands there is not a whole entry, unless only a part of it was given: so many bytes are wanted to tell."""

    def __init__(self, wanted_bytes: int = 0) -> None:
        super().__init__(wanted_bytes)
        self.wanted_bytes = wanted_bytes


def pack_head(
    owner: Owner,
    kind: EntryKind,
    position: int,
    base_offset: int,
    last_offset: int,
    previous: int,
    records: bytes | memoryview,
) -> bytes:
    """The head of an entry that is to stand at `position`."""
    size = len(records)
    check = _check(records, size) if size else 0
    delta = last_offset - base_offset
    rest = _REST.pack(position, owner[0], owner[1], kind, size, delta, base_offset, previous, check)
    return _START.pack(MAGIC, crc32c(rest)) + rest


def _check(records: bytes | memoryview, size: int) -> int:
    """Of what the CRCs of the batches leave out: the start of each, up to its CRC."""
    (length,) = _LENGTH.unpack_from(records, LENGTH_AT)
    if length + LOG_OVERHEAD == size:
        # Nearly always there is one.
        return crc32c(records[:CRC_AT])
    places = bytearray()
    at = 0
    while at + HEADER_SIZE <= size:
        places += records[at : at + CRC_AT]
        at += LOG_OVERHEAD + _LENGTH.unpack_from(records, at + LENGTH_AT)[0]
    return crc32c(bytes(places))


def read_entry(data: memoryview, at: int, position: int) -> tuple[Entry, int]:
    """The entry at `data[at:]`, which is to stand at `position`, and its size. Raises Unreadable."""
    if at + HEAD_SIZE > len(data):
        raise Unreadable(HEAD_SIZE)
    head = HEAD.unpack_from(data, at)
    magic, crc, stands_at, topic_id, partition, kind, size, delta, base_offset, previous, check = head
    if magic != MAGIC or stands_at != position or crc != crc32c(data[at + _COVERED_AT : at + HEAD_SIZE]):
        raise Unreadable
    size_bytes = HEAD_SIZE + size
    records = data[at + HEAD_SIZE : at + size_bytes]
    if len(records) < size:
        raise Unreadable(size_bytes)
    first = position + HEAD_SIZE
    batches = [(first + at, header) for at, header in _whole_batches(records)]
    if records and _check(records, size) != check:
        raise Unreadable
    owner, last_offset = Owner(topic_id, partition), base_offset + delta
    entry = Entry(owner, EntryKind(kind), base_offset, last_offset, position, previous, batches)
    return entry, size_bytes


class Head(NamedTuple):
    owner: Owner
    kind: EntryKind
    #: of the whole entry
    size_bytes: int


def read_head(head: bytes, position: int) -> Head | None:
    """Of the entry that begins at `position`; None where none begins there, or its head is damaged."""
    if len(head) < HEAD_SIZE:
        return None
    magic, crc, stands_at, topic_id, partition, kind, size, *_ = HEAD.unpack_from(head)
    if magic != MAGIC or stands_at != position or crc != crc32c(head[_COVERED_AT:HEAD_SIZE]):
        return None
    return Head(Owner(topic_id, partition), EntryKind(kind), HEAD_SIZE + size)


def _whole_batches(records: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    end = 0
    try:
        for at, header in iter_headers(records):
            if not crc_matches(records, at, header):
                raise Unreadable
            end = at + header.size_bytes
            yield at, header
    except InvalidBatch:
        raise Unreadable from None
    if end != len(records):
        raise Unreadable


def next_magic(data: bytes, at: int) -> int:
    """Where an entry may begin, at or after `at`: with what begins it, or with what may be the start of that."""
    found = data.find(_MAGIC_BYTES, at)
    return found if found >= 0 else max(len(data) - len(_MAGIC_BYTES) + 1, at)
