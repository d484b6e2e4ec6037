# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# Numbers as `codecs.canonical` writes them.  A function says False, and writes nothing that counts,
# if it has no form for a number.

from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, strlen

from ikebana.compiled._characters cimport Text

cdef extern from "Python.h":
    char* PyOS_double_to_string(double, char, int, int, int*) except NULL

cdef extern from *:
    """
    /* Doubles have all of these exactly. */
    static const double AVRO_POWERS[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
        1e16, 1e17, 1e18
    };
    static const uint64_t AVRO_TENS[] = {
        1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u,
        10000000000u, 100000000000u, 1000000000000u, 10000000000000u, 100000000000000u,
        1000000000000000u
    };
    """
    const double* POWERS "AVRO_POWERS"
    const uint64_t* TENS "AVRO_TENS"

cdef enum:
    # Those of which no two decimals are one double, or one float of 32 bits.
    DIGITS = 15
    SINGLE_DIGITS = 6
    # Up to here a float of 32 bits is whole only if it is an integer that no other is near to.
    EXACT_SINGLE = 1 << 24


cdef inline void put_digits(uint64_t value, unsigned char** where) noexcept:
    cdef unsigned char digits[20]
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = <unsigned char>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    memcpy(where[0], &digits[at], <size_t>(20 - at))
    where[0] += 20 - at


cdef inline void put_padded(uint64_t value, Py_ssize_t digits, unsigned char* put) noexcept:
    """Write so many digits of a number, which has no more."""
    cdef Py_ssize_t at
    for at in range(digits - 1, -1, -1):
        put[at] = <unsigned char>(48 + value % 10)
        value //= 10


cdef inline void put_long(int64_t value, unsigned char** where) noexcept:
    cdef uint64_t size = <uint64_t>value
    if value < 0:
        where[0][0] = c'-'
        where[0] += 1
        size = -size
    put_digits(size, where)


cdef inline bint put_scaled(
    bint negative, uint64_t digits, Py_ssize_t scale, unsigned char** where
) noexcept:
    """Write a number of at most 15 digits, the last of which is no zero if there is a scale."""
    cdef unsigned char* put = where[0]
    cdef uint64_t power, whole
    if scale > DIGITS + 3:
        return False
    if negative:
        put[0] = c'-'
        put += 1
    if scale > DIGITS:
        # What a scale of 15 leaves of the digits is all in the fraction.
        power = 0
        whole = 0
    else:
        power = TENS[scale]
        whole = digits // power
        digits %= power
    put_digits(whole, &put)
    if scale:
        put[0] = c'.'
        put_padded(digits, scale, put + 1)
        if whole == 0 and scale > 3 and put[1] == 48 and put[2] == 48 and put[3] == 48 and (
            put[4] == 48
        ):
            # So small a number is written with an exponent.
            return False
        put += 1 + scale
    where[0] = put
    return True


cdef inline bint put_real(double value, int most, unsigned char** where) noexcept:
    """Write a number that has so few digits; False if it has more, or a form of its own.

    No two decimals of 15 digits are one double, nor two of six one float.  So if a decimal of
    so many digits is the value, it is the shortest that names it.
    """
    cdef bint negative = value < 0
    cdef double size = -value if negative else value
    cdef double scaled, limit = POWERS[most]
    cdef int scale
    cdef uint64_t digits
    # This is false for what is no number, too.
    if not size < 1e15:
        return False
    digits = <uint64_t>size
    if most < DIGITS and size >= EXACT_SINGLE:
        return False
    if <double>digits == size:
        # There is no negative zero.
        put_long(-<int64_t>digits if negative else <int64_t>digits, where)
        return True
    if size < 1e-4:
        return False
    for scale in range(1, 19):
        scaled = size * POWERS[scale]
        if scaled >= limit:
            return False
        digits = <uint64_t>(scaled + 0.5)
        if most == DIGITS:
            if <double>digits / POWERS[scale] == size:
                return put_scaled(negative, digits, scale, where)
        elif <double><float>(<double>digits / POWERS[scale]) == size:
            return put_scaled(negative, digits, scale, where)
    return False


cdef inline int put_repr(double value, unsigned char** where) except -1:
    """Write the shortest decimal that names a double, if that has no exponent."""
    cdef double size = -value if value < 0 else value
    cdef char* text
    cdef size_t length
    if not 1e-4 <= size < 1e15:
        return 0
    text = PyOS_double_to_string(value, c'r', 0, 0, NULL)
    length = strlen(text)
    if length < 32:
        memcpy(where[0], text, length)
        where[0] += length
    PyMem_Free(text)
    return length < 32


cdef inline bint put_unscaled(
    Text at, Py_ssize_t size, Py_ssize_t scale, unsigned char** where
) noexcept:
    """Write a decimal, of the bytes of its digits."""
    cdef uint64_t bits = 0
    cdef bint negative = size > 0 and at[0] > 127
    cdef Py_ssize_t byte
    if size > 8:
        return False
    if negative:
        bits = ~bits
    for byte in range(size):
        bits = bits << 8 | at[byte]
    if negative:
        bits = -bits
    if bits >= TENS[DIGITS]:
        return False
    while scale and bits % 10 == 0:
        bits //= 10
        scale -= 1
        if bits == 0:
            scale = 0
    return put_scaled(negative, bits, scale, where)
