"""Each codec against an implementation that is not ours, and against what an adversary may send."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable

import lz4.block
import lz4.frame
import pytest
import snappy
import zstandard
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import lz4_encode, snappy_encode

from tidelog.wire import compression
from tidelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, BadCompression, TooLarge, compress, decompress

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
MIB = 1 << 20


def noise(size: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(size)


def text(size: int, seed: int = 7) -> bytes:
    words = random.Random(seed)
    return b" ".join(b"user-%d" % words.randrange(500) for _ in range(size // 5))[:size]


SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": text(20_000),
    "text over many blocks": text(700_000),
    "noise": noise(200_000),
    "noise and zeros": noise(70_000) + bytes(300_000) + noise(10),
    "exactly a block": text(65_536),
    "exactly a xerial block": text(32_768),
}


def _xerial_blocks(data: bytes) -> list[bytes]:
    assert data[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    blocks, at = [], 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


INDEPENDENT_READERS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: gzip.decompress,
    SNAPPY: lambda data: b"".join(snappy.uncompress(bytes(block)) for block in _xerial_blocks(data)),
    LZ4: lz4.frame.decompress,
    ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}
SECOND_READERS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: gzip_decode,
    SNAPPY: snappy_decode,
    LZ4: lz4_decode,
    ZSTD: zstd_decode,
}


def stream_zstd(data: bytes) -> bytes:
    """As the Java client writes it: without the content's size in the header."""
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    return packer.compress(data) + packer.flush()


FOREIGN = [
    (GZIP, "gzip", gzip.compress),
    (GZIP, "gzip, stored", lambda data: gzip.compress(data, 0)),
    (GZIP, "gzip, two members", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
    (SNAPPY, "raw snappy", snappy.compress),
    (SNAPPY, "xerial by kafka-python", lambda data: snappy_encode(data, xerial_compatible=True)),
    (SNAPPY, "xerial, small blocks", lambda data: snappy_encode(data, xerial_compatible=True, xerial_blocksize=1000)),
    (SNAPPY, "xerial, joined", lambda data: snappy_encode(data[:100]) + snappy_encode(data[100:])),
    (LZ4, "lz4 by kafka-python", lz4_encode),
    (LZ4, "lz4, no size", lambda data: lz4.frame.compress(data, block_linked=False, store_size=False)),
    (LZ4, "lz4, content checksum", lambda data: lz4.frame.compress(data, block_linked=False, content_checksum=True)),
    (LZ4, "lz4, block checksums", lambda data: lz4.frame.compress(data, block_linked=False, block_checksum=True)),
    *(
        (
            LZ4,
            f"lz4, block size {size}, checksum {summed}",
            lambda data, size=size, summed=summed: lz4.frame.compress(
                data, block_linked=False, store_size=False, block_size=size, content_checksum=summed
            ),
        )
        for size in (4, 5, 6, 7)
        for summed in (False, True)
    ),
    (LZ4, "lz4, high compression", lambda data: lz4.frame.compress(data, 12, block_linked=False)),
    (ZSTD, "zstd with its size", zstandard.ZstdCompressor(level=5).compress),
    (ZSTD, "zstd streamed", stream_zstd),
    (ZSTD, "zstd with checksum", zstandard.ZstdCompressor(write_checksum=True).compress),
    (ZSTD, "zstd, two frames", lambda data: stream_zstd(data[:100]) + stream_zstd(data[100:])),
    (ZSTD, "zstd after a skippable frame", lambda data: struct.pack("<II", 0x184D2A53, 3) + b"abc" + stream_zstd(data)),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_what_we_pack_others_unpack(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    packed = bytes(compress(codec, data))
    assert INDEPENDENT_READERS[codec](packed) == data
    if data or codec != SNAPPY:  # aiokafka cannot read a stream without blocks
        assert SECOND_READERS[codec](packed) == data


@pytest.mark.parametrize(("codec", "name", "pack"), FOREIGN, ids=[name for _, name, _ in FOREIGN])
@pytest.mark.parametrize("sample", ["text", "text over many blocks", "noise", "noise and zeros"])
def test_what_others_pack_we_unpack(codec: int, name: str, pack: Callable[[bytes], bytes], sample: str) -> None:
    data = SAMPLES[sample]
    packed = pack(data)
    assert bytes(decompress(codec, packed)) == data
    assert bytes(decompress(codec, memoryview(packed), len(data))) == data
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(data) - 1)


@given(data=st.binary(max_size=5000), codec=st.sampled_from(CODECS), repeat=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_every_codec_gives_back_what_it_took(data: bytes, codec: int, repeat: int) -> None:
    assert bytes(decompress(codec, compress(codec, data * repeat))) == data * repeat


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (-1, 1, 5, 9)), (LZ4, (1, 5, 9, 12, 17)), (ZSTD, (-7, 1, 3, 9, 19))]
)
def test_every_level_of_a_topic_configuration_is_taken(codec: int, levels: tuple[int, ...]) -> None:
    data = text(100_000)
    sizes = {level: len(compress(codec, data, level)) for level in levels}
    for level in levels:
        assert INDEPENDENT_READERS[codec](bytes(compress(codec, data, level))) == data
    assert min(sizes.values()) < max(sizes.values())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("level", [None, 5])
@pytest.mark.parametrize("codec", CODECS)
def test_any_kind_of_buffer_is_packed_and_unpacked(codec: int, level: int | None, kind: type) -> None:
    data = text(100_000)
    packed = bytes(compress(codec, kind(data), level))
    assert bytes(decompress(codec, kind(packed))) == data


def test_an_lz4_level_other_than_the_default_compresses_harder() -> None:
    data = text(100_000)
    assert len(compress(LZ4, data, 12)) < len(compress(LZ4, data, 9)) == len(compress(LZ4, data))


def test_lz4_frames_are_those_of_the_java_client() -> None:
    packed = bytes(compress(LZ4, text(200_000)))
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert info["block_size"] == 65_536
    assert not info["content_checksum"]
    assert not info["block_checksum"]


def test_an_lz4_frame_of_dependent_blocks_is_refused_as_java_consumers_could_not_read_it() -> None:
    packed = lz4.frame.compress(text(200_000), block_linked=True)
    with pytest.raises(BadCompression, match="dependent"):
        decompress(LZ4, packed)


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_at_any_place_is_refused(codec: int) -> None:
    packed = bytes(compress(codec, text(3000)))
    for cut in range(len(packed)):
        if codec == SNAPPY and cut == 16:
            continue  # the bare header is a whole stream of nothing
        with pytest.raises(BadCompression):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", CODECS)
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_damage_ends_in_an_error_or_in_bounded_output_and_nothing_else(codec: int, edits: list) -> None:
    packed = bytearray(compress(codec, text(5000)))
    for place, byte in edits:
        packed[place % len(packed)] = byte
    try:
        assert len(decompress(codec, packed, MIB)) <= MIB
    except BadCompression:
        pass


@given(junk=st.binary(max_size=80), codec=st.integers(-1, 9))
@settings(max_examples=200, deadline=None)
def test_junk_ends_in_an_error_or_in_bounded_output(junk: bytes, codec: int) -> None:
    try:
        assert len(decompress(codec, junk, 1000)) <= 1000
    except BadCompression:
        pass


def test_uncompressed_records_are_handed_through_under_the_same_limit() -> None:
    data = b"abc"
    assert compress(NONE, data) is data
    assert decompress(NONE, data) is data
    with pytest.raises(TooLarge):
        decompress(NONE, data, 2)


def test_an_unknown_codec_is_refused() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(BadCompression):
            decompress(codec, b"")


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: int) -> None:
    data = bytes(300_000)
    packed = compress(codec, data)
    assert len(decompress(codec, packed, len(data))) == len(data)
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(data) - 1)


def lz4_claims(size: int) -> bytes:
    """A frame whose thousands of tiny blocks could each be four megabytes by its header, and hold a byte."""
    block = lz4.block.compress(b"x", store_size=False)
    header = lz4.frame.compress(bytes(5 * MIB), block_linked=False, store_size=False, block_size=7)[:7]
    return header + (struct.pack("<I", len(block)) + block) * size + bytes(4)


def zstd_claims(size: int) -> bytes:
    """A single-segment frame that declares `size` bytes and holds one."""
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, size) + (1 | 1 << 3).to_bytes(3, "little") + b"x"


def zstd_holes(blocks: int) -> bytes:
    """A frame of `blocks` blocks that could hold 128 KiB each by their kind, and hold next to nothing."""
    frame = stream_zstd(b"abababababababababababababababababab")
    body = frame[6:]
    assert body[0] & 7 == 5, "one compressed block, the last of its frame"
    return frame[:6] + (bytes([body[0] & ~1]) + body[1:]) * (blocks - 1) + body


SNAPPY_CLAIM = b"\xff\xff\xff\xff\x0f" + b"\0x"


def test_a_false_claim_of_size_is_an_error() -> None:
    with pytest.raises(TooLarge):
        decompress(SNAPPY, SNAPPY_CLAIM)
    with pytest.raises(TooLarge):
        decompress(SNAPPY, compression._XERIAL_HEADER + struct.pack(">i", len(SNAPPY_CLAIM)) + SNAPPY_CLAIM)
    for size in (100 * MIB, 1 << 40, (1 << 64) - 1):
        with pytest.raises(BadCompression):
            decompress(ZSTD, zstd_claims(size))
    # Blocks that could be large but are not are no lie: they unpack to what they hold.
    assert bytes(decompress(LZ4, lz4_claims(1000))) == b"x" * 1000


def test_a_bomb_costs_no_more_memory_than_the_limit_and_a_claim_costs_next_to_none() -> None:
    script = textwrap.dedent("""
        import struct, sys, zlib
        sys.path[:0] = sys.argv[1:]
        from test_wire_compression import *
        def peak():
            for line in open("/proc/self/status"):
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) << 10
        def forget():
            open("/proc/self/clear_refs", "w").write("5")
        def cost(codec, packed, limit, outcome):
            forget()
            before = peak()
            try:
                decompress(codec, packed, limit)
                seen = "fits"
            except BadCompression as e:
                seen = type(e).__name__
            assert seen == outcome, (codec, seen)
            return peak() - before
        limit = 16 << 20
        one = bytes(compress(SNAPPY, bytes(1 << 20)))
        bombs = {
            GZIP: zlib.compress(bytes(200 << 20), 1, wbits=31),
            SNAPPY: one + one[16:] * 199,
            LZ4: bytes(compress(LZ4, bytes(200 << 20))),
            ZSTD: bytes(compress(ZSTD, bytes(200 << 20), 1)),
        }
        for codec, packed in bombs.items():
            spent = cost(codec, packed, limit, "TooLarge")
            assert spent < 2.5 * limit, ("bomb", codec, spent)
        for codec, packed, outcome in (
            (SNAPPY, SNAPPY_CLAIM, "TooLarge"),
            (ZSTD, zstd_claims(120 << 20), "BadCompression"),
            (ZSTD, zstd_holes(900), "fits"),
            (LZ4, lz4_claims(1000), "fits"),
        ):
            spent = cost(codec, packed, 128 << 20, outcome)
            assert spent < 4 << 20, ("claim", codec, spent)
    """)
    here = __file__.rsplit("/", 1)[0]
    paths = [here, *[p for p in sys.path if p]]
    ran = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_gzip_that_ends_in_garbage_is_refused() -> None:
    with pytest.raises(BadCompression):
        decompress(GZIP, zlib.compress(b"abc", wbits=31) + b"garbage")


def test_gzip_of_many_members_and_pieces_unpacks_whole() -> None:
    parts = [random.Random(seed).randbytes(700_000) * 3 for seed in range(3)]
    packed = b"".join(bytes(compress(GZIP, part)) for part in parts)
    assert bytes(decompress(GZIP, packed)) == b"".join(parts)
    with pytest.raises(TooLarge):
        decompress(GZIP, packed, 3 * 2_100_000 - 1)
    with pytest.raises(BadCompression):
        decompress(GZIP, packed[:-9])


def test_a_zstd_frame_that_says_it_is_too_large_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytes(compress(ZSTD, bytes(1 << 20)))
    monkeypatch.setattr("cramjam.zstd.decompress_into", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(TooLarge):
        decompress(ZSTD, packed, (1 << 20) - 1)
