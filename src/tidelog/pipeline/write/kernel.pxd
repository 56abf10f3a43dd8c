# The C types of kernel.py, applied when Cython compiles it; the Python file knows nothing of them.
cimport cython
from tidelog.wire.kernel_primitives cimport copy_bytes, varint_size, write_varint

cdef int _DONE, _FULL, _NO_ROOM, _TOO_LARGE, _NULL_NAME, _BAD_TIMESTAMP, _BAD_ROW
cdef int _RECORD_OVERHEAD
cdef unsigned long long _SEED, _M, _MASK


@cython.locals(end=cython.Py_ssize_t, value="unsigned long long", word="unsigned long long")
cpdef unsigned long long murmur2(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t length) noexcept nogil


@cython.final
cdef class InputColumn:
    cdef const int[::1] offsets
    cdef const unsigned char[::1] data
    cdef const unsigned char[::1] validity
    cdef Py_ssize_t first_bit, rows
    cdef bint nullable

    cpdef use(
        self,
        Py_ssize_t rows,
        const int[::1] offsets,
        const unsigned char[::1] data,
        const unsigned char[::1] validity,
        Py_ssize_t first_bit,
    )

    cpdef use_lists(
        self,
        Py_ssize_t rows,
        const int[::1] offsets,
        Py_ssize_t children,
        const unsigned char[::1] validity,
        Py_ssize_t first_bit,
    )

    @cython.locals(before="long long", at=cython.Py_ssize_t, offset="long long")
    cdef _use(
        self,
        Py_ssize_t rows,
        const int[::1] offsets,
        Py_ssize_t end,
        const unsigned char[::1] validity,
        Py_ssize_t first_bit,
    )

    @cython.locals(bit=cython.Py_ssize_t, length=cython.Py_ssize_t)
    cdef inline Py_ssize_t length(self, Py_ssize_t row) noexcept nogil


@cython.final
cdef class BatchDraft:
    cdef unsigned char[::1] out
    cdef readonly Py_ssize_t room, size, count
    cdef readonly long long base_timestamp, max_timestamp

    cpdef use(self, unsigned char[::1] out, Py_ssize_t size, Py_ssize_t count)

    cdef inline void number(self, long long value) noexcept nogil

    cdef inline void field(self, InputColumn column, Py_ssize_t row, Py_ssize_t length) noexcept nogil


@cython.final
cdef class Spread:
    cdef Py_ssize_t topics
    cdef int[::1] partitions
    cdef int[::1] first_lane
    cdef int[::1] open_starts
    cdef int[::1] open_partitions
    cdef long long[::1] turn
    cdef long long[::1] given
    cdef long long sticky_bytes

    @cython.locals(topics=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cpdef use(
        self,
        int[::1] partitions,
        int[::1] first_lane,
        int[::1] open_starts,
        int[::1] open_partitions,
        long long[::1] turn,
        long long[::1] given,
        long long sticky_bytes,
    )

    @cython.locals(first="long long", among="long long", partition=cython.int)
    cdef inline int stick(self, Py_ssize_t topic, Py_ssize_t size_bytes) noexcept nogil


@cython.final
cdef class Rows:
    cdef Py_ssize_t count
    cdef InputColumn key
    cdef InputColumn value
    cdef bint keyed
    cdef bint headed
    cdef InputColumn header_lists
    cdef InputColumn names
    cdef InputColumn contents
    cdef bint timed
    cdef const long long[::1] times
    cdef const unsigned char[::1] time_validity
    cdef bint time_nullable
    cdef Py_ssize_t time_bit
    cdef long long now_ms
    cdef readonly Py_ssize_t at, need_bytes
    cdef long long timestamp

    cpdef use(self, Py_ssize_t count, InputColumn key, InputColumn value, long long now_ms)

    cpdef use_headers(self, InputColumn lists, InputColumn names, InputColumn contents)

    cpdef use_times(self, const long long[::1] times, const unsigned char[::1] validity, Py_ssize_t first_bit)

    @cython.locals(
        many=cython.bint,
        given=cython.bint,
        nullable=cython.bint,
        row=cython.Py_ssize_t,
        topic=cython.Py_ssize_t,
        bit=cython.Py_ssize_t,
        partition=cython.int,
    )
    cpdef Py_ssize_t place(
        self,
        int[::1] lanes,
        const int[::1] topics,
        const int[::1] partitions,
        const unsigned char[::1] validity,
        Py_ssize_t first_bit,
        Spread spread,
    ) except -2

    @cython.locals(length=cython.Py_ssize_t, hashed="unsigned long long", partition=cython.int)
    cdef inline int _choose(self, Py_ssize_t row, Py_ssize_t topic, Spread spread) noexcept nogil

    @cython.locals(stop=cython.int)
    cpdef int write(
        self,
        BatchDraft draft,
        const int[::1] order,
        Py_ssize_t first,
        Py_ssize_t until,
        Py_ssize_t limit_bytes,
        Py_ssize_t max_bytes,
    ) except -1

    @cython.locals(
        at=cython.Py_ssize_t, stop=cython.int, row=cython.Py_ssize_t, length=cython.Py_ssize_t, whole=cython.Py_ssize_t
    )
    cdef int _write(
        self,
        BatchDraft draft,
        const int[::1] order,
        Py_ssize_t first,
        Py_ssize_t until,
        Py_ssize_t limit_bytes,
        Py_ssize_t max_bytes,
    ) noexcept nogil

    @cython.locals(bit=cython.Py_ssize_t, micros="long long")
    cdef inline long long _time(self, Py_ssize_t row) noexcept nogil

    @cython.locals(
        key_length=cython.Py_ssize_t,
        value_length=cython.Py_ssize_t,
        length=cython.Py_ssize_t,
        at=cython.Py_ssize_t,
        until=cython.Py_ssize_t,
        name_length=cython.Py_ssize_t,
        content_length=cython.Py_ssize_t,
    )
    cdef inline Py_ssize_t _measure(
        self, Py_ssize_t row, long long timestamp_delta, long long offset_delta
    ) noexcept nogil

    @cython.locals(at=cython.Py_ssize_t, until=cython.Py_ssize_t)
    cdef inline void _put(self, BatchDraft draft, Py_ssize_t row, Py_ssize_t length) noexcept nogil


@cython.locals(lane_count=cython.Py_ssize_t, row=cython.Py_ssize_t, lane=cython.Py_ssize_t, at=cython.Py_ssize_t)
cpdef sort(const int[::1] lanes, Py_ssize_t count, int[::1] starts, int[::1] order)
