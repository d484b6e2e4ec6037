# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Changes in the order of their keys: those of a batch, and those of several runs."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdlib cimport qsort

from ikebana.compiled._entries cimport Datum, Text, compared

cdef struct Place:
    Datum key
    Py_ssize_t at


def in_order(dict changes):
    """List the entries of a dict, whose keys are bytes, in the order of the keys."""
    # They keep what the places refer to.
    cdef list keys = list(changes), values = list(changes.values())
    cdef Py_ssize_t count = len(keys), at
    cdef Place* found
    if not count:
        return []
    found = <Place*>PyMem_Malloc(<size_t>count * sizeof(Place))
    if found == NULL:
        raise MemoryError
    try:
        for at in range(count):
            found[at].key = _datum_of(<bytes?>keys[at])
            found[at].at = at
        qsort(found, <size_t>count, sizeof(Place), _compared_places)
        return [(keys[found[at].at], values[found[at].at]) for at in range(count)]
    finally:
        PyMem_Free(found)


def merged(list portions):
    """Merge changes in key order, the oldest first; of equal keys the youngest counts."""
    cdef list left = [*portions]
    cdef list further
    cdef Py_ssize_t at
    # Neighbours first, so that each change is moved about log(runs) times.
    while len(left) > 1:
        further = []
        for at in range(0, len(left) - 1, 2):
            further.append(_of_two(<list?>left[at], <list?>left[at + 1]))
        if len(left) % 2:
            further.append(left[len(left) - 1])
        left = further
    return left[0] if left else []


cdef list _of_two(list older, list younger):
    cdef list found = []
    cdef Py_ssize_t old = 0, new = 0
    cdef Datum one, other
    cdef int order
    while old < len(older) and new < len(younger):
        one, other = _datum_of(_key_of(older[old])), _datum_of(_key_of(younger[new]))
        order = compared(&one, &other)
        if order < 0:
            found.append(older[old])
            old += 1
            continue
        found.append(younger[new])
        new += 1
        if not order:
            old += 1
    found.extend(older[old:] if old < len(older) else younger[new:])
    return found


cdef bytes _key_of(object change):
    if not isinstance(change, tuple) or len(<tuple>change) != 2:
        raise TypeError("a change has a key and a value")
    return <bytes?>(<tuple>change)[0]


cdef inline Datum _datum_of(bytes key):
    cdef Datum found
    found.text, found.size, found.count = <Text>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), 1
    return found


cdef int _compared_places(const void* one, const void* other) noexcept nogil:
    return compared(&(<const Place*>one).key, &(<const Place*>other).key)
