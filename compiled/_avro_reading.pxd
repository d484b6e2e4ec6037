# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# Values of Avro.  Each function passes over a value and says False if it is not as usual, or does
# not end before the message does.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLongLong
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ikebana.compiled._avro_steps cimport Kind, Step
from ikebana.compiled._avro_strings cimport is_text
from ikebana.compiled._characters cimport Text


cdef struct Cursor:
    # The next byte of a message, and the NUL behind the last.
    Text read
    Text end


cdef inline int branch_of(Cursor* cursor, Step* step) noexcept:
    """Read the branch of a union: 1 if there is a value, 0 for null, -1 if neither."""
    cdef unsigned char branch
    if not step.optional:
        return 1
    if cursor.read >= cursor.end:
        return -1
    branch = cursor.read[0]
    cursor.read += 1
    return 1 if branch == step.other else 0 if branch == step.null else -1


cdef inline bint read_long(Cursor* cursor, int64_t* value) noexcept:
    cdef Text at = cursor.read
    cdef uint64_t made = at[0]
    cdef int shift = 7
    if made >= 128:
        made &= 127
        while True:
            # The byte before is no NUL, so the message has another, or the NUL behind it.
            at += 1
            if shift == 63:
                if at[0] != 1:
                    return False
                made |= <uint64_t>1 << 63
                break
            made |= <uint64_t>(at[0] & 127) << shift
            shift += 7
            if at[0] < 128:
                break
    at += 1
    if at > cursor.end:
        return False
    cursor.read = at
    value[0] = <int64_t>(made >> 1) ^ -<int64_t>(made & 1)
    return True


cdef inline bint read_sized(Cursor* cursor, Text* begin, Py_ssize_t* size) noexcept:
    """Read the size of a text, and pass over it."""
    cdef int64_t number
    if not read_long(cursor, &number) or number < 0 or number > cursor.end - cursor.read:
        return False
    begin[0], size[0] = cursor.read, <Py_ssize_t>number
    cursor.read += size[0]
    return True


cdef inline bint read_binary(Cursor* cursor, Step* step, Text* begin, Py_ssize_t* size) noexcept:
    if step.kind == Kind.BYTES:
        return read_sized(cursor, begin, size)
    if step.size > cursor.end - cursor.read:
        return False
    begin[0], size[0] = cursor.read, step.size
    cursor.read += step.size
    return True


cdef inline bint read_real(Cursor* cursor, double* value, int size) noexcept:
    """Read a floating-point number, whose first byte is the least."""
    cdef uint64_t bits = 0
    cdef uint32_t fewer
    cdef float single
    cdef int at
    if cursor.end - cursor.read < size:
        return False
    for at in range(size):
        bits |= <uint64_t>cursor.read[at] << 8 * at
    cursor.read += size
    if size == 8:
        memcpy(value, &bits, 8)
    else:
        fewer = <uint32_t>bits
        memcpy(&single, &fewer, 4)
        value[0] = single
    return True


cdef inline bint pass_value(Cursor* cursor, Step* steps, Step* step) noexcept:
    """Pass over a value that nobody wants; False if it is not as usual."""
    cdef Text at
    cdef Py_ssize_t size
    cdef int64_t number
    cdef int branch = branch_of(cursor, step)
    if branch != 1:
        return branch == 0
    if step.kind == Kind.STRING:
        return read_sized(cursor, &at, &size) and is_text(at, at + size)
    if step.kind == Kind.LONG:
        return read_long(cursor, &number)
    if step.kind == Kind.BYTES or step.kind == Kind.FIXED:
        return read_binary(cursor, step, &at, &size)
    if step.kind == Kind.RECORD:
        for size in range(step.first, step.first + step.count):
            if not pass_value(cursor, steps, &steps[size]):
                return False
        return True
    if step.kind == Kind.ARRAY:
        return pass_array(cursor, steps, &steps[step.first])
    if step.kind == Kind.NOTHING:
        return True
    size = 8 if step.kind == Kind.DOUBLE else 4 if step.kind == Kind.SINGLE else 1
    if cursor.end - cursor.read < size:
        return False
    at = cursor.read
    cursor.read += size
    if step.kind == Kind.BOOLEAN:
        return at[0] <= 1
    if step.kind == Kind.ENUM:
        return not at[0] & 129 and at[0] >> 1 < len(<tuple>step.symbols)
    return True


cdef inline bint pass_array(Cursor* cursor, Step* steps, Step* items) noexcept:
    cdef int64_t count
    cdef Text before
    while read_long(cursor, &count) and count >= 0:
        if count == 0:
            return True
        while count > 0:
            before = cursor.read
            if not pass_value(cursor, steps, items) or cursor.read == before:
                return False
            count -= 1
    return False


cdef inline object raw_value(Cursor* cursor, Step* steps, Step* step):
    """Read a value as data; ValueError if it is not as usual."""
    cdef Text at
    cdef Py_ssize_t size
    cdef int64_t number
    cdef double real
    cdef dict made
    if step.kind == Kind.LONG and read_long(cursor, &number):
        return PyLong_FromLongLong(number)
    if step.kind == Kind.STRING and read_sized(cursor, &at, &size):
        return PyUnicode_DecodeUTF8(<char*>at, size, NULL)
    if (step.kind == Kind.BYTES or step.kind == Kind.FIXED) and read_binary(cursor, step, &at, &size):
        return PyBytes_FromStringAndSize(<char*>at, size)
    if step.kind == Kind.DOUBLE and read_real(cursor, &real, 8):
        return PyFloat_FromDouble(real)
    if step.kind == Kind.SINGLE and read_real(cursor, &real, 4):
        return PyFloat_FromDouble(real)
    if step.kind == Kind.BOOLEAN and cursor.read < cursor.end and cursor.read[0] <= 1:
        cursor.read += 1
        return (cursor.read - 1)[0] == 1
    if step.kind == Kind.RECORD:
        made = {}
        for size in range(step.first, step.first + step.count):
            made[<object>steps[size].key] = raw_or_none(cursor, steps, &steps[size])
        return made
    raise ValueError


cdef inline object raw_or_none(Cursor* cursor, Step* steps, Step* step):
    cdef int branch = branch_of(cursor, step)
    if branch < 0:
        raise ValueError
    return raw_value(cursor, steps, step) if branch else None
