"""A file of the commit log, entry by entry, with what is damaged between them: for people, and for checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.log.disk import File
from tidelog.log.shared.commit_entry import Entry, Unreadable, next_magic, read_entry

_CHUNK_BYTES: Final = 1 << 20
_MAGIC_BYTES: Final = 4


class Piece(NamedTuple):
    #: in the commit log
    position: int
    size_bytes: int
    #: None where what stands there is damaged
    entry: Entry | None


def walk_file(file: File, base: int) -> Iterator[Piece]:
    """All of a file whose first byte is at position `base`. May raise OSError."""
    size, at = file.size(), 0
    chunk, chunk_at = memoryview(b""), 0
    damaged_from: int | None = None
    while at < size:
        try:
            entry, size_bytes = read_entry(chunk, at - chunk_at, base + at)
        except Unreadable as unreadable:
            wanted = min(max(unreadable.size_bytes or 0, _CHUNK_BYTES), size - at)
            if chunk_at != at or len(chunk) < wanted:
                # It may only have been cut off by the end of what was read.
                chunk, chunk_at = memoryview(file.pread(wanted, at)), at
                continue
            damaged_from = at if damaged_from is None else damaged_from
            at = _next_entry(file, at + 1, size)
            continue
        if damaged_from is not None:
            yield Piece(base + damaged_from, at - damaged_from, None)
            damaged_from = None
        yield Piece(base + at, size_bytes, entry)
        at += size_bytes
    if damaged_from is not None:
        yield Piece(base + damaged_from, size - damaged_from, None)


def _next_entry(file: File, at: int, size: int) -> int:
    """Where the next entry may begin; the end of the file where none does."""
    while at < size:
        data = file.pread(_CHUNK_BYTES, at)
        found = next_magic(data, 0)
        if found >= 0:
            return at + found
        at += max(len(data) - _MAGIC_BYTES + 1, 1)
    return size
