# The C types that Cython gives kernel.py when it compiles it; the Python file does not depend on them.
cimport cython
from tidelog.wire.kernel_primitives cimport (
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    MIN_RECORD_SIZE,
    Varint,
    load_int32,
    load_int64,
    read_varint32,
    read_varint64,
    varint_size,
)

cdef long long _MALFORMED


@cython.final
cdef class Cursor:
    cdef const unsigned char[::1] buf
    cdef Py_ssize_t pos
    cdef Py_ssize_t end
    cdef bint malformed

    @cython.locals(number=Varint)
    cdef long long varint(self) noexcept

    @cython.locals(number=Varint)
    cdef long long varlong(self) noexcept

    @cython.locals(length="long long")
    cdef long long field(self) noexcept

    @cython.locals(count="long long")
    cdef bint skip_headers(self) noexcept


@cython.locals(cursor=Cursor)
cdef Cursor _cursor(const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end)


@cython.locals(
    cursor=Cursor,
    indexed=cython.bint,
    outcome=cython.int,
    smallest="long long",
    largest="long long",
    null_keys="long long",
    index=cython.Py_ssize_t,
    length="long long",
    timestamp_delta="long long",
    expected="long long",
    offset_delta="long long",
    key_length="long long",
    key_end=cython.Py_ssize_t,
    value_length="long long",
)
cpdef tuple walk_records(
    const unsigned char[::1] buf,
    Py_ssize_t pos,
    Py_ssize_t end,
    Py_ssize_t count,
    bint dense,
    long long[::1] out,
    long long first=*,
)


@cython.locals(
    cursor=Cursor,
    index=cython.Py_ssize_t,
    length="long long",
    next_at=cython.Py_ssize_t,
    timestamp_delta="long long",
)
cpdef tuple locate_timestamp(
    const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t count, long long least_delta
)


@cython.locals(
    at=cython.Py_ssize_t,
    count=cython.Py_ssize_t,
    size="long long",
    last_offset="long long",
    timestamp="long long",
)
cpdef tuple index_points(
    const unsigned char[::1] buf,
    Py_ssize_t end,
    long long position,
    long long interval,
    long long[::1] state,
    long long[::1] points,
)


@cython.locals(cursor=Cursor, spans=list, count="long long", length="long long")
cpdef list header_spans(const unsigned char[::1] buf, Py_ssize_t pos, Py_ssize_t end)


@cython.locals(low=cython.int, half="long long")
cdef void _append_varint(bytearray out, long long value)


@cython.locals(encoded=object)
cdef void _append_headers(bytearray out, object headers)


@cython.locals(key_length="long long", value_length="long long", length="long long", encoded=bytearray)
cpdef void append_record(
    bytearray out, long long offset_delta, long long timestamp_delta, object key, object value, object headers
)


@cython.locals(stamp="long long", latest="long long", offset_delta="long long")
cpdef long long append_records(bytearray out, object records, long long base_timestamp) except? -1
