# The C types that Cython gives kernel.py when it compiles it; the Python file does not depend on them.
cimport cython
from tidelog.wire.kernel_primitives cimport (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MIN_RECORD_SIZE,
    RECORD_COUNT_AT,
    Varint,
    copy_bytes,
    load_int32,
    load_int64,
    load_word,
    prefetch,
    read_varint64,
    store_int32,
    store_int64,
    varint_size,
    wrap,
    write_varint,
)

cdef int _CUT, _SPECIAL, _FULL, _NO_ROOM, _BAD_BATCH, _BAD_CRC, _BAD_RECORDS, _DONE
cdef int _SIFT, _KEEP, _KEEP_FOR_NOW, _DISCARD, _EMPTY
cdef int _SPECIAL_FLAGS, _EMPTY_FLAGS, _REBASED_GROWTH, _OFFSET_BITS, _LOOK_AHEAD
cdef unsigned int _LOW32
cdef unsigned long long _MAX_SLOTS, _TAG, _ALL64
cdef long long _MAX_OFFSET


@cython.final
cdef class Sieve:
    cdef const unsigned char[::1] buf
    cdef unsigned char[::1] out
    cdef unsigned long long[::1] table
    cdef unsigned long long[::1] hashes
    cdef const unsigned int[::1] crcs
    cdef long long[::1] runs
    cdef const long long[::1] keep_ends
    # the map
    cdef unsigned long long slots, seed0, seed1, seed2, seed3, hash0, hash1
    cdef long long limit, origin, start_offset
    cdef readonly long long entries, latest_offset
    # the record at hand
    cdef Py_ssize_t pos, end, next_at, key_at
    cdef long long timestamp_delta, offset_delta, last_delta, key_length
    cdef Py_ssize_t ahead, ahead_at
    cdef bint malformed
    # the batch at hand
    cdef long long least_offset, end_offset
    cdef readonly int stop
    cdef readonly bint untouched
    cdef long long kept, max_delta
    cdef bint tombstones
    cdef Py_ssize_t run_count
    # the round
    cdef Py_ssize_t keep_at
    cdef long long now_ms, horizon_ms
    cdef public Py_ssize_t out_at
    cdef public bint changed
    cdef readonly long long records_read, records_kept

    @cython.locals(slots="unsigned long long")
    cpdef use_map(
        self,
        unsigned long long[::1] table,
        long long limit,
        unsigned long long secret0,
        unsigned long long secret1,
        const unsigned int[::1] crcs,
        long long start_offset,
    )

    @cython.locals(
        all64="unsigned long long",
        length="long long",
        words="long long",
        step="long long",
        v0="unsigned long long",
        v1="unsigned long long",
        v2="unsigned long long",
        v3="unsigned long long",
        word="unsigned long long",
    )
    cdef void _hash_key(self) noexcept nogil

    @cython.locals(pos=cython.Py_ssize_t, offset_delta="long long")
    cdef void _look_ahead(self, long long count) noexcept nogil

    cdef bint _next_record(self, long long left) noexcept nogil

    @cython.locals(tag="unsigned long long", slot="unsigned long long", word="unsigned long long")
    cdef unsigned long long _slot(self) noexcept nogil

    @cython.locals(slot="unsigned long long")
    cdef bint _put(self, long long offset) noexcept nogil

    @cython.locals(word="unsigned long long")
    cdef long long _newest(self) noexcept nogil

    @cython.locals(number=Varint)
    cdef long long _number(self) noexcept nogil

    cdef bint _begin_records(self, Py_ssize_t at, Py_ssize_t end, long long count) noexcept nogil

    @cython.locals(length="long long", previous="long long")
    cdef bint _read_key(self) noexcept nogil

    @cython.locals(length="long long", size="long long")
    cdef Py_ssize_t _check_batch(self, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    cpdef void use_bounds(self, long long first_offset, long long end_offset) noexcept

    cdef bint _is_within(self, long long base_offset, long long last_offset_delta) noexcept nogil

    @cython.locals(crc="unsigned int")
    cdef unsigned int _crc32c(self, const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    cdef _use(self, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end)

    cpdef Py_ssize_t fill(self, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end) except -1

    @cython.locals(size=cython.Py_ssize_t)
    cdef Py_ssize_t _fill(self, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    cpdef int fill_one(self, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end) except -1

    @cython.locals(base_offset="long long", left="long long", offset="long long")
    cdef int _fill_batch(self, Py_ssize_t at, Py_ssize_t end) noexcept nogil

    cpdef void pass_over(self, long long last_offset) noexcept nogil

    cpdef use_output(self, unsigned char[::1] out, long long[::1] runs)

    cpdef use_rules(self, const long long[::1] keep_ends, long long now_ms, long long horizon_ms)

    cpdef Py_ssize_t sift(self, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end) except -1

    @cython.locals(size=cython.Py_ssize_t)
    cdef Py_ssize_t _sift(self, Py_ssize_t pos, Py_ssize_t end) noexcept nogil

    cpdef int sift_one(self, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end, int how) except -1

    @cython.locals(
        count="long long", attributes=cython.int, marked=cython.bint, stays=cython.bint, last_offset="long long"
    )
    cdef int _sift_batch(self, Py_ssize_t at, Py_ssize_t size, int how) noexcept nogil

    cdef bint _keeps_end(self, long long last_offset) noexcept nogil

    @cython.locals(base_offset="long long", horizon_over=cython.bint, left="long long", record_at=cython.Py_ssize_t)
    cdef bint _sift_records(
        self, Py_ssize_t at, Py_ssize_t end, long long count, int attributes, bint sift
    ) noexcept nogil

    cdef bint _stays(self, long long offset, bint horizon_over) noexcept nogil

    @cython.locals(start=cython.Py_ssize_t, base_timestamp="long long")
    cdef void _rewrite(self, Py_ssize_t at, int attributes, bint marked) noexcept nogil

    @cython.locals(
        run=cython.Py_ssize_t, end=cython.Py_ssize_t, length="long long", delta="long long", rest="long long"
    )
    cdef void _gather(self, bint marked, long long shift) noexcept nogil
