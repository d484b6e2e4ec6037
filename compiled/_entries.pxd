# cython: language_level=3
"""The data of an entry of an arrangement, for the modules that read entries.

Lengths in an entry are compared with its size before anything is read there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

ctypedef const unsigned char* Text

cdef enum:
    # More data than these of one key are left to Python.
    MOST_DATA = 128


cdef struct Datum:
    Text text
    Py_ssize_t size
    long count


cdef inline int compared(const Datum* one, const Datum* other) noexcept nogil:
    cdef Py_ssize_t least = one.size if one.size < other.size else other.size
    cdef int found = memcmp(one.text, other.text, <size_t>least)
    if found:
        return found
    return -1 if one.size < other.size else 1 if one.size > other.size else 0


cdef inline int data_of(bytes entry, Datum* data) noexcept:
    """Read the data of an entry that has no history; -1 if it is another one."""
    cdef Text at = <Text>PyBytes_AS_STRING(entry)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(entry)
    cdef Text end = at + size
    cdef Py_ssize_t count, number
    if size == 0:
        return -1
    if at[0] == c'v':
        data[0].text, data[0].size, data[0].count = at + 1, size - 1, 1
        return 1
    if at[0] == c'p':
        at += 1
        count = _head(&at, end, 0x90, 0xDC)
        if not 0 <= count <= MOST_DATA:
            return -1
        for number in range(count):
            data[number].count = 1
            if not _bin(&at, end, &data[number]):
                return -1
        return <int>count if at == end else -1
    # What is queued has a history.
    if at[0] != c'm' or size < 3 or at[1] != 0x92 or at[2] != 0xC0:
        return -1
    at += 3
    count = _head(&at, end, 0x80, 0xDE)
    if not 0 <= count <= MOST_DATA:
        return -1
    for number in range(count):
        if not _bin(&at, end, &data[number]) or not _single(&at, end, &data[number]):
            return -1
    return <int>count if at == end else -1


cdef inline Py_ssize_t _head(Text* read, Text end, unsigned char short, unsigned char long_) noexcept:
    """Read how many items an array or a map has; -1 if it is none, or large."""
    cdef Text at = read[0]
    if at >= end:
        return -1
    if at[0] & 0xF0 == short:
        read[0] = at + 1
        return at[0] & 0x0F
    if at[0] != long_ or end - at < 3:
        return -1
    read[0] = at + 3
    return at[1] << 8 | at[2]


cdef inline bint _bin(Text* read, Text end, Datum* datum) noexcept:
    """Read bytes."""
    cdef Text at = read[0]
    cdef Py_ssize_t left = end - at
    if left < 2:
        return False
    if at[0] == 0xC4:
        datum.size = at[1]
        at += 2
    elif at[0] == 0xC5 and left >= 3:
        datum.size = at[1] << 8 | at[2]
        at += 3
    elif at[0] == 0xC6 and left >= 5 and at[1] < 0x40:
        datum.size = at[1] << 24 | at[2] << 16 | at[3] << 8 | at[4]
        at += 5
    else:
        return False
    if datum.size > end - at:
        return False
    datum.text = at
    read[0] = at + datum.size
    return True


cdef inline bint _single(Text* read, Text end, Datum* datum) noexcept:
    """Read counts that are a small base alone."""
    cdef Text at = read[0]
    if end - at < 2 or at[0] != 0x91:
        return False
    if at[1] < 0x80:
        datum.count = at[1]
    elif at[1] >= 0xE0:
        datum.count = <long>at[1] - 256
    else:
        return False
    read[0] = at + 2
    return True
