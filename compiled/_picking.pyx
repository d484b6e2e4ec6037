# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Objects put together of the JSON texts of columns: see `linear.picking`.

Lengths are added up before an object is made, and each text is copied whole.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

ctypedef const unsigned char* Text


def objects(list heads, list columns):
    """An object for each row of columns; what stands before each text is its head.

    A text that is None is null.  The last head ends the object.
    """
    cdef Py_ssize_t fields = len(columns), count, at, number, size, fixed = 0
    cdef list found = []
    cdef list parts = [None] * len(columns)
    cdef bytes head, text, made
    cdef object each
    cdef char* put
    if not fields or len(heads) != fields + 1:
        raise ValueError("a head before each column, and one more")
    for each in heads:
        fixed += PyBytes_GET_SIZE(<bytes?>each)
    count = len(<list?>columns[0])
    for each in columns:
        if len(<list?>each) != count:
            raise ValueError("columns differ in length")
    for at in range(count):
        size = fixed
        for number in range(fields):
            each = (<list>columns[number])[at]
            text = b"null" if each is None else <bytes?>each
            parts[number] = text
            size += PyBytes_GET_SIZE(text)
        made = PyBytes_FromStringAndSize(NULL, size)
        put = PyBytes_AS_STRING(made)
        for number in range(fields):
            head, text = <bytes>heads[number], <bytes>parts[number]
            memcpy(put, PyBytes_AS_STRING(head), <size_t>PyBytes_GET_SIZE(head))
            put += PyBytes_GET_SIZE(head)
            memcpy(put, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))
            put += PyBytes_GET_SIZE(text)
        head = <bytes>heads[fields]
        memcpy(put, PyBytes_AS_STRING(head), <size_t>PyBytes_GET_SIZE(head))
        found.append(made)
    return found


def are_numbers(list column, Py_ssize_t digits):
    """Whether all texts are whole numbers of at most so many digits; None is one, too."""
    cdef object each
    cdef Text at
    cdef Text end
    for each in column:
        if each is None:
            continue
        at = <Text>PyBytes_AS_STRING(<bytes?>each)
        end = at + PyBytes_GET_SIZE(<bytes>each)
        if at[0] == c'-':
            at += 1
        if not 1 <= end - at <= digits:
            return False
        while at < end:
            if not c'0' <= at[0] <= c'9':
                return False
            at += 1
    return True
