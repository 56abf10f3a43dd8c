"""The four codecs of Kafka's record batches, unpacked under a bound.

    id  name    what is on the wire                                       what is read besides
    0   none
    1   gzip    one gzip member                                           several members
    2   snappy  xerial's stream, as the Java client writes it: a 16-byte  one raw snappy block, as librdkafka
                header, then (int32 length, raw block) of 32 KiB each     writes it
    3   lz4     an LZ4 frame of independent 64 KiB blocks, no checksums   any LZ4 frame
    4   zstd    one zstd frame                                            several frames

What is packed says how large it will become, and may lie. So the output buffer is sized by what the structure of the
frame allows (sum of its blocks' largest sizes), never beyond `limit_bytes`; where it is large it is mapped, not
allocated, and costs real memory only as far as it is written. Output that does not fit in the limit, or says that it
will not, is refused before it is made. The batch's CRC vouches for the bytes, so an LZ4 frame's own content checksum is
not computed where the frame is of the usual kind (Apache Kafka leaves it out as well).

Levels are those of the topic configurations `compression.{gzip,lz4,zstd}.level`, with Kafka's meaning: LZ4's default,
9, stands for the fast compressor, every other level for high compression.
"""

from __future__ import annotations

import struct
from typing import Any, Final

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_LEVELS: Final = {GZIP: -1, LZ4: 9, ZSTD: 3}
DEFAULT_LIMIT_BYTES: Final = 128 * 1024 * 1024

Buffer = bytes | bytearray | memoryview

_INT32: Final = struct.Struct(">i")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024

_UINT32_LE: Final = struct.Struct("<I")
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK: Final = 64 * 1024
#: magic, flags (version 1, independent blocks), block size (64 KiB), checksum of the two
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_END: Final = bytes(4)
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK_SIZES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_INDEPENDENT: Final = 0x20
#: no byte of a compressed block can stand for more
_LZ4_RATIO: Final = 255
#: (flags, block size, checksum of the two) of the headers whose blocks are unpacked one by one
_LZ4_PLAIN_HEADERS: Final = frozenset(
    bytes.fromhex(header) for header in ("604082", "6050fb", "606051", "607073", "6440a7", "645008", "646085", "6470b9")
)

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_MAX: Final = 128 * 1024
#: most batches unpack to less than this many times their size; a buffer of the right order saves page faults
_USUAL_RATIO: Final = 16
_MAPPED_FROM: Final = 1 << 20
_GZIP_PIECE: Final = 1 << 20
#: no byte of a gzip member can stand for more
_GZIP_RATIO: Final = 1032


class BadCompression(Exception):
    """The bytes are not what the codec writes."""


class TooLarge(BadCompression):
    """What is packed is, or says it is, larger than the limit."""


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` packed by `codec`; `level` None is Kafka's default."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _compress_snappy(data)
    if level is None:
        level = DEFAULT_LEVELS[codec]
    if codec == LZ4:
        return _compress_lz4(data, level)
    if codec == ZSTD:
        import cramjam

        return memoryview(cramjam.zstd.compress(data, level=level))
    if codec == GZIP:
        # The standard library's zlib packs faster than cramjam's.
        import zlib

        return zlib.compress(data, level, wbits=31)
    raise BadCompression(f"unknown codec {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """`data` unpacked: never more than `limit_bytes`, and no more memory than about that on the way."""
    if codec == LZ4:
        return _decompress_lz4(memoryview(data), limit_bytes)
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), limit_bytes)
    if codec == ZSTD:
        return _decompress_zstd(memoryview(data), limit_bytes)
    if codec == GZIP:
        return _decompress_gzip(data, limit_bytes)
    if codec == NONE:
        if len(data) > limit_bytes:
            raise TooLarge(f"{len(data)} bytes are more than the limit of {limit_bytes}")
        return data
    raise BadCompression(f"unknown codec {codec}")


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the records unpack to more than the limit of {limit_bytes} bytes")


def _room(size: int) -> memoryview:
    """A buffer to unpack into. A bytearray is zeroed at once; a mapping is only where it is written."""
    if size <= _MAPPED_FROM:
        return memoryview(bytearray(size))
    import mmap

    return memoryview(mmap.mmap(-1, size))


def said_by_gzip(data: memoryview) -> int:
    """How large the last member says it is, modulo 2 ** 32. It may lie, or be followed by bytes that say nothing."""
    return int(_UINT32_LE.unpack_from(data, len(data) - 4)[0]) if len(data) >= 4 else 0


def expected_bytes(codec: int, data: memoryview) -> int:
    """About how large `data` becomes, by what it says and how it is built: to plan by, not to rely on."""
    import cramjam

    try:
        if codec == LZ4:
            return _lz4_frame(data)[2]
        if codec == SNAPPY:
            return sum(cramjam.snappy.decompress_raw_len(block) for block in _snappy_blocks(data))
        if codec == ZSTD:
            return _zstd_bound(data)[0]
    except (BadCompression, cramjam.DecompressionError):
        return 0
    return said_by_gzip(data) if codec == GZIP else len(data)


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    import zlib

    if not data:
        raise BadCompression("gzip: no bytes")
    member = zlib.decompressobj(wbits=31)
    try:
        piece = member.decompress(data, min(limit_bytes + 1, _GZIP_PIECE))
        if member.eof and not member.unused_data:
            if len(piece) > limit_bytes:
                raise _too_large(limit_bytes)
            return piece
        return _gzip_pieces(member, piece, _room(min(limit_bytes, _GZIP_RATIO * len(data))), limit_bytes)
    except zlib.error as e:
        raise BadCompression(f"gzip: {e}") from None


def _gzip_pieces(member: Any, piece: bytes, out: memoryview, limit_bytes: int) -> memoryview:
    """Unpacks on, after a first piece; zlib itself would collect all pieces before it joins them: twice the memory."""
    import zlib

    at = 0
    while True:
        if len(piece) > len(out) - at:
            raise _too_large(limit_bytes)
        out[at : at + len(piece)] = piece
        at += len(piece)
        rest = member.unconsumed_tail
        if member.eof:
            rest = member.unused_data
            if not rest:
                return out[:at]
            member = zlib.decompressobj(wbits=31)
        elif not rest and not piece:
            raise BadCompression("gzip: the stream is cut short")
        piece = member.decompress(rest, _GZIP_PIECE)


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    parts: list[Any] = [_XERIAL_HEADER]
    view = memoryview(data)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK])
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """The raw blocks of a xerial stream; what does not open with its header is one block."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return [data]
    blocks: list[memoryview] = []
    pos = len(_XERIAL_HEADER)
    if len(data) < pos:
        raise BadCompression("snappy: the stream is cut short")
    while pos < len(data):
        # Streams that were joined repeat the header.
        if bytes(data[pos : pos + 8]) == _XERIAL_MAGIC:
            pos += len(_XERIAL_HEADER)
            continue
        if len(data) - pos < 4:
            raise BadCompression("snappy: the stream is cut short")
        (length,) = _INT32.unpack_from(data, pos)
        pos += 4
        if length < 0 or length > len(data) - pos:
            raise BadCompression("snappy: a block reaches beyond the stream")
        blocks.append(data[pos : pos + length])
        pos += length
    return blocks


def _decompress_snappy(data: memoryview, limit_bytes: int) -> memoryview:
    import cramjam

    snappy = cramjam.snappy
    try:
        blocks = [(block, snappy.decompress_raw_len(block)) for block in _snappy_blocks(data)]
        total = sum(size for _, size in blocks)
        if total > limit_bytes:
            raise _too_large(limit_bytes)
        out = _room(total)
        at = 0
        for block, size in blocks:
            snappy.decompress_raw_into(block, out[at : at + size])
            at += size
    except cramjam.DecompressionError as e:
        raise BadCompression(f"snappy: {e}") from None
    return out


def _compress_lz4(data: Buffer, level: int) -> Buffer:
    import cramjam

    if level != DEFAULT_LEVELS[LZ4]:
        packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        packer.compress(bytes(data))  # it takes no other kind of buffer
        return memoryview(packer.finish())
    parts: list[Any] = [_LZ4_HEADER]
    view = memoryview(data)
    for at in range(0, len(view), _LZ4_BLOCK):
        chunk = view[at : at + _LZ4_BLOCK]
        block = cramjam.lz4.compress_block(chunk, store_size=False)
        if len(block) < len(chunk):
            parts.append(_UINT32_LE.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_UINT32_LE.pack(len(chunk) | _LZ4_STORED))
            parts.append(chunk)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_blocks(data: memoryview, pos: int, trailer: int) -> tuple[list[tuple[int, int]], int]:
    """(position, length with its stored flag) of each block from `pos`, and the place after the end mark.

    `trailer` is what follows each block: four bytes where blocks carry a checksum.
    """
    blocks: list[tuple[int, int]] = []
    end = len(data)
    while True:
        if end - pos < 4:
            raise BadCompression("lz4: the frame is cut short")
        (length,) = _UINT32_LE.unpack_from(data, pos)
        pos += 4
        if length == 0:
            return blocks, pos
        size = (length & ~_LZ4_STORED) + trailer
        if size > end - pos:
            raise BadCompression("lz4: a block reaches beyond the frame")
        blocks.append((pos, length))
        pos += size


def _lz4_frame(data: memoryview) -> tuple[list[tuple[int, int]], int, int]:
    """The blocks of a frame, the largest size of one, and what all of them can become."""
    if len(data) < 7 or _UINT32_LE.unpack_from(data)[0] != _LZ4_MAGIC:
        raise BadCompression("lz4: not a frame")
    flags = data[4]
    block_max = _LZ4_BLOCK_SIZES.get(data[5] >> 4)
    if block_max is None:
        raise BadCompression("lz4: unknown block size")
    if not flags & _LZ4_INDEPENDENT:
        # Apache Kafka and its clients cannot read such a frame: once stored it would stop every Java consumer.
        raise BadCompression("lz4: frames of dependent blocks are not supported")
    header_size = 15 if flags & _LZ4_CONTENT_SIZE else 7
    blocks, end = _lz4_blocks(data, header_size, 4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    if len(data) != end + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0):
        raise BadCompression("lz4: the frame does not end with the batch")
    bound = sum(
        length & ~_LZ4_STORED if length & _LZ4_STORED else min(block_max, length * _LZ4_RATIO) for _, length in blocks
    )
    return blocks, block_max, bound


def _decompress_lz4(data: memoryview, limit_bytes: int) -> memoryview:
    blocks, block_max, bound = _lz4_frame(data)
    plain = bytes(data[4:7]) in _LZ4_PLAIN_HEADERS
    out = _room(min(bound, limit_bytes))
    import cramjam

    try:
        if plain:
            size = _unpack_lz4_blocks(cramjam.lz4.decompress_block_into, data, blocks, block_max, out)
        else:
            size = cramjam.lz4.decompress_into(data, out)
    except cramjam.DecompressionError as e:
        if bound > limit_bytes:
            raise _too_large(limit_bytes) from None
        raise BadCompression(f"lz4: {e}") from None
    return out[:size]


def _unpack_lz4_blocks(
    unpack: Any, data: memoryview, blocks: list[tuple[int, int]], block_max: int, out: memoryview
) -> int:
    at = 0
    for pos, length in blocks:
        room = min(block_max, len(out) - at)
        if not length & _LZ4_STORED:
            at += unpack(data[pos : pos + length], out[at : at + room], output_len=room)
            continue
        length &= ~_LZ4_STORED
        if length > room:
            raise _too_large(len(out))
        out[at : at + length] = data[pos : pos + length]
        at += length
    return at


def _zstd_bound(data: memoryview) -> tuple[int, int]:
    """How large the frames can become, as they declare or, where they do not, as their blocks allow.

    And how large they say they are, which is at least what they would unpack to.
    """
    bound = least = 0
    pos = 0
    end = len(data)
    try:
        while pos < end:
            (magic,) = _UINT32_LE.unpack_from(data, pos)
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
                pos += 8 + _UINT32_LE.unpack_from(data, pos + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise BadCompression("zstd: not a frame")
            size, is_declared, pos = _zstd_frame_bound(data, pos + 4)
            bound += size
            least += size if is_declared else 0
    except (struct.error, IndexError):
        raise BadCompression("zstd: the frame is cut short") from None
    if pos != end:
        raise BadCompression("zstd: the frame is cut short")
    return bound, least


def _zstd_frame_bound(data: memoryview, pos: int) -> tuple[int, bool, int]:
    """(largest size of the frame whose header opens at `pos`, whether it says so, position after the frame)."""
    descriptor = data[pos]
    single_segment = descriptor >> 5 & 1
    size_width = (single_segment, 2, 4, 8)[descriptor >> 6]
    # one byte of window size, unless the whole frame is one segment; then the dictionary's id
    pos += 2 - single_segment + (0, 1, 2, 4)[descriptor & 3]
    declared = int.from_bytes(data[pos : pos + size_width], "little") + (256 if size_width == 2 else 0)
    pos += size_width
    bound = 0
    last = 0
    while not last:
        block = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        last = block & 1
        kind = block >> 1 & 3
        size = block >> 3
        # Raw blocks hold `size` bytes, run-length blocks one byte that stands for `size`.
        bound += size if kind < 2 else _ZSTD_BLOCK_MAX
        pos += 3 + (1 if kind == 1 else size)
    pos += 4 if descriptor & 4 else 0
    if declared > bound:
        raise BadCompression("zstd: the frame declares more than its blocks can hold")
    return (declared, True, pos) if size_width else (bound, False, pos)


def _decompress_zstd(data: memoryview, limit_bytes: int) -> memoryview:
    import cramjam

    bound, least = _zstd_bound(data)
    if least > limit_bytes:
        raise _too_large(limit_bytes)
    room = min(bound, limit_bytes)
    # Most batches fit in a buffer of the usual order; larger ones are unpacked again into one that surely holds them.
    usual = min(room, max(_ZSTD_BLOCK_MAX // 2, _USUAL_RATIO * len(data)))
    for size in (usual, room) if usual < room else (room,):
        out = _room(size)
        try:
            return out[: cramjam.zstd.decompress_into(data, out)]
        except cramjam.DecompressionError as e:
            reason = str(e)
    if bound > limit_bytes:
        raise _too_large(limit_bytes)
    raise BadCompression(f"zstd: {reason}")
