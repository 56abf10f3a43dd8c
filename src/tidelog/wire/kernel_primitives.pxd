# cython: boundscheck=False, wraparound=False, initializedcheck=False
# What the kernels share, as inline C: the layout of a batch, zigzag varints, integers and bytes in buffers.
# kernel_primitives.py has the same names for kernels that run as Python. A kernel's own .pxd cimports what it uses.
from libc.string cimport memcpy

cdef extern from *:
    void __builtin_prefetch(const void* address) noexcept nogil


# The layout of a batch, as in batch.py.
cdef enum:
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    LENGTH_AT = 8
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    RECORD_COUNT_AT = 57
    LOG_APPEND_TIME_FLAG = 0x08
    DELETE_HORIZON_FLAG = 0x40
    MIN_RECORD_SIZE = 7


cdef struct Varint:
    long long value
    Py_ssize_t end


cdef inline Varint _read_varint(
    const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end, int last_shift, int last_byte
) noexcept nogil:
    cdef Varint number
    cdef long long byte, negative, half
    cdef int shift = 6
    number.value = 0
    number.end = -1
    if pos >= end:
        return number
    byte = data[pos]
    pos += 1
    # The sign is kept apart, so that the rest stays in 63 bits and needs no unsigned arithmetic.
    negative = byte & 1
    half = (byte & 0x7F) >> 1
    while byte >= 0x80:
        if pos >= end or shift > last_shift:
            return number
        byte = data[pos]
        pos += 1
        if shift == last_shift and byte > last_byte:
            return number
        half |= (byte & 0x7F) << shift
        shift += 7
    number.value = -1 - half if negative else half
    number.end = pos
    return number


cdef inline Varint read_varint32(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    return _read_varint(data, pos, end, 27, 15)


cdef inline Varint read_varint64(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    return _read_varint(data, pos, end, 62, 1)


cdef inline int varint_size(long long value) noexcept nogil:
    cdef unsigned long long rest = <unsigned long long>(value if value >= 0 else -1 - value) >> 6
    cdef int size = 1
    while rest:
        rest >>= 7
        size += 1
    return size


cdef inline Py_ssize_t write_varint(unsigned char[::1] out, Py_ssize_t at, long long value) noexcept nogil:
    cdef unsigned long long half = <unsigned long long>(value if value >= 0 else -1 - value)
    cdef unsigned char low = <unsigned char>((half & 0x3F) << 1 | (value < 0))
    # Most numbers are short.
    if half < 0x40:
        out[at] = low
        return at + 1
    out[at] = 0x80 | low
    at += 1
    half >>= 6
    while half >= 0x80:
        out[at] = 0x80 | <unsigned char>(half & 0x7F)
        at += 1
        half >>= 7
    out[at] = <unsigned char>half
    return at + 1


cdef inline long long load_int32(const unsigned char[::1] data, Py_ssize_t pos) noexcept nogil:
    cdef const unsigned char* p = &data[pos]
    return <int>(<unsigned int>p[0] << 24 | <unsigned int>p[1] << 16 | <unsigned int>p[2] << 8 | p[3])


cdef inline long long load_int64(const unsigned char[::1] data, Py_ssize_t pos) noexcept nogil:
    return <long long>(<unsigned long long>load_int32(data, pos) << 32 | <unsigned int>load_int32(data, pos + 4))


cdef inline unsigned long long load_word(const unsigned char[::1] data, Py_ssize_t pos, long long size) noexcept nogil:
    cdef unsigned long long word = 0
    if size == 8:
        memcpy(&word, &data[pos], 8)
    else:
        # The order of bytes in the word does not matter to the hash.
        while size > 0:
            size -= 1
            word = word << 8 | data[pos + size]
    return word


cdef inline void store_int32(unsigned char[::1] data, Py_ssize_t pos, long long value) noexcept nogil:
    cdef unsigned char* p = &data[pos]
    p[0] = <unsigned char>(value >> 24)
    p[1] = <unsigned char>(value >> 16)
    p[2] = <unsigned char>(value >> 8)
    p[3] = <unsigned char>value


cdef inline void store_int64(unsigned char[::1] data, Py_ssize_t pos, long long value) noexcept nogil:
    store_int32(data, pos, value >> 32)
    store_int32(data, pos + 4, value)


cdef inline void copy_bytes(
    const unsigned char[::1] data, Py_ssize_t pos, unsigned char[::1] out, Py_ssize_t at, Py_ssize_t size
) noexcept nogil:
    if size > 0:
        memcpy(&out[at], &data[pos], size)


cdef inline long long wrap(long long value) noexcept nogil:
    return value


cdef inline void prefetch(unsigned long long[::1] words, Py_ssize_t at) noexcept nogil:
    __builtin_prefetch(&words[at])


cdef inline bint has_high_bits(const unsigned char[::1] data, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    cdef unsigned char seen = 0
    cdef Py_ssize_t at
    for at in range(pos, pos + size):
        seen |= data[at]
    return seen >= 0x80
