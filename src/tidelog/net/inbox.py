"""What a connection has received and not dispatched: part of a frame, or frames whose turn has not come.

An empty inbox holds no buffer. A few bytes are kept in a copy of their exact size, more in a buffer from the pool. A
buffer grows with the bytes that have arrived (to a small multiple of their number), never with what a size prefix
claims. The largest requests, which are admitted one by one, get a mapped buffer instead: it has its full size from the
start, but takes memory only as it is filled.
"""

from __future__ import annotations

from struct import Struct

from tidelog.net.pool import KEPT_BYTES, BufferPool

SIZE_BYTES = 4
SMALL_BYTES = 16 * 1024
#: of one read: others have their turn before the next
READ_BYTES = 1024 * 1024
_GROWTH = 2
_SPARSE = 4  # a buffer of which less than one part in so many is used is given back

size_at = Struct(">i").unpack_from  # size_at(buffer, position) -> (size,)


class Inbox:
    __slots__ = ("_mapped", "_pool", "begin", "end", "view")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self.view: memoryview | None = None  # the bytes are view[begin:end]; None when there are none
        self.begin = 0
        self.end = 0
        self._mapped = False  # the buffer is one of those that are mapped

    def __len__(self) -> int:
        return self.end - self.begin

    def needed_bytes(self) -> int:
        """The size of the first frame with its prefix; of the prefix alone if that is not whole."""
        if self.view is None or self.end - self.begin < SIZE_BYTES:
            return SIZE_BYTES
        size: int = size_at(self.view, self.begin)[0]
        return SIZE_BYTES + size

    def room(self, wanted_bytes: int) -> memoryview:
        """Where to read on, towards `wanted_bytes` in all; empty if they are there."""
        view = self.view
        held = self.end - self.begin
        # What is mapped is only taken as it is written, so it need not grow, which would copy it again and again.
        mapped = wanted_bytes > KEPT_BYTES
        enough_bytes = wanted_bytes if mapped else min(wanted_bytes, _GROWTH * max(held, SMALL_BYTES))
        if view is None or self.begin + enough_bytes > len(view):
            larger = self._pool.take(enough_bytes, wanted_bytes)
            if view is not None:
                larger[:held] = view[self.begin : self.end]
                self._pool.give(view)
            self.view = view = larger
            self._mapped = mapped
            self.begin = 0
            self.end = held
        return view[self.end : min(self.begin + wanted_bytes, len(view), self.end + READ_BYTES)]

    def keep(self, view: memoryview, begin: int, end: int) -> None:
        """Hold these bytes and no others; `view` is the inbox's own or the shared area."""
        held = end - begin
        if view is self.view and (held > len(view) // _SPARSE or (self._mapped and begin == self.begin)):
            self.begin = begin
            self.end = end
            return
        old = self.view
        self._mapped = False
        if held == 0:
            self.view = None
        elif held <= SMALL_BYTES:
            self.view = memoryview(bytearray(view[begin:end]))
        else:
            frame_bytes = SIZE_BYTES + size_at(view, begin)[0]
            self.view = self._pool.take(max(held, min(frame_bytes, _GROWTH * held)), max(held, frame_bytes))
            self.view[:held] = view[begin:end]
        self.begin = 0
        self.end = held
        if old is not None:
            self._pool.give(old)

    def clear(self) -> None:
        if self.view is not None:
            self._pool.give(self.view)
            self.view = None
        self.begin = self.end = 0
