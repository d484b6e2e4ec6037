# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Entries of arrangements in bytes, and what updates make of them.

See `kernels.arrange` for the entries.  These take those whose data have no history (see
`_entries.pxd`), and leave all others to Python; an entry that is none, too.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.object cimport PyObject
from libc.limits cimport LONG_MIN
from libc.string cimport memcmp, memcpy

from ikebana.compiled._entries cimport MOST_DATA, Datum, Text, compared, data_of
from ikebana.compiled._rows cimport new_row

cdef enum:
    _PARTS = 4
    _LARGEST_DIFF = 1 << 30
    # More updates of one key are sorted by Python.
    _MOST_SORTED = 32



def grouped(type of, tuple columns, lower, upper, dict found):
    """Add updates by key to what is there, as rows of a `NamedTuple`; leave out those of diff 0.

    False if one has no key, or a time that is not from `lower` on and before `upper`.
    """
    cdef list keys, values, times, diffs
    cdef Py_ssize_t at
    cdef object row, key, time, diff
    cdef PyObject* own
    keys, values, times, diffs = columns
    if not issubclass(of, tuple):
        raise TypeError("rows are tuples")
    if not len(keys) == len(values) == len(times) == len(diffs):
        raise ValueError("columns differ in length")
    for at in range(len(keys)):
        key, time, diff = keys[at], times[at], diffs[at]
        if key is None or not lower <= time < upper:
            return False
        if not diff:
            continue
        row = new_row(of, key, values[at], time, diff)
        own = PyDict_GetItemWithError(found, key)
        if own == NULL:
            found[key] = [row]
        else:
            (<list?><object>own).append(row)
    return True


def applied(dict by_key, list keys, list entries, dict made, Py_ssize_t large):
    """Apply the updates of keys to their entries: `made` gets (old, new) entries by key.

    Return the places of keys that are left to Python, of which nothing is made.
    """
    cdef Py_ssize_t at
    cdef list left = []
    cdef object entry, new
    if len(keys) != len(entries):
        raise ValueError("an entry for each key")
    for at in range(len(keys)):
        entry = entries[at]
        new = _changed(entry, <list?>by_key[keys[at]], large)
        if new is False:
            left.append(at)
        else:
            made[keys[at]] = (entry, new)
    return left


cdef object _changed(object entry, list updates, Py_ssize_t large):
    """What updates make of an entry; False if Python has to say it."""
    cdef Datum data[MOST_DATA]
    cdef Datum moved
    cdef int count = 0, kept, number, at, overflow = 0
    cdef long diff
    cdef object each
    cdef tuple update
    cdef bytes value
    if entry is not None:
        count = data_of(<bytes?>entry, data)
        if count < 0:
            return False
    for each in updates:
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            raise TypeError("an update has four parts")
        update = <tuple>each
        value = <bytes?>update[1]
        # The number of another type could run what frees the texts.
        if type(update[3]) is not int:
            return False
        diff = PyLong_AsLongAndOverflow(update[3], &overflow)
        if overflow or not -_LARGEST_DIFF < diff < _LARGEST_DIFF:
            return False
        moved.text, moved.size = <Text>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        for number in range(count):
            if data[number].size == moved.size and not memcmp(
                data[number].text, moved.text, <size_t>moved.size
            ):
                data[number].count += diff
                if not -_LARGEST_DIFF < data[number].count < _LARGEST_DIFF:
                    return False
                break
        else:
            if count == MOST_DATA:
                return False
            moved.count = diff
            data[count] = moved
            count += 1
    # What is there, in order: nearly all is so already.
    kept = 0
    for number in range(count):
        if not data[number].count:
            continue
        if data[number].count != 1:
            return False
        moved = data[number]
        at = kept
        while at and compared(&data[at - 1], &moved) > 0:
            data[at] = data[at - 1]
            at -= 1
        data[at] = moved
        kept += 1
    return _entry_of(data, kept, entry, large)


cdef object _entry_of(const Datum* data, int count, object old, Py_ssize_t large):
    """The entry of data that are there once each; False if they are a large group."""
    cdef Py_ssize_t size = 0, whole = 2 if count < 16 else 4
    cdef int number
    cdef bytes made
    cdef unsigned char* put
    if count == 0:
        return None
    for number in range(count):
        if data[number].size >= 1 << 30:
            return False
        size += data[number].size
        whole += _head_size(data[number].size) + data[number].size
    if count > 2 and size > large:
        return False
    if count == 1:
        whole = size + 1
    made = PyBytes_FromStringAndSize(NULL, whole)
    put = <unsigned char*>PyBytes_AS_STRING(made)
    if count == 1:
        put[0] = c'v'
        memcpy(put + 1, data[0].text, <size_t>size)
        return old if made == old else made
    put[0] = c'p'
    put += 1
    if count < 16:
        put[0] = <unsigned char>(0x90 | count)
        put += 1
    else:
        put[0], put[1], put[2] = 0xDC, <unsigned char>(count >> 8), <unsigned char>count
        put += 3
    for number in range(count):
        size = data[number].size
        if size < 1 << 8:
            put[0], put[1] = 0xC4, <unsigned char>size
            put += 2
        elif size < 1 << 16:
            put[0], put[1], put[2] = 0xC5, <unsigned char>(size >> 8), <unsigned char>size
            put += 3
        else:
            put[0], put[1], put[2] = 0xC6, <unsigned char>(size >> 24), <unsigned char>(size >> 16)
            put[3], put[4] = <unsigned char>(size >> 8), <unsigned char>size
            put += 5
        memcpy(put, data[number].text, <size_t>size)
        put += size
    return old if made == old else made


cdef inline Py_ssize_t _head_size(Py_ssize_t size) noexcept:
    """How many bytes there are before those of a datum, as `_entry_of` writes them."""
    return 2 if size < 1 << 8 else 3 if size < 1 << 16 else 5


def staged(dict made, bytes prefix not None, dict changes):
    """Put the entries that have changed into `changes`, each under the prefix and its key."""
    cdef object key, pair
    cdef tuple both
    for key, pair in made.items():
        both = <tuple?>pair
        if both[0] is not both[1] and both[0] != both[1]:
            changes[_joined(prefix, <bytes?>key)] = both[1]


cdef inline bytes _joined(bytes prefix, bytes key):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size + PyBytes_GET_SIZE(key))
    memcpy(PyBytes_AS_STRING(made), PyBytes_AS_STRING(prefix), <size_t>size)
    memcpy(
        PyBytes_AS_STRING(made) + size, PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key)
    )
    return made


def prefixed(bytes prefix, list keys):
    """Each key behind a prefix."""
    cdef object key
    if prefix is None:
        raise TypeError("no prefix")
    return [_joined(prefix, <bytes?>key) for key in keys]


def prefixed_changes(bytes prefix, dict changes):
    """Entries by key, each key behind a prefix."""
    cdef object key, value
    cdef dict found = {}
    if prefix is None:
        raise TypeError("no prefix")
    for key, value in changes.items():
        found[_joined(prefix, <bytes?>key)] = value
    return found


def size_of(list changes):
    """How many bytes keys and values of changes have."""
    cdef Py_ssize_t size = 0
    cdef object each, value
    for each in changes:
        key, value = <tuple?>each
        size += PyBytes_GET_SIZE(<bytes?>key)
        if value is not None:
            size += PyBytes_GET_SIZE(<bytes?>value)
    return size


def since_columns(dict by_key, since, otherwise):
    """The columns of updates from a time on, by key and in order: keys, values, times, diffs.

    Those of one key have one diff for each datum and time; `otherwise` sums them up where that
    needs more than an order.
    """
    cdef list keys = [], values = [], times = [], diffs = [], own
    cdef object key, each
    cdef tuple update
    for key in sorted(by_key):
        own = <list?>by_key[key]
        if len(own) > 1 and not _put_in_order(own):
            own = <list?>otherwise(own)
        for each in own:
            if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
                raise TypeError("an update has four parts")
            update = <tuple>each
            if update[2] >= since:
                keys.append(update[0])
                values.append(update[1])
                times.append(update[2])
                diffs.append(update[3])
    return keys, values, times, diffs


cdef bint _put_in_order(list own) except -1:
    """Sort updates of a key by value and time; False if two have both, or there are many."""
    cdef Datum data[_MOST_SORTED]
    cdef long times[_MOST_SORTED]
    cdef Py_ssize_t places[_MOST_SORTED]
    cdef Datum moved
    cdef Py_ssize_t count = len(own), at, to
    cdef bint moves = False
    cdef list before
    cdef long time, diff
    cdef int overflow = 0, found = 0
    cdef object each
    cdef bytes value
    if count > _MOST_SORTED:
        return False
    for at in range(count):
        each = own[at]
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            raise TypeError("an update has four parts")
        value = <bytes?>(<tuple>each)[1]
        moved.text, moved.size = <Text>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        moved.count = 0
        if type((<tuple>each)[2]) is not int or type((<tuple>each)[3]) is not int:
            return False
        time = PyLong_AsLongAndOverflow((<tuple>each)[2], &overflow)
        if overflow:
            return False
        diff = PyLong_AsLongAndOverflow((<tuple>each)[3], &overflow)
        # Python leaves out the first, and splits the other.
        if overflow or diff == 0 or diff == LONG_MIN:
            return False
        to = at
        while to:
            found = compared(&data[to - 1], &moved)
            if found < 0 or (found == 0 and times[to - 1] < time):
                break
            if found == 0 and times[to - 1] == time:
                return False
            data[to], times[to], places[to] = data[to - 1], times[to - 1], places[to - 1]
            moves = True
            to -= 1
        data[to], times[to], places[to] = moved, time, at
    if moves:
        before = own[:]
        for at in range(count):
            own[at] = before[places[at]]
    return True
