# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Canonical bytes of JSON texts, without Python data in between: see `codecs.canonical`.

It takes texts whose numbers are short decimals, whose objects name no field twice and escape
none of the names, and that are nested less than `DEEPEST`; of any other text, damaged ones too,
it says None, and `codecs.canonical` has to read it.

Every loop over a text ends at the NUL that CPython keeps behind the bytes of an object: NUL
stands nowhere in JSON, and nothing passes over a byte that it has not looked at.  What is
written is never longer than what was read, so a buffer of the text's size has room for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from ikebana.compiled._characters cimport Text, any_special, escaped, wide
from ikebana.compiled._order cimport Member, Order, compare, free_order, is_of, set_order

cdef enum:
    DEEPEST = 64
    _REMEMBERED = 8  # depths of objects whose order of fields is remembered
    # What a longer text has needed is given back.
    _MOST_KEPT = 1 << 22
    _MOST_MEMBERS = 1 << 12
    # Digits that fit into 64 bits, and those that a double carries with sign and point.
    _WHOLE_DIGITS = 18
    _FRACTION_SIZE = 15
    # With an exponent of two digits a number of so many is no greater than 1e308.
    _MOST_DIGITS = 200

# What a byte within a text is.
cdef enum Kind:
    PLAIN
    QUOTE
    ESCAPE
    FORBIDDEN
    WIDE

cdef unsigned char KINDS[256]
cdef unsigned char DIGIT[256]
cdef unsigned char SPACE[256]


cdef void _set_tables() noexcept:
    cdef int byte
    for byte in range(256):
        KINDS[byte] = FORBIDDEN if byte < 32 else WIDE if byte > 127 else PLAIN
        DIGIT[byte] = 48 <= byte <= 57
        SPACE[byte] = byte == 32 or byte == 9 or byte == 10 or byte == 13
    KINDS[34] = QUOTE
    KINDS[92] = ESCAPE


_set_tables()


cdef class Canonical:
    """Rewrites JSON texts; it remembers the order of fields, so use one for texts of one kind.

    >>> Canonical().text(b'{"b": 1.50, "a": [true, null]}')
    b'{"a":[true,null],"b":1.5}'
    >>> Canonical().text(b'{"a": 1e3}') is None
    True
    """

    def __cinit__(self):
        self.room = 0
        self.members_room = 64
        self.members = <Member*>malloc(self.members_room * sizeof(Member))
        if self.members == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.out)
        free(self.spare)
        free(self.members)
        cdef Py_ssize_t at
        for at in range(_REMEMBERED):
            free_order(&self.orders[at])

    def __reduce__(self):
        # What it remembers only saves time.
        return Canonical, ()

    cpdef bytes text(self, bytes message):
        """The canonical bytes of a JSON text; None if `codecs.canonical` has to read it."""
        self.begin(message)
        cdef bint fits = self.value(0)
        cdef Py_ssize_t size = self.put - self.out
        if not fits or not self.at_end():
            return None
        return self.made(message, size)

    def texts(self, messages, otherwise) -> list:
        """The canonical bytes of JSON texts; None stays None.

        What this cannot rewrite `otherwise` is called with; what it raises is raised.
        """
        cdef list made = []
        cdef bytes found
        for message in messages:
            if message is None:
                made.append(None)
                continue
            found = self.text(message)
            made.append(otherwise(message) if found is None else found)
        return made

    cdef bytes made(self, bytes message, Py_ssize_t size):
        """What was written, of a message that is often canonical as it stands."""
        if size == PyBytes_GET_SIZE(message) and not memcmp(
            self.out, PyBytes_AS_STRING(message), <size_t>size
        ):
            return message
        return PyBytes_FromStringAndSize(<char*>self.out, size)

    cdef int begin(self, bytes message) except -1:
        if message is None:
            raise TypeError("a text is bytes")
        cdef Py_ssize_t size = PyBytes_GET_SIZE(message)
        if self.members_room > _MOST_MEMBERS or self.room > _MOST_KEPT:
            self.give_back()
        if size > self.room:
            free(self.out)
            free(self.spare)
            self.room = size + 256
            self.out = <unsigned char*>malloc(<size_t>self.room)
            self.spare = <unsigned char*>malloc(<size_t>self.room)
            if self.out == NULL or self.spare == NULL:
                self.room = 0
                raise MemoryError
        self.read = <Text>PyBytes_AS_STRING(message)
        self.end = self.read + size
        self.put = self.out
        self.count = 0
        self.checks = False
        return 0

    cdef int give_back(self) except -1:
        """Give back what a large text has needed."""
        cdef Py_ssize_t at
        free(self.out)
        free(self.spare)
        free(self.members)
        self.out = self.spare = NULL
        self.room = 0
        for at in range(_REMEMBERED):
            free_order(&self.orders[at])
        self.members_room = 64
        self.members = <Member*>malloc(self.members_room * sizeof(Member))
        if self.members == NULL:
            self.members_room = 0
            raise MemoryError
        return 0

    cdef bint at_end(self) noexcept:
        self.pass_space()
        return self.read == self.end

    cdef inline void pass_space(self) noexcept:
        while SPACE[self.read[0]]:
            self.read += 1

    # Each of these reads a value and writes it canonically; False if it cannot.

    cdef bint value(self, Py_ssize_t depth) except -1:
        self.pass_space()
        cdef unsigned char first = self.read[0]
        if first == c'"':
            return self.string() >= 0
        if first == c'{':
            return depth < DEEPEST and self.object(depth)
        if first == c'[':
            return depth < DEEPEST and self.array(depth)
        if first == c't' or first == c'f':
            return self.word(b"true", 4) or self.word(b"false", 5)
        return self.word(b"null", 4) if first == c'n' else self.number()

    cdef bint word(self, const char* word, Py_ssize_t size) noexcept:
        cdef Py_ssize_t at
        # A text that ends early has a NUL there, which differs.
        for at in range(size):
            if self.read[at] != <unsigned char>word[at]:
                return False
        memcpy(self.put, word, <size_t>size)
        self.read += size
        self.put += size
        return True

    cdef bint number(self) noexcept:
        """Write a number in its canonical form; one that is only checked may have another."""
        cdef Text begin = self.read
        cdef Text at = begin
        cdef Text point
        cdef Text end
        cdef bint negative = at[0] == c'-'
        if negative:
            at += 1
        if at[0] == c'0':
            at += 1
        else:
            if not DIGIT[at[0]]:
                return False
            while DIGIT[at[0]]:
                at += 1
        point = at
        end = at
        if at[0] == c'.':
            at += 1
            if not DIGIT[at[0]]:
                return False
            while DIGIT[at[0]]:
                at += 1
            end = at
            while (end - 1)[0] == c'0':
                end -= 1
            if (end - 1)[0] == c'.':
                end = point
        if self.checks:
            return self.number_as_is(begin, at)
        if at[0] == c'e' or at[0] == c'E' or point - begin > _WHOLE_DIGITS:
            return False
        if end == point:
            # There is no negative zero.
            if negative and point - begin == 2 and begin[1] == c'0':
                begin += 1
        elif (
            (point - 1)[0] == c'0' and point - begin == 1 + negative
            and point[1] == c'0' and point[2] == c'0' and point[3] == c'0'
        ):
            # Of so small a number the shortest form may have an exponent.
            return False
        elif at - begin > _FRACTION_SIZE:
            return False
        memcpy(self.put, begin, <size_t>(end - begin))
        self.put += end - begin
        self.read = at
        return True

    cdef bint number_as_is(self, Text begin, Text at) noexcept:
        """Write a number whose exponent, if it has one, begins at `at`, as it stands.

        False if it may be out of range.
        """
        cdef Text exponent
        if at - begin > _MOST_DIGITS:
            return False
        if at[0] == c'e' or at[0] == c'E':
            at += 1
            if at[0] == c'+' or at[0] == c'-':
                at += 1
            exponent = at
            while DIGIT[at[0]]:
                at += 1
            if not 0 < at - exponent <= 2:
                return False
        memcpy(self.put, begin, <size_t>(at - begin))
        self.put += at - begin
        self.read = at
        return True

    cdef Py_ssize_t string(self) noexcept:
        """Copy a string; return 0, or 1 if something in it is escaped; -1 if it cannot."""
        cdef Text at = self.read + 1
        cdef unsigned char* put = self.put + 1
        cdef Py_ssize_t special = 0
        cdef unsigned char kind
        cdef uint64_t eight
        self.put[0] = c'"'
        while True:
            # Eight characters at once, while none of them is of another kind than PLAIN.
            while self.end - at >= 8:
                memcpy(&eight, at, 8)
                if any_special(eight):
                    break
                memcpy(put, &eight, 8)
                put += 8
                at += 8
            kind = KINDS[at[0]]
            while kind == PLAIN:
                put[0] = at[0]
                put += 1
                at += 1
                kind = KINDS[at[0]]
            if kind == QUOTE:
                put[0] = c'"'
                self.put = put + 1
                self.read = at + 1
                return special
            if kind == WIDE:
                if not wide(&at, &put):
                    return -1
            elif kind == ESCAPE:
                special = 1
                if not escaped(&at, &put):
                    return -1
            else:
                return -1

    cdef bint array(self, Py_ssize_t depth) except -1:
        self.step(c'[')
        self.pass_space()
        if self.read[0] == c']':
            self.step(c']')
            return True
        while True:
            if not self.value(depth + 1):
                return False
            self.pass_space()
            if self.read[0] == c']':
                self.step(c']')
                return True
            if self.read[0] != c',':
                return False
            self.step(c',')

    cdef bint object(self, Py_ssize_t depth) except -1:
        cdef Py_ssize_t base = self.count
        cdef bint fits = self.object_members(depth) and (self.checks or self.sort(base, depth))
        self.count = base
        return fits

    cdef bint object_members(self, Py_ssize_t depth) except -1:
        """Write an object in the order of the text, and note its members behind `count`."""
        cdef Member* member
        cdef Py_ssize_t at
        self.step(c'{')
        self.pass_space()
        if self.read[0] == c'}':
            self.step(c'}')
            return True
        while True:
            if self.read[0] != c'"':
                return False
            at = self.opened()
            member = &self.members[at]
            member.begin = self.put
            if self.string() != 0:
                return False
            member.name = member.begin + 1
            member.size = self.put - member.name - 1
            self.pass_space()
            if self.read[0] != c':':
                return False
            self.step(c':')
            if not self.value(depth + 1):
                return False
            # The members may lie elsewhere by now.
            member = &self.members[at]
            member.length = self.put - member.begin
            self.pass_space()
            if self.read[0] == c'}':
                self.step(c'}')
                return True
            if self.read[0] != c',':
                return False
            self.step(c',')
            self.pass_space()

    cdef Py_ssize_t opened(self) except -1:
        cdef Member* more
        if self.count == self.members_room:
            more = <Member*>realloc(self.members, 2 * (self.members_room + 1) * sizeof(Member))
            if more == NULL:
                raise MemoryError
            self.members = more
            self.members_room = 2 * (self.members_room + 1)
        self.count += 1
        return self.count - 1

    cdef inline void step(self, unsigned char mark) noexcept:
        self.put[0] = mark
        self.put += 1
        self.read += 1

    cdef bint sort(self, Py_ssize_t base, Py_ssize_t depth) except -1:
        """Put the members that were written last into the order of their names."""
        cdef Py_ssize_t count = self.count - base
        cdef Member* members = &self.members[base]
        cdef Py_ssize_t at
        cdef int compared = 0
        for at in range(1, count):
            compared = compare(
                members[at - 1].name, members[at - 1].size, members[at].name, members[at].size
            )
            if compared >= 0:
                break
        if compared == 0 and count > 1:
            return False
        if compared < 0 or count < 2:
            return True
        cdef Order* order = &self.orders[depth % _REMEMBERED]
        if not is_of(order, members, count) and not set_order(order, members, count):
            return False
        cdef unsigned char* put = self.spare
        cdef unsigned char* begin = <unsigned char*>members[0].begin
        cdef Member* member
        for at in range(count):
            member = &members[order.ranks[at]]
            memcpy(put, member.begin, <size_t>member.length)
            put += member.length
            put[0] = c','
            put += 1
        memcpy(begin, self.spare, <size_t>(put - self.spare - 1))
        return True
