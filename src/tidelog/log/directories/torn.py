"""What a crash leaves behind the last whole batch of a file: a write that did not come to its end, or damage.

A process that is killed leaves the beginning of what it was writing, and has acknowledged none of it. Whatever else
stands there was whole once, and may have been acknowledged.
"""

from __future__ import annotations

from typing import Final

from tidelog.log.disk import File
from tidelog.wire.batch import HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, MAGIC_AT, crc_matches, read_header

#: more than this is no batch that was being written
MOST_BYTES: Final = 8 << 20
_MAGIC: Final = b"\2"


def is_torn(file: File, at: int, size_bytes: int) -> bool:
    """Whether the last bytes of a file, so many from `at` on, are the beginning of one batch. Zeros are no bytes: they
    stand where room was made in advance, and nothing was written yet."""
    rest = file.pread(min(size_bytes, MOST_BYTES), at)
    written = rest.rstrip(b"\0")
    if not written or size_bytes < LOG_OVERHEAD:
        return True
    batch_bytes = LOG_OVERHEAD + int.from_bytes(rest[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
    if batch_bytes < HEADER_SIZE:
        return False
    if batch_bytes > size_bytes:
        is_begun = size_bytes <= MOST_BYTES
    else:
        # All of its bytes are there, unless there was room for it before it was written.
        is_begun = len(written) < batch_bytes < size_bytes and len(written) < len(rest)
    return is_begun and not _has_batch(rest)


def _has_batch(data: bytes) -> bool:
    """Whether a whole batch begins anywhere behind the first byte."""
    magic_at = data.find(_MAGIC, MAGIC_AT + 1)
    while magic_at >= 0:
        at = magic_at - MAGIC_AT
        if at + HEADER_SIZE <= len(data):
            header = read_header(data, at)
            if HEADER_SIZE <= header.size_bytes <= len(data) - at and crc_matches(data, at, header):
                return True
        magic_at = data.find(_MAGIC, magic_at + 1)
    return False
