# cython: language_level=3
# Rows of a `NamedTuple` of four parts, made without the call of a function in Python for each.

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)


cdef inline object new_row(type of, object key, object value, object time, object diff):
    """A row of a type that is known to be one of tuples."""
    cdef object row = (<PyTypeObject*>of).tp_alloc(<PyTypeObject*>of, 4)
    # From here on to the last part nothing runs that could see a row that is not whole.
    _put(row, 0, key)
    _put(row, 1, value)
    _put(row, 2, time)
    _put(row, 3, diff)
    return row


cdef inline void _put(object row, Py_ssize_t at, object part):
    """Set a part of a new row, as `tuple.__new__` does."""
    Py_INCREF(part)
    PyTuple_SET_ITEM(row, at, part)
