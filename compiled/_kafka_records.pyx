# cython: language_level=3, wraparound=False, cdivision=True
"""Records from and to Kafka's client: the loops of `kafka.reader` and `kafka.transactions`.

The client's objects are used through their methods alone, and whatever these raise is raised.
"""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_CheckExact
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

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
    PyObject* PyList_GET_ITEM(list of, Py_ssize_t at)
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(object made)
    long long LARGEST "LLONG_MAX"
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    # TIMESTAMP_NOT_AVAILABLE of the client.
    _NO_TIMESTAMP = 0
    # As many as the largest number of 64 bits has, and a sign.
    _DIGITS = 20
    # So many updates ahead are fetched into the processor's cache.
    _AHEAD = 4


def runs(list messages) -> list:
    """Neighbours of one partition: (topic, partition), their records, and their events."""
    cdef list found = [], records = None, events = None
    cdef object topic = None, partition = None, own_topic, own_partition
    for message in messages:
        own_topic = message.topic()
        own_partition = message.partition()
        if records is None or own_partition != partition or (
            own_topic is not topic and own_topic != topic
        ):
            topic, partition = own_topic, own_partition
            records, events = [], []
            found.append(((topic, partition), records, events))
        if message.error() is None:
            records.append(message)
        else:
            events.append(message)
    return found


def taken(messages, type kind, bint dated) -> list:
    """What messages are without headers, each as a `kind`; with timestamps if they are `dated`.

    `kind` is a named tuple of (offset, key, value, headers, timestamp).
    """
    cdef list found = []
    cdef object made, offset, key, value, of, timestamp = None
    _require_tuple(kind)
    for message in messages:
        offset, key, value = message.offset(), message.key(), message.value()
        if dated:
            of, timestamp = message.timestamp()
            timestamp = None if of == _NO_TIMESTAMP else int(timestamp)
        made = PyType_GenericAlloc(kind, 5)
        _set(made, 0, offset)
        _set(made, 1, key)
        _set(made, 2, value)
        _set(made, 3, None)
        _set(made, 4, timestamp)
        if (
            PyLong_CheckExact(offset)
            and (key is None or PyBytes_CheckExact(key))
            and (value is None or PyBytes_CheckExact(value))
        ):
            # Such a tuple is in no cycle.
            PyObject_GC_UnTrack(made)
        found.append(made)
    return found


cdef inline void _set(made, Py_ssize_t at, part) noexcept:
    # Setting an item takes a reference over.
    Py_INCREF(part)
    PyTuple_SET_ITEM(made, at, part)


cdef int _require_tuple(type kind) except -1:
    """Raise an error unless the objects of a type are laid out as tuples are."""
    if not (
        issubclass(kind, tuple)
        and kind.__basicsize__ == tuple.__basicsize__
        and kind.__itemsize__ == tuple.__itemsize__
    ):
        raise TypeError("no plain named tuple")
    return 0


def produced(
    produce, wait, topic, partition, timestamp, list keys, list values, list times, list diffs
) -> None:
    """Produce updates with their headers.

    While `produce` raises a `BufferError`, it is called again after each `wait`.
    """
    cdef Py_ssize_t place
    cdef object now = None, at = None, by, time, change
    cdef dict known = {}
    if not len(keys) == len(values) == len(times) == len(diffs):
        raise ValueError("columns differ in length")
    for place in range(len(keys)):
        _fetch_at(keys, place)
        _fetch_at(values, place)
        time, change = times[place], diffs[place]
        if time is not now and time != now:
            now, at = time, ("time", _decimal(time))
        by = known.get(change)
        if by is None:
            by = known[change] = ("diff", _decimal(change))
        # By position: by name, the call takes half as long again.
        arguments = (
            topic, values[place], keys[place], partition, None, None, timestamp, [at, by]
        )
        while True:
            try:
                produce(*arguments)
                break
            except BufferError:
                wait()


cdef inline void _fetch_at(list of, Py_ssize_t at) noexcept:
    cdef PyObject* found
    if at + _AHEAD < len(of):
        found = PyList_GET_ITEM(of, at + _AHEAD)
        FETCH(found)
        FETCH(<char*>found + 64)
        FETCH(<char*>found + 128)


def decimal(number) -> bytes:
    """The digits of a number, as `b"%d"` gives them."""
    return _decimal(number)


cdef object _decimal(number):
    cdef char digits[_DIGITS]
    cdef int at = _DIGITS, overflow = 0
    cdef long long value
    if not PyLong_CheckExact(number):
        return b"%d" % number
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow or value < -LARGEST:
        return b"%d" % number
    cdef bint negative = value < 0
    if negative:
        value = -value
    while True:
        at -= 1
        digits[at] = <char>(c'0' + value % 10)
        value //= 10
        if not value:
            break
    if negative:
        at -= 1
        digits[at] = c'-'
    return PyBytes_FromStringAndSize(&digits[at], _DIGITS - at)
