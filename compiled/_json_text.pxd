# cython: language_level=3
from ikebana.compiled._characters cimport Text
from ikebana.compiled._order cimport Member, Order


cdef class Canonical:
    # The next byte of the text, and the NUL behind it.
    cdef Text read
    cdef Text end
    # Where the next byte is written.
    cdef unsigned char* put
    cdef unsigned char* out
    cdef unsigned char* spare
    cdef Py_ssize_t room
    # Those of all objects that are open, from the outermost on.
    cdef Member* members
    cdef Py_ssize_t count
    cdef Py_ssize_t members_room
    # Whether what is read is only checked: it is written nevertheless, but in no order.
    cdef bint checks
    # By the depth of the object.
    cdef Order orders[8]

    cpdef bytes text(self, bytes message)
    cdef bytes made(self, bytes message, Py_ssize_t size)
    cdef int begin(self, bytes message) except -1
    cdef int give_back(self) except -1
    cdef bint at_end(self) noexcept
    cdef void pass_space(self) noexcept
    cdef bint value(self, Py_ssize_t depth) except -1
    cdef bint word(self, const char* word, Py_ssize_t size) noexcept
    cdef bint number(self) noexcept
    cdef bint number_as_is(self, Text begin, Text at) noexcept
    cdef Py_ssize_t string(self) noexcept
    cdef bint array(self, Py_ssize_t depth) except -1
    cdef bint object(self, Py_ssize_t depth) except -1
    cdef bint object_members(self, Py_ssize_t depth) except -1
    cdef Py_ssize_t opened(self) except -1
    cdef void step(self, unsigned char mark) noexcept
    cdef bint sort(self, Py_ssize_t base, Py_ssize_t depth) except -1
