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


def is_torn(file: File, at: int, size_bytes: int, has_room: bool) -> bool:
    """Whether the last bytes of a file, so many from `at` on, are the beginning of one batch. Where the file `has_room`
    that was made in advance, zeros are no bytes: nothing was written there yet."""
    rest = file.pread(min(size_bytes, MOST_BYTES), at)
    written_bytes = len(rest.rstrip(b"\0")) if has_room else len(rest)
    if not written_bytes or size_bytes < LOG_OVERHEAD:
        return True
    batch_bytes = LOG_OVERHEAD + _length_at(rest, 0)
    if batch_bytes < HEADER_SIZE:
        return False
    if batch_bytes > size_bytes:
        is_begun = size_bytes <= MOST_BYTES
    else:
        # All of its bytes are there, unless it was being written into that room. A whole one may end with one zero.
        is_begun = written_bytes < batch_bytes - 1 and written_bytes < len(rest)
    return is_begun and not _has_batch(rest)


def _has_batch(data: bytes) -> bool:
    """Whether a whole batch begins anywhere behind the first byte, or that takes too long to find out."""
    magic_at = data.find(_MAGIC, MAGIC_AT + 1)
    left_to_check = MOST_BYTES
    while magic_at >= 0 and left_to_check > 0:
        at = magic_at - MAGIC_AT
        if HEADER_SIZE <= LOG_OVERHEAD + _length_at(data, at) <= len(data) - at:
            header = read_header(data, at)
            left_to_check -= header.size_bytes
            if crc_matches(data, at, header):
                return True
        magic_at = data.find(_MAGIC, magic_at + 1)
    return left_to_check <= 0


def _length_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + LENGTH_AT : at + LENGTH_AT + 4], "big", signed=True)
