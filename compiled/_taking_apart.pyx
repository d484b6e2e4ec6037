# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Changes taken apart into texts and columns of numbers: see `arrangements.run`.

Whoever takes apart keeps the list: texts that were seen are pointers into its bytes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ikebana.compiled._characters cimport Text
from ikebana.compiled._number_columns cimport Numbers, column_of
from ikebana.compiled._streams cimport BYTE, COLUMN, DIGITS, EIGHT, END, NOTHING

cdef enum:
    # For each way to write numbers, those behind texts that no column is made for any more.
    _OTHERS = 3
    _MOST_COLUMNS = 250
    _MOST_TEXTS = 65_535
    _BUCKETS = 1 << 13
    # A text's last bytes say which column its number is in.
    _TAIL = 6
    _MOST_DIGITS = 18
    # In msgpack a length of one byte is behind it.
    _BYTE_TAG = 0xC4

cdef struct Known:
    Text at
    Py_ssize_t size
    uint32_t kind
    uint32_t behind
    uint32_t end
    uint32_t after
    uint32_t chained


cdef void* _grown(void* held, Py_ssize_t* room, Py_ssize_t first, size_t size) except NULL:
    """Memory for twice as many items of a size, or for the first ones; sets the new `room`."""
    cdef Py_ssize_t count = 2 * room[0] if room[0] else first
    cdef void* moved = PyMem_Realloc(held, <size_t>count * size)
    if moved == NULL:
        raise MemoryError
    room[0] = count
    return moved


cdef class _Parts:
    """What changes are taken apart into."""

    cdef Known* known
    cdef Py_ssize_t texts, texts_room
    cdef uint32_t* buckets
    cdef Numbers* columns
    cdef Py_ssize_t column_count
    cdef uint32_t* ids
    cdef Py_ssize_t id_count, id_room

    def __cinit__(self):
        cdef Py_ssize_t at
        self.texts = self.texts_room = self.column_count = self.id_count = self.id_room = 0
        self.known, self.ids = NULL, NULL
        self.columns = NULL
        self.buckets = <uint32_t*>PyMem_Malloc(_BUCKETS * sizeof(uint32_t))
        if self.buckets == NULL:
            raise MemoryError
        memset(self.buckets, 0, _BUCKETS * sizeof(uint32_t))
        self.columns = <Numbers*>PyMem_Malloc(_MOST_COLUMNS * sizeof(Numbers))
        if self.columns == NULL:
            raise MemoryError
        for at in range(_OTHERS):
            self.new_column(0, <uint32_t>at)

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.column_count):
            PyMem_Free(self.columns[at].held)
        PyMem_Free(self.columns)
        PyMem_Free(self.buckets)
        PyMem_Free(self.known)
        PyMem_Free(self.ids)

    cdef void new_column(self, uint64_t tail, uint32_t kind) noexcept:
        cdef Numbers* column = &self.columns[self.column_count]
        column.held = NULL
        column.count = column.room = 0
        column.tail, column.kind = tail, kind
        self.column_count += 1

    cdef uint32_t column_behind(
        self, Text at, Py_ssize_t size, uint32_t kind, uint32_t behind
    ) noexcept:
        """The column of the number behind a text, which is itself behind a number or none."""
        cdef uint64_t tail = behind
        cdef Py_ssize_t kept = size if size < _TAIL else _TAIL, place
        for place in range(size - kept, size):
            tail = tail << 8 | at[place]
        tail |= <uint64_t>(kept + 1) << 56
        for place in range(_OTHERS, self.column_count):
            if self.columns[place].tail == tail and self.columns[place].kind == kind:
                return <uint32_t>place
        if self.column_count == _MOST_COLUMNS:
            return kind
        self.new_column(tail, kind)
        return <uint32_t>(self.column_count - 1)

    cdef int add_number(self, uint32_t place, uint64_t number) except -1:
        cdef Numbers* column = &self.columns[place]
        if column.count == column.room:
            column.held = <uint64_t*>_grown(column.held, &column.room, 64, sizeof(uint64_t))
        column.held[column.count] = number
        column.count += 1
        return 0

    cdef int add_id(self, uint32_t number) except -1:
        if self.id_count == self.id_room:
            self.ids = <uint32_t*>_grown(self.ids, &self.id_room, 1_024, sizeof(uint32_t))
        self.ids[self.id_count] = number
        self.id_count += 1
        return 0

    cdef uint32_t text(
        self, Text at, Py_ssize_t size, uint32_t kind, uint32_t before
    ) except? 0:
        """Add a text that comes after another; return its number from 1 on, 0 if there are too
        many."""
        # Numbers with nothing between them are told apart by the ones before.
        cdef uint32_t behind = 0 if size or not before else self.known[before - 1].end
        cdef uint32_t* bucket = &self.buckets[_hashed(at, size, kind ^ behind << 8) % _BUCKETS]
        cdef uint32_t found = bucket[0]
        cdef Known* other
        while found:
            other = &self.known[found - 1]
            if (
                other.kind == kind
                and other.behind == behind
                and other.size == size
                and not memcmp(other.at, at, <size_t>size)
            ):
                self.add_id(found)
                return found
            found = other.chained
        if self.texts == _MOST_TEXTS:
            return 0
        if self.texts == self.texts_room:
            self.known = <Known*>_grown(self.known, &self.texts_room, 256, sizeof(Known))
        other = &self.known[self.texts]
        other.at, other.size, other.kind, other.behind = at, size, kind, behind
        other.after = 0
        other.chained = bucket[0]
        other.end = kind
        if kind >= COLUMN:
            other.end = COLUMN + self.column_behind(at, size, kind - COLUMN, behind)
        self.texts += 1
        bucket[0] = <uint32_t>self.texts
        # In the order of their first use new texts need no number.
        self.add_id(0)
        return <uint32_t>self.texts

    cdef uint32_t part(self, bytes whole, uint32_t before) except? 0:
        """Take a key or a value apart; return its last text, 0 if there are too many texts."""
        cdef Text at = <Text>PyBytes_AS_STRING(whole)
        cdef Text end = at + PyBytes_GET_SIZE(whole)
        cdef Text begin
        cdef uint32_t kind, text
        while True:
            # What came after this text the last time comes again, nearly always.
            text = self.known[before - 1].after if before else 0
            if text and _fits(&self.known[text - 1], at, end, self.columns):
                self.add_id(text)
                at += self.known[text - 1].size
            else:
                begin = at
                kind = _next(&at, end)
                text = self.text(begin, at - begin, kind, before)
                if not text:
                    return 0
                if before:
                    self.known[before - 1].after = text
            if self.known[text - 1].end == END:
                return text
            at = self.number(at, end, self.known[text - 1].end)
            before = text

    cdef Text number(self, Text at, Text end, uint32_t column) except NULL:
        """Take a number into its column; return what is behind it."""
        cdef uint64_t number = 0
        cdef int digits = 0
        column -= COLUMN
        if self.columns[column].kind == BYTE:
            self.add_number(column, at[0])
            return at + 1
        if self.columns[column].kind == EIGHT:
            for digits in range(8):
                number = number << 8 | at[digits]
            self.add_number(column, number)
            return at + 8
        while at < end and c'0' <= at[0] <= c'9' and digits < _MOST_DIGITS:
            number = number * 10 + at[0] - c'0'
            at += 1
            digits += 1
            if not number:
                break
        self.add_number(column, number)
        return at


cdef inline uint64_t _hashed(Text at, Py_ssize_t size, uint32_t kind) noexcept:
    cdef uint64_t found = <uint64_t>size * 0x9E3779B97F4A7C15ULL + kind, eight
    while size >= 8:
        memcpy(&eight, at, 8)
        found = (found ^ eight) * 0x9E3779B97F4A7C15ULL
        found ^= found >> 29
        at += 8
        size -= 8
    while size > 0:
        found = (found ^ at[0]) * 0x9E3779B97F4A7C15ULL
        at += 1
        size -= 1
    return found ^ found >> 32


cdef inline bint _begins_number(Text at, Text end) noexcept:
    """Whether a number without a zero in front is here."""
    if at == end or not c'0' <= at[0] <= c'9':
        return False
    return at[0] != c'0' or at + 1 == end or not c'0' <= at[1] <= c'9'


cdef inline bint _begins_eight(Text at, Text end) noexcept:
    """Whether this is like a number of eight bytes: a time in milliseconds, or a small one.

    A length of four bytes begins with three zeros at most.
    """
    return end - at >= 8 and at[0] == at[1] == 0 and (at[2] != 0 or at[3] == 0)


cdef inline uint32_t _next(Text* place, Text end) noexcept:
    """Go to the end of a text; return what is behind it."""
    cdef Text at = place[0]
    while at < end:
        if at[0] == _BYTE_TAG and at + 1 < end:
            place[0] = at + 1
            return COLUMN + BYTE
        if at[0] == 0:
            if _begins_eight(at, end):
                place[0] = at
                return COLUMN + EIGHT
            # The end of some zeros would be taken for the beginning of a number.
            while at < end and at[0] == 0:
                at += 1
            continue
        if _begins_number(at, end):
            place[0] = at
            return COLUMN + DIGITS
        at += 1
    place[0] = at
    return END


cdef inline bint _fits(
    const Known* text, Text at, Text end, const Numbers* columns
) noexcept:
    """Whether a text, and what follows it, is here."""
    if end - at < text.size or memcmp(at, text.at, <size_t>text.size):
        return False
    at += text.size
    if text.end == END:
        return at == end
    if text.end == NOTHING:
        return False
    if columns[text.end - COLUMN].kind == BYTE:
        return at < end
    if columns[text.end - COLUMN].kind == EIGHT:
        return _begins_eight(at, end)
    return _begins_number(at, end)


def taken_apart(list changes not None):
    """Take changes apart: see `arrangements.run.Streams`, whose fields these are.

    None if they have too many different texts.
    """
    cdef _Parts parts = _Parts()
    cdef tuple change
    cdef object value
    # Other threads may change the list: what is pointed into stays alive by its copy.
    cdef list kept = list(changes)
    cdef uint32_t last = 0
    for each in kept:
        change = <tuple?>each
        if len(change) != 2:
            raise ValueError("a change is a key and a value")
        last = parts.part(<bytes?>change[0], last)
        if not last:
            return None
        value = change[1]
        if value is None:
            last = parts.text(<Text>"", 0, NOTHING, 0)
        else:
            last = parts.part(<bytes?>value, last)
        if not last:
            return None
    return _streams(parts, len(kept))


cdef tuple _streams(_Parts parts, Py_ssize_t entries):
    cdef Py_ssize_t at, size = 0
    cdef list lengths = [], columns = []
    cdef bytes texts, ends = PyBytes_FromStringAndSize(NULL, parts.texts), ids
    cdef unsigned char* put
    cdef int width = 1 if parts.texts < 256 else 2
    for at in range(parts.texts):
        lengths.append(parts.known[at].size)
        size += parts.known[at].size
        PyBytes_AS_STRING(ends)[at] = <char>parts.known[at].end
    texts = PyBytes_FromStringAndSize(NULL, size)
    put = <unsigned char*>PyBytes_AS_STRING(texts)
    for at in range(parts.texts):
        memcpy(put, parts.known[at].at, <size_t>parts.known[at].size)
        put += parts.known[at].size
    ids = PyBytes_FromStringAndSize(NULL, parts.id_count * width)
    put = <unsigned char*>PyBytes_AS_STRING(ids)
    for at in range(parts.id_count):
        put[at] = <unsigned char>parts.ids[at]
    if width == 2:
        put += parts.id_count
        for at in range(parts.id_count):
            put[at] = <unsigned char>(parts.ids[at] >> 8)
    for at in range(parts.column_count):
        columns.append(column_of(&parts.columns[at]))
    return entries, texts, lengths, ends, width, ids, columns
