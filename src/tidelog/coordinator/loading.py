"""Reads a coordinator's partition from its log, one chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.wire.batch import NO_PRODUCER_ID, BatchHeader, InvalidBatch, crc_matches, iter_headers
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import COMMIT, read_end_txn_marker, read_records


class Loaded(NamedTuple):
    """A record or, where `record` is None, the end of a transaction, as found in the log."""

    record: CoordinatorRecord | None
    producer_id: int
    offset: int
    commit: bool = False


class LoadedChunk(NamedTuple):
    found: list[Loaded]
    #: the first offset and the one after the last of each batch that is not as it was written
    lost: list[tuple[int, int]]


def parse(data: bytes, least_offset: int, next_offset: int) -> LoadedChunk:
    """What a chunk of a coordinator's log says, from `least_offset` to below `next_offset`.

    A damaged batch is left out: a flipped bit must not become another offset of a group, or another outcome of a
    transaction. Raises InvalidBatch where it seems to have been part of a transaction, for the others of the same
    transaction mean nothing without it, and where nobody knows where the next one begins.
    """
    found: list[Loaded] = []
    lost = []
    view = memoryview(data)
    reached, end = least_offset, 0
    for at, header in iter_headers(view):
        end = at + header.size_bytes
        in_order = reached <= header.last_offset < next_offset
        if not in_order or not crc_matches(view, at, header):
            if header.is_transactional or header.is_control:
                raise _damaged(f"the batch at offset {reached}, part of a transaction, is not as it was written")
            first = max(reached, header.base_offset) if in_order else reached
            reached = header.next_offset if in_order else reached + 1
            lost.append((first, reached))
            continue
        reached = header.next_offset
        found += _read(view[at:end], header, least_offset)
    if end != len(view):
        raise _damaged(f"the batch at offset {reached} is cut short")
    return LoadedChunk(found, lost)


def _read(batch: memoryview, header: BatchHeader, least_offset: int) -> Iterator[Loaded]:
    if header.is_control:
        marker = read_end_txn_marker(batch)
        if marker is not None and header.base_offset >= least_offset:
            yield Loaded(None, header.producer_id, header.base_offset, marker.type == COMMIT)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in read_records(batch):
        if record.offset >= least_offset and record.key is not None:
            yield Loaded(CoordinatorRecord(record.key, record.value), producer_id, record.offset)


def _damaged(why: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, why)
