# cython: language_level=3
# The order of an object's members by their names, remembered from one object to the next.

from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy

from ikebana.compiled._characters cimport Text


cdef struct Member:
    # A member of an object, as it was written: its name without quotes, and all of it.
    Text name
    Py_ssize_t size
    Text begin
    Py_ssize_t length


cdef enum:
    # The count of an order that is not known; 0 is that of an object without fields.
    NOTHING_KNOWN = -1


cdef struct Order:
    # The names of an object's fields in the order of a text; `ranks` has the members in the
    # order of their names.
    Py_ssize_t count
    Py_ssize_t room
    Py_ssize_t* sizes
    Py_ssize_t* ranks
    Py_ssize_t names_size
    Py_ssize_t names_room
    unsigned char* names


cdef struct Ranked:
    Text name
    Py_ssize_t size
    Py_ssize_t at


cdef inline int by_name(const void* one, const void* other) noexcept nogil:
    cdef const Ranked* a = <const Ranked*>one
    cdef const Ranked* b = <const Ranked*>other
    return compare(a.name, a.size, b.name, b.size)


cdef inline int compare(Text a, Py_ssize_t size, Text b, Py_ssize_t other) noexcept nogil:
    # UTF-8 has the order of code points.
    cdef int found = memcmp(a, b, <size_t>(size if size < other else other))
    if found:
        return found
    return -1 if size < other else 1 if size > other else 0


cdef inline bint is_of(const Order* order, const Member* members, Py_ssize_t count) noexcept:
    """Whether members have the names of an order, in the order of its text."""
    if order.count != count:
        return False
    cdef Text names = order.names
    cdef Py_ssize_t at, size
    for at in range(count):
        size = order.sizes[at]
        if members[at].size != size or memcmp(members[at].name, names, <size_t>size):
            return False
        names += size
    return True


cdef inline bint set_order(Order* order, const Member* members, Py_ssize_t count) except -1:
    """Note the names of members and their order; False if two have one name."""
    cdef Py_ssize_t at, size = 0
    order.count = NOTHING_KNOWN
    cdef Ranked* ranked = <Ranked*>malloc(<size_t>(count + 1) * sizeof(Ranked))
    if ranked == NULL:
        raise MemoryError
    for at in range(count):
        ranked[at].name = members[at].name
        ranked[at].size = members[at].size
        ranked[at].at = at
        size += members[at].size
    qsort(ranked, <size_t>count, sizeof(Ranked), by_name)
    try:
        make_room(order, count, size)
        for at in range(count):
            if at and not by_name(&ranked[at - 1], &ranked[at]):
                return False
            order.ranks[at] = ranked[at].at
    finally:
        free(ranked)
    cdef unsigned char* put = order.names
    for at in range(count):
        order.sizes[at] = members[at].size
        memcpy(put, members[at].name, <size_t>members[at].size)
        put += members[at].size
    order.count = count
    return True


cdef inline int make_room(Order* order, Py_ssize_t count, Py_ssize_t size) except -1:
    if count > order.room:
        free(order.sizes)
        free(order.ranks)
        order.room = count
        order.sizes = <Py_ssize_t*>malloc(<size_t>count * sizeof(Py_ssize_t))
        order.ranks = <Py_ssize_t*>malloc(<size_t>count * sizeof(Py_ssize_t))
        if order.sizes == NULL or order.ranks == NULL:
            order.room = 0
            raise MemoryError
    # Also where all names are empty there is a place to point to.
    if size >= order.names_room:
        free(order.names)
        order.names_room = size + 1
        order.names = <unsigned char*>malloc(<size_t>(size + 1))
        if order.names == NULL:
            order.names_room = 0
            raise MemoryError
    return 0


cdef inline void free_order(Order* order) noexcept:
    """Give back what an order has, and know nothing any more."""
    free(order.sizes)
    free(order.ranks)
    free(order.names)
    order.sizes = order.ranks = NULL
    order.names = NULL
    order.count, order.room, order.names_room = NOTHING_KNOWN, 0, 0
