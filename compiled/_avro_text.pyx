# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Canonical bytes of Avro messages, without Python data in between: see `codecs.avro_compiler`.

A program has the steps of one schema, each a type at its place, the outermost record first.  It
goes over a message once, writes each value that is wanted as `codecs.canonical` would, and passes
over the others, which are checked nonetheless.  Whatever is not as usual in a message, damage
too, it leaves to `codecs.avro`: then it says None.  A value that it has no form for, such as a
number with an exponent, is converted by the function of its step.

Every value is read only if it ends before the message does; a number of several bytes ends at
the latest at the NUL that CPython keeps behind the bytes of an object.  A byte of a message makes
at most `_WIDEST` of the text, and each step adds at most a number that is counted when the program
is made.  So there is room for the rest of a message, unless it has values that a function
converts, or items of an array: before each of these, room is made again.  Steps refer only to
later ones, so nothing runs in circles.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
)
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLongLong
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from ikebana.compiled._avro_reading cimport (
    Cursor, branch_of, pass_value, raw_value, read_binary, read_long, read_real, read_sized
)
from ikebana.compiled._avro_steps cimport (
    Form, Kind, Span, Step, Take, set_step, set_take, sum_up
)
from ikebana.compiled._avro_strings cimport put_base64, put_text
from ikebana.compiled._characters cimport Text
from ikebana.compiled._decimals cimport (
    DIGITS, SINGLE_DIGITS, put_long, put_real, put_repr, put_unscaled
)
from ikebana.compiled._times cimport put_day, put_moment, put_time, put_zoned

cdef enum:
    # The longest form of a byte, that of a control character.
    _WIDEST = 6
    # A buffer that a longer message has needed is given back.
    _MOST_KEPT = 1 << 22


cdef class Program:
    """Goes over messages of one schema; see `codecs.avro_compiler`, which makes it."""

    cdef Cursor cursor
    cdef unsigned char* put
    """Where the next byte is written."""
    cdef unsigned char* out
    cdef unsigned char* spare
    cdef Py_ssize_t room
    cdef Step* steps
    cdef Span* spans
    cdef Py_ssize_t steps_count
    cdef Take* takes
    cdef Py_ssize_t takes_count
    cdef bint busy
    cdef list kept
    cdef object write
    cdef object irregular

    def __cinit__(self):
        # Until it is made.
        self.busy = True

    def __init__(self, list steps not None, list takes not None, write, tuple irregular not None):
        if self.steps != NULL or self.takes != NULL:
            raise ValueError("a program is made once")
        self.write, self.irregular = write, irregular
        # The steps point to what is in these; nobody else has them.
        self.kept = [tuple(steps), tuple(takes)]
        self.steps = <Step*>calloc(<size_t>len(steps) + 1, sizeof(Step))
        self.spans = <Span*>calloc(<size_t>len(steps) + 1, sizeof(Span))
        self.takes = <Take*>calloc(<size_t>len(takes) + 1, sizeof(Take))
        if self.steps == NULL or self.spans == NULL or self.takes == NULL:
            raise MemoryError
        if not steps:
            raise ValueError("a program has at least one step")
        self.steps_count, self.takes_count = len(steps), len(takes)
        cdef Py_ssize_t at
        for at in range(self.steps_count):
            set_step(self.steps, self.steps_count, at, steps[at])
        sum_up(self.steps, self.steps_count)
        for at in range(self.takes_count):
            set_take(&self.takes[at], self.steps, self.steps_count, takes[at])
        self.busy = False

    def __dealloc__(self):
        cdef Py_ssize_t at
        if self.steps != NULL:
            for at in range(self.steps_count):
                free(self.steps[at].order)
        if self.takes != NULL:
            for at in range(self.takes_count):
                free(self.takes[at].members)
        free(self.steps)
        free(self.spans)
        free(self.takes)
        free(self.out)
        free(self.spare)

    def __reduce__(self):
        steps, takes = self.kept
        return Program, ([*steps], [*takes], self.write, self.irregular)

    def parts(self, bytes message not None, Py_ssize_t start):
        """The texts of what is to be taken of a message, each None if it is null.

        It is None if the message is left to `codecs.avro`.
        """
        if self.busy or not 0 <= start <= PyBytes_GET_SIZE(message):
            # A function that is called here may let another thread run.
            return None
        self.busy = True
        try:
            self._begin(message, start)
            if self._member(0) != 1 or self.cursor.read != self.cursor.end:
                return None
            return self._taken()
        except self.irregular:
            return None
        finally:
            self.busy = False

    cdef int _begin(self, bytes message, Py_ssize_t start) except -1:
        cdef Py_ssize_t at, needed
        needed = (PyBytes_GET_SIZE(message) - start) * _WIDEST + self.steps[0].fixed
        if needed > self.room or self.room > _MOST_KEPT:
            free(self.out)
            free(self.spare)
            self.room = 0
            self.out = <unsigned char*>malloc(<size_t>needed)
            self.spare = <unsigned char*>malloc(<size_t>needed)
            if self.out == NULL or self.spare == NULL:
                raise MemoryError
            self.room = needed
        self.cursor.read = <Text>PyBytes_AS_STRING(message) + start
        self.cursor.end = <Text>PyBytes_AS_STRING(message) + PyBytes_GET_SIZE(message)
        self.put = self.out
        for at in range(self.takes_count):
            if self.takes[at].step >= 0:
                self.spans[self.takes[at].step].null = True
        return 0

    cdef tuple _taken(self):
        cdef tuple made = PyTuple_New(self.takes_count)
        cdef Py_ssize_t at
        cdef object part
        for at in range(self.takes_count):
            part = self._of_take(&self.takes[at])
            Py_INCREF(part)
            PyTuple_SET_ITEM(made, at, part)
        return made

    cdef object _of_take(self, Take* take):
        cdef Span* span
        cdef Py_ssize_t name_size, at, size = 1
        cdef bytes made
        cdef unsigned char* put
        if take.step < 0:
            return None
        span = &self.spans[take.step]
        if span.null:
            return None
        if take.count < 0:
            name_size = self.steps[take.step].name_size
            return PyBytes_FromStringAndSize(
                <char*>self.out + span.begin + name_size, span.size - name_size - 1
            )
        if take.count == 0:
            return b"{}"
        for at in range(take.count):
            size += self.spans[take.members[at]].size
        made = PyBytes_FromStringAndSize(NULL, size)
        put = <unsigned char*>PyBytes_AS_STRING(made)
        self._assemble(put, take.members, take.count)
        return made

    cdef void _assemble(
        self, unsigned char* put, const Py_ssize_t* members, Py_ssize_t count
    ) noexcept:
        """Write an object of members, at least one, each of which ends with a comma."""
        cdef Py_ssize_t at
        cdef Span* span
        put[0] = c'{'
        put += 1
        for at in range(count):
            span = &self.spans[members[at]]
            memcpy(put, self.out + span.begin, <size_t>span.size)
            put += span.size
        (put - 1)[0] = c'}'

    # Each of these reads a value and writes it; 0 if it is not as usual.

    cdef int _member(self, Py_ssize_t at) except -1:
        """Write a field with its name, and note where."""
        cdef Step* step = &self.steps[at]
        cdef Span* span = &self.spans[at]
        cdef Py_ssize_t begin = self.put - self.out
        cdef int branch
        memcpy(self.put, step.name, <size_t>step.name_size)
        self.put += step.name_size
        span.begin = begin
        branch = branch_of(&self.cursor, step)
        if branch < 0:
            return 0
        if branch == 0:
            self._word(b"null,", 5)
            span.size = step.name_size + 5
            span.null = True
            return 1
        if self._value(step) != 1:
            return 0
        self._put(c',')
        span.size = self.put - self.out - begin
        span.null = step.kind == Kind.NOTHING
        return 1

    cdef inline void _put(self, unsigned char mark) noexcept:
        self.put[0] = mark
        self.put += 1

    cdef inline void _word(self, const char* word, Py_ssize_t size) noexcept:
        memcpy(self.put, word, <size_t>size)
        self.put += size

    cdef int _value(self, Step* step) except -1:
        cdef Text at
        cdef Py_ssize_t size
        cdef int64_t number
        cdef double real
        if step.form == Form.ANY:
            return self._converted(step, raw_value(&self.cursor, self.steps, step))
        if step.kind == Kind.STRING:
            if not read_sized(&self.cursor, &at, &size):
                return 0
            if step.form == Form.OWN:
                return put_text(at, at + size, &self.put)
            if put_zoned(at, size, step.utc, &self.put):
                return 1
            return self._converted(step, PyUnicode_DecodeUTF8(<char*>at, size, NULL))
        if step.kind == Kind.LONG:
            if not read_long(&self.cursor, &number):
                return 0
            if step.form == Form.OWN:
                put_long(number, &self.put)
                return 1
            if self._count(step, number):
                return 1
            return self._converted(step, PyLong_FromLongLong(number))
        if step.kind == Kind.DOUBLE:
            if not read_real(&self.cursor, &real, 8):
                return 0
            if put_real(real, DIGITS, &self.put) or put_repr(real, &self.put):
                return 1
            return self._converted(step, PyFloat_FromDouble(real))
        if step.kind == Kind.RECORD:
            return self._record(step)
        if step.kind == Kind.ARRAY:
            return self._array(step)
        return self._small(step)

    cdef inline bint _count(self, Step* step, int64_t number) noexcept:
        """Write a count of days, or of parts of a second."""
        if step.form == Form.DATE:
            return put_day(number, &self.put)
        if step.form == Form.TIME:
            return put_time(number, step.scale, &self.put)
        return put_moment(number, step.scale, step.utc, &self.put)

    cdef int _small(self, Step* step) except -1:
        """Write a value of a kind that is not frequent."""
        cdef Text at
        cdef Py_ssize_t size
        cdef double real
        cdef bytes symbol
        if step.kind == Kind.NOTHING:
            self._word(b"null", 4)
            return 1
        if step.kind == Kind.BOOLEAN:
            if self.cursor.read >= self.cursor.end or self.cursor.read[0] > 1:
                return 0
            if self.cursor.read[0]:
                self._word(b"true", 4)
            else:
                self._word(b"false", 5)
            self.cursor.read += 1
            return 1
        if step.kind == Kind.SINGLE:
            if not read_real(&self.cursor, &real, 4):
                return 0
            # A float of 32 bits carries six digits; the function looks for more.
            if put_real(real, SINGLE_DIGITS, &self.put):
                return 1
            return self._converted(step, PyFloat_FromDouble(real))
        if step.kind == Kind.ENUM:
            at = self.cursor.read
            if at >= self.cursor.end or at[0] & 129 or at[0] >> 1 >= len(<tuple>step.symbols):
                return 0
            self.cursor.read += 1
            symbol = <bytes>(<tuple>step.symbols)[at[0] >> 1]
            self._word(PyBytes_AS_STRING(symbol), PyBytes_GET_SIZE(symbol))
            return 1
        if not read_binary(&self.cursor, step, &at, &size):
            return 0
        if step.form == Form.DECIMAL:
            if put_unscaled(at, size, step.scale, &self.put):
                return 1
            return self._converted(step, PyBytes_FromStringAndSize(<char*>at, size))
        put_base64(at, size, &self.put)
        return 1

    cdef int _record(self, Step* step) except -1:
        cdef Py_ssize_t begin = self.put - self.out
        cdef Py_ssize_t at, size
        self._put(c'{')
        for at in range(step.first, step.first + step.count):
            if self.steps[at].wanted:
                if self._member(at) != 1:
                    return 0
            elif not pass_value(&self.cursor, self.steps, &self.steps[at]):
                return 0
        if step.wanted_count == 0:
            self._put(c'}')
        elif step.loose:
            pass
        elif step.in_order:
            (self.put - 1)[0] = c'}'
        else:
            size = self.put - self.out - begin
            self._assemble(self.spare, step.order, step.wanted_count)
            memcpy(self.out + begin, self.spare, <size_t>size)
        return 1

    cdef int _array(self, Step* step) except -1:
        cdef Py_ssize_t begin = self.put - self.out
        cdef int64_t count
        cdef Text before
        self._put(c'[')
        while True:
            # Few writers tell the size of a block, after a negative number of items.
            if not read_long(&self.cursor, &count) or count < 0:
                return 0
            if count == 0:
                break
            while count > 0:
                before = self.cursor.read
                self._need(0)
                if self._member(step.first) != 1 or self.cursor.read == before:
                    return 0
                count -= 1
        if self.put - self.out - begin == 1:
            self._put(c']')
        else:
            (self.put - 1)[0] = c']'
        return 1

    cdef int _converted(self, Step* step, value) except -1:
        """Write what the function of a step makes of a value."""
        cdef bytes made = self.write((<object>step.convert)(value))
        cdef Py_ssize_t size = PyBytes_GET_SIZE(made)
        self._need(size)
        memcpy(self.put, PyBytes_AS_STRING(made), <size_t>size)
        self.put += size
        return 1

    cdef inline int _need(self, Py_ssize_t more) except -1:
        """Make room for more bytes, and for the rest of the message."""
        cdef Py_ssize_t needed = (self.cursor.end - self.cursor.read) * _WIDEST
        needed += self.put - self.out + more + self.steps[0].fixed
        return self._grow(needed) if needed > self.room else 0

    cdef int _grow(self, Py_ssize_t needed) except -1:
        cdef Py_ssize_t room = 2 * needed
        cdef Py_ssize_t done = self.put - self.out
        cdef unsigned char* out = <unsigned char*>malloc(<size_t>room)
        cdef unsigned char* spare = <unsigned char*>malloc(<size_t>room)
        if out == NULL or spare == NULL:
            free(out)
            free(spare)
            raise MemoryError
        memcpy(out, self.out, <size_t>done)
        free(self.out)
        free(self.spare)
        self.out, self.spare, self.put, self.room = out, spare, out + done, room
        return 0
