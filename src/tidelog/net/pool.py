"""Buffers for frames that are too large for the shared area, kept for reuse.

A fresh buffer of a megabyte costs more than receiving a megabyte: each of its pages is mapped and zeroed first. So the
buffer of a finished frame is kept, up to KEPT_BYTES in all, and handed out again.

Memory follows what has arrived, not what a client claims to be sending: callers ask for a small multiple of the bytes
they have, and get a kept buffer that would hold the whole frame only if it is at most _GENEROSITY times as large.
Otherwise a few bytes on many connections could tie up every large buffer that is given back.
"""

from __future__ import annotations

import mmap

SMALLEST_BYTES = 64 * 1024
KEPT_BYTES = 16 * 1024 * 1024
_SLACK_BYTES = 4 * 1024  # a batch of a round size has a header around it
_GENEROSITY = 4


class BufferPool:
    __slots__ = ("_kept", "kept_bytes")

    def __init__(self) -> None:
        self._kept: list[memoryview] = []
        self.kept_bytes = 0

    def take(self, enough_bytes: int, wanted_bytes: int) -> memoryview:
        """One of at least `wanted_bytes` if a suitable one is kept, or else a new one of at least `enough_bytes`."""
        kept = self._kept
        most_bytes = _GENEROSITY * max(enough_bytes, SMALLEST_BYTES) + _SLACK_BYTES
        for index in range(len(kept) - 1, -1, -1):
            if wanted_bytes <= len(kept[index]) <= most_bytes:
                buffer = kept.pop(index)
                self.kept_bytes -= len(buffer)
                return buffer
        if enough_bytes > KEPT_BYTES:
            # It will not be kept, so nothing is saved by a size that others want too; and mapped memory is only taken
            # as far as it is written.
            return memoryview(mmap.mmap(-1, enough_bytes))
        size_bytes = SMALLEST_BYTES
        while size_bytes + _SLACK_BYTES < enough_bytes:
            size_bytes *= 2
        return memoryview(bytearray(size_bytes + _SLACK_BYTES))

    def give(self, buffer: memoryview) -> None:
        if len(buffer) >= SMALLEST_BYTES and self.kept_bytes + len(buffer) <= KEPT_BYTES:
            self._kept.append(buffer)
            self.kept_bytes += len(buffer)
