"""Reads a coordinator's partition from its log, one chunk at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.deciding.decision import CoordinatorRecord
from tidelog.wire.batch import iter_headers
from tidelog.wire.records import COMMIT, read_end_txn_marker, read_records

NO_PRODUCER: Final = -1


class Loaded(NamedTuple):
    """A record or, where `record` is None, the end of a transaction, as found in the log."""

    record: CoordinatorRecord | None
    producer_id: int
    offset: int
    commit: bool = False


def parse(data: bytes, least_offset: int) -> list[Loaded]:
    """What a chunk of a coordinator's log says, from `least_offset` on."""
    found = []
    view = memoryview(data)
    for at, header in iter_headers(view):
        batch = view[at : at + header.size_bytes]
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        if header.is_control:
            marker = read_end_txn_marker(batch)
            if marker is not None and header.base_offset >= least_offset:
                found.append(Loaded(None, header.producer_id, header.base_offset, marker.type == COMMIT))
            continue
        for record in read_records(batch):
            if record.offset >= least_offset and record.key is not None:
                found.append(Loaded(CoordinatorRecord(record.key, record.value), producer_id, record.offset))
    return found
