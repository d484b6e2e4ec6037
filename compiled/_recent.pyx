# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Entries in memory by key, in two generations; see `arrangements.rocks`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.object cimport PyObject
from libc.string cimport memcmp

cdef enum:
    # See `arrangements.rocks`.
    _OF_AN_ENTRY = 170


def recalled(dict young, dict old, list keys):
    """What is known of keys: their values, the places of the others, and how many bytes moved.

    What only the old entries have becomes young.
    """
    cdef list found = [], missing = []
    cdef object key
    cdef PyObject* value
    cdef Py_ssize_t at = 0, moved = 0
    cdef bint any_old = bool(old)
    for key in keys:
        value = PyDict_GetItemWithError(young, key)
        if value is NULL and any_old:
            value = PyDict_GetItemWithError(old, key)
            if value is not NULL:
                PyDict_SetItem(young, key, <object>value)
                moved += _size(key, <object>value)
        if value is NULL:
            missing.append(at)
            found.append(None)
        else:
            found.append(<object>value)
        at += 1
    return found, missing, moved


def filled(dict young, list keys, list found, list missing, list values):
    """Put values that were read into the places that miss them; say how many bytes became young.

    Values of absent keys do not become young.
    """
    cdef Py_ssize_t place, at = 0, size = 0
    cdef object value, key
    if len(missing) != len(values):
        raise ValueError("not as many values as were asked for")
    for place in missing:
        value = values[at]
        if value is not None:
            key = keys[place]
            found[place] = value
            PyDict_SetItem(young, key, value)
            size += _size(key, value)
        at += 1
    return size


def put(dict young, list entries):
    """Put entries among the young; say by how many bytes these have grown."""
    cdef Py_ssize_t size = 0
    cdef object key, value
    cdef PyObject* before
    for entry in entries:
        key, value = <tuple?>entry
        size += _size(key, value)
        before = PyDict_GetItemWithError(young, key)
        if before is not NULL:
            size -= _size(key, <object>before)
        PyDict_SetItem(young, key, value)
    return size


def any_begins(dict entries, bytes prefix):
    """Return whether the key of an entry begins with `prefix`."""
    cdef Py_ssize_t length = PyBytes_GET_SIZE(prefix)
    cdef const char* begins = PyBytes_AS_STRING(prefix)
    cdef object key
    for key in entries:
        if PyBytes_GET_SIZE(<bytes?>key) >= length and not memcmp(
            PyBytes_AS_STRING(key), begins, length
        ):
            return True
    return False


def size_of(list entries):
    """About the bytes that entries take in memory."""
    cdef Py_ssize_t size = 0
    cdef object key, value
    for entry in entries:
        key, value = <tuple?>entry
        size += _size(key, value)
    return size


cdef inline Py_ssize_t _size(key, value) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(<bytes?>key) + _OF_AN_ENTRY
    return size if value is None else size + PyBytes_GET_SIZE(<bytes?>value)
