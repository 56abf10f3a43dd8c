"""What is finished beyond the committed offset, as text for the metadata of the commit.

A commit says "everything below this offset is finished". With many workers, records above it are finished, too: one
slow record holds the offset back, and the thousand behind it are done. The map tells them, so that whoever takes the
partition over repeats only what was not finished:

    offset     100 101 102 103 104 105 106 107        committed: 100
               ✗   ✓   ✓   ✗   ✗   ✓   ✓   ·          map: 1 unfinished, 2 finished, 2 unfinished, 2 finished

    text       "tlw1:" and, in base64, a CRC-32 (4 bytes) of the committed offset and the runs, then the runs: varints,
               unfinished and finished in turn

It names what is *not* finished, and that is never much: the workers bound how many records they hold. A million
finished records behind a single stuck one take four bytes. Offsets that no record has (compacted away, aborted, markers
of transactions) count as finished. What lies beyond the last run is not known to be finished.

The metadata belong to whoever commits: other clients of the group write their own or none. What is not ours, or was
made for another offset, is no map (`decode` gives None), and the partition is then read from the committed offset.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

MARK: Final = "tlw1:"
#: offset.metadata.max.bytes of a broker, unless somebody changed it, without the NUL that librdkafka sends at the end
DEFAULT_LIMIT: Final = 4096 - 1
#: More than any workers hold: a map that claims more was made to do harm.
MOST_UNFINISHED: Final = 1 << 17
_LARGEST: Final = (1 << 63) - 1
_CRC_BYTES: Final = 4


class OffsetMap(NamedTuple):
    """Of the offsets from the committed one up to `end`, all are finished except these."""

    unfinished: tuple[int, ...]
    end: int


def encode(base: int, unfinished: Sequence[int], end: int, limit: int = DEFAULT_LIMIT) -> tuple[str, bool]:
    """The text for a commit of `base`, and whether all of it fits into `limit` characters.

    `unfinished` is ascending and begins with `base`; everything else up to `end` is finished. If not all of it fits,
    the end is left out: records there are repeated after a crash, but nothing is ever skipped.
    """
    assert not unfinished or unfinished[0] == base
    room = (limit - len(MARK)) * 3 // 4 - _CRC_BYTES
    runs = bytearray()
    whole = True
    for missing, finished in _runs(unfinished, end):
        pair = _varint(missing) + _varint(finished)
        if len(runs) + len(pair) > room:
            whole = False
            break
        runs += pair
    if not runs:
        return "", whole
    packed = base64.b64encode(_crc(base, runs) + runs).rstrip(b"=")
    return MARK + packed.decode("ascii"), whole


def decode(base: int, text: str | None) -> OffsetMap | None:
    """The map that was committed together with `base`; None if the text is not one, or not for this offset."""
    if not text or not text.startswith(MARK):
        return None
    packed = text[len(MARK) :].rstrip("\0")
    try:
        raw = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    runs = raw[_CRC_BYTES:]
    if raw[:_CRC_BYTES] != _crc(base, runs):
        return None
    lengths = list(_varints(runs))
    if len(lengths) % 2 or 0 in lengths:
        return None
    if sum(lengths[::2]) > MOST_UNFINISHED or base + sum(lengths) > _LARGEST:
        return None
    unfinished: list[int] = []
    at = base
    for missing, finished in zip(lengths[::2], lengths[1::2], strict=True):
        unfinished += range(at, at + missing)
        at += missing + finished
    return OffsetMap(tuple(unfinished), at)


def _runs(unfinished: Iterable[int], end: int) -> Iterator[tuple[int, int]]:
    """(unfinished, finished) lengths in turn; unfinished ones at the end need not be told."""
    length, expected = 0, None
    for offset in unfinished:
        if expected is not None and offset != expected:
            yield length, offset - expected
            length = 0
        length += 1
        expected = offset + 1
    if expected is not None and expected < end:
        yield length, end - expected


def _crc(base: int, runs: bytes | bytearray) -> bytes:
    return zlib.crc32(runs, zlib.crc32(base.to_bytes(8, "big"))).to_bytes(_CRC_BYTES, "big")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varints(data: bytes) -> Iterator[int]:
    """The numbers; a 0, which no run has as its length, where the data end in the middle of one."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > 63:
                yield 0
                return
        else:
            yield value
            value = shift = 0
    if shift:
        yield 0
