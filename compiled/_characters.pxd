# cython: language_level=3
# Characters of JSON texts: UTF-8, and what is escaped.

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

ctypedef const unsigned char* Text


cdef inline bint any_special(uint64_t eight) noexcept:
    """Whether one of eight bytes is a quote, a backslash, a control character, or no ASCII."""
    cdef uint64_t quotes = eight ^ 0x2222222222222222ULL
    cdef uint64_t escapes = eight ^ 0x5C5C5C5C5C5C5C5CULL
    # What a subtraction borrows goes up from a byte that is one.
    cdef uint64_t found = (
        eight
        | (eight - 0x2020202020202020ULL)
        | (quotes - 0x0101010101010101ULL)
        | (escapes - 0x0101010101010101ULL)
    )
    return (found & 0x8080808080808080ULL) != 0


cdef inline Py_ssize_t utf8_size(Text at, Py_ssize_t left) noexcept:
    """The size of a character of more than one byte, of which so many are left; 0 if it is none.

    At the NUL behind a text it looks no further, so there any number may be said to be left.
    """
    cdef unsigned char first = at[0]
    cdef Py_ssize_t size, more
    cdef unsigned char least = 0x80, most = 0xBF
    if 0xC2 <= first <= 0xDF:
        size = 2
    elif 0xE0 <= first <= 0xEF:
        size = 3
        # Neither a longer form than needed, nor a half of a surrogate pair.
        if first == 0xE0:
            least = 0xA0
        elif first == 0xED:
            most = 0x9F
    elif 0xF0 <= first <= 0xF4:
        size = 4
        if first == 0xF0:
            least = 0x90
        elif first == 0xF4:
            most = 0x8F
    else:
        return 0
    if left < size or not least <= at[1] <= most:
        return 0
    for more in range(2, size):
        if at[more] & 0xC0 != 0x80:
            return 0
    return size


cdef inline bint wide(Text* read, unsigned char** put) noexcept:
    """Copy a character of more than one byte; False if it is not UTF-8."""
    cdef Py_ssize_t size = utf8_size(read[0], 4)
    if size == 0:
        return False
    memcpy(put[0], read[0], <size_t>size)
    read[0] += size
    put[0] += size
    return True


cdef inline bint escaped(Text* read, unsigned char** put) noexcept:
    """Copy an escaped character in its canonical form; False if it is left to Python."""
    cdef unsigned char mark = read[0][1]
    cdef int code, low
    if mark == c'u':
        code = hex_digits(read[0] + 2)
        if 0xD800 <= code <= 0xDBFF and read[0][6] == c'\\' and read[0][7] == c'u':
            low = hex_digits(read[0] + 8)
            if not 0xDC00 <= low <= 0xDFFF:
                return False
            put_code(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), put)
            read[0] += 12
            return True
        # Control characters have forms of their own, and half a pair is none.
        if code < 0x20 or 0xD800 <= code <= 0xDFFF:
            return False
        if code == c'"' or code == c'\\':
            put[0][0] = c'\\'
            put[0] += 1
        put_code(code, put)
        read[0] += 6
        return True
    if mark == c'/':
        put[0][0] = c'/'
        put[0] += 1
    elif (
        mark == c'"' or mark == c'\\' or mark == c'n' or mark == c't'
        or mark == c'r' or mark == c'b' or mark == c'f'
    ):
        put[0][0] = c'\\'
        put[0][1] = mark
        put[0] += 2
    else:
        return False
    read[0] += 2
    return True


cdef inline int hex_digits(Text at) noexcept:
    """Read four digits; -1 if there are none."""
    cdef int value = 0, place
    cdef unsigned char digit
    for place in range(4):
        digit = at[place]
        if c'0' <= digit <= c'9':
            value = value * 16 + digit - c'0'
        elif c'a' <= digit <= c'f':
            value = value * 16 + digit - c'a' + 10
        elif c'A' <= digit <= c'F':
            value = value * 16 + digit - c'A' + 10
        else:
            return -1
    return value


cdef inline void put_code(int code, unsigned char** put) noexcept:
    """Write a code point in UTF-8, which is shorter than what was escaped."""
    cdef unsigned char* at = put[0]
    if code < 0x80:
        at[0] = <unsigned char>code
        put[0] += 1
    elif code < 0x800:
        at[0] = <unsigned char>(0xC0 | code >> 6)
        at[1] = <unsigned char>(0x80 | code & 0x3F)
        put[0] += 2
    elif code < 0x10000:
        at[0] = <unsigned char>(0xE0 | code >> 12)
        at[1] = <unsigned char>(0x80 | code >> 6 & 0x3F)
        at[2] = <unsigned char>(0x80 | code & 0x3F)
        put[0] += 3
    else:
        at[0] = <unsigned char>(0xF0 | code >> 18)
        at[1] = <unsigned char>(0x80 | code >> 12 & 0x3F)
        at[2] = <unsigned char>(0x80 | code >> 6 & 0x3F)
        at[3] = <unsigned char>(0x80 | code & 0x3F)
        put[0] += 4
