# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Rows in JSON, of which some columns are read, as canonical bytes; and those in Debezium's events.

What the texts have to be is what `_json_text` says, and None is given for all others.  Who calls
this has to read them, as `codecs.canonical` and `codecs.debezium` do.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ikebana.compiled._characters cimport Text
from ikebana.compiled._json_text cimport Canonical
from ikebana.compiled._order cimport NOTHING_KNOWN, Member, Order, free_order, is_of, set_order

# What an image is; `members` of the rewriter from `base` on are those of a row.
cdef enum State:
    MISSING
    NULLED
    ROW

# Why a member is kept: it is a column that is read, or a mark.
cdef enum:
    COLUMN = 1
    MARK = 2

# What a message is read as.
cdef enum Reading:
    AS_ROW
    AS_EVENT
    AS_MARKED_ROW

cdef struct Image:
    State state
    Py_ssize_t base
    Py_ssize_t count


cdef class Rows(Canonical):
    """Reads rows of some columns, None for all, with the columns of a key.

    It remembers the columns of the row before, so use one for the rows of one table.  `reads` says
    by name which columns are read, instead of `columns`; `marks` are names that are read apart.

    >>> Rows(("a", "b"), ()).row(b'{"c": 1, "b": 2.0}')
    b'{"b":2}'
    """

    cdef frozenset columns
    cdef object reads
    cdef frozenset marks
    cdef tuple key
    cdef bint before
    cdef bint busy
    cdef bint reads_old
    cdef Order order
    # By the rank of a member: why it is kept, in bits.
    cdef char* kept
    cdef Py_ssize_t kept_room
    # By the column of the key: the place of its member, or -1.
    cdef Py_ssize_t* key_places
    # Rows that lack one of these columns are left to Python.
    cdef tuple whole

    def __cinit__(self, *_, **__):
        self.order.count = NOTHING_KNOWN

    def __init__(self, columns, key, *, bint before=False, reads=None, marks=()):
        self.columns = None if columns is None else frozenset(name.encode() for name in columns)
        self.reads = reads
        self.marks = frozenset(name.encode() for name in marks)
        self.key = tuple(sorted({name.encode() for name in key}))
        self.before = before
        self.whole = ()
        self.reads_old = before or bool(key)
        self.order.count = NOTHING_KNOWN
        free(self.key_places)
        self.key_places = <Py_ssize_t*>malloc((len(self.key) + 1) * sizeof(Py_ssize_t))
        if self.key_places == NULL:
            raise MemoryError

    def __dealloc__(self):
        free_order(&self.order)
        free(self.kept)
        free(self.key_places)

    def __reduce__(self):
        names = None if self.columns is None else tuple(name.decode() for name in self.columns)
        key = tuple(name.decode() for name in self.key)
        whole = tuple(name.decode() for name in self.whole)
        marks = tuple(name.decode() for name in self.marks)
        return _made, (names, key, self.before, whole, self.reads, marks)

    def require(self, names):
        """Leave rows that lack one of these columns to Python."""
        self.whole = tuple(name.encode() for name in names)
        self.order.count = NOTHING_KNOWN

    def row(self, bytes message not None):
        """The canonical bytes of an object's columns; None if it is left to Python."""
        return self.alone(message, AS_ROW)

    def marked_row(self, bytes message not None):
        """The key of an object, the canonical bytes of its columns, and of its marks; else None.

        The key is None if it has no columns here.
        """
        return self.alone(message, AS_MARKED_ROW)

    def event(self, bytes value not None):
        """The operation of an event of Debezium, its key, new image and old image; else None.

        It takes creates, updates and rows of snapshots without a schema, whose old image has the
        columns of the new one and the same key.  The key is None if it has no columns here, the
        old image if it is not read, or null.
        """
        return self.alone(value, AS_EVENT)

    cdef object alone(self, bytes message, Reading reading):
        """Read a message, unless a finalizer or a thread calls while another one is read."""
        if self.busy:
            return None
        self.busy = True
        try:
            if reading == AS_EVENT:
                return self.read_event(message)
            return self.read_row(message, reading == AS_MARKED_ROW)
        finally:
            self.busy = False

    cdef object read_row(self, bytes message, bint marked):
        cdef Image image
        cdef bytes key = None
        self.begin(message)
        if not self.image(&image, 0) or not self.at_end() or image.state != ROW:
            return None
        if not self.pick(&image):
            return None
        if not marked:
            return self.written(&image, COLUMN)
        if self.key and (key := self.key_of(&image)) is None:
            return None
        return key, self.written(&image, COLUMN), self.written(&image, MARK)

    cdef object read_event(self, bytes value):
        cdef Image old, new
        cdef unsigned char op = 0
        old.state = new.state = MISSING
        self.begin(value)
        if not self.envelope(&op, &old, &new) or not self.at_end():
            return None
        if op == 0 or new.state != ROW or not self.pick(&new):
            return None
        cdef bytes key = None
        cdef bytes before = None
        if self.key and (key := self.key_of(&new)) is None:
            return None
        if op == c'u' and old.state == ROW:
            if not is_of(&self.order, &self.members[old.base], old.count):
                return None
            if self.key and self.key_of(&old) != key:
                return None
            if self.before:
                before = self.written(&old, COLUMN)
        return op == c'u', key, self.written(&new, COLUMN), before

    cdef bint envelope(self, unsigned char* op, Image* old, Image* new) except -1:
        """Read the fields of an event, without those that nobody asks for."""
        cdef Text name
        cdef Py_ssize_t size
        cdef unsigned char* begin = self.put
        self.pass_space()
        if self.read[0] != c'{':
            return False
        while True:
            # At the first field this is the bracket, at the others a comma.
            self.step(self.read[0])
            self.pass_space()
            if self.read[0] != c'"':
                return False
            name = self.put + 1
            if self.string() != 0:
                return False
            size = self.put - name - 1
            self.pass_space()
            if self.read[0] != c':':
                return False
            self.step(c':')
            if size == 2 and name[0] == c'o' and name[1] == c'p':
                if op[0] or not self.operation(op):
                    return False
            elif size == 5 and _is(name, b"after", 5):
                if new.state != MISSING or not self.image(new, 1):
                    return False
            elif size == 6 and _is(name, b"before", 6) and self.reads_old:
                if old.state != MISSING or not self.image(old, 1):
                    return False
            else:
                self.checks = True
                if not self.value(1):
                    return False
                self.checks = False
            self.pass_space()
            if self.read[0] == c'}':
                self.step(c'}')
                return True
            if self.read[0] != c',':
                return False

    cdef bint operation(self, unsigned char* op) noexcept:
        self.pass_space()
        cdef Text at = self.read
        if at[0] != c'"' or not (at[1] == c'c' or at[1] == c'u' or at[1] == c'r'):
            return False
        if at[2] != c'"':
            return False
        op[0] = at[1]
        self.read += 3
        return True

    cdef bint image(self, Image* image, Py_ssize_t depth) except -1:
        """Read an object, whose members stay where they are, or null."""
        self.pass_space()
        if self.read[0] == c'{':
            image.state = ROW
            image.base = self.count
            if not self.object_members(depth):
                return False
            image.count = self.count - image.base
            return True
        image.state = NULLED
        return self.read[0] == c'n' and self.word(b"null", 4)

    cdef bint pick(self, const Image* image) except -1:
        """Know of an image's members which are read.

        False if two have one name, or one is missing from a whole row.
        """
        cdef const Member* members = &self.members[image.base]
        cdef Py_ssize_t count = image.count
        cdef Py_ssize_t at, place
        if is_of(&self.order, members, count):
            return True
        if not set_order(&self.order, members, count):
            return False
        # Until all is known, nothing is: what follows may raise.
        self.order.count = NOTHING_KNOWN
        if count > self.kept_room:
            free(self.kept)
            self.kept_room = 0
            self.kept = <char*>malloc(<size_t>count)
            if self.kept == NULL:
                raise MemoryError
            self.kept_room = count
        cdef list names = [members[at].name[:members[at].size] for at in range(count)]
        if not frozenset(names).issuperset(self.whole):
            return False
        for at in range(count):
            place = self.order.ranks[at]
            self.kept[at] = COLUMN if self.is_read(names[place]) else 0
            if names[place] in self.marks:
                self.kept[at] |= MARK
        for at in range(len(self.key)):
            self.key_places[at] = names.index(self.key[at]) if self.key[at] in names else -1
        self.order.count = count
        return True

    cdef bint is_read(self, bytes name) except -1:
        if self.reads is not None:
            return self.reads(name.decode())
        return self.columns is None or name in self.columns

    cdef bytes written(self, const Image* image, char why):
        """The canonical bytes of an image that `pick` knows: of the members kept for a reason."""
        cdef const Member* members = &self.members[image.base]
        cdef const Member* member
        cdef Py_ssize_t at
        cdef unsigned char* put = self.spare
        put[0] = c'{'
        put += 1
        for at in range(image.count):
            if self.kept[at] & why:
                member = &members[self.order.ranks[at]]
                memcpy(put, member.begin, <size_t>member.length)
                put += member.length
                put[0] = c','
                put += 1
        return _ended(self.spare, put)

    cdef bytes key_of(self, const Image* image):
        """The canonical bytes of a key; None if a column of it is missing."""
        cdef const Member* member
        cdef Py_ssize_t at
        cdef unsigned char* put = self.spare
        put[0] = c'{'
        put += 1
        for at in range(len(self.key)):
            if self.key_places[at] < 0:
                return None
            member = &self.members[image.base + self.key_places[at]]
            memcpy(put, member.begin, <size_t>member.length)
            put += member.length
            put[0] = c','
            put += 1
        return _ended(self.spare, put)


def _made(columns, key, before, whole, reads, marks):
    rows = Rows(columns, key, before=before, reads=reads, marks=marks)
    rows.require(whole)
    return rows


cdef bytes _ended(unsigned char* begin, unsigned char* put):
    """An object whose last member is followed by a comma, if it has one."""
    if (put - 1)[0] == c',':
        put -= 1
    put[0] = c'}'
    return PyBytes_FromStringAndSize(<char*>begin, put + 1 - begin)


cdef bint _is(Text name, const char* word, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    for at in range(size):
        if name[at] != <unsigned char>word[at]:
            return False
    return True
