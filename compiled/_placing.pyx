# cython: language_level=3, wraparound=False
"""Records put into the columns of their shards: the loops of `topics.slices`.

Keys and values have to be bytes, or None where there is none.  What else there is ends a loop,
and the function says how far it has come; its caller goes on in Python.

A loop over the bytes of a key has their number, as CPython says it.  Lists and tuples are read by
checked indexes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t

# By the distance of a byte from the last of eight, and by the byte: what it adds to the sum.
cdef uint32_t TABLES[8][256]


cdef void _set_tables() noexcept:
    cdef uint32_t byte, table, found
    cdef int bit
    for byte in range(256):
        found = byte
        for bit in range(8):
            found = (found >> 1) ^ (0xEDB88320U if found & 1 else 0)
        TABLES[0][byte] = found
    for byte in range(256):
        for table in range(1, 8):
            found = TABLES[table - 1][byte]
            TABLES[table][byte] = (found >> 8) ^ TABLES[0][found & 0xFF]


_set_tables()


cdef uint32_t crc32(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    """The CRC-32 of so many bytes, as of `zlib.crc32`."""
    cdef uint32_t found = 0xFFFFFFFFU
    while size >= 8:
        found ^= <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | (
            <uint32_t>at[3] << 24
        )
        found = (
            TABLES[7][found & 0xFF]
            ^ TABLES[6][found >> 8 & 0xFF]
            ^ TABLES[5][found >> 16 & 0xFF]
            ^ TABLES[4][found >> 24]
            ^ TABLES[3][at[4]]
            ^ TABLES[2][at[5]]
            ^ TABLES[1][at[6]]
            ^ TABLES[0][at[7]]
        )
        at += 8
        size -= 8
    while size > 0:
        found = (found >> 8) ^ TABLES[0][(found ^ at[0]) & 0xFF]
        at += 1
        size -= 1
    return found ^ 0xFFFFFFFFU


def checksum(bytes key) -> int:
    """What `zlib.crc32` gives."""
    return crc32(<const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline uint32_t _shard_of(key, uint32_t count) noexcept:
    # The key is of type bytes.
    return crc32(<const unsigned char*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) % count


cdef inline Py_ssize_t _size_of(value) noexcept:
    """The size of a value; -1 if it is neither bytes nor None."""
    if value is None:
        return 0
    return PyBytes_GET_SIZE(value) if PyBytes_CheckExact(value) else -1


def place_messages(list messages, list columns, list keyless) -> tuple[int, int]:
    """Add messages to the columns of their shards, and those without a key to `keyless`.

    `columns` has for each shard its lists of keys, of values and of offsets.  Return the number
    of messages that were added, and the size of their keys and values.
    """
    cdef uint32_t count = _number_of(columns)
    cdef Py_ssize_t at, value_size, size = 0
    cdef tuple message, to
    for at in range(len(messages)):
        found = messages[at]
        if not isinstance(found, tuple):
            return at, size
        message = <tuple>found
        key = message[1]
        if key is None:
            keyless.append(message)
            continue
        value = message[2]
        value_size = _size_of(value)
        if value_size < 0 or not PyBytes_CheckExact(key):
            return at, size
        to = <tuple>columns[_shard_of(key, count)]
        (<list>to[0]).append(key)
        (<list>to[1]).append(value)
        (<list>to[2]).append(message[0])
        size += PyBytes_GET_SIZE(key) + value_size
    return len(messages), size


def place_upserts(list keys, list values, list offsets, list columns) -> tuple[int, int]:
    """Add upserts to the columns of their shards; return their number and size as above."""
    cdef uint32_t count = _number_of(columns)
    cdef Py_ssize_t at, value_size, size = 0
    cdef tuple to
    if len(values) != len(keys) or len(offsets) != len(keys):
        raise ValueError("columns differ in length")
    for at in range(len(keys)):
        key = keys[at]
        value = values[at]
        value_size = _size_of(value)
        if value_size < 0 or not PyBytes_CheckExact(key):
            return at, size
        to = <tuple>columns[_shard_of(key, count)]
        (<list>to[0]).append(key)
        (<list>to[1]).append(value)
        (<list>to[2]).append(offsets[at])
        size += PyBytes_GET_SIZE(key) + value_size
    return len(keys), size


cdef uint32_t _number_of(list columns) except 0:
    """The number of shards, whose columns are three lists each."""
    if not 0 < len(columns) < 1 << 31:
        raise ValueError("no shards, or too many")
    for each in columns:
        if type(each) is not tuple or len(each) != 3:
            raise TypeError("three columns are expected")
        for column in each:
            if type(column) is not list:
                raise TypeError("a column is a list")
    return <uint32_t>len(columns)
