"""How many partitions a coordinator's topic has if nobody knows any more: what is stored in it tells.

An id hashes to a partition, so a topic that is taken up with fewer partitions than it had loses sight of all that it
holds. Its directories tell how many there were, unless the last ones are missing: with a disk, or because the broker
died before they were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidelog.coordinator.loading import parse
from tidelog.group.records import decode_key
from tidelog.log.log import Log
from tidelog.node.internal_topics import OFFSETS_TOPIC
from tidelog.txn.records import decode
from tidelog.wire.errors import CodedError
from tidelog.wire.java_hash import coordinator_partition
from tidelog.wire.malformed import WireError

CHUNK_BYTES: Final = 1 << 20


def partitions_of(topic: str, logs: Mapping[int, Log], found: int, configured: int) -> int:
    """As many as were `found`, unless that cannot be and `configured` can.

    It cannot be where something is stored in a partition that its id does not hash to.
    """
    fits = True
    if found < configured:
        for index, log in logs.items():
            for id in _ids(topic, log):
                fits = fits and coordinator_partition(id, found) == index
                if coordinator_partition(id, configured) != index:
                    return found
    return found if fits else configured


def _ids(topic: str, log: Log) -> Iterator[str]:
    """The groups or transactional ids that a log has records of, as far as it can be read."""
    id_in = _group_in if topic == OFFSETS_TOPIC else _transactional_id_in
    offset: int = log.log_start_offset
    try:
        while (piece := log.read(offset, CHUNK_BYTES, log.log_end_offset)) is not None:
            for record, _, _, _ in parse(piece.read(), offset, piece.next_offset).found:
                if record is not None and (id := id_in(record.key)) is not None:
                    yield id
            offset = piece.next_offset
    except (CodedError, WireError, OSError):
        return


def _group_in(key: bytes) -> str | None:
    parts = decode_key(key)
    return None if parts is None else parts[1]


def _transactional_id_in(key: bytes) -> str | None:
    parts = decode(key, None)
    return None if parts is None else parts[0]
