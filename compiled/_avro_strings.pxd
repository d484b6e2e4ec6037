# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# Strings of JSON, of bytes that may be no UTF-8.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from ikebana.compiled._characters cimport Text, any_special, utf8_size

cdef extern from *:
    """
    static const char AVRO_HEX[] = "0123456789abcdef";
    static const char AVRO_BASE64[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    """
    const char* HEX "AVRO_HEX"
    const char* BASE64 "AVRO_BASE64"


cdef inline bint put_text(Text at, Text stop, unsigned char** where) noexcept:
    """Write a string; False if it is not UTF-8."""
    cdef unsigned char* put = where[0]
    cdef uint64_t word
    cdef unsigned char byte, letter
    cdef Py_ssize_t size
    put[0] = c'"'
    put += 1
    while at < stop:
        while stop - at >= 8:
            memcpy(&word, at, 8)
            if any_special(word):
                break
            memcpy(put, &word, 8)
            at += 8
            put += 8
        if at == stop:
            break
        byte = at[0]
        if byte >= 128:
            size = utf8_size(at, stop - at)
            if size == 0:
                return False
            memcpy(put, at, <size_t>size)
            put += size
            at += size
            continue
        at += 1
        if byte >= 32 and byte != c'"' and byte != c'\\':
            put[0] = byte
            put += 1
            continue
        put[0] = c'\\'
        letter = byte if byte >= 32 else letter_of(byte)
        if letter:
            put[1] = letter
            put += 2
        else:
            memcpy(put + 1, b"u00", 3)
            put[4] = HEX[byte >> 4]
            put[5] = HEX[byte & 15]
            put += 6
    put[0] = c'"'
    where[0] = put + 1
    return True


cdef inline unsigned char letter_of(unsigned char control) noexcept:
    """The letter that stands for a control character after a backslash; 0 if none does."""
    if control == 10:
        return c'n'
    if control == 13:
        return c'r'
    if control == 9:
        return c't'
    return c'b' if control == 8 else c'f' if control == 12 else 0


cdef inline bint is_text(Text at, Text stop) noexcept:
    cdef uint64_t word
    cdef Py_ssize_t size
    while at < stop:
        while stop - at >= 8:
            memcpy(&word, at, 8)
            if word & 0x8080808080808080ULL:
                break
            at += 8
        if at == stop:
            break
        size = 1 if at[0] < 128 else utf8_size(at, stop - at)
        if size == 0:
            return False
        at += size
    return True


cdef inline void put_base64(Text at, Py_ssize_t size, unsigned char** where) noexcept:
    cdef unsigned char* put = where[0]
    cdef uint32_t three
    put[0] = c'"'
    put += 1
    while size >= 3:
        three = <uint32_t>at[0] << 16 | <uint32_t>at[1] << 8 | at[2]
        put[0] = BASE64[three >> 18]
        put[1] = BASE64[three >> 12 & 63]
        put[2] = BASE64[three >> 6 & 63]
        put[3] = BASE64[three & 63]
        put += 4
        at += 3
        size -= 3
    if size:
        three = <uint32_t>at[0] << 16
        if size == 2:
            three |= <uint32_t>at[1] << 8
        put[0] = BASE64[three >> 18]
        put[1] = BASE64[three >> 12 & 63]
        put[2] = BASE64[three >> 6 & 63] if size == 2 else c'='
        put[3] = c'='
        put += 4
    put[0] = c'"'
    where[0] = put + 1
