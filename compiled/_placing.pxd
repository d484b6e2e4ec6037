# cython: language_level=3
from libc.stdint cimport uint32_t


cdef uint32_t crc32(const unsigned char* at, Py_ssize_t size) noexcept nogil
