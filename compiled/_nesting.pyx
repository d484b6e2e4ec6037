# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""How many brackets JSON texts open, within texts too: an upper bound of how deep they nest."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE


def any_opens_more(list messages, Py_ssize_t most) -> bool:
    """Whether one of many texts opens more than so many brackets; None is no text.

    >>> any_opens_more([b"[[]]", None], 1), any_opens_more([b"[[]]", None], 2)
    (True, False)
    """
    cdef const unsigned char* at
    cdef Py_ssize_t size, place, end, count
    cdef unsigned char few
    for message in messages:
        if message is None:
            continue
        if not PyBytes_CheckExact(message):
            raise TypeError("a text is no bytes")
        size = PyBytes_GET_SIZE(message)
        # A text needs a character for each bracket.
        if size <= most:
            continue
        at = <const unsigned char*>PyBytes_AS_STRING(message)
        count = place = 0
        while place < size:
            end = min(place + 255, size)
            # So few fit into a byte, which lets the compiler look at sixteen at once.
            few = 0
            while place < end:
                # "[" and "{" differ in one bit.
                few += (at[place] | 0x20) == c'{'
                place += 1
            count += few
        if count > most:
            return True
    return False
