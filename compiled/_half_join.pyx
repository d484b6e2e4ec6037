# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=False
"""Lookups by key, and what they meet in the entries of an arrangement: see `kernels.half_join`.

It takes entries whose data have no history (see `_entries.pxd`); all others, and keys of which a
watcher is to be told, are left to Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongAndOverflow
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcmp

from ikebana.compiled._entries cimport MOST_DATA, Datum, Text, compared, data_of

cdef enum:
    _PARTS = 4
    # Of a key with so many lookups is told before they are answered, and of so many matches
    # after it: both is left to Python.
    _MANY_LOOKUPS = 100
    _MANY_MATCHES = 1_000
    _MOST_CHANGES = 512
    _LARGEST_DIFF = 1 << 30


cdef struct Change:
    # Of a datum by its number.
    int datum
    long time
    long diff


cdef struct Group:
    # What a key has: the data in order, what each was before the changes, and these in order.
    int count
    Datum data[MOST_DATA]
    int order[MOST_DATA]
    int changed
    Change changes[_MOST_CHANGES]


cdef int _by_time(const void* one, const void* other) noexcept nogil:
    cdef const Change* a = <const Change*>one
    cdef const Change* b = <const Change*>other
    if a.datum != b.datum:
        return -1 if a.datum < b.datum else 1
    return -1 if a.time < b.time else 1 if a.time > b.time else 0


cdef bint _gather(Group* group, object entry, list kept, list fresh) except -1:
    """Read an entry and take recent updates off it; False if Python has to do it."""
    cdef int at, number, last
    group.changed = 0
    group.count = 0 if entry is None else data_of(<bytes?>entry, group.data)
    if group.count < 0:
        return False
    for at in range(group.count):
        group.order[at] = at
    if kept is None and fresh is None:
        return True
    if not _take_off(group, kept) or not _take_off(group, fresh):
        return False
    # Few come out of order, so each goes to its place.
    for at in range(1, group.count):
        number = group.order[at]
        last = at
        while last and compared(&group.data[group.order[last - 1]], &group.data[number]) > 0:
            group.order[last] = group.order[last - 1]
            last -= 1
        group.order[last] = number
    qsort(group.changes, <size_t>group.changed, sizeof(Change), _by_time)
    # One for each time, unless that comes to nothing.
    last = 0
    for at in range(group.changed):
        if last and not _by_time(&group.changes[last - 1], &group.changes[at]):
            group.changes[last - 1].diff += group.changes[at].diff
        else:
            if last and not group.changes[last - 1].diff:
                last -= 1
            group.changes[last] = group.changes[at]
            last += 1
    if last and not group.changes[last - 1].diff:
        last -= 1
    group.changed = last
    return True


cdef bint _take_off(Group* group, list updates) except -1:
    """Let data be as before updates, and these be changes; False if there are too many."""
    cdef object each
    cdef tuple update
    cdef bytes value
    cdef long time, diff
    cdef int number, overflow = 0
    cdef Datum* datum
    if updates is None:
        return True
    for each in updates:
        if not isinstance(each, tuple) or len(<tuple>each) != _PARTS:
            raise TypeError("an update has four parts")
        update = <tuple>each
        value = <bytes?>update[1]
        # The number of another type could run what frees the texts.
        if type(update[2]) is not int or type(update[3]) is not int:
            return False
        time = PyLong_AsLongAndOverflow(update[2], &overflow)
        if overflow:
            return False
        diff = PyLong_AsLongAndOverflow(update[3], &overflow)
        if overflow or not -_LARGEST_DIFF < diff < _LARGEST_DIFF:
            return False
        for number in range(group.count):
            datum = &group.data[number]
            if datum.size == PyBytes_GET_SIZE(value) and not memcmp(
                datum.text, PyBytes_AS_STRING(value), <size_t>datum.size
            ):
                break
        else:
            if group.count == MOST_DATA:
                return False
            number = group.count
            datum = &group.data[number]
            # The update holds its bytes as long as the group is read.
            datum.text, datum.size = <Text>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
            datum.count = 0
            group.order[number] = number
            group.count += 1
        datum.count -= diff
        if group.changed == _MOST_CHANGES:
            return False
        group.changes[group.changed] = Change(number, time, diff)
        group.changed += 1
    return True


cdef class Lookups:
    """Lookups of a few thousand rows by key, in order of keys; within a key, as they came.

    They are the rows from `start` up to `end` of columns; all see updates of their very times,
    or none.
    """

    cdef list _keys
    cdef list _payloads
    cdef list _times
    cdef list _diffs
    cdef Py_ssize_t _start
    cdef bint _sees_equal
    # By number of a key its first row, its last one and how many it has; by row the next one of
    # its key; the numbers of keys in order.  Rows count from 1 here, so that 0 is none.
    cdef Py_ssize_t* _first
    cdef Py_ssize_t* _last
    cdef Py_ssize_t* _count
    cdef Py_ssize_t* _next
    cdef Py_ssize_t* _number

    def __init__(
        self,
        list keys,
        list payloads,
        list times,
        list diffs,
        bint sees_equal,
        Py_ssize_t start,
        Py_ssize_t end,
    ):
        cdef Py_ssize_t size = end - start, at, number
        cdef dict numbers = {}
        cdef object known
        cdef bytes key
        if self._first != NULL:
            raise RuntimeError("it is made already")
        if not 0 <= start <= end <= len(keys) or not (
            len(keys) == len(payloads) == len(times) == len(diffs)
        ):
            raise ValueError("columns are too short")
        self._payloads, self._times, self._diffs = payloads, times, diffs
        self._start, self._sees_equal = start, sees_equal
        self._first = <Py_ssize_t*>calloc(<size_t>(5 * size + 5), sizeof(Py_ssize_t))
        if self._first == NULL:
            raise MemoryError
        self._last = self._first + size + 1
        self._count = self._last + size + 1
        self._next = self._count + size + 1
        self._number = self._next + size + 1
        for at in range(1, size + 1):
            key = <bytes?>keys[start + at - 1]
            known = numbers.get(key)
            if known is None:
                number = len(numbers)
                numbers[key] = number
                self._first[number] = at
            else:
                number = known
                self._next[self._last[number]] = at
            self._last[number] = at
            self._count[number] += 1
        self._keys = sorted(numbers)
        for at in range(len(self._keys)):
            self._number[at] = numbers[self._keys[at]]

    @property
    def keys(self):
        """The keys in order; a copy, for the places of this one's are counted on."""
        return self._keys[:]

    def __dealloc__(self):
        free(self._first)

    def rows(self, Py_ssize_t at):
        """The places of the rows in the columns that the key at a place has."""
        cdef list found = []
        if not 0 <= at < len(self._keys):
            raise IndexError(at)
        cdef Py_ssize_t row = self._first[self._number[at]]
        while row:
            found.append(self._start + row - 1)
            row = self._next[row]
        return found

    def left(self, list entries):
        """The keys that are left to Python, whose entries become False.

        An entry is False already if there is more to what the key has.
        """
        cdef Py_ssize_t at
        cdef list found = []
        cdef object entry
        if len(entries) != len(self._keys):
            raise ValueError("an entry for each key")
        for at in range(len(entries)):
            entry = entries[at]
            if (
                entry is False
                or self._count[self._number[at]] >= _MANY_LOOKUPS
                or (entry is not None and (<bytes?>entry)[:1] == b"l")
            ):
                entries[at] = False
                found.append(self._keys[at])
        return found

    def meet(
        self,
        list entries,
        Py_ssize_t at,
        dict kept,
        dict fresh,
        found,
        Py_ssize_t most,
        *,
        bint outer,
    ):
        """Add the matches of keys from the one at a place on; return the place where it ended.

        It ends before a key that Python has to do, or behind the one with which there are so
        many.  Entries have `kept` and `fresh` updates by key, which are seen only from their
        times on.  `found` has the columns of matches: payloads, data, times and diffs.
        """
        cdef Group group
        cdef object entry, kept_of, fresh_of
        cdef list columns = [<list?>found[number] for number in range(_PARTS)]
        if at < 0 or len(entries) != len(self._keys) or kept is None or fresh is None:
            raise ValueError("an entry for each key")
        while at < len(entries) and len(<list>columns[1]) < most:
            entry = entries[at]
            # They hold the bytes that the group points to.
            kept_of = kept.get(self._keys[at]) if kept else None
            fresh_of = fresh.get(self._keys[at]) if fresh else None
            if entry is False or not _gather(&group, entry, kept_of, fresh_of):
                return at
            if not self._meet(&group, self._number[at], columns, outer):
                return at
            at += 1
        return at

    cdef bint _meet(
        self, const Group* group, Py_ssize_t number, list columns, bint outer
    ) except -1:
        """Add the matches of a key; False if they are many, or a time is none of 64 bits."""
        cdef Py_ssize_t rows[_MANY_LOOKUPS]
        cdef long bounds[_MANY_LOOKUPS]
        cdef bint matched[_MANY_LOOKUPS]
        cdef Py_ssize_t row = self._first[number], count = self._count[number], at
        cdef int place, datum, begin, end = 0
        cdef long now
        cdef bint in_order = False, all_matched = False
        cdef object known
        if count >= _MANY_LOOKUPS or count * group.count >= _MANY_MATCHES:
            return False
        for at in range(count):
            rows[at], matched[at] = row, False
            row = self._next[row]
        if group.changed and not self._put_in_order(rows, bounds, count):
            return False
        if group.changed:
            # Until a datum has changes they come in the order in which they were asked.
            row = self._first[number]
        for place in range(group.count):
            datum = group.order[place]
            known = None
            now = group.data[datum].count
            begin = _first_change(group, datum)
            end = begin
            while end < group.changed and group.changes[end].datum == datum:
                end += 1
            if begin == end:
                if now:
                    all_matched = True
                    known = _bytes(&group.data[datum])
                    row = self._first[number]
                    for at in range(count):
                        self._add(columns, rows[at] if in_order else row, known, now)
                        row = self._next[row]
                continue
            in_order = True
            for at in range(count):
                while begin < end and group.changes[begin].time < bounds[at]:
                    now += group.changes[begin].diff
                    begin += 1
                if now:
                    matched[at] = True
                    if known is None:
                        known = _bytes(&group.data[datum])
                    self._add(columns, rows[at], known, now)
        if outer and not all_matched:
            row = self._first[number]
            for at in range(count):
                if not matched[at]:
                    self._add(columns, rows[at] if in_order else row, None, 1)
                row = self._next[row]
        return True

    cdef bint _put_in_order(
        self, Py_ssize_t* rows, long* bounds, Py_ssize_t count
    ) except -1:
        """Sort rows by the times before which they see updates; False if one has no 64 bits."""
        cdef Py_ssize_t at, to, row
        cdef long bound
        cdef int overflow = 0
        cdef object time
        for at in range(count):
            row = rows[at]
            time = self._times[self._start + row - 1]
            if type(time) is not int:
                return False
            bound = PyLong_AsLongAndOverflow(time, &overflow)
            if overflow or bound >= 1 << 62:
                return False
            bound += self._sees_equal
            to = at
            while to and bounds[to - 1] > bound:
                bounds[to], rows[to] = bounds[to - 1], rows[to - 1]
                to -= 1
            bounds[to], rows[to] = bound, row
        return True

    cdef inline int _add(
        self, list columns, Py_ssize_t row, object datum, long count
    ) except -1:
        """Add a match of a row with so many of a datum."""
        cdef Py_ssize_t at = self._start + row - 1
        (<list>columns[0]).append(self._payloads[at])
        (<list>columns[1]).append(datum)
        (<list>columns[2]).append(self._times[at])
        diff = self._diffs[at]
        (<list>columns[3]).append(diff if count == 1 else diff * count)
        return 0


cdef inline bytes _bytes(const Datum* datum):
    return PyBytes_FromStringAndSize(<const char*>datum.text, datum.size)


cdef inline int _first_change(const Group* group, int datum) noexcept nogil:
    """Where the changes of a datum begin, or would."""
    cdef int low = 0, high = group.changed, middle
    while low < high:
        middle = (low + high) // 2
        if group.changes[middle].datum < datum:
            low = middle + 1
        else:
            high = middle
    return low
