"""Arrange: an index of a relation by key, shared by all joins that look it up.

The relation can be read as of any time from `since` up to `upper`.  Entries hold it as of
`upper`; the updates of the last batches, which readers that lag may not see yet, lie beside them
(`kernels.history`).  Where a reader lags further behind, entries keep times themselves: updates at
or after `since`, behind a base without times of all others.  Such a key is compacted when it
changes, or when `since` has passed its history; a batch does not touch any other key.

An `Arrangement` lives for one micro-batch: `update` takes the relation's updates of the
interval, lookups are answered as of their own times, and `settle` writes what has changed.

A key with few data has one entry, so one get finds them.  A large group has an entry for
each datum and is scanned, not loaded; only the data that a batch changes are in memory.

Multiplicities may be negative.  A datum with multiplicity 0 has no entry.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter

import msgspec

from ikebana.arrangements.store import EntryDict, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import Columned, KeyedUpdate, columns_of, in_columns_of
from ikebana.processor.kernels import history
from ikebana.processor.kernels.history import (
    ByKey,
    EntryCounts,
    Queue,
    RecentUpdates,
    count_before,
    move,
    queue_time,
    seen,
)
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    PartKind,
    StateLayout,
    with_length,
)

# The entries of an arrangement: the data of a key, or one datum of a large group, with counts.
#
# The first byte of an entry says which of these it is:
#
# * `v`: a datum that is there once.
# * `p`: several data that are there once each.
# * `m`: (time by which it is queued, counts by datum), for all others; the counts are those of
#   `kernels.history`.  Where one has more than 64 bits, `n` has them as their digits.
# * `l`: how many data a large group has, and of how many bytes.

_ONE, _EACH_ONCE, _MANY, _LARGE = b"v", b"p", b"m", b"n"
_GROUP = b"l"
_ONE_TAG, _EACH_ONCE_TAG, _LARGE_TAG, _GROUP_TAG = (
    tag[0] for tag in (_ONE, _EACH_ONCE, _LARGE, _GROUP)
)

_encode = msgspec.msgpack.encode
_decode_data = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_many = msgspec.msgpack.Decoder(tuple[int | None, dict[bytes, EntryCounts]]).decode
_decode_large = msgspec.msgpack.Decoder(tuple[int | None, dict[bytes, list[str]]]).decode
_decode_group = msgspec.msgpack.Decoder(tuple[int, int]).decode
# The counts of a datum that is there once; nobody changes this list.
_ONCE: EntryCounts = [1]


@dataclass(slots=True)
class Cell:
    """The counts in one entry, which may change: current counts, and counts at times.

    `past` has the times and diffs of data with a history in the entry; these are not in `data`.
    `stored` is the entry as it was, `queued` the time by which it is queued.  Data with a count
    of 0 stay until the entry is compacted.
    """

    data: dict[bytes, int]
    stored: bytes | None = None
    queued: int | None = None
    past: dict[bytes, EntryCounts] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: bytes | None) -> "Cell":
        """Decode an entry of the store."""
        if entry is None:
            return cls({})
        if entry[0] == _ONE_TAG:
            return cls({entry[1:]: 1}, entry)
        if entry[0] == _EACH_ONCE_TAG:
            return cls(dict.fromkeys(_decode_data(memoryview(entry)[1:]), 1), entry)
        queued, many = _many_of(entry)
        past = {datum: counts[1:] for datum, counts in many.items() if len(counts) > 1}
        return cls({datum: counts[0] for datum, counts in many.items()}, entry, queued, past)

    def counted(self) -> list[tuple[bytes, EntryCounts]]:
        """Each datum with its counts, in order, also if only its history is left."""
        data, past = self.data, self.past
        if not past:
            return [(datum, [data[datum]]) for datum in sorted(data) if data[datum]]
        return [
            (datum, [data[datum], *past.get(datum, ())])
            for datum in sorted(data)
            if data[datum] or datum in past
        ]

    def keep(self, datum: bytes, time: int, diff: int) -> None:
        """Add the time of a diff that is counted already to the history of its datum."""
        counts = [self.data.get(datum, 0) - diff, *self.past.get(datum, ())]
        history.add(counts, time, diff)
        self._set(datum, counts)

    def fold(self, since: int) -> None:
        """Compact to `since`."""
        if not self.past:
            # Most cells end here, so nothing is built for them.
            if 0 in self.data.values():
                self.data = {datum: count for datum, count in self.data.items() if count}
            return
        for datum, times in list(self.past.items()):
            counts = [self.data[datum], *times]
            history.fold(counts, since)
            self._set(datum, counts)
        data, past = self.data, self.past
        if 0 in data.values():
            self.data = {d: count for d, count in data.items() if count or d in past}

    def write(self, changes: EntryDict, place: bytes, since: int) -> None:
        """Stage the writes that store this cell under a key."""
        queued = None
        if self.past:
            queued = queue_time(self.queued, max(times[-2] for times in self.past.values()), since)
        stage_entry(changes, place, self.stored, self._entry(queued))
        move(changes, place, self.queued, queued)

    def _entry(self, queued: int | None) -> bytes | None:
        data = self.data
        if not self.past:
            if not data:
                return None
            if len(data) == list(data.values()).count(1):
                if len(data) == 1:
                    (datum,) = data
                    return _ONE + datum
                return _EACH_ONCE + _encode(sorted(data))
        return _many(queued, dict(self.counted()))

    def _set(self, datum: bytes, counts: EntryCounts) -> None:
        self.data[datum] = counts[0]
        if len(counts) > 1:
            self.past[datum] = counts[1:]
        else:
            self.past.pop(datum, None)


def data_of(entry: bytes) -> Iterable[tuple[bytes, EntryCounts]]:
    """Each datum of an entry that is no group, with its counts, which must not be changed."""
    if entry[0] == _ONE_TAG:
        return ((entry[1:], _ONCE),)
    if entry[0] == _EACH_ONCE_TAG:
        return [(datum, _ONCE) for datum in _decode_data(memoryview(entry)[1:])]
    return _many_of(entry)[1].items()


def is_group(entry: bytes | None) -> bool:
    """Whether an entry belongs to a large group."""
    return entry is not None and entry[0] == _GROUP_TAG


def group_of(entry: bytes) -> tuple[int, int]:
    """How many data a large group has, and of how many bytes."""
    return _decode_group(memoryview(entry)[1:])


def group_entry(count: int, size: int) -> bytes:
    """The entry of a large group."""
    return _GROUP + _encode((count, size))


def stage_entry(changes: EntryDict, place: bytes, old: bytes | None, new: bytes | None) -> None:
    """Stage an entry if it is another one than before."""
    if old != new:
        changes[place] = new


def _many(queued: int | None, data: dict[bytes, EntryCounts]) -> bytes:
    try:
        return _MANY + _encode((queued, data))
    except OverflowError:
        digits = {datum: list(map(str, counts)) for datum, counts in data.items()}
        return _LARGE + _encode((queued, digits))


def _many_of(entry: bytes) -> tuple[int | None, dict[bytes, EntryCounts]]:
    body = memoryview(entry)[1:]
    if entry[0] != _LARGE_TAG:
        return _decode_many(body)
    queued, digits = _decode_large(body)
    return queued, {datum: list(map(int, counts)) for datum, counts in digits.items()}


class Simple:
    """The entries of keys that have changed in a batch."""

    def __init__(self, store: Store, prefix: bytes) -> None:
        """Entries lie in a store, under a prefix and their keys."""
        self._store = store
        self._prefix = prefix
        # The entry before, and the one now.
        self._pairs: dict[bytes, tuple[bytes | None, bytes | None]] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._pairs

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def applied(
        self, by_key: ByKey, touched: Mapping[bytes, object], large: int
    ) -> tuple[ByKey, EntryDict]:
        """Apply the updates of keys that are simple, and are not in `touched`.

        Return the updates of all other keys, and the stored entries of those that are not in
        `touched`.  If such a key was changed here before, `take_cells` must be called first.
        """
        # Neighbours lie together: a store finds them much faster in order.
        keys = sorted(key for key in by_key if key not in touched) if touched else sorted(by_key)
        entries = self._store.get_many(prefixed(self._prefix, keys))
        left = {keys[at]: entries[at] for at in applied(by_key, keys, entries, self._pairs, large)}
        rest = {
            key: key_updates
            for key, key_updates in by_key.items()
            if key in left or key in touched
        }
        return rest, left

    def entries(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The entry of each key as of now."""
        pairs = self._pairs
        if not pairs:
            return self._store.get_many(prefixed(self._prefix, [*keys]))
        asked = [key for key in keys if key not in pairs]
        stored = iter(self._store.get_many(prefixed(self._prefix, asked)))
        return [pairs[key][1] if key in pairs else next(stored) for key in keys]

    def take_cells(self, keys: Iterable[bytes]) -> dict[bytes, Cell]:
        """Remove those of the keys that have changed here; return them as cells."""
        cells = {}
        for key in keys:
            if key in self._pairs:
                old, new = self._pairs.pop(key)
                cells[key] = cell = Cell.of(new)
                cell.stored = old
        return cells

    def settle(self, changes: EntryDict) -> None:
        """Stage the entries that have changed."""
        staged(self._pairs, self._prefix, changes)
        self._pairs = {}


try:
    from ikebana.compiled._arranged import applied, grouped, prefixed, staged
except ImportError:
    grouped = Simple = None  # type: ignore[assignment,misc]

# A place is b"k" + key for the data of a key, or for the size of its group; and b"r" + length of
# the key + key + digest of the datum for a datum of a large group, since data may be long.
_KEY = b"k"
_ROW = b"r"
_DIGEST_BYTES = 16
# A larger group is a range of entries until it is much smaller, so that it does not switch often.
_LARGE_BYTES = 2_048
_SMALL_BYTES = 512

# Updates are read in portions.
_AT_ONCE = 50_000

_Data = Iterable[tuple[bytes, EntryCounts]]


class Arrangement:
    """An index of a relation, for one micro-batch; its lookups are at or after `since`."""

    def __init__(self, store: Store, interval: Interval, since: int) -> None:
        self._store = store
        self._queue = Queue(store)
        assert self._queue.since <= since, f"since goes back from {self._queue.since} to {since}"
        assert since <= interval.lower, f"since {since} is beyond the lower {interval.lower}"
        self.since = since
        self.upper = interval.upper
        self._interval = interval
        self._recent = RecentUpdates(store, since, self._queue.since)
        self._touched: dict[bytes, Cell | _Group] = {}
        self._simple = None if Simple is None else Simple(store, _KEY)

    def update(self, updates: Iterable[KeyedUpdate]) -> None:
        """Apply updates of the interval, which may come in any order."""
        by_key = _grouped(updates, self._interval)
        self._recent.add(by_key)
        touched = self._touched
        if self._simple is not None:
            self._load(key for key in by_key if key in self._simple)
            by_key, entries = self._simple.applied(by_key, touched, _LARGE_BYTES)
            touched |= {key: _loaded(entry) for key, entry in entries.items()}
        self._load(by_key)
        places = {
            key: [_row_place(key, update.value) for update in key_updates]
            for key, key_updates in by_key.items()
            if isinstance(touched[key], _Group)
        }
        if places:
            self._load_rows(places)
        for key, key_updates in by_key.items():
            state = touched[key]
            if isinstance(state, Cell):
                data = state.data
                for _, datum, _, diff in key_updates:
                    data[datum] = data.get(datum, 0) + diff
            else:
                for place, (_, datum, _, diff) in zip(places[key], key_updates, strict=True):
                    data = state.rows[place].data
                    data[datum] = data.get(datum, 0) + diff

    def groups(self, keys: Sequence[bytes]) -> Iterator[_Data]:
        """Yield for each key, in the order asked, each datum with its counts."""
        if not keys:
            return
        touched, earlier, fresh = self._touched, self._recent.earlier(), self._recent.fresh
        entries = dict(zip(keys, self._entries(keys), strict=True))
        for key in keys:
            data = self._data(key, touched.get(key) or entries[key])
            # Most keys have had no update lately.
            changed_lately = key in earlier or key in fresh
            yield seen(data, self._recent.of(key)) if changed_lately else data

    def entries(self, keys: list[bytes]) -> tuple[list[bytes | bool | None], ByKey, ByKey]:
        """The entry of each key as of now, and the updates, by key, that lookups may not see.

        False is the entry of a key that has been loaded: only `groups` says what it has.
        """
        touched, stored = self._touched, self._entries(keys)
        return (
            [False if key in touched else entry for key, entry in zip(keys, stored, strict=True)]
            if touched
            else [*stored],
            self._recent.earlier(),
            self._recent.fresh,
        )

    def _entries(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored entry of each key; loaded keys may have changed since."""
        if self._simple is not None:
            return self._simple.entries(keys)
        return self._store.get_many([_KEY + key for key in keys])

    def _data(self, key: bytes, state: "Cell | _Group | bytes | None") -> _Data:
        """The current data of a key, from its stored entry or from its loaded state."""
        if state is None:
            return ()
        if isinstance(state, bytes):
            return _rows(self._store, key, {}) if is_group(state) else data_of(state)
        return state.counted() if isinstance(state, Cell) else _rows(self._store, key, state.rows)

    def sizes(self, keys: Sequence[bytes]) -> list[int]:
        """About how many data each key has or had at any time from `since` on.

        It is 0 only where no lookup finds anything.
        """
        touched, entries = self._touched, self._entries(keys)
        sizes = []
        for key, entry in zip(keys, entries, strict=True):
            recent = self._recent.of(key)
            # Lookups as of earlier times also find data that were deleted since.
            size = _size_of(touched.get(key), entry) + sum(u.diff < 0 for u in recent)
            # An update of either sign may have led to a count of 0, which has no entry.
            sizes.append(max(size, len({u.value for u in recent})))
        return sizes

    def contents(self, before: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, datum, multiplicity) of the relation before a time, in order of keys.

        A `start` is the first key to yield, so that the relation can be read in portions.  New
        readers are filled from this.  The time must not be after the interval's lower.
        """
        assert self.since <= before <= self._interval.lower, f"contents before {before}"
        earlier = self._recent.earlier()
        stored = ((place[1:], entry) for place, entry in self._store.scan(_KEY, start))
        # Keys that have no data any more have no entry.
        changing = ((key, None) for key in sorted(earlier) if key >= start)
        merged = heapq.merge(stored, changing, key=itemgetter(0))
        for key, group in groupby(merged, key=itemgetter(0)):
            # Of equal keys the entry comes first.
            _, entry = next(group)
            for datum, counts in seen(self._data(key, entry), earlier.get(key, ())):
                if count := count_before(counts, before):
                    yield key, datum, count

    def settle(self, since: int) -> None:
        """Write the changes, and the old counts that later lookups from `since` on need."""
        assert self.since <= since <= self.upper, f"since {since} is not reached yet"
        self._load_due(since)
        changes: EntryDict = {}
        self._keep(self._recent.settle(changes, self.upper, since))
        for key, state in self._touched.items():
            if isinstance(state, Cell):
                state.fold(since)
                _write(changes, key, state, since)
            else:
                self._write_group(changes, key, state, since)
        if self._simple is not None:
            self._simple.settle(changes)
        self._queue.write(changes, since)
        self._touched = {}

    def _keep(self, updates: Sequence[KeyedUpdate]) -> None:
        """Add the times of updates to the histories of the entries that count them already."""
        by_key: dict[bytes, list[KeyedUpdate]] = {}
        for update in updates:
            assert update.key is not None, "an arranged row has no key"
            by_key.setdefault(update.key, []).append(update)
        self._load(by_key)
        for key, key_updates in by_key.items():
            state = self._touched[key]
            if isinstance(state, _Group):
                self._load_rows({key: [_row_place(key, update.value) for update in key_updates]})
            for _, datum, time, diff in key_updates:
                cell = state if isinstance(state, Cell) else state.rows[_row_place(key, datum)]
                cell.keep(datum, time, diff)

    def _write_group(self, changes: EntryDict, key: bytes, group: "_Group", since: int) -> None:
        """Stage the changes of a large group, which may have become small."""
        count, size = group.count, group.size
        for cell in group.rows.values():
            # Its entry is there, or it had none and has none now.
            length = sum(map(len, cell.data))
            cell.fold(since)
            change = bool(cell.data) - (cell.stored is not None)
            count += change
            size += change * length
        if count > 1 and size > _SMALL_BYTES:
            stage_entry(changes, _KEY + key, group.stored, group_entry(count, size))
            for place, cell in group.rows.items():
                cell.write(changes, place, since)
            return
        whole = Cell({}, group.stored)
        for place, cell in self._cells(key, group):
            whole.data |= cell.data
            whole.past |= cell.past
            stage_entry(changes, place, cell.stored, None)
            move(changes, place, cell.queued, None)
        whole.write(changes, _KEY + key, since)

    def _load(self, keys: Iterable[bytes]) -> None:
        """Load the entries of keys that are about to change."""
        touched = self._touched
        # Neighbours lie together: a store finds them much faster in order.
        missing = sorted({key for key in keys if key not in touched})
        if self._simple:
            touched |= self._simple.take_cells(missing)
            missing = [key for key in missing if key not in touched]
        entries = self._store.get_many([_KEY + key for key in missing])
        for key, entry in zip(missing, entries, strict=True):
            touched[key] = _loaded(entry)

    def _load_rows(self, places: Mapping[bytes, Sequence[bytes]]) -> None:
        """Load data of large groups that are about to change."""
        missing: dict[bytes, _Group] = {}
        for key, key_places in places.items():
            group = self._touched[key]
            assert isinstance(group, _Group), "a datum of a group lies outside of it"
            missing |= {place: group for place in key_places if place not in group.rows}
        in_order = sorted(missing)
        for place, entry in zip(in_order, self._store.get_many(in_order), strict=True):
            missing[place].rows[place] = Cell.of(entry)

    def _load_due(self, since: int) -> None:
        """Load the entries with a history that is due for compaction."""
        due = [place for _, place in self._queue.due(since)]
        self._load(map(_key_in, due))
        rows: dict[bytes, list[bytes]] = {}
        for place in due:
            if place[:1] == _ROW:
                rows.setdefault(_key_in(place), []).append(place)
        self._load_rows(rows)

    def _cells(self, key: bytes, group: "_Group") -> Iterator[tuple[bytes, Cell]]:
        """Each entry of a large group by its place, as changed in this batch."""
        rows = group.rows
        for place, entry in self._store.scan(_row_start(key)):
            if place not in rows:
                yield place, Cell.of(entry)
        yield from rows.items()


def _rows(store: Store, key: bytes, rows: Mapping[bytes, Cell]) -> _Data:
    """Each datum of a large group with its counts, as changed in this batch."""
    for place, entry in store.scan(_row_start(key)):
        if place not in rows:
            yield from data_of(entry)
    for cell in rows.values():
        yield from cell.counted()


_OF_KEYS = {_KEY: KEY_IS_REST, _ROW: KEY_WITH_LENGTH}
PART = PartKind("arrange ", StateLayout({**history.layout(_OF_KEYS), **history.LAYOUT}))


@dataclass(slots=True)
class _Group:
    """A large group: the number and the bytes of its data, and the data loaded in this batch."""

    count: int = 0
    size: int = 0
    stored: bytes | None = None
    rows: dict[bytes, Cell] = field(default_factory=dict)

    @staticmethod
    def of(entry: bytes) -> "_Group":
        """A group with none of its data loaded."""
        return _Group(*group_of(entry), entry)


def _grouped(updates: Iterable[KeyedUpdate], interval: Interval) -> ByKey:
    """Updates of an interval by key, without those of diff 0."""
    lower, upper = interval.lower, interval.upper
    by_key: ByKey = {}
    if grouped is not None and isinstance(updates, Columned | Sequence):
        takes = all(
            grouped(KeyedUpdate, columns_of(some), lower, upper, by_key)
            for some in in_columns_of(updates, _AT_ONCE)
        )
        if takes:
            return by_key
        by_key = {}
    for update in updates:
        key, _, time, diff = update
        assert lower <= time < upper, f"time {time} is not in {lower} to {upper}"
        assert key is not None, "an arranged row has no key"
        if diff:
            if (key_updates := by_key.get(key)) is None:
                by_key[key] = [update]
            else:
                key_updates.append(update)
    return by_key


def _loaded(entry: bytes | None) -> "Cell | _Group":
    return _Group.of(entry) if entry and is_group(entry) else Cell.of(entry)


def _size_of(state: Cell | _Group | None, entry: bytes | None) -> int:
    if isinstance(state, Cell):
        return len(state.counted())
    if entry is None:
        return 0
    return group_of(entry)[0] if is_group(entry) else len(Cell.of(entry).data)


def _write(changes: EntryDict, key: bytes, cell: Cell, since: int) -> None:
    """Stage the writes of a key's data, which may have become a large group."""
    data, place = cell.data, _KEY + key
    # A key with one large datum that is replaced has two for a while.
    if len(data) <= 2 or (size := sum(map(len, data))) <= _LARGE_BYTES:
        cell.write(changes, place, since)
        return
    stage_entry(changes, place, cell.stored, group_entry(len(data), size))
    move(changes, place, cell.queued, None)
    for datum, count in data.items():
        past = {datum: cell.past[datum]} if datum in cell.past else {}
        Cell({datum: count}, past=past).write(changes, _row_place(key, datum), since)


def _row_start(key: bytes) -> bytes:
    return _ROW + with_length(key)


def _row_place(key: bytes, datum: bytes) -> bytes:
    return _row_start(key) + blake2b(datum, digest_size=_DIGEST_BYTES).digest()


def _key_in(place: bytes) -> bytes:
    return _OF_KEYS[place[:1]].key(place[1:], b"")
