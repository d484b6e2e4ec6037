# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# Dates and times in the normal forms of `codecs.encodings`, of the years 1 to 9999.  A function says
# False, and writes nothing that counts, of any other.

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libc.string cimport memcpy

from ikebana.compiled._characters cimport Text
from ikebana.compiled._decimals cimport TENS, put_padded

cdef enum:
    # Those of the years 1 to 9999, counted from 1970.
    FIRST_DAY = -719162
    LAST_DAY = 2932896
    DAY = 86400


cdef inline bint put_day(int64_t days, unsigned char** where) noexcept:
    """Write a count of days."""
    cdef unsigned char* put = where[0]
    if not FIRST_DAY <= days <= LAST_DAY:
        return False
    put[0] = c'"'
    put += 1
    put_date(days, &put)
    put[0] = c'"'
    where[0] = put + 1
    return True


cdef inline bint put_time(int64_t count, Py_ssize_t digits, unsigned char** where) noexcept:
    """Write a count of parts of a second, within a day."""
    cdef unsigned char* put = where[0]
    cdef int64_t unit = <int64_t>TENS[digits]
    if not 0 <= count < DAY * unit:
        return False
    put[0] = c'"'
    put += 1
    put_clock(count // unit, &put)
    put_fraction(<uint64_t>(count % unit), digits, &put)
    put[0] = c'"'
    where[0] = put + 1
    return True


cdef inline bint put_moment(
    int64_t count, Py_ssize_t digits, bint utc, unsigned char** where
) noexcept:
    """Write a count of parts of a second since 1970."""
    cdef unsigned char* put = where[0]
    cdef int64_t unit = <int64_t>TENS[digits]
    cdef int64_t days = count // (DAY * unit)
    cdef int64_t rest = count % (DAY * unit)
    if rest < 0:
        # This is C's division.
        days -= 1
        rest += DAY * unit
    # The ends of 64 bits stand for infinite timestamps.
    if not FIRST_DAY <= days <= LAST_DAY:
        return False
    if count == INT64_MIN or count == INT64_MAX:
        return False
    put[0] = c'"'
    put += 1
    put_date(days, &put)
    put[0] = c'T'
    put += 1
    put_clock(rest // unit, &put)
    put_fraction(<uint64_t>(rest % unit), digits, &put)
    if utc:
        put[0] = c'Z'
        put += 1
    put[0] = c'"'
    where[0] = put + 1
    return True


cdef inline void put_date(int64_t days, unsigned char** where) noexcept:
    """Write a day that counts from 1970, of the years 1 to 9999."""
    # Years begin in March here, so that the leap day is their last.
    cdef int64_t since = days + 719468
    cdef int64_t era = since // 146097
    cdef int64_t day = since - era * 146097
    cdef int64_t of_era = (day - day // 1460 + day // 36524 - day // 146096) // 365
    cdef int64_t month, year = of_era + era * 400
    cdef unsigned char* put = where[0]
    day -= 365 * of_era + of_era // 4 - of_era // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3
    if month > 12:
        month -= 12
        year += 1
    put_padded(<uint64_t>year, 4, put)
    put[4] = c'-'
    put_padded(<uint64_t>month, 2, put + 5)
    put[7] = c'-'
    put_padded(<uint64_t>day, 2, put + 8)
    where[0] = put + 10


cdef inline void put_clock(int64_t second, unsigned char** where) noexcept:
    cdef unsigned char* put = where[0]
    put_padded(<uint64_t>(second // 3600), 2, put)
    put[2] = c':'
    put_padded(<uint64_t>(second // 60 % 60), 2, put + 3)
    put[5] = c':'
    put_padded(<uint64_t>(second % 60), 2, put + 6)
    where[0] = put + 8


cdef inline void put_fraction(uint64_t part, Py_ssize_t digits, unsigned char** where) noexcept:
    if part == 0:
        return
    while part % 10 == 0:
        part //= 10
        digits -= 1
    where[0][0] = c'.'
    put_padded(part, digits, where[0] + 1)
    where[0] += 1 + digits


cdef inline bint put_zoned(Text at, Py_ssize_t size, bint utc, unsigned char** where) noexcept:
    """Copy a timestamp that is in UTC, with at most six digits of a fraction."""
    cdef unsigned char* put = where[0]
    cdef int year, month, day
    cdef Py_ssize_t digit
    if not (20 <= size <= 27 and at[size - 1] == c'Z'):
        return False
    if at[4] != c'-' or at[7] != c'-' or at[10] != c'T' or at[13] != c':' or at[16] != c':':
        return False
    year = two(at) * 100 + two(at + 2) if two(at) >= 0 and two(at + 2) >= 0 else 0
    month, day = two(at + 5), two(at + 8)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= days_of(year, month):
        return False
    if not (
        0 <= two(at + 11) < 24 and 0 <= two(at + 14) < 60 and 0 <= two(at + 17) < 60
    ):
        return False
    size -= 1
    if size > 19:
        if at[19] != c'.' or size == 20:
            return False
        for digit in range(20, size):
            if not c'0' <= at[digit] <= c'9':
                return False
        while at[size - 1] == c'0':
            size -= 1
        if size == 20:
            size = 19
    put[0] = c'"'
    memcpy(put + 1, at, <size_t>size)
    put += 1 + size
    if utc:
        put[0] = c'Z'
        put += 1
    put[0] = c'"'
    where[0] = put + 1
    return True


cdef inline int two(Text at) noexcept:
    """Read two digits; -1 if there are none."""
    if not (c'0' <= at[0] <= c'9' and c'0' <= at[1] <= c'9'):
        return -1
    return 10 * (at[0] - 48) + at[1] - 48


cdef inline int days_of(int year, int month) noexcept:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
