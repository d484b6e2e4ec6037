# cython: language_level=3
# Columns of numbers in bytes, the lowest of all numbers first: see `arrangements.run`.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport log2
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

cdef enum:
    # So many of a column's numbers tell whether it is shorter as differences.
    _JUDGED = 4_096

cdef struct Numbers:
    uint64_t* held
    Py_ssize_t count
    Py_ssize_t room
    uint64_t tail
    uint32_t kind


cdef inline tuple column_of(Numbers* column):
    """Its kind; whether it has differences; how many numbers; their bytes, the lowest first."""
    cdef Py_ssize_t at, place, count = column.count
    cdef bint differs = _is_shorter_by_differences(column)
    cdef uint64_t before = 0, number, most = 0
    cdef int width = 1
    cdef bytes planes
    cdef unsigned char* put
    if differs:
        for at in range(count):
            number = column.held[at]
            column.held[at] = _difference(before, number)
            before = number
    for at in range(count):
        most |= column.held[at]
    while width < 8 and most >> (8 * width):
        width += 1
    planes = PyBytes_FromStringAndSize(NULL, count * width)
    put = <unsigned char*>PyBytes_AS_STRING(planes)
    for place in range(width):
        for at in range(count):
            put[at] = <unsigned char>(column.held[at] >> (8 * place))
        put += count
    return column.kind, differs, count, planes


cdef inline uint64_t _difference(uint64_t before, uint64_t number) noexcept:
    """A difference without a sign: 0, -1, 1, -2 and so on are 0, 1, 2, 3."""
    if number >= before:
        return (number - before) << 1
    return ((before - number) << 1) - 1


cdef inline bint _is_shorter_by_differences(const Numbers* column) noexcept:
    """Whether the bytes of differences have less entropy than those of the numbers."""
    cdef uint32_t plain[8 * 256]
    cdef uint32_t differing[8 * 256]
    cdef Py_ssize_t at, count = column.count if column.count < _JUDGED else _JUDGED
    cdef uint64_t before = 0, number, difference, most = 0
    cdef int place, places = 1
    if count < 2:
        return False
    for at in range(count):
        number = column.held[at]
        most |= number | _difference(before, number)
        before = number
    while places < 8 and most >> (8 * places):
        places += 1
    # There are many columns of few small numbers, most of whose bytes are not looked at.
    memset(plain, 0, <size_t>places * 256 * sizeof(uint32_t))
    memset(differing, 0, <size_t>places * 256 * sizeof(uint32_t))
    before = 0
    for at in range(count):
        number = column.held[at]
        difference = _difference(before, number)
        before = number
        for place in range(places):
            plain[place * 256 + (number & 0xFF)] += 1
            differing[place * 256 + (difference & 0xFF)] += 1
            number >>= 8
            difference >>= 8
    return _bits(differing, places, count) < _bits(plain, places, count)


cdef inline double _bits(const uint32_t* counts, int places, Py_ssize_t whole) noexcept:
    """The entropy of bytes that were counted at so many places."""
    cdef double found = 0
    cdef Py_ssize_t at, there
    for at in range(places * 256):
        there = counts[at]
        if there:
            found -= <double>there * log2(<double>there / <double>whole)
    return found
