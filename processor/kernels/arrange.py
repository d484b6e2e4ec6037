"""Arrange: an index of a relation by key, shared by all joins that look it up.

The relation can be read as of any time from `since` up to `upper`: updates at or after
`since` keep their times, and older ones are compacted into one base without times.  A key
is compacted when it changes, or when `since` has passed its history; a batch does not touch
any other key.

An `Arrangement` lives for one micro-batch: `update` takes the relation's updates of the
interval, lookups are answered as of their own times, and `settle` writes what has changed,
compacted to the `since` that the next batch has.  So if all readers are as far as the
arrangement, no history is ever written.

A key with few data has one entry, so one get finds them.  A large group has an entry for
each datum and is scanned, not loaded; only the data that a batch changes are in memory.

Multiplicities may be negative.  A datum whose multiplicity becomes 0 leaves no entry.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.processor.kernels import history
from ikebana.processor.kernels.history import (
    Changes,
    Counts,
    Queue,
    add,
    count_before,
    fold,
    move,
    requeued,
)
from ikebana.processor.rows.rows import KeyedUpdate

# A place is b"k" + key for what a key has, or for how large its group is; and b"r" + length of
# the key + key + digest of the datum for a datum of a large group, since data may be long.
_KEY = b"k"
_ROW = b"r"
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 16
# An entry is b"v" + datum for one that is there once and has no history, b"m" + (time by
# which it is queued, counts by datum) for others, or b"l" + (data, their bytes) for a group.
# Where a count has more than 64 bits, b"n" in place of b"m" has counts as their digits.
_ONE = b"v"
_MANY = b"m"
_LARGE = b"n"
_GROUP = b"l"
_ONE_TAG, _GROUP_TAG, _LARGE_TAG = _ONE[0], _GROUP[0], _LARGE[0]
# A larger group is a range of entries until it is much smaller, so that it does not switch often.
_LARGE_BYTES = 2_048
_SMALL_BYTES = 512

_Data = dict[bytes, Counts]
_encode = msgspec.msgpack.encode
_decode_many = msgspec.msgpack.Decoder(tuple[int | None, _Data]).decode
_decode_large = msgspec.msgpack.Decoder(tuple[int | None, dict[bytes, list[str]]]).decode
_group_of = msgspec.msgpack.Decoder(tuple[int, int]).decode


class Arrangement:
    """An index of a relation, for one micro-batch whose lookups are at or after `since`."""

    def __init__(self, store: Store, interval: Interval, since: int) -> None:
        self._store = store
        self._queue = Queue(store)
        assert self._queue.since <= since, f"since goes back from {self._queue.since} to {since}"
        assert since <= interval.lower, f"since {since} is beyond the lower {interval.lower}"
        self.since = since
        self.upper = interval.upper
        self._interval = interval
        self._touched: dict[bytes, _Cell | _Group] = {}

    def update(self, updates: Iterable[KeyedUpdate]) -> None:
        """Apply updates of the interval, which may come in any order."""
        interval = self._interval
        by_key: dict[bytes, list[KeyedUpdate]] = {}
        for update in updates:
            key, _, time, diff = update
            assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
            assert key is not None, "an arranged row has no key"
            if diff:
                by_key.setdefault(key, []).append(update)
        self._load(by_key)
        touched = self._touched
        places = {
            key: [_row_place(key, update.value) for update in own]
            for key, own in by_key.items()
            if isinstance(touched[key], _Group)
        }
        self._load_rows(places)
        for key, own in by_key.items():
            found = touched[key]
            if isinstance(found, _Cell):
                for _, datum, time, diff in own:
                    found.add(datum, time, diff)
            else:
                for place, (_, datum, time, diff) in zip(places[key], own, strict=True):
                    found.rows[place].add(datum, time, diff)

    def groups(self, keys: Sequence[bytes]) -> Iterator[Iterable[tuple[bytes, Counts]]]:
        """Yield for each key, in the order asked, each datum with its counts."""
        touched = self._touched
        asked = [key for key in keys if key not in touched] if touched else keys
        entries = dict(
            zip(asked, self._store.get_many([_KEY + key for key in asked]), strict=True)
        )
        for key in keys:
            if key in touched:
                found = touched[key]
                yield found.data.items() if isinstance(found, _Cell) else self._rows(key, found)
            elif (entry := entries[key]) is None:
                yield ()
            elif entry[0] == _ONE_TAG:
                yield ((entry[1:], [1]),)
            elif entry[0] == _GROUP_TAG:
                yield self._rows(key, _Group())
            else:
                yield _many_of(entry)[1].items()

    def sizes(self, keys: Sequence[bytes]) -> list[int]:
        """About how many data each key has; data of all times from `since` on are counted."""
        touched = self._touched
        entries = self._store.get_many([_KEY + key for key in keys])
        return [
            _size_of(touched.get(key), entry) for key, entry in zip(keys, entries, strict=True)
        ]

    def contents(self, before: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, datum, multiplicity) of the relation before a time, in order of keys.

        A `start` is the first key to yield, so that the relation can be read in portions.  New
        readers are filled from this.  The time must not be after the interval's lower.
        """
        assert self.since <= before <= self._interval.lower, f"contents before {before}"
        for place, entry in self._store.scan(_KEY, start):
            key = place[1:]
            group = (
                self._rows(key, _Group())
                if entry[0] == _GROUP_TAG
                else _Cell.of(entry).data.items()
            )
            for datum, counts in group:
                if count := count_before(counts, before):
                    yield key, datum, count

    def settle(self, since: int) -> None:
        """Write the changes, compacted to the `since` of later lookups."""
        assert self.since <= since <= self.upper, f"since {since} is not reached yet"
        self._load_due(since)
        changes: Changes = {}
        for key, found in self._touched.items():
            if isinstance(found, _Cell):
                found.fold(since)
                _write(changes, key, found, since)
            else:
                self._write_group(changes, key, found, since)
        self._queue.write(changes, since)
        self._touched = {}

    def _write_group(self, changes: Changes, key: bytes, group: "_Group", since: int) -> None:
        """Stage the changes of a large group, which may have become small."""
        count, size = group.count, group.size
        for cell in group.rows.values():
            # There is one, or there was none and has been none since.
            length = sum(map(len, cell.data))
            cell.fold(since)
            change = bool(cell.data) - (cell.stored is not None)
            count += change
            size += change * length
        if count > 1 and size > _SMALL_BYTES:
            _change(changes, _KEY + key, group.stored, _GROUP + _encode((count, size)))
            for place, cell in group.rows.items():
                cell.write(changes, place, since)
            return
        whole = _Cell({}, None, group.stored)
        for place, cell in self._cells(key, group):
            whole.data |= cell.data
            _change(changes, place, cell.stored, None)
            move(changes, place, cell.queued, None)
        whole.write(changes, _KEY + key, since)

    def _load(self, keys: Iterable[bytes]) -> None:
        """Load the entries of keys that are about to change."""
        touched = self._touched
        # Neighbours lie together: a store finds them much faster in order.
        missing = sorted({key for key in keys if key not in touched})
        found = self._store.get_many([_KEY + key for key in missing])
        for key, entry in zip(missing, found, strict=True):
            large = entry is not None and entry[0] == _GROUP_TAG
            touched[key] = _Group.of(entry) if large and entry else _Cell.of(entry)

    def _load_rows(self, places: Mapping[bytes, Sequence[bytes]]) -> None:
        """Load data of large groups that are about to change."""
        missing: dict[bytes, _Group] = {}
        for key, own in places.items():
            group = self._touched[key]
            assert isinstance(group, _Group), "a datum of a group lies outside of it"
            missing |= {place: group for place in own if place not in group.rows}
        wanted = sorted(missing)
        for place, entry in zip(wanted, self._store.get_many(wanted), strict=True):
            missing[place].rows[place] = _Cell.of(entry)

    def _load_due(self, since: int) -> None:
        """Load the entries whose history is due for compaction."""
        due = [place for _, place in self._queue.due(since)]
        self._load(key_of(place, b"") for place in due)
        rows: dict[bytes, list[bytes]] = {}
        for place in due:
            if place[:1] == _ROW:
                rows.setdefault(_key_of_row(place), []).append(place)
        self._load_rows(rows)

    def _rows(self, key: bytes, group: "_Group") -> Iterator[tuple[bytes, Counts]]:
        """Each datum of a large group with its counts, as changed in this batch."""
        rows = group.rows
        for place, entry in self._store.scan(_row_start(key)):
            if place in rows:
                continue
            if entry[0] == _ONE_TAG:
                yield entry[1:], [1]
            else:
                yield from _many_of(entry)[1].items()
        for cell in rows.values():
            yield from cell.data.items()

    def _cells(self, key: bytes, group: "_Group") -> Iterator[tuple[bytes, "_Cell"]]:
        """Each entry of a large group by its place, as changed in this batch."""
        rows = group.rows
        for place, entry in self._store.scan(_row_start(key)):
            if place not in rows:
                yield place, _Cell.of(entry)
        yield from rows.items()


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of the store belongs to, whatever kind of entry it is."""
    place = history.queued_place(place) or place
    return place[1:] if place[:1] == _KEY else _key_of_row(place)


@dataclass(slots=True)
class _Cell:
    """The counts in one entry: of a key's data, or of one datum of a large group.

    `stored` is the entry as it was, `queued` the time by which it is queued.
    """

    data: _Data
    queued: int | None
    stored: bytes | None

    @staticmethod
    def of(entry: bytes | None) -> "_Cell":
        """Decode an entry of the store."""
        if entry is None:
            return _Cell({}, None, None)
        if entry[0] == _ONE_TAG:
            return _Cell({entry[1:]: [1]}, None, entry)
        queued, data = _many_of(entry)
        return _Cell(data, queued, entry)

    def add(self, datum: bytes, time: int, diff: int) -> None:
        """Change the multiplicity of a datum."""
        counts = self.data.get(datum)
        if counts is None:
            self.data[datum] = [0, time, diff]
        else:
            add(counts, time, diff)

    def fold(self, since: int) -> None:
        """Compact to `since`."""
        data, gone = self.data, []
        for datum, counts in data.items():
            if len(counts) > 1:
                fold(counts, since)
            if counts == _NONE:
                gone.append(datum)
        for datum in gone:
            del data[datum]

    def write(self, changes: Changes, place: bytes, since: int) -> None:
        """Stage the writes that store this cell under a key."""
        data, queued, entry = self.data, None, None
        if len(data) == 1 and (only := next(iter(data.items())))[1] == _ONCE:
            entry = _ONE + only[0]
        elif data:
            times = [counts[-2] for counts in data.values() if len(counts) > 1]
            queued = requeued(self.queued, max(times), since) if times else None
            rows = dict(sorted(data.items())) if len(data) > 1 else data
            entry = _many(queued, rows)
        _change(changes, place, self.stored, entry)
        move(changes, place, self.queued, queued)


_NONE, _ONCE = [0], [1]


def _many(queued: int | None, data: _Data) -> bytes:
    try:
        return _MANY + _encode((queued, data))
    except OverflowError:
        digits = {datum: list(map(str, counts)) for datum, counts in data.items()}
        return _LARGE + _encode((queued, digits))


def _many_of(entry: bytes) -> tuple[int | None, _Data]:
    body = memoryview(entry)[1:]
    if entry[0] != _LARGE_TAG:
        return _decode_many(body)
    queued, digits = _decode_large(body)
    return queued, {datum: list(map(int, counts)) for datum, counts in digits.items()}


@dataclass(slots=True)
class _Group:
    """A large group: how many data it has and of how many bytes, and those of a batch."""

    count: int = 0
    size: int = 0
    stored: bytes | None = None
    rows: dict[bytes, _Cell] = field(default_factory=dict)

    @staticmethod
    def of(entry: bytes) -> "_Group":
        """A group, of whose data none has been touched."""
        return _Group(*_group_of(memoryview(entry)[1:]), entry)


def _size_of(found: _Cell | _Group | None, entry: bytes | None) -> int:
    if isinstance(found, _Cell):
        return len(found.data)
    if entry is None:
        return 0
    if entry[0] == _GROUP_TAG:
        return _group_of(memoryview(entry)[1:])[0]
    return len(_Cell.of(entry).data)


def _write(changes: Changes, key: bytes, cell: _Cell, since: int) -> None:
    """Stage the writes of a key's data, which may have become a large group."""
    data, place = cell.data, _KEY + key
    # Two large ones are what a key has whose only datum is replaced.
    if len(data) <= 2 or (size := sum(map(len, data))) <= _LARGE_BYTES:
        cell.write(changes, place, since)
        return
    _change(changes, place, cell.stored, _GROUP + _encode((len(data), size)))
    move(changes, place, cell.queued, None)
    for datum, counts in data.items():
        _Cell({datum: counts}, None, None).write(changes, _row_place(key, datum), since)


def _change(changes: Changes, place: bytes, old: bytes | None, new: bytes | None) -> None:
    if old != new:
        changes[place] = new


def _row_start(key: bytes) -> bytes:
    return _ROW + _LENGTH.pack(len(key)) + key


def _row_place(key: bytes, datum: bytes) -> bytes:
    return _row_start(key) + blake2b(datum, digest_size=_DIGEST_BYTES).digest()


def _key_of_row(place: bytes) -> bytes:
    return place[1 + _LENGTH.size : -_DIGEST_BYTES]
