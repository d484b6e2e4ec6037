# cython: language_level=3, wraparound=False
"""Keys moved from value to value: the loops of `kernels.upsert`.

They take upserts that are bytes or None, of keys that have no error record.  Of every other one
they ask `general`, a function in Python, which makes updates itself, so they come in the same
order.  What a key has is as there: its value, None, or something else, which is left to Python.

All objects are read through checks of their types, and lists by checked indexes.  The bytes that
are compared and copied are those of one object, of which CPython says the size.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.string cimport memcmp, memcpy


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define FETCH(place) __builtin_prefetch(place, 1)
    #else
    #define FETCH(place) ((void)0)
    #endif
    """
    void FETCH(const void* place) nogil

cdef extern from "Python.h":
    ctypedef struct PyObject
    int PyDict_Next(dict of, Py_ssize_t* place, PyObject** key, PyObject** value)
    PyObject* PyList_GET_ITEM(list of, Py_ssize_t at)

cdef enum:
    # So many objects ahead are fetched into the processor's cache.  They lie anywhere in memory,
    # and a third of the time went into waiting for them.
    _AHEAD = 8

cdef object _PLUS = 1
cdef object _MINUS = -1


def take_states(dict slots, list keys, list states, general):
    """Set what keys have, of their states; `general` says it of other states than values."""
    cdef Py_ssize_t at
    _require_length(keys, states)
    for at in range(len(keys)):
        _fetch_at(keys, at)
        _fetch_at(states, at)
        state = states[at]
        if state is None:
            slots[keys[at]] = None
        elif _is_value(state):
            slots[keys[at]] = PyBytes_FromStringAndSize(
                PyBytes_AS_STRING(state) + 1, PyBytes_GET_SIZE(state) - 1
            )
        else:
            slots[keys[at]] = general(state)


def move(dict slots, dict last, time, tuple columns, general):
    """Move every key of `last` to its upsert, in `slots`, and add the updates to columns.

    The columns are lists of keys, values, times and diffs.
    """
    cdef Py_ssize_t at, place = 0
    _require_columns(columns)
    for at in range(_AHEAD):
        _fetch_item(last, &place)
    for key, upsert in last.items():
        _fetch_item(last, &place)
        _move(slots, key, upsert, time, columns, general)


def move_each(dict slots, list times, list keys, list values, tuple columns, general):
    """Move keys to one upsert after the other, each of which has a time of its own."""
    cdef Py_ssize_t at
    _require_columns(columns)
    _require_length(keys, times)
    _require_length(keys, values)
    for at in range(len(keys)):
        _fetch_at(keys, at)
        _fetch_at(values, at)
        _move(slots, keys[at], values[at], times[at], columns, general)


def changed(dict slots, list before, general):
    """The new states of keys whose states before, in the order of the keys, were others.

    `general` makes the states of what is no value.
    """
    cdef dict changes = {}
    cdef Py_ssize_t at = 0, place = 0
    cdef int ahead
    if len(slots) != len(before):
        raise ValueError("keys and states differ in number")
    for ahead in range(_AHEAD):
        _fetch_item(slots, &place)
    for key, slot in slots.items():
        _fetch_item(slots, &place)
        _fetch_at(before, at)
        state = before[at]
        at += 1
        if slot is None:
            if state is not None:
                changes[key] = None
        elif not PyBytes_CheckExact(slot):
            made = general(slot)
            if made != state:
                changes[key] = made
        elif not (_is_value(state) and _is_state_of(state, slot)):
            changes[key] = _state_of(slot)
    return changes


cdef inline void _fetch(PyObject* one) noexcept nogil:
    # A place that is no object's any more does no harm.
    FETCH(one)
    FETCH(<char*>one + 64)
    FETCH(<char*>one + 128)


cdef inline void _fetch_at(list of, Py_ssize_t at) noexcept:
    if at + _AHEAD < len(of):
        _fetch(PyList_GET_ITEM(of, at + _AHEAD))


cdef inline void _fetch_item(dict of, Py_ssize_t* place) noexcept:
    cdef PyObject* key
    cdef PyObject* value
    if PyDict_Next(of, place, &key, &value):
        FETCH(key)
        _fetch(value)


cdef inline int _move(dict slots, key, upsert, time, tuple columns, general) except -1:
    cdef object old = slots[key]
    if not (
        (upsert is None or PyBytes_CheckExact(upsert))
        and (old is None or PyBytes_CheckExact(old))
    ):
        slots[key] = general(key, old, upsert, time)
        return 0
    if upsert is None or old is None:
        if upsert is old:
            return 0
    elif _same(PyBytes_AS_STRING(old), PyBytes_GET_SIZE(old), upsert):
        return 0
    if old is not None:
        _add(columns, key, old, time, _MINUS)
    if upsert is not None:
        _add(columns, key, upsert, time, _PLUS)
    slots[key] = upsert
    return 0


cdef inline bint _is_value(state) noexcept:
    return (
        PyBytes_CheckExact(state)
        and PyBytes_GET_SIZE(state) > 0
        and PyBytes_AS_STRING(state)[0] == c'v'
    )


cdef inline bint _is_state_of(state, value) noexcept:
    return _same(PyBytes_AS_STRING(state) + 1, PyBytes_GET_SIZE(state) - 1, value)


cdef inline bint _same(const char* text, Py_ssize_t size, value) noexcept:
    return size == PyBytes_GET_SIZE(value) and not memcmp(
        text, PyBytes_AS_STRING(value), <size_t>size
    )


cdef inline object _state_of(value):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    cdef object made = PyBytes_FromStringAndSize(NULL, size + 1)
    cdef char* put = PyBytes_AS_STRING(made)
    put[0] = c'v'
    memcpy(put + 1, PyBytes_AS_STRING(value), <size_t>size)
    return made


cdef inline int _require_length(list one, list other) except -1:
    if len(one) != len(other):
        raise ValueError("columns differ in length")
    return 0


cdef int _require_columns(tuple columns) except -1:
    if len(columns) != 4:
        raise ValueError("an update has four parts")
    for column in columns:
        if type(column) is not list:
            raise TypeError("a column is a list")
    return 0


cdef inline int _add(tuple columns, key, value, time, diff) except -1:
    # They are four lists.
    (<list>columns[0]).append(key)
    (<list>columns[1]).append(value)
    (<list>columns[2]).append(time)
    (<list>columns[3]).append(diff)
    return 0
