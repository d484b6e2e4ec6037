# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Keys and values from and to data: see `base.rows`.

A length in a datum is compared with its size before anything is read behind it; what is no datum
is refused.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

ctypedef const unsigned char* Text

cdef enum:
    _LENGTH_BYTES = 4


def data_of(list keys, list values):
    """Join each key and its value."""
    cdef Py_ssize_t at, size, rest
    cdef bytes key, value, made
    cdef unsigned char* put
    cdef list found = []
    if len(keys) != len(values):
        raise ValueError("columns differ in length")
    for at in range(len(keys)):
        key, value = keys[at], <bytes?>values[at]
        size = 0 if key is None else PyBytes_GET_SIZE(key)
        rest = PyBytes_GET_SIZE(value)
        if size > 0x7FFFFFFF:
            raise ValueError("a key is too long")
        made = PyBytes_FromStringAndSize(NULL, _LENGTH_BYTES + size + rest)
        put = <unsigned char*>PyBytes_AS_STRING(made)
        if key is None:
            put[0] = put[1] = put[2] = put[3] = 0xFF
        else:
            put[0] = <unsigned char>(size >> 24)
            put[1] = <unsigned char>(size >> 16)
            put[2] = <unsigned char>(size >> 8)
            put[3] = <unsigned char>size
            memcpy(put + _LENGTH_BYTES, PyBytes_AS_STRING(key), <size_t>size)
        memcpy(put + _LENGTH_BYTES + size, PyBytes_AS_STRING(value), <size_t>rest)
        found.append(made)
    return found


cdef Py_ssize_t _key_size(bytes datum) except -2:
    """How long the key of a datum is; -1 if there is none."""
    cdef Text at = <Text>PyBytes_AS_STRING(datum)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(datum), length
    if size < _LENGTH_BYTES:
        raise ValueError("no datum")
    length = <Py_ssize_t>at[0] << 24 | <Py_ssize_t>at[1] << 16 | <Py_ssize_t>at[2] << 8 | at[3]
    if length == 0xFFFFFFFF:
        return -1
    if length > size - _LENGTH_BYTES:
        raise ValueError("no datum")
    return length


def keys_of(list data):
    """The key of each datum, None if it has none or is None itself."""
    cdef Py_ssize_t size
    cdef object datum
    cdef list found = []
    for datum in data:
        if datum is None:
            found.append(None)
            continue
        size = _key_size(<bytes?>datum)
        found.append(
            None if size < 0
            else PyBytes_FromStringAndSize(PyBytes_AS_STRING(<bytes>datum) + _LENGTH_BYTES, size)
        )
    return found


def values_of(list data, nothing):
    """The value of each datum, and `nothing` for each that is None."""
    cdef Py_ssize_t begin
    cdef object datum
    cdef list found = []
    for datum in data:
        if datum is None:
            found.append(nothing)
            continue
        begin = _LENGTH_BYTES + max(<Py_ssize_t>0, _key_size(<bytes?>datum))
        found.append(PyBytes_FromStringAndSize(
            PyBytes_AS_STRING(<bytes>datum) + begin, PyBytes_GET_SIZE(<bytes>datum) - begin
        ))
    return found
