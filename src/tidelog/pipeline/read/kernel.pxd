# The C types of kernel.py, applied when Cython compiles it; the Python file knows nothing of them.
cimport cython
from libc.string cimport memcpy

cdef int _DONE, _FULL, _TOO_LARGE, _BAD_COUNT, _BAD_LENGTH, _BAD_TIMESTAMP, _BAD_OFFSET, _BAD_KEY, _BAD_VALUE
cdef int _BAD_HEADERS, _BYTES_LEFT_IN_RECORD, _BYTES_LEFT_IN_BATCH
cdef int _MIN_RECORD_SIZE
cdef int _HEADER_SIZE, _LOG_OVERHEAD, _LENGTH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _LAST_OFFSET_DELTA_AT
cdef int _BASE_TIMESTAMP_AT, _MAX_TIMESTAMP_AT, _RECORD_COUNT_AT, _LOG_APPEND_TIME_FLAG
cdef long long _MAX32, _MAX64, _MIN64, _MAX_MS


@cython.locals(time_ms="long long")
cpdef long long micros(long long base_ms, long long delta_ms) noexcept nogil


@cython.final
cdef class Batches:
    cdef const unsigned char[::1] buf
    cdef readonly Py_ssize_t pos, end
    cdef readonly long long base_offset, last_delta, base_timestamp, max_timestamp
    cdef readonly int attributes
    cdef readonly long long count, crc

    cpdef use(self, const unsigned char[::1] buf)

    @cython.locals(pos=cython.Py_ssize_t, left=cython.Py_ssize_t, length="long long")
    cpdef bint next(self) noexcept


@cython.final
cdef class BytesColumn:
    cdef int[::1] offsets
    cdef unsigned char[::1] data
    cdef unsigned char[::1] validity
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t nulls

    cpdef use(self, int[::1] offsets, unsigned char[::1] data, unsigned char[::1] validity)

    cdef void put(self, Py_ssize_t row, const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t length) noexcept nogil


@cython.final
cdef class Filler:
    # the columns
    cdef readonly Py_ssize_t row
    cdef Py_ssize_t rows, max_bytes, filled
    cdef bint wants_offset, wants_timestamp, wants_key, wants_value, wants_headers
    cdef long long[::1] offsets
    cdef long long[::1] timestamps
    cdef BytesColumn key
    cdef BytesColumn value
    cdef int[::1] header_starts
    cdef unsigned char[::1] header_validity
    cdef BytesColumn names
    cdef BytesColumn contents
    cdef readonly Py_ssize_t header_row, headerless
    cdef Py_ssize_t header_rows
    cdef readonly bint ascii_names
    cdef readonly Py_ssize_t need_bytes, need_headers
    # the records
    cdef const unsigned char[::1] buf
    cdef Py_ssize_t pos, end, record_end
    cdef bint malformed
    cdef readonly long long index
    cdef long long count
    cdef long long base_offset, last_delta, offset_delta
    cdef long long base_timestamp, stamp
    cdef readonly bint stamped
    cdef long long first_offset, until_offset

    cpdef use_columns(
        self,
        Py_ssize_t rows,
        Py_ssize_t max_bytes,
        long long[::1] offsets,
        long long[::1] timestamps,
        BytesColumn key,
        BytesColumn value,
    )

    cpdef use_headers(
        self,
        Py_ssize_t header_rows,
        int[::1] starts,
        unsigned char[::1] validity,
        BytesColumn names,
        BytesColumn contents,
    )

    cpdef use_batch(self, Batches batch, const unsigned char[::1] payload)

    cpdef void use_bounds(self, long long first_offset, long long until_offset) noexcept

    cpdef int fill(self) except -1

    @cython.locals(start=cython.Py_ssize_t, stop=cython.int)
    cdef int _fill(self) noexcept nogil

    @cython.locals(
        length="long long",
        timestamp_delta="long long",
        offset_delta="long long",
        offset="long long",
        stop=cython.int,
        row=cython.Py_ssize_t,
    )
    cdef inline int _read_record(self) noexcept nogil

    @cython.locals(
        need=cython.Py_ssize_t,
        key_length="long long",
        key_at=cython.Py_ssize_t,
        value_length="long long",
        value_at=cython.Py_ssize_t,
        stop=cython.int,
    )
    cdef inline int _read_fields(self) noexcept nogil

    @cython.locals(count="long long", at=cython.Py_ssize_t, until=cython.Py_ssize_t, length="long long")
    cdef int _read_headers(self) noexcept nogil

    @cython.locals(
        pos=cython.Py_ssize_t, byte="long long", negative="long long", half="long long", shift=cython.int
    )
    cdef inline long long _number(self, int last_shift, int last_byte) noexcept nogil

    @cython.locals(length="long long")
    cdef inline long long _field(self) noexcept nogil


cdef bint _has_room(BytesColumn column, Py_ssize_t rows, Py_ssize_t max_bytes)


# The primitives, which kernel_primitives.py has in Python.

cdef inline long long load_int32(const unsigned char[::1] data, Py_ssize_t pos) noexcept nogil:
    cdef const unsigned char* p = &data[pos]
    return <int>(<unsigned int>p[0] << 24 | <unsigned int>p[1] << 16 | <unsigned int>p[2] << 8 | p[3])


cdef inline long long load_int64(const unsigned char[::1] data, Py_ssize_t pos) noexcept nogil:
    return <long long>(<unsigned long long>load_int32(data, pos) << 32 | <unsigned int>load_int32(data, pos + 4))


cdef inline void copy_bytes(
    const unsigned char[::1] data, Py_ssize_t pos, unsigned char[::1] out, Py_ssize_t at, Py_ssize_t size
) noexcept nogil:
    memcpy(&out[at], &data[pos], size)


cdef inline bint has_high_bits(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    cdef unsigned char seen = 0
    cdef Py_ssize_t at
    for at in range(pos, pos + size):
        seen |= data[at]
    return seen >= 0x80
