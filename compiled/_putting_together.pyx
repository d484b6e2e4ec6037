# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Changes put together of texts and columns of numbers: see `arrangements.run`.

What is read are bytes whose checksum was right, and every bound is looked at all the same.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport UINT64_MAX, uint64_t
from libc.string cimport memcpy

from ikebana.compiled._characters cimport Text
from ikebana.compiled._streams cimport BYTE, COLUMN, DIGITS, EIGHT, END, NOTHING

cdef struct Column:
    Text planes
    Py_ssize_t count
    Py_ssize_t at
    int width
    int kind
    bint differs
    uint64_t last


cdef class _Room:
    """Memory that grows, for what is put together."""

    cdef unsigned char* held
    cdef Py_ssize_t size
    cdef Column* columns
    cdef Py_ssize_t* offsets

    def __cinit__(self, Py_ssize_t texts, Py_ssize_t columns):
        self.size = 4_096
        self.held = <unsigned char*>PyMem_Malloc(<size_t>self.size)
        self.columns = <Column*>PyMem_Malloc(<size_t>(columns + 1) * sizeof(Column))
        self.offsets = <Py_ssize_t*>PyMem_Malloc(<size_t>(texts + 1) * sizeof(Py_ssize_t))
        if self.held == NULL or self.columns == NULL or self.offsets == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.held)
        PyMem_Free(self.columns)
        PyMem_Free(self.offsets)

    cdef int hold(self, Py_ssize_t size) except -1:
        """Make room for so many bytes."""
        cdef void* moved
        if size > self.size:
            moved = PyMem_Realloc(self.held, <size_t>size * 2)
            if moved == NULL:
                raise MemoryError
            self.held = <unsigned char*>moved
            self.size = size * 2
        return 0


def put_together(
    Py_ssize_t entries,
    bytes texts not None,
    list lengths not None,
    bytes ends not None,
    int width,
    bytes ids not None,
    list columns not None,
):
    """Make changes of what `taken_apart` has made of them.

    Raises:
        ValueError: it has not.
    """
    cdef Py_ssize_t count = len(lengths), at, id_count, used = 0, put = 0, size, offset = 0
    cdef Py_ssize_t id_at = 0
    cdef _Room room = _Room(count, len(columns))
    cdef Text all_texts = <Text>PyBytes_AS_STRING(texts), all_ids = <Text>PyBytes_AS_STRING(ids)
    cdef Text all_ends = <Text>PyBytes_AS_STRING(ends)
    cdef Py_ssize_t text, column_count = len(columns)
    cdef unsigned int end
    cdef bint is_value = False
    cdef bytes key = None
    cdef list found = []
    cdef list kept = _columns(columns, room.columns)
    if width not in (1, 2) or PyBytes_GET_SIZE(ids) % width or PyBytes_GET_SIZE(ends) != count:
        raise ValueError("texts and their numbers differ")
    id_count = PyBytes_GET_SIZE(ids) // width
    for at in range(count):
        size = lengths[at]
        if not 0 <= size <= PyBytes_GET_SIZE(texts) - offset:
            raise ValueError("a text is too long")
        room.offsets[at] = offset
        offset += size
    room.offsets[count] = offset
    while len(found) < entries:
        if id_at == id_count:
            raise ValueError("there are not as many texts")
        text = all_ids[id_at]
        if width == 2:
            text |= <Py_ssize_t>all_ids[id_count + id_at] << 8
        id_at += 1
        if text == 0:
            used += 1
            text = used
        if not 0 < text <= used or text > count:
            raise ValueError("there is no such text")
        text -= 1
        size = room.offsets[text + 1] - room.offsets[text]
        # 20 digits are the most that a number has.
        room.hold(put + size + 20)
        memcpy(room.held + put, all_texts + room.offsets[text], <size_t>size)
        put += size
        end = all_ends[text]
        if end >= COLUMN:
            if end - COLUMN >= <unsigned int>column_count:
                raise ValueError("there is no such column")
            put += _put_next(&room.columns[end - COLUMN], room.held + put)
            continue
        if not is_value:
            if end == NOTHING:
                raise ValueError("a change has no key")
            key = PyBytes_FromStringAndSize(<char*>room.held, put)
        elif end == NOTHING:
            found.append((key, None))
        else:
            found.append((key, PyBytes_FromStringAndSize(<char*>room.held, put)))
        is_value = not is_value
        put = 0
    if id_at != id_count or kept is None:
        raise ValueError("there are more texts")
    return found


cdef list _columns(list given, Column* columns):
    """Read columns; what is returned holds their bytes."""
    cdef Py_ssize_t at
    cdef list kept = []
    cdef tuple each
    cdef bytes planes
    for at in range(len(given)):
        each = <tuple?>given[at]
        kind, differs, count, held = each
        planes = <bytes?>held
        kept.append(planes)
        columns[at].kind, columns[at].differs = kind, differs
        if not DIGITS <= columns[at].kind <= EIGHT:
            raise ValueError("there is no such kind of column")
        columns[at].count, columns[at].at, columns[at].last = count, 0, 0
        columns[at].planes = <Text>PyBytes_AS_STRING(planes)
        if columns[at].count <= 0:
            columns[at].count = columns[at].width = 0
            continue
        if not (
            columns[at].count <= PyBytes_GET_SIZE(planes) <= 8 * columns[at].count
            and PyBytes_GET_SIZE(planes) % columns[at].count == 0
        ):
            raise ValueError("a column does not have its numbers")
        columns[at].width = <int>(PyBytes_GET_SIZE(planes) // columns[at].count)
    return kept


cdef Py_ssize_t _put_next(Column* column, unsigned char* put) except -1:
    """Write the next number of a column; return how many bytes it has."""
    cdef uint64_t number = 0, rest
    cdef int place
    cdef Py_ssize_t size = 1
    if column.at == column.count:
        raise ValueError("a column has no more numbers")
    for place in range(column.width):
        number |= <uint64_t>column.planes[place * column.count + column.at] << (8 * place)
    column.at += 1
    if column.differs:
        rest = number >> 1
        if rest >= column.last if number & 1 else rest > UINT64_MAX - column.last:
            raise ValueError("a number of a column is none")
        number = column.last - rest - 1 if number & 1 else column.last + rest
        column.last = number
    if column.kind == EIGHT:
        for place in range(8):
            put[place] = <unsigned char>(number >> (56 - 8 * place))
        return 8
    if column.kind == BYTE:
        if number > 0xFF:
            raise ValueError("a byte of a column is none")
        put[0] = <unsigned char>number
        return 1
    rest = number
    while rest >= 10:
        rest //= 10
        size += 1
    for place in range(<int>size):
        put[size - 1 - place] = <unsigned char>(c'0' + number % 10)
        number //= 10
    return size
