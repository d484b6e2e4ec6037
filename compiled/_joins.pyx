# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Loops over the rows of joins: from and to columns, lookups and matches, fields of data, shards.

Rows are tuples of four parts; where something else comes, a function says None or raises.  Of
what is read as text or as an entry, nothing behind its end is looked at: a loop over a text ends
at the NUL that CPython keeps behind bytes, and lengths in an entry are compared with its size.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow
from libc.limits cimport LONG_MIN
from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from ikebana.compiled._placing cimport crc32
from ikebana.compiled._rows cimport new_row

ctypedef const unsigned char* Text

cdef enum:
    _PARTS = 4
    _LENGTH_BYTES = 4
    # No usual text goes deeper, and nobody asks for more fields.
    _DEEPEST = 64
    _MOST_FIELDS = 64


def columns_of(list rows):
    """The four columns of rows; None if one is no tuple of four."""
    cdef Py_ssize_t count = len(rows), at
    cdef tuple row
    cdef object each
    # Lists are whole from the beginning: a collection may run a finalizer that looks at them.
    cdef list a = [None] * count, b = [None] * count
    cdef list c = [None] * count, d = [None] * count
    for at in range(count):
        each = rows[at]
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            return None
        row = <tuple>each
        a[at], b[at], c[at], d[at] = row[0], row[1], row[2], row[3]
    return a, b, c, d


def rows_from(type of, list a, list b, list c, list d):
    """Rows of a `NamedTuple` of four parts, from columns of one length."""
    cdef Py_ssize_t count = len(a), at
    if not issubclass(of, tuple):
        raise TypeError("rows are tuples")
    if len(b) != count or len(c) != count or len(d) != count:
        raise ValueError("columns differ in length")
    cdef list rows = [None] * count
    for at in range(count):
        rows[at] = new_row(of, a[at], b[at], c[at], d[at])
    return rows


# Fields of JSON objects.

cdef struct Name:
    Text text
    Py_ssize_t size


def fields_of(tuple fields, list values, *, bint data):
    """The texts of fields of canonical objects, column by column; None if Python has to read them.

    A text is None if it is null, or if there is none.  Values are objects, or data whose value
    is one if they are `data`; what is no object has no fields.  Of what is no JSON at all texts
    may be told that are none.
    """
    cdef Py_ssize_t count = len(values), at, size
    cdef int number, asked
    cdef bytes value, field
    cdef object each
    cdef Text text
    cdef Name names[_MOST_FIELDS]
    if len(fields) > _MOST_FIELDS:
        return None
    asked = <int>len(fields)
    cdef list columns = [[None] * count for _ in range(asked)]
    for number in range(asked):
        field = <bytes?>fields[number]
        names[number].text = <Text>PyBytes_AS_STRING(field)
        names[number].size = PyBytes_GET_SIZE(field)
    for at in range(count):
        each = values[at]
        if each is None:
            continue
        value = <bytes?>each
        text = <Text>PyBytes_AS_STRING(value)
        size = PyBytes_GET_SIZE(value)
        if data:
            number = _behind_key(text, size)
            if number < 0:
                return None
            text += number
            size -= number
        if text[0] == c'{' and not _read_object(text, size, names, asked, columns, at):
            return None
    return columns


cdef int _behind_key(Text datum, Py_ssize_t size) noexcept:
    """Where the value of a datum begins; -1 if it is none, or far away."""
    if size < _LENGTH_BYTES:
        return -1
    cdef uint32_t length = (
        <uint32_t>datum[0] << 24 | <uint32_t>datum[1] << 16 | <uint32_t>datum[2] << 8 | datum[3]
    )
    if length == <uint32_t>-1:
        return _LENGTH_BYTES
    if length > 0x3FFFFFFF or <Py_ssize_t>length > size - _LENGTH_BYTES:
        return -1
    return _LENGTH_BYTES + <int>length


cdef bint _read_object(
    Text at, Py_ssize_t size, const Name* names, int asked, list columns, Py_ssize_t row
) except -1:
    """Read the fields of an object; False if it is not written canonically."""
    cdef Text end = at + size
    cdef Text begin
    cdef Py_ssize_t length
    cdef int number
    at += 1
    if at[0] == c'}':
        return at + 1 == end
    while True:
        if at[0] != c'"':
            return False
        at += 1
        begin = at
        # A name that is escaped may be any.
        while at[0] != c'"':
            if at[0] < 32 or at[0] == c'\\':
                return False
            at += 1
        length = at - begin
        at += 1
        if at[0] != c':':
            return False
        at += 1
        for number in range(asked):
            if names[number].size == length and not memcmp(
                names[number].text, begin, <size_t>length
            ):
                break
        else:
            number = -1
        begin = at
        at = _behind_value(at)
        if at == NULL:
            return False
        if number >= 0:
            (<list>columns[number])[row] = (
                None if begin[0] == c'n'
                else PyBytes_FromStringAndSize(<const char*>begin, at - begin)
            )
        if at[0] == c'}':
            return at + 1 == end
        if at[0] != c',':
            return False
        at += 1


cdef Text _behind_value(Text at) noexcept:
    """Where a value ends; NULL if it is not written canonically."""
    cdef Py_ssize_t depth = 0
    if at[0] == c'"':
        return _behind_string(at)
    if at[0] == c't':
        return _behind_word(at, b"true")
    if at[0] == c'f':
        return _behind_word(at, b"false")
    if at[0] == c'n':
        return _behind_word(at, b"null")
    if at[0] != c'{' and at[0] != c'[':
        if at[0] != c'-' and not c'0' <= at[0] <= c'9':
            return NULL
        at += 1
        while (
            c'0' <= at[0] <= c'9' or at[0] == c'.' or at[0] == c'-' or at[0] == c'+'
            or at[0] == c'e' or at[0] == c'E'
        ):
            at += 1
        return at
    while True:
        if at[0] == c'"':
            at = _behind_string(at)
            if at == NULL:
                return NULL
            continue
        # NUL is one of these.
        if at[0] < 32:
            return NULL
        if at[0] == c'{' or at[0] == c'[':
            depth += 1
            if depth > _DEEPEST:
                return NULL
        elif at[0] == c'}' or at[0] == c']':
            depth -= 1
            if not depth:
                return at + 1
        at += 1


cdef Text _behind_string(Text at) noexcept:
    at += 1
    while at[0] != c'"':
        if at[0] < 32:
            return NULL
        if at[0] == c'\\':
            at += 1
            if at[0] < 32:
                return NULL
        at += 1
    return at + 1


cdef Text _behind_word(Text at, const char* word) noexcept:
    while word[0]:
        if at[0] != <unsigned char>word[0]:
            return NULL
        at += 1
        word += 1
    return at


# Shards.

def spread(list updates, list held, bytes keyless):
    """Append updates to the list of the shard of each; return the bytes of keys and values.

    An update without a key goes where `keyless` belongs, or its value if that is None.
    """
    cdef Py_ssize_t at, size = 0, shards = len(held)
    cdef object each
    cdef tuple update
    cdef bytes key, value
    if not shards:
        raise ValueError("no shards")
    for each in held:
        if type(each) is not list:
            raise TypeError("a shard has no list")
    for at in range(len(updates)):
        each = updates[at]
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            raise TypeError("an update has four parts")
        update = <tuple>each
        key = <bytes?>update[0] if update[0] is not None else None
        value = <bytes?>update[1]
        size += PyBytes_GET_SIZE(value)
        if key is not None:
            size += PyBytes_GET_SIZE(key)
        elif keyless is None:
            key = value
        else:
            key = keyless
        (<list>held[_shard_of(key, shards)]).append(update)
    return size


cdef inline Py_ssize_t _shard_of(bytes key, Py_ssize_t shards) noexcept:
    """The shard of a key: its CRC-32 modulo their number."""
    cdef uint32_t crc = crc32(<Text>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    return <Py_ssize_t>(crc % <uint32_t>shards)


def spread_columns(tuple columns, list held, bytes keyless):
    """The same from columns to the columns of shards, where `keyless` is the key of all without."""
    cdef list keys, values, times, diffs
    cdef Py_ssize_t at, to, size = 0, shards = len(held)
    cdef bytes key, value
    cdef list of_keys = [], of_values = [], of_times = [], of_diffs = []
    keys, values, times, diffs = columns
    if not shards or keyless is None:
        raise ValueError("no shards, or no key for what has none")
    if not len(keys) == len(values) == len(times) == len(diffs):
        raise ValueError("columns differ in length")
    for each in held:
        of_keys.append(<list?>each[0])
        of_values.append(<list?>each[1])
        of_times.append(<list?>each[2])
        of_diffs.append(<list?>each[3])
    for at in range(len(keys)):
        key = keyless if keys[at] is None else <bytes?>keys[at]
        value = <bytes?>values[at]
        if value is None or key is None:
            raise TypeError("bytes")
        size += PyBytes_GET_SIZE(value) + PyBytes_GET_SIZE(key)
        to = _shard_of(key, shards)
        (<list>of_keys[to]).append(key)
        (<list>of_values[to]).append(value)
        (<list>of_times[to]).append(times[at])
        (<list>of_diffs[to]).append(diffs[at])
    return size


def taken(list column, list places):
    """The items at places."""
    cdef Py_ssize_t number, at, count = len(column)
    cdef list found = [None] * len(places)
    for number in range(len(found)):
        at = places[number]
        if not 0 <= at < count:
            raise IndexError(at)
        found[number] = column[at]
    return found


def summed(list updates):
    """Updates without diffs that cancel, in order; None if Python has to sum them up.

    That is so if a datum comes twice at a time with diffs that do not come to 0.
    """
    cdef dict known = {}
    cdef set gone = set()
    cdef object each, before
    cdef tuple update, at
    cdef Py_ssize_t count
    cdef long diff
    cdef int overflow = 0
    for each in updates:
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            return None
        update = <tuple>each
        if type(update[3]) is not int:
            return None
        diff = PyLong_AsLongAndOverflow(update[3], &overflow)
        # Python leaves out the first, and splits the others.
        if overflow or diff == 0 or diff == LONG_MIN:
            return None
        at = (update[0], update[1], update[2])
        count = len(known)
        before = known.setdefault(at, each)
        # Both may be one object.
        if len(known) == count:
            if at in gone or (<tuple>before)[3] + update[3]:
                return None
            gone.add(at)
    if len(known) == len(updates):
        return updates
    return [each for at, each in known.items() if at not in gone]
