# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What may be wrong anywhere in JSON texts, found without parsing them.

How many brackets they open, within texts too, is an upper bound of how deep they nest.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from ikebana.compiled._characters cimport Text, any_special, utf8_size

cdef enum:
    # A number of fewer digits, with an exponent of two digits at most, is no greater than 1e308.
    _MANY_DIGITS = 200
    _STRIDE = 100  # half as many


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


def doubtful(bytes message not None) -> bool:
    """Whether a text is no UTF-8, or may have a number out of range: see `codecs.canonical`.

    >>> doubtful(b'{"a": 1e30, "b": "1e400"}'), doubtful(b'[1e400]'), doubtful(b'["\xff"]')
    (False, True, True)
    """
    cdef Text at = <Text>PyBytes_AS_STRING(message)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(message)
    cdef Py_ssize_t place
    cdef unsigned char wide = 0, exponents = 0
    # Without a branch, so that the compiler looks at sixteen at once.  The NUL ends the text.
    for place in range(size):
        wide |= at[place]
        exponents |= (at[place + 1] | 0x20 == c'e') & (<unsigned char>(at[place] - c'0') < 10)
    if wide & 0x80 and not _is_utf8(at, size):
        return True
    if size >= _MANY_DIGITS and _has_many_digits(at, size):
        return True
    return exponents and _has_large_exponent(at, size)


cdef bint _is_utf8(Text at, Py_ssize_t size) noexcept:
    cdef Text end = at + size
    cdef uint64_t eight
    cdef Py_ssize_t character
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & 0x8080808080808080ULL:
                at += 8
                continue
        if at[0] < 0x80:
            at += 1
            continue
        character = utf8_size(at, end - at)
        if character == 0:
            return False
        at += character
    return True


cdef bint _has_many_digits(Text at, Py_ssize_t size) noexcept:
    """Whether so many digits follow each other: only then all of some stride are digits."""
    cdef Py_ssize_t begin = 0, place, end
    while begin + _STRIDE < size:
        place = begin + _STRIDE
        while place >= begin and <unsigned char>(at[place] - c'0') < 10:
            place -= 1
        if place < begin:
            end = begin + _STRIDE
            while place >= 0 and <unsigned char>(at[place] - c'0') < 10:
                place -= 1
            while <unsigned char>(at[end] - c'0') < 10:
                end += 1
            if end - place > _MANY_DIGITS:
                return True
        begin += _STRIDE
    return False


cdef bint _has_large_exponent(Text at, Py_ssize_t size) noexcept:
    """Whether a number, in no string, has an exponent of three digits or more."""
    cdef Text end = at + size
    cdef uint64_t eight
    while at < end:
        if at[0] == c'"':
            at += 1
            while at < end and at[0] != c'"':
                if end - at >= 8:
                    memcpy(&eight, at, 8)
                    if not any_special(eight):
                        at += 8
                        continue
                at += 2 if at[0] == c'\\' and at + 1 < end else 1
        elif at[0] | 0x20 == c'e':
            at += 1
            if at < end and (at[0] == c'+' or at[0] == c'-'):
                at += 1
            if _is_digit(at[0]) and _is_digit(at[1]) and _is_digit(at[2]):
                return True
            continue
        at += 1
    return False


cdef inline bint _is_digit(unsigned char byte) noexcept:
    return c'0' <= byte <= c'9'
