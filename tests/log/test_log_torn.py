"""What lies behind the last whole batch of a file: the beginning of a write, or damage."""

from __future__ import annotations

import pytest

from tidelog.log.directories.torn import MOST_BYTES, is_torn
from tidelog.log.memory_disk import MemoryDisk, MemoryFile
from tidelog.wire.batch import LENGTH_AT
from tidelog.wire.records import build_batch

BATCHES = [bytes(build_batch([(1_700_000_000_000, b"key", b"value %d" % n, None)], base_offset=n)) for n in range(4)]


def written(data: bytes) -> MemoryFile:
    disk = MemoryDisk()
    disk.mkdir("/data")
    file = disk.open("/data/file", create=True)
    file.write(data, 0)
    return file


@pytest.mark.parametrize("room", [0, 1, 100_000])
def test_the_beginning_of_a_batch_is_torn_wherever_it_ends(room: int) -> None:
    """And so is one for which room was made: all but the batch itself is zeros, with which it may end as well."""
    batch = BATCHES[0]
    for size in range(1, len(batch) - 1):
        data = batch[:size] + bytes(room)
        assert is_torn(written(data), 0, len(data), room > 0), size


@pytest.mark.parametrize("room", [0, 1, 100_000])
def test_a_batch_that_is_whole_or_followed_by_others_is_not(room: int) -> None:
    for batches in (BATCHES[:1], BATCHES[:2], BATCHES):
        for at in range(LENGTH_AT + 4 if len(batches) == 1 else 0, len(batches[0]) - 1):
            data = bytearray(b"".join(batches) + bytes(room))
            data[at] ^= 0x40
            assert not is_torn(written(data), 0, len(data), room > 0), at


def test_a_single_batch_with_a_flipped_bit_is_not_torn_but_where_it_seems_to_be_longer() -> None:
    for at in range(len(BATCHES[0])):
        for bit in range(8):
            data = bytearray(BATCHES[0])
            data[at] ^= 1 << bit
            is_longer = LENGTH_AT <= at < LENGTH_AT + 4 and data[at] > BATCHES[0][at] and (at, bit) != (LENGTH_AT, 7)
            assert is_torn(written(data), 0, len(data), has_room=False) == is_longer, (at, bit)


@pytest.mark.parametrize("has_room", [False, True])
def test_zeros_are_damage_where_no_room_was_made(has_room: bool) -> None:
    for size in (100, MOST_BYTES + 50):
        assert is_torn(written(bytes(size)), 0, size, has_room) == has_room


def test_no_batch_that_was_being_written_is_as_long_as_all_that() -> None:
    data = bytearray(BATCHES[0] + b"x" * MOST_BYTES)
    data[LENGTH_AT : LENGTH_AT + 4] = (2 * MOST_BYTES).to_bytes(4, "big")
    assert not is_torn(written(data), 0, len(data), has_room=False)
