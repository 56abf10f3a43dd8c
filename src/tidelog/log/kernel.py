# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Compaction's loops over bytes: the newest offset of each key, and the batches sifted by it.

This file is ordinary Python and runs as it is. If a C compiler was available at installation, Cython has compiled it
with the types in `kernel.pxd`; only the speed may differ. The compiled loops run without the interpreter's lock, a
whole buffer of batches at a time, so that the broker's thread hardly notices a compaction.

The map. A key is identified by a keyed hash (SipHash-1-3 of 128 bits, so that nobody who can write keys can make two of
them collide). It takes 16 bytes, two 64-bit words, in a table that is searched slot by slot from the slot that the hash
points to:

    word 0   the first 64 bits of the hash
    word 1   24 more bits of it, then 40 bits: the offset, counted from the first one put in, which is 1; 0 is empty

Together with the 32 bits that select the slot, about 110 bits tell keys apart. The map is full when `limit` keys are in
it, or when an offset is too far from the first. It covers the offsets up to `latest_offset`; the rest waits for another
round.

The sieve. Of the records up to that offset it keeps the newest one of each key, unless that is a tombstone whose delete
horizon has passed; records without a key are dropped. A batch that loses nothing is copied as it is. One that loses
records keeps its base offset, last offset delta and sequence. One that loses all of them is dropped, or kept as a bare
header if its last offset is among `keep_ends`. A batch whose tombstones have no horizon yet gets one in place of its
base timestamp, and the timestamp deltas of its records are then relative to that.

Both loops check the CRC of every batch before they trust it. They stop at a batch that is incomplete, at one that needs
decompression or the state of transactions (`SPECIAL`), and where they cannot go on; `stop` says which.
"""

from __future__ import annotations

from array import array
from typing import Any

try:
    import cython  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    from tidelog.wire.kernel_primitives import cython

if not cython.compiled:
    from tidelog.wire.batch import ATTRIBUTES_AT, BASE_TIMESTAMP_AT, CRC_AT, DELETE_HORIZON_FLAG  # isort: skip
    from tidelog.wire.batch import HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_AT, LOG_APPEND_TIME_FLAG  # isort: skip
    from tidelog.wire.batch import LOG_OVERHEAD, MAGIC_AT, MAX_TIMESTAMP_AT, MIN_RECORD_SIZE  # isort: skip
    from tidelog.wire.batch import RECORD_COUNT_AT  # isort: skip
    from tidelog.wire.kernel_primitives import copy_bytes, load_int32, load_int64, load_word  # isort: skip
    from tidelog.wire.kernel_primitives import prefetch, read_varint64, store_int32, store_int64  # isort: skip
    from tidelog.wire.kernel_primitives import varint_size, wrap, write_varint  # isort: skip

# Why a loop stopped.
_CUT = 0
_SPECIAL = 1
_FULL = 2
_NO_ROOM = 3
_BAD_BATCH = 4
_BAD_CRC = 5
_BAD_RECORDS = 6
#: the one batch that was asked for is done
_DONE = 7

# What `sift_one` does with a batch.
_SIFT = 0
_KEEP = 1
#: as KEEP, and the batch gets a delete horizon if it has none
_KEEP_FOR_NOW = 2
_DISCARD = 3
#: the records go, the header stays
_EMPTY = 4


class Stop:
    """The codes for other modules: compiled, the loops have them as C constants, which are not visible outside."""

    CUT, SPECIAL, FULL, NO_ROOM, DONE = _CUT, _SPECIAL, _FULL, _NO_ROOM, _DONE
    BAD_BATCH, BAD_CRC, BAD_RECORDS = _BAD_BATCH, _BAD_CRC, _BAD_RECORDS


class How:
    SIFT, KEEP, KEEP_FOR_NOW, DISCARD, EMPTY = _SIFT, _KEEP, _KEEP_FOR_NOW, _DISCARD, _EMPTY


#: codec, transactional and control bits
_SPECIAL_FLAGS = 0x37
#: timestamp type, transactional and control bits: what is left of a batch without records
_EMPTY_FLAGS = 0x38

#: how much a record may grow when its timestamp gets another base: nine bytes, and a few for its length
_REBASED_GROWTH = 12
_LOOK_AHEAD = 64
_MAX_SLOTS = 0xFFFFFFFF
_OFFSET_BITS = 40
_MAX_OFFSET = (1 << 40) - 1
_TAG = 0xFFFFFF
_LOW32 = 0xFFFFFFFF
_ALL64 = 0xFFFFFFFFFFFFFFFF


class Sieve:
    """One round of compaction of one log."""

    buf: Any
    pos: int
    next_at: int
    key_at: int
    key_length: int
    offset_delta: int

    # --- the map

    def use_map(self, table: Any, limit: int, secret0: int, secret1: int, crcs: Any, start_offset: int) -> None:
        """An empty map in `table`, zeroed memory of 64-bit words; offsets below `start_offset` stay out of it.

        `crcs` has 8 * 256 entries: number 256 * n + b says what byte b does to a CRC-32C with n zero bytes behind it.
        """
        slots = len(table) // 2
        if slots > _MAX_SLOTS or not 0 < limit < slots:
            raise ValueError("the map needs room for one key more than it may hold, and no more than 2^32 slots")
        if len(crcs) != 2048:
            raise ValueError("the table of CRCs has another size")
        self.table = table
        self.slots = slots
        self.limit = limit
        self.seed0 = secret0 ^ 0x736F6D6570736575
        self.seed1 = secret1 ^ 0x646F72616E646F83
        self.seed2 = secret0 ^ 0x6C7967656E657261
        self.seed3 = secret1 ^ 0x7465646279746573
        self.crcs = crcs
        self.hashes = array("Q", bytes(16 * _LOOK_AHEAD))
        self.start_offset = start_offset
        self.stop = _CUT
        self.entries = 0
        self.origin = 0
        self.latest_offset = -1
        self.records_read = 0
        self.records_kept = 0
        self.changed = False
        self.use_bounds(0, _ALL64 >> 1)

    def _hash_key(self) -> None:
        """SipHash-1-3: a round for each word of the key, three more for each half of the hash."""
        all64 = _ALL64
        length = self.key_length
        words = (length >> 3) + 1
        v0 = self.seed0
        v1 = self.seed1
        v2 = self.seed2
        v3 = self.seed3
        step = 0
        while step < words + 6:
            # A round after the last word is one with a word of zeros.
            word = 0
            if step < words - 1:
                word = load_word(self.buf, self.key_at + (step << 3), 8)
            elif step == words - 1:
                word = length & 0xFF
                word = word << 56 | load_word(self.buf, self.key_at + (step << 3), length & 7)
            elif step == words:
                v2 ^= 0xEE
            elif step == words + 3:
                self.hash0 = v0 ^ v1 ^ v2 ^ v3
                v1 ^= 0xDD
            v3 ^= word
            v0 = (v0 + v1) & all64
            v2 = (v2 + v3) & all64
            v1 = ((v1 << 13 | v1 >> 51) & all64) ^ v0
            v3 = ((v3 << 16 | v3 >> 48) & all64) ^ v2
            v0 = (v0 << 32 | v0 >> 32) & all64
            v2 = (v2 + v1) & all64
            v0 = (v0 + v3) & all64
            v1 = ((v1 << 17 | v1 >> 47) & all64) ^ v2
            v3 = ((v3 << 21 | v3 >> 43) & all64) ^ v0
            v2 = (v2 << 32 | v2 >> 32) & all64
            v0 ^= word
            step += 1
        self.hash1 = v0 ^ v1 ^ v2 ^ v3

    def _look_ahead(self, count: int) -> None:
        """Hashes the keys of the next records, and has their slots fetched from memory while others are looked at."""
        pos = self.pos
        offset_delta = self.offset_delta
        self.ahead = 0
        self.ahead_at = 0
        while self.ahead < count and self.ahead < _LOOK_AHEAD and self._read_key():
            if self.key_length >= 0:
                self._hash_key()
                self.hashes[2 * self.ahead] = self.hash0
                self.hashes[2 * self.ahead + 1] = self.hash1
                prefetch(self.table, 2 * (((self.hash1 >> 32) * self.slots) >> 32))
            self.ahead += 1
            self.pos = self.next_at
        # A malformed record is found again when its turn comes.
        self.malformed = False
        self.pos = pos
        self.offset_delta = offset_delta

    def _next_record(self, left: int) -> bool:
        """Reads the next record of the batch up to its value; False if it is malformed."""
        if self.ahead_at >= self.ahead:
            self._look_ahead(left)
        if not self._read_key():
            return False
        self.hash0 = self.hashes[2 * self.ahead_at]
        self.hash1 = self.hashes[2 * self.ahead_at + 1]
        self.ahead_at += 1
        return True

    def _slot(self) -> int:
        """The slot of the key that was just read, or the empty slot where it belongs."""
        tag = self.hash1 & _TAG
        slot = ((self.hash1 >> 32) * self.slots) >> 32
        while True:
            word = self.table[2 * slot + 1]
            if word == 0 or (self.table[2 * slot] == self.hash0 and word >> _OFFSET_BITS == tag):
                return slot
            slot += 1
            if slot == self.slots:
                slot = 0

    def _put(self, offset: int) -> bool:
        """Records the offset of the key that was just read; False if the map is full."""
        slot = self._slot()
        if self.entries == 0:
            self.origin = offset - 1
        if offset - self.origin > _MAX_OFFSET:
            return False
        if self.table[2 * slot + 1] == 0:
            if self.entries >= self.limit:
                return False
            self.entries += 1
            self.table[2 * slot] = self.hash0
        self.table[2 * slot + 1] = (self.hash1 & _TAG) << _OFFSET_BITS | (offset - self.origin)
        return True

    def _newest(self) -> int:
        """The newest offset of the key that was just read; -1 if the map does not have it."""
        word = self.table[2 * self._slot() + 1]
        return -1 if word == 0 else self.origin + (word & _MAX_OFFSET)

    # --- reading

    def _number(self) -> int:
        """A zigzag varint of up to 64 bits that ends before `next_at`."""
        number = read_varint64(self.buf, self.pos, self.next_at)
        if number.end < 0:
            self.malformed = True
        else:
            self.pos = number.end
        return number.value

    def _begin_records(self, at: int, end: int, count: int) -> bool:
        self.pos = at + HEADER_SIZE
        self.end = end
        self.last_delta = load_int32(self.buf, at + LAST_OFFSET_DELTA_AT)
        self.malformed = False
        self.offset_delta = -1
        self.ahead = 0
        self.ahead_at = 0
        return count * MIN_RECORD_SIZE <= end - self.pos

    def _read_key(self) -> bool:
        """Reads the record at `pos` up to its value; False if it is malformed."""
        self.next_at = self.end
        length = self._number()
        if self.malformed or length < MIN_RECORD_SIZE - 1 or length > self.end - self.pos:
            return False
        self.next_at = self.pos + length
        self.pos += 1
        self.timestamp_delta = self._number()
        previous = self.offset_delta
        self.offset_delta = self._number()
        self.key_length = self._number()
        self.key_at = self.pos
        if self.malformed or self.key_length > self.next_at - self.pos:
            return False
        if self.offset_delta <= previous or self.offset_delta > self.last_delta:
            return False
        if self.key_length > 0:
            self.pos += self.key_length
        return True

    def _check_batch(self, pos: int, end: int) -> int:
        """The size of the batch at `pos`; 0 if it cannot be used, and `stop` then says why."""
        self.stop = _CUT
        if end - pos < HEADER_SIZE:
            return 0
        length = load_int32(self.buf, pos + LENGTH_AT)
        if (
            length < HEADER_SIZE - LOG_OVERHEAD
            or self.buf[pos + MAGIC_AT] != 2
            or load_int32(self.buf, pos + RECORD_COUNT_AT) < 0
            or not self._is_within(load_int64(self.buf, pos), load_int32(self.buf, pos + LAST_OFFSET_DELTA_AT))
        ):
            self.stop = _BAD_BATCH
            return 0
        size = LOG_OVERHEAD + length
        if size > end - pos:
            return 0
        if self._crc32c(self.buf, pos + ATTRIBUTES_AT, pos + size) != load_int32(self.buf, pos + CRC_AT) & _LOW32:
            self.stop = _BAD_CRC
            return 0
        return size

    def use_bounds(self, first_offset: int, end_offset: int) -> None:
        """The batches that follow hold offsets from `first_offset` up to `end_offset`, exclusive."""
        self.least_offset = first_offset
        self.end_offset = end_offset

    def _is_within(self, base_offset: int, last_offset_delta: int) -> bool:
        """Offsets only rise. The CRC does not cover them, so nothing else would reveal a flipped bit."""
        if (
            last_offset_delta < 0
            or base_offset < self.least_offset
            or base_offset > self.end_offset - 1 - last_offset_delta
        ):
            return False
        self.least_offset = base_offset
        return True

    def _crc32c(self, data: Any, pos: int, end: int) -> int:
        crc = _LOW32
        while end - pos >= 8:
            crc = (
                self.crcs[1792 + ((crc ^ data[pos]) & 0xFF)]
                ^ self.crcs[1536 + ((crc >> 8 ^ data[pos + 1]) & 0xFF)]
                ^ self.crcs[1280 + ((crc >> 16 ^ data[pos + 2]) & 0xFF)]
                ^ self.crcs[1024 + ((crc >> 24 ^ data[pos + 3]) & 0xFF)]
                ^ self.crcs[768 + data[pos + 4]]
                ^ self.crcs[512 + data[pos + 5]]
                ^ self.crcs[256 + data[pos + 6]]
                ^ self.crcs[data[pos + 7]]
            )
            pos += 8
        while pos < end:
            crc = self.crcs[(crc ^ data[pos]) & 0xFF] ^ crc >> 8
            pos += 1
        return crc ^ _LOW32

    def _use(self, buf: Any, pos: int, end: int) -> None:
        if pos < 0 or end < pos or end > len(buf):
            raise ValueError("the batches do not lie within the buffer")
        self.buf = buf

    # --- filling the map

    def fill(self, buf: Any, pos: int, end: int) -> int:
        """Puts the keys of the batches in `buf[pos:end]` into the map; returns where it stopped."""
        self._use(buf, pos, end)
        with cython.nogil:
            return self._fill(pos, end)

    def _fill(self, pos: int, end: int) -> int:
        while True:
            size = self._check_batch(pos, end)
            if size == 0:
                return pos
            if self.buf[pos + ATTRIBUTES_AT + 1] & _SPECIAL_FLAGS:
                self.stop = _SPECIAL
                return pos
            self.stop = self._fill_batch(pos, pos + size)
            if self.stop != _DONE:
                return pos
            pos += size

    def fill_one(self, buf: Any, pos: int, end: int) -> int:
        """Puts the keys of the one uncompressed batch in `buf[pos:end]` into the map; DONE, or why not."""
        self._use(buf, pos, end)
        with cython.nogil:
            self.stop = self._fill_batch(pos, end)
        return self.stop

    def _fill_batch(self, at: int, end: int) -> int:
        if end - at < HEADER_SIZE:
            return _CUT
        base_offset = load_int64(self.buf, at)
        left = load_int32(self.buf, at + RECORD_COUNT_AT)
        if not self._begin_records(at, end, left):
            return _BAD_RECORDS
        while left > 0:
            if not self._next_record(left):
                return _BAD_RECORDS
            offset = base_offset + self.offset_delta
            if self.key_length >= 0 and offset >= self.start_offset:
                if not self._put(offset):
                    return _FULL
                self.latest_offset = offset
            self.pos = self.next_at
            left -= 1
        if self.pos != end:
            return _BAD_RECORDS
        self.pass_over(base_offset + self.last_delta)
        return _DONE

    def pass_over(self, last_offset: int) -> None:
        """The map covers everything up to this offset: there is nothing more to put in before it."""
        if last_offset >= self.start_offset and last_offset > self.latest_offset:
            self.latest_offset = last_offset

    # --- sifting

    def use_output(self, out: Any, runs: Any) -> None:
        """`out` receives batches; `runs` is scratch space for two numbers more than a batch has records."""
        self.out = out
        self.out_at = 0
        self.runs = runs

    def use_rules(self, keep_ends: Any, now_ms: int, horizon_ms: int) -> None:
        """Batches that end at one of `keep_ends` (rising, not empty) are kept even without records.

        Tombstones whose horizon is not after `now_ms` are dropped; those that have none get `horizon_ms`.
        """
        if len(keep_ends) == 0:
            raise ValueError("there must be an offset to keep")
        self.keep_ends = keep_ends
        self.keep_at = 0
        self.now_ms = now_ms
        self.horizon_ms = horizon_ms

    def sift(self, buf: Any, pos: int, end: int) -> int:
        """Copies what stays of the batches in `buf[pos:end]` to the output; returns where it stopped."""
        self._use(buf, pos, end)
        with cython.nogil:
            return self._sift(pos, end)

    def _sift(self, pos: int, end: int) -> int:
        while True:
            size = self._check_batch(pos, end)
            if size == 0:
                return pos
            if self.buf[pos + ATTRIBUTES_AT + 1] & _SPECIAL_FLAGS:
                self.stop = _SPECIAL
                return pos
            self.stop = self._sift_batch(pos, size, _SIFT)
            if self.stop != _DONE:
                return pos
            pos += size

    def sift_one(self, buf: Any, pos: int, end: int, how: int) -> int:
        """Copies what stays of the one uncompressed batch in `buf[pos:end]`, `untouched` or not; DONE, or why not."""
        self._use(buf, pos, end)
        with cython.nogil:
            self.stop = self._sift_batch(pos, end - pos, how)
        return self.stop

    def _sift_batch(self, at: int, size: int, how: int) -> int:
        if size < HEADER_SIZE:
            return _CUT
        count = load_int32(self.buf, at + RECORD_COUNT_AT)
        attributes = self.buf[at + ATTRIBUTES_AT + 1]
        if self.out_at + size + _REBASED_GROWTH * count > len(self.out) or count + 2 > len(self.runs):
            return _NO_ROOM
        self.kept = 0
        self.tombstones = how == _KEEP_FOR_NOW
        if how < _DISCARD and not self._sift_records(at, at + size, count, attributes, how == _SIFT):
            return _BAD_RECORDS
        self.records_read += count
        self.records_kept += self.kept
        marked = self.kept > 0 and self.tombstones and attributes & DELETE_HORIZON_FLAG == 0
        last_offset = load_int64(self.buf, at) + load_int32(self.buf, at + LAST_OFFSET_DELTA_AT)
        stays = self.kept > 0 or how == _EMPTY or self._keeps_end(last_offset)
        self.untouched = stays and self.kept == count and not marked
        if self.untouched:
            copy_bytes(self.buf, at, self.out, self.out_at, size)
            self.out_at += size
        else:
            self.changed = True
            if stays:
                self._rewrite(at, attributes, marked)
        return _DONE

    def _keeps_end(self, last_offset: int) -> bool:
        """Whether a batch that ends here must be kept. Batches come in the order of the log."""
        while self.keep_at < len(self.keep_ends) and self.keep_ends[self.keep_at] < last_offset:
            self.keep_at += 1
        return self.keep_at < len(self.keep_ends) and self.keep_ends[self.keep_at] == last_offset

    def _sift_records(self, at: int, end: int, count: int, attributes: int, sift: bool) -> bool:
        """Finds the records that stay, as runs of bytes; False if a record is malformed."""
        self.run_count = 0
        self.max_delta = 0
        if not self._begin_records(at, end, count):
            return False
        base_offset = load_int64(self.buf, at)
        horizon_over = (
            attributes & DELETE_HORIZON_FLAG != 0 and load_int64(self.buf, at + BASE_TIMESTAMP_AT) <= self.now_ms
        )
        left = count
        while left > 0:
            record_at = self.pos
            if not self._next_record(left):
                return False
            if not sift or self._stays(base_offset + self.offset_delta, horizon_over):
                if self.kept == 0 or self.timestamp_delta > self.max_delta:
                    self.max_delta = self.timestamp_delta
                self.kept += 1
                if self.run_count > 0 and self.runs[self.run_count - 1] == record_at:
                    self.runs[self.run_count - 1] = self.next_at
                else:
                    self.runs[self.run_count] = record_at
                    self.runs[self.run_count + 1] = self.next_at
                    self.run_count += 2
            self.pos = self.next_at
            left -= 1
        return self.pos == end and not self.malformed

    def _stays(self, offset: int, horizon_over: bool) -> bool:
        """Whether the record whose key was just read stays."""
        if offset > self.latest_offset:
            return True
        if self.key_length < 0 or offset < self._newest():
            return False
        if self._number() >= 0:
            return True
        if not horizon_over:
            self.tombstones = True
        return not horizon_over

    def _rewrite(self, at: int, attributes: int, marked: bool) -> None:
        """Writes the batch with the records that are left of it."""
        start = self.out_at
        base_timestamp = load_int64(self.buf, at + BASE_TIMESTAMP_AT)
        copy_bytes(self.buf, at, self.out, start, HEADER_SIZE)
        self.out_at = start + HEADER_SIZE
        if self.kept == 0:
            attributes = attributes & _EMPTY_FLAGS
            store_int64(self.out, start + BASE_TIMESTAMP_AT, -1)
        else:
            if attributes & LOG_APPEND_TIME_FLAG == 0:
                store_int64(self.out, start + MAX_TIMESTAMP_AT, wrap(base_timestamp + self.max_delta))
            if marked:
                attributes = attributes | DELETE_HORIZON_FLAG
                store_int64(self.out, start + BASE_TIMESTAMP_AT, self.horizon_ms)
            self._gather(marked, wrap(base_timestamp - self.horizon_ms))
        self.out[start + ATTRIBUTES_AT + 1] = attributes
        store_int32(self.out, start + LENGTH_AT, self.out_at - start - LOG_OVERHEAD)
        store_int32(self.out, start + RECORD_COUNT_AT, self.kept)
        store_int32(self.out, start + CRC_AT, self._crc32c(self.out, start + ATTRIBUTES_AT, self.out_at))

    def _gather(self, marked: bool, shift: int) -> None:
        """Copies the records that stay; if the batch is `marked`, with their timestamp deltas moved by `shift`."""
        run = 0
        while run < self.run_count:
            self.pos = self.runs[run]
            end = self.runs[run + 1]
            if not marked:
                copy_bytes(self.buf, self.pos, self.out, self.out_at, end - self.pos)
                self.out_at += end - self.pos
                self.pos = end
            while self.pos < end:
                self.next_at = end
                length = self._number()
                self.next_at = self.pos + length
                self.pos += 1
                delta = wrap(self._number() + shift)
                rest = self.next_at - self.pos
                self.out_at = write_varint(self.out, self.out_at, 1 + varint_size(delta) + rest)
                self.out[self.out_at] = self.buf[self.next_at - length]
                self.out_at += 1
                self.out_at = write_varint(self.out, self.out_at, delta)
                copy_bytes(self.buf, self.pos, self.out, self.out_at, rest)
                self.out_at += rest
                self.pos = self.next_at
            run += 2
