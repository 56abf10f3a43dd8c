"""Which partition a record goes to: by its key as in Apache Kafka's Java client, spread if it has no key.

The partition of a key is its murmur2 hash without the sign, modulo the number of partitions, so that all records of a
key go to one partition whichever client wrote them. Records without a key stay on one partition for a while, which
makes batches larger, or go round-robin.
"""

from __future__ import annotations

from functools import lru_cache
from random import randrange
from struct import unpack_from
from typing import Final, Literal

Spread = Literal["sticky", "round-robin"]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
#: as many bytes go to one partition before the next has its turn; the Java client's batch.size
STICKY_BYTES: Final = 16384


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length >> 2
    for word in unpack_from(f"<{whole}I", data):
        word = word * _M & _MASK
        word = (word ^ (word >> 24)) * _M & _MASK
        value = value * _M & _MASK ^ word
    rest = data[whole << 2 :]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


@lru_cache(maxsize=8192)
def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses for the records of one topic."""

    __slots__ = ("_given_bytes", "_spread", "_turn")

    def __init__(self, spread: Spread = "sticky") -> None:
        self._spread = spread
        self._turn = randrange(1 << 16) if spread == "sticky" else -1
        self._given_bytes = 0

    def choose(self, key: bytes | None, size_bytes: int, partitions: int, available: list[int]) -> int:
        """`available` are the partitions with a leader; a record without a key avoids the others."""
        if key is not None:
            return partition_of_key(key, partitions)
        if self._spread == "round-robin":
            self._turn += 1
        else:
            self._given_bytes += size_bytes
            if self._given_bytes > STICKY_BYTES:
                self._given_bytes = size_bytes
                self._turn += 1
        candidates = available or range(partitions)
        return candidates[self._turn % len(candidates)]
