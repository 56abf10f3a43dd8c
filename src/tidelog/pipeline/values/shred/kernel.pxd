# The C types of kernel.py, applied when Cython compiles it; the Python file knows nothing of them.
cimport cython
from cpython.conversion cimport PyOS_string_to_double

cdef int _BOOLEAN, _INTEGER, _FLOAT, _TEXT, _DIGITS, _ARRAY, _MAP, _STRUCT, _SCALAR
cdef int _OK, _BAD, _UNSEEN, _NOT_TEXT
cdef int _MAX_DEPTH, _ROOM
cdef long long _MANY_DIGITS, _EXACT
cdef double[::1] _POWERS
cdef unsigned char[::1] _ESCAPES, _LEADS


@cython.final
cdef class ShredColumn:
    cdef readonly int kind
    cdef readonly bint nullable
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t last
    cdef public unsigned char[::1] valid
    cdef public long long[::1] ints
    cdef public double[::1] floats
    cdef public int[::1] starts
    cdef Py_ssize_t filled
    cdef public unsigned char[::1] data
    cdef readonly Py_ssize_t size
    cdef public long long low, high
    cdef public double highest
    cdef public ShredColumn items
    cdef public ShredColumn keys
    cdef readonly list children
    cdef unsigned char[::1] names
    cdef int[::1] name_ends
    cdef int required

    @cython.locals(index=cython.Py_ssize_t)
    cpdef name(self, list names, list children)

    @cython.locals(capacity=cython.Py_ssize_t)
    cdef grow(self, Py_ssize_t index)

    cdef int make_room(self, Py_ssize_t size) except -1

    @cython.locals(end=cython.Py_ssize_t)
    cdef inline void fill(self, Py_ssize_t index) noexcept

    @cython.locals(child=ShredColumn)
    cdef finish(self, Py_ssize_t count)


@cython.final
cdef class ShredReader:
    cdef ShredColumn root
    cdef ShredColumn scratch
    cdef unsigned char[::1] stack
    cdef const unsigned char[::1] buf
    cdef Py_ssize_t pos, end
    cdef int depth
    cdef bint unseen, negative, whole, exact
    cdef long long digits
    cdef Py_ssize_t decimals

    @cython.locals(row=cython.Py_ssize_t)
    cpdef read(self, const unsigned char[::1] buf, const int[::1] ends, unsigned char[::1] status)

    @cython.locals(at=cython.Py_ssize_t)
    cdef inline void _pass_mark(self) noexcept

    @cython.locals(byte=cython.int)
    cdef inline int _next(self) noexcept

    @cython.locals(byte=cython.int, at=cython.int, found=cython.int, expected=cython.int, child=ShredColumn)
    cdef int _object(self, ShredColumn column, Py_ssize_t index) except -1

    @cython.locals(byte=cython.int)
    cdef inline int _behind(self, int closing) noexcept

    @cython.locals(start=cython.Py_ssize_t, pos=cython.Py_ssize_t, byte=cython.int, outcome=cython.int)
    cdef inline int _field_of(self, ShredColumn column, int expected) except? -3

    @cython.locals(
        count=cython.int, at=cython.int, tried=cython.int, name=cython.Py_ssize_t, pos=cython.Py_ssize_t
    )
    cdef inline int _find(
        self, ShredColumn column, int expected, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) noexcept

    @cython.locals(byte=cython.int, kind=cython.int, outcome=cython.int)
    cdef int _value(self, ShredColumn column, Py_ssize_t index) except -1

    cdef int _boolean(self, int byte) noexcept

    @cython.locals(found="long long", at=cython.Py_ssize_t)
    cdef int _literal(self, long long letters, int count) noexcept

    @cython.locals(pos=cython.Py_ssize_t, first=cython.Py_ssize_t)
    cdef int _number(self) noexcept

    @cython.locals(digit=cython.int)
    cdef inline Py_ssize_t _digits(self, Py_ssize_t pos) noexcept

    @cython.locals(start=cython.Py_ssize_t, number=object)
    cdef int _integer(self, ShredColumn column, Py_ssize_t index) except -1

    @cython.locals(start=cython.Py_ssize_t, number=cython.double)
    cdef int _float(self, ShredColumn column, Py_ssize_t index) except -1

    @cython.locals(start=cython.Py_ssize_t, at=cython.Py_ssize_t, boolean=cython.bint)
    cdef int _copy(self, ShredColumn column, int byte) except -1

    @cython.locals(pos=cython.Py_ssize_t, size=cython.Py_ssize_t, byte=cython.int)
    cdef int _string(self, ShredColumn column) except -1

    @cython.locals(outcome=cython.int, byte=cython.int, code=cython.int)
    cdef int _escaped(self, ShredColumn column) noexcept

    @cython.locals(byte=cython.int, code=cython.int)
    cdef int _escape(self) noexcept

    @cython.locals(byte=cython.int, code=cython.int, at=cython.Py_ssize_t)
    cdef int _hex(self, Py_ssize_t pos, bint whole) noexcept

    @cython.locals(
        items=ShredColumn, byte=cython.int, closing=cython.int, first=cython.Py_ssize_t, at=cython.Py_ssize_t
    )
    cdef int _entries(self, ShredColumn column, Py_ssize_t index) except -1

    @cython.locals(
        at=cython.Py_ssize_t,
        other=cython.Py_ssize_t,
        size=cython.Py_ssize_t,
        same=cython.Py_ssize_t,
    )
    cdef int _distinct(self, ShredColumn keys, Py_ssize_t first) except -1

    @cython.locals(outer=cython.int, found=cython.int, byte=cython.int, closing=cython.int)
    cdef int _skip(self) noexcept

    cdef int _skip_name(self) noexcept
    cdef int _skip_scalar(self, int byte) noexcept


@cython.locals(more=cython.int)
cdef void _append_utf8(ShredColumn column, int code) noexcept


# The primitive, which primitives.py has in Python. Behind a number there is always a byte that is not part of one,
# since a record ends with a brace; the conversion stops there. It knows no locale.
cdef inline double double_of(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end) except? -1.0:
    cdef char *stop
    return PyOS_string_to_double(<const char *> &data[start], &stop, NULL)
