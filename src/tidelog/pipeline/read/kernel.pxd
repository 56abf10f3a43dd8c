# The C types of kernel.py, applied when Cython compiles it; the Python file knows nothing of them.
cimport cython
from tidelog.wire.kernel_primitives cimport (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
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
    has_high_bits,
    load_int32,
    load_int64,
    read_varint32,
    read_varint64,
)

cdef int _DONE, _FULL, _TOO_LARGE, _BAD_COUNT, _BAD_LENGTH, _BAD_TIMESTAMP, _BAD_OFFSET, _BAD_KEY, _BAD_VALUE
cdef int _BAD_HEADERS, _BYTES_LEFT_IN_RECORD, _BYTES_LEFT_IN_BATCH
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

    @cython.locals(number=Varint)
    cdef inline long long _number(self) noexcept nogil

    @cython.locals(number=Varint)
    cdef inline long long _long_number(self) noexcept nogil

    @cython.locals(length="long long")
    cdef inline long long _field(self) noexcept nogil


cdef bint _has_room(BytesColumn column, Py_ssize_t rows, Py_ssize_t max_bytes)
