"""A file of the commit log, entry by entry, with what is damaged between them: for people, and for checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.log.disk import File
from tidelog.log.shared.commit_entry import Entry, Unreadable, next_magic, read_entry

_CHUNK_BYTES: Final = 1 << 20


class Piece(NamedTuple):
    #: in the commit log
    position: int
    size_bytes: int
    #: None where what stands there is damaged
    entry: Entry | None


def walk_file(file: File, base: int) -> Iterator[Piece]:
    """All of a file whose first byte is at position `base`. May raise OSError."""
    size, at = file.size(), 0
    chunk, chunk_at = b"", 0
    damaged_from: int | None = None
    while at < size:
        try:
            entry, size_bytes = read_entry(memoryview(chunk), at - chunk_at, base + at)
        except Unreadable as unreadable:
            wanted = min(unreadable.wanted_bytes, size - at)
            if at - chunk_at + wanted > len(chunk):
                # It is only cut off by the end of what was read.
                chunk, chunk_at = file.pread(max(wanted, _CHUNK_BYTES), at), at
            else:
                damaged_from = at if damaged_from is None else damaged_from
                at = chunk_at + next_magic(chunk, at + 1 - chunk_at)
            continue
        if damaged_from is not None:
            yield Piece(base + damaged_from, at - damaged_from, None)
            damaged_from = None
        yield Piece(base + at, size_bytes, entry)
        at += size_bytes
    if damaged_from is not None:
        yield Piece(base + damaged_from, size - damaged_from, None)
