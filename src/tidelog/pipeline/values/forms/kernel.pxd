# The C types of kernel.py, applied when Cython compiles it; the Python file knows nothing of them.
cimport cython

cdef int _NULL, _FITS, _MISFIT
cdef long long _NONE, _FIRST_MOMENT, _LAST_MOMENT, _DAY_MICROS
cdef unsigned char[::1] _MONTH_DAYS, _SEXTETS


@cython.locals(row=cython.Py_ssize_t, rows=cython.Py_ssize_t, days="long long")
cpdef dates(const unsigned char[::1] data, const int[::1] starts, unsigned char[::1] valid, int[::1] out)


@cython.locals(row=cython.Py_ssize_t, rows=cython.Py_ssize_t, micros="long long")
cpdef timestamps(
    const unsigned char[::1] data, const int[::1] starts, unsigned char[::1] valid, bint zoned, long long[::1] out
)


@cython.locals(number="long long", end=cython.Py_ssize_t, digit=cython.int)
cdef long long _digits(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t count) noexcept


@cython.locals(year="long long", month="long long", day="long long", leap=cython.bint)
cdef long long _days(const unsigned char[::1] data, Py_ssize_t pos) noexcept


@cython.locals(
    days="long long",
    hour="long long",
    minute="long long",
    second="long long",
    fraction="long long",
    first=cython.Py_ssize_t,
    behind="long long",
    micros="long long",
)
cdef long long _moment(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end, bint zoned) noexcept


@cython.locals(hours="long long", minutes="long long", sign="long long")
cdef long long _zone(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end, bint zoned) noexcept


@cython.locals(row=cython.Py_ssize_t, rows=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef Py_ssize_t decimals(
    const unsigned char[::1] data,
    const int[::1] starts,
    unsigned char[::1] valid,
    int precision,
    int scale,
    unsigned char[::1] out,
    int[::1] out_starts,
) except -1


@cython.locals(
    negative=cython.bint,
    begin=cython.Py_ssize_t,
    seen=cython.Py_ssize_t,
    point=cython.Py_ssize_t,
    last=cython.Py_ssize_t,
    first=cython.Py_ssize_t,
    behind=cython.Py_ssize_t,
    exponent="long long",
    inside=cython.bint,
    count="long long",
    trailing="long long",
    zeros="long long",
)
cdef Py_ssize_t _unscaled(
    const unsigned char[::1] data,
    Py_ssize_t pos,
    Py_ssize_t end,
    int precision,
    int scale,
    unsigned char[::1] out,
    Py_ssize_t at,
) noexcept


@cython.locals(sign="long long", number="long long")
cdef long long _exponent(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end) noexcept


@cython.locals(
    row=cython.Py_ssize_t,
    rows=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    start=cython.Py_ssize_t,
    end=cython.Py_ssize_t,
    written=cython.Py_ssize_t,
)
cpdef Py_ssize_t binaries(unsigned char[::1] data, int[::1] starts, unsigned char[::1] valid) except -1


@cython.locals(padding=cython.int, held=cython.int, bits=cython.int, sextet=cython.int)
cdef Py_ssize_t _sextets(unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t at) noexcept
