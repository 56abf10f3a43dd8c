"""Which partition of a coordinator's topic a key belongs to: by the hash that Java gives a string, as Kafka does."""

from __future__ import annotations

from functools import lru_cache


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, as a signed 32-bit number."""
    code = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        code = (31 * code + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


@lru_cache(maxsize=1_024)
def coordinator_partition(key: str, partitions: int) -> int:
    code = java_hash(key)
    return (0 if code == -(2**31) else abs(code)) % partitions
