"""Upsert: keep the current value of each key, emit what changes.

A symbol says what a key's value *is*; the output is the collection of (key, value)
that this describes, as updates.  At each time the last symbol of a key counts, by
(input, partition, offset); a value equal to the current one changes nothing; a
tombstone removes; an empty value is a value.  A time is processed once the interval
has closed it: a symbol at or beyond `upper` waits in the store.

A value that could not be decoded leaves the value as it is, which is what the last good
symbol has said, be it of the same time or before; it puts an error record into the
key's error slot, and the next good symbol or tombstone retracts the record.

A value that is not whole is completed by the one that is current at its place in the
order; without one it is an error, and the key has no value.  A truncate removes every key
at its place in the order.

The state is itself the arrangement of the output by key.  What a message claims the
old value was plays no part here, but for being counted as `drift` where it is another one.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.codecs import canonical
from ikebana.processor.rows.rows import KeyedUpdate, Partial, Symbols, Truncate, times_of

# A state is b"v" + value, or b"e" + (value or None, error record) when the slot is full.
_VALUE = b"v"
_ERROR = b"e"
_VALUE_TAG = _VALUE[0]


class Bad(NamedTuple):
    """A symbol whose value could not be decoded, as its error record.

    `good` is what the last good symbol before it, at the same time, has said; empty if
    there was none.
    """

    record: bytes
    good: "tuple[bytes | Partial | None] | tuple[()]" = ()


class Waiting(msgspec.Struct, array_like=True):
    """A symbol whose time is not closed yet, as it lies in the store; a key of None is all."""

    key: bytes | None
    value: bytes | None
    bad: bytes | None
    failed: bool = False
    partial: Partial | None = None
    before: int | None = None


Symbol = bytes | Bad | Partial | None
_SPECIAL = (Bad, Partial)
# What has said nothing of the value yet.
_NOTHING_SAID = Bad(b"")


class Changes(NamedTuple):
    """The updates of the collection and those of the error records.

    `drift` is how many old images were not what the state had.
    """

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]
    drift: int = 0


def step(store: Store, chunks: Sequence[Symbols | Truncate], interval: Interval) -> Changes:
    """Apply the symbols whose time lies before `interval.upper`; keep the others."""
    states, waiting = Part(store, b"k"), Part(store, b"w")
    run = _Run(states)
    in_sequence = _in_sequence(waiting, chunks, interval)
    if in_sequence is not None:
        run.load({key for chunk in in_sequence for key in chunk.keys})
        for chunk in in_sequence:
            run.apply_each(chunk)
    else:
        for moment in _by_time(waiting, chunks, interval):
            run.apply(moment)
    run.store()
    return Changes(run.updates, run.errors, run.drift)


def read(store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
    """The current values of `keys`."""
    states = Part(store, b"k").get_many(keys)
    return list(map(_value_of, states))


def scan(store: Store, start: bytes = b"") -> Iterator[bytes]:
    """The keys that have a state, in order, from `start` on."""
    return (key for key, _ in Part(store, b"k").scan(b"", start))


def contents(
    store: Store, start: bytes = b""
) -> Iterator[tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]]]:
    """The keys in order, from `start` on, each with its value and its error record, if any."""
    for key, state in Part(store, b"k").scan(b"", start):
        value, record = split(state)
        yield key, () if value is None else (value,), () if record is None else (record,)


def waiting_times(store: Store) -> list[int]:
    """The times of the symbols that wait, in order."""
    return [int.from_bytes(place[:8], "big") for place, _ in Part(store, b"w").scan(b"")]


def waiting(store: Store, upper: int, most: int) -> int:
    """How many symbols wait for times from `upper` on, counted up to `most`."""
    found = Part(store, b"w").scan(b"", _packed(upper))
    return sum(1 for _ in islice(found, most))


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of the store belongs to, whatever kind of entry it is."""
    if place[:1] == b"k":
        return place[1:]
    key = msgspec.msgpack.decode(entry, type=Waiting).key
    # A truncate is of every shard; sources never give one whose time is still open.
    assert key is not None, "a truncate waits"
    return key


def split(state: bytes) -> tuple[bytes | None, bytes | None]:
    """The value and the error record of a state."""
    if state[0] == _VALUE_TAG:
        return state[1:], None
    value, record = msgspec.msgpack.decode(state[1:], type=tuple[bytes | None, bytes])
    return value, record


class Moment(NamedTuple):
    """What happens at one time: the last symbol of each key, after a truncate perhaps.

    `olds` has, for each old image, its key, what the symbols before it had said at this
    time, and its checksum.
    """

    time: int
    last: dict[bytes, Symbol]
    truncated: bool = False
    olds: Sequence[tuple[bytes, Symbol, int]] = ()


class _Run:
    """The states of the keys that a batch touches, and what it emits."""

    def __init__(self, states: Part) -> None:
        self.updates: list[KeyedUpdate] = []
        self.errors: list[KeyedUpdate] = []
        self.drift = 0
        self._states = states
        self._current: dict[bytes, bytes | None] = {}
        self._before: dict[bytes, bytes | None] = {}

    def load(self, keys: Iterable[bytes]) -> None:
        """Fetch the states of keys."""
        current = self._current
        missing = [key for key in keys if key not in current]
        if missing:
            found = dict(zip(missing, self._states.get_many(missing), strict=True))
            current |= found
            self._before |= found

    def store(self) -> None:
        """Write the states that have changed."""
        states, before = self._states, self._before
        for key, state in self._current.items():
            if state == before[key]:
                continue
            if state is None:
                states.delete(key)
            else:
                states.put(key, state)

    def apply(self, moment: Moment) -> None:
        """Move every key to its last symbol of one time."""
        time, last, truncated, olds = moment
        if truncated:
            self._load_all()
            for key, state in self._current.items():
                if state is not None and key not in last:
                    last[key] = None
        self.load(last)
        current, emit = self._current, self.updates.append
        for key, earlier, checksum in olds:
            self._compare(_made(earlier, _value_of(current[key])), checksum)
        for key, symbol in last.items():
            old = current[key]
            if symbol.__class__ in _SPECIAL or (old is not None and old[0] != _VALUE_TAG):
                current[key] = self._general(key, old, symbol, time)
                continue
            new = None if symbol is None else _VALUE + symbol  # type: ignore[operator]
            if new == old:
                continue
            if old is not None:
                emit(KeyedUpdate(key, old[1:], time, -1))
            if symbol is not None:
                emit(KeyedUpdate(key, symbol, time, 1))  # type: ignore[arg-type]
            current[key] = new

    def apply_each(self, chunk: Symbols) -> None:
        """Move keys to one symbol after the other, each of which is alone at its time.

        What `apply` does with one symbol, written out: here it is done for every record.
        """
        current, emit, expected = self._current, self.updates.append, chunk.before
        assert isinstance(chunk.times, list)
        for index, (time, key, symbol) in enumerate(
            zip(chunk.times, chunk.keys, _values(chunk), strict=True)
        ):
            old = current[key]
            if expected and (checksum := expected.get(index)) is not None:
                self._compare(_value_of(old), checksum)
            if symbol.__class__ in _SPECIAL or (old is not None and old[0] != _VALUE_TAG):
                current[key] = self._general(key, old, symbol, time)
                continue
            new = None if symbol is None else _VALUE + symbol  # type: ignore[operator]
            if new == old:
                continue
            if old is not None:
                emit(KeyedUpdate(key, old[1:], time, -1))
            if symbol is not None:
                emit(KeyedUpdate(key, symbol, time, 1))  # type: ignore[arg-type]
            current[key] = new

    def _general(self, key: bytes, state: bytes | None, symbol: Symbol, time: int) -> bytes | None:
        """The transition in full: with partial values, and with the error slot."""
        value, record = (None, None) if state is None else split(state)
        new, new_record = _made(symbol, value), None
        if isinstance(symbol, Bad) or (isinstance(symbol, Partial) and value is None):
            new_record = symbol.record
        for updates, old, made in (
            (self.updates, value, new),
            (self.errors, record, new_record),
        ):
            if old != made:
                if old is not None:
                    updates.append(KeyedUpdate(key, old, time, -1))
                if made is not None:
                    updates.append(KeyedUpdate(key, made, time, 1))
        if new_record is not None:
            return _ERROR + msgspec.msgpack.encode((new, new_record))
        return None if new is None else _VALUE + new

    def _compare(self, value: bytes | None, checksum: int) -> None:
        self.drift += value is None or crc32(value) != checksum

    def _load_all(self) -> None:
        current, before = self._current, self._before
        for key, state in self._states.scan(b""):
            if key not in current:
                current[key] = before[key] = state


def _value_of(state: bytes | None) -> bytes | None:
    return None if state is None else split(state)[0]


def _made(symbol: Symbol, value: bytes | None) -> bytes | None:
    """The value that a symbol makes of the one before it."""
    if isinstance(symbol, Bad):
        if not symbol.good:
            return value
        symbol = symbol.good[0]
    if isinstance(symbol, Partial):
        return None if value is None else canonical.completed(symbol.value, value, symbol.absent)
    return symbol


def _in_sequence(
    waiting: Part, chunks: Sequence[Symbols | Truncate], interval: Interval
) -> list[Symbols] | None:
    """The chunks in an order in which time goes up with every record, if there is one.

    In the offset domain there mostly is: no two messages have the same time.
    """
    full = [chunk for chunk in chunks if isinstance(chunk, Symbols) and chunk.keys]
    truncated = any(isinstance(chunk, Truncate) for chunk in chunks)
    if not full or truncated or any(isinstance(chunk.times, int) for chunk in full):
        return None
    if next(iter(waiting.scan(b"", _packed(interval.lower))), None) is not None:
        return None
    ordered = sorted(full, key=_first_time)
    last = interval.lower - 1
    for chunk in ordered:
        times = chunk.times
        assert isinstance(times, list)
        if times[0] <= last or not all(map(operator.lt, times, islice(times, 1, None))):
            return None
        last = times[-1]
    return ordered if last < interval.upper else None


def _first_time(chunk: Symbols) -> int:
    return chunk.times if isinstance(chunk.times, int) else chunk.times[0]


def _by_time(
    waiting: Part, chunks: Sequence[Symbols | Truncate], interval: Interval
) -> Iterable[Moment]:
    """What happens time by time; what is not yet due goes to `waiting`."""
    due = _due(waiting, interval)
    same_time = not due and len({_time_of(chunk) for chunk in chunks}) == 1
    if same_time and (time := _time_of(chunks[0])) is not None and time < interval.upper:
        # Nearly every batch in the ingest domain: no row needs a tuple of its own.
        assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
        return [_moment(time, sorted(chunks, key=_order))]
    rows = due
    waited: Counter[tuple[int, ...]] = Counter()
    for chunk in chunks:
        for row in _rows_of(chunk):
            time = row.time
            assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
            if time < interval.upper:
                rows.append(row)
            else:
                rank = _rank(row)
                _wait(waiting, row, waited[rank])
                waited[rank] += 1
    rows.sort(key=_rank)
    return _moments(rows)


def _moment(time: int, chunks: Sequence[Symbols | Truncate]) -> Moment:
    """What happens at one time, of chunks in their order."""
    gathering = _Gathering(time)
    for chunk in chunks:
        if isinstance(chunk, Truncate):
            gathering.truncate()
        elif chunk.bad or chunk.failed or chunk.partial or chunk.before:
            before = chunk.before
            for index, (key, symbol) in enumerate(zip(chunk.keys, _values(chunk), strict=True)):
                gathering.add(key, symbol, before.get(index))
        else:
            # A later symbol takes the place of an earlier one, not its position.
            gathering.last.update(zip(chunk.keys, chunk.values, strict=True))
    return gathering.moment()


def _moments(rows: "list[_Row]") -> Iterable[Moment]:
    gathering: _Gathering | None = None
    for row in rows:
        if gathering is None or gathering.time != row.time:
            if gathering is not None:
                yield gathering.moment()
            gathering = _Gathering(row.time)
        if row.key is None:
            gathering.truncate()
        else:
            gathering.add(row.key, row.symbol, row.before)
    if gathering is not None:
        yield gathering.moment()


class _Gathering:
    """The symbols of one time, one after the other."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.last: dict[bytes, Symbol] = {}
        self._truncated = False
        self._olds: list[tuple[bytes, Symbol, int]] = []
        # What is said of a key at the beginning.
        self._first: Symbol = _NOTHING_SAID

    def add(self, key: bytes, symbol: Symbol, before: int | None) -> None:
        """A further symbol, with the checksum of its old image if it has one."""
        earlier = self.last.get(key, self._first)
        if before is not None:
            self._olds.append((key, earlier, before))
        self.last[key] = _after(earlier, symbol)

    def truncate(self) -> None:
        """All that was is gone, also what was said at this time."""
        self._truncated = True
        self._first = None
        self.last = dict.fromkeys(self.last)

    def moment(self) -> Moment:
        """All of it."""
        return Moment(self.time, self.last, self._truncated, self._olds)


def _after(earlier: Symbol, symbol: Symbol) -> Symbol:
    """A symbol after another of its key and time: what both say together."""
    if isinstance(symbol, Bad):
        if symbol.good:
            return symbol
        # What the last good one has said of the value stands.
        return Bad(symbol.record, earlier.good if isinstance(earlier, Bad) else (earlier,))
    if not isinstance(symbol, Partial):
        return symbol
    if isinstance(earlier, Bad):
        return _after(earlier.good[0], symbol) if earlier.good else symbol
    if earlier is None:
        return Bad(symbol.record, (None,))
    if isinstance(earlier, Partial):
        value = canonical.completed(symbol.value, earlier.value, symbol.absent)
        both = tuple(name for name in symbol.absent if name in earlier.absent)
        return Partial(value, both, symbol.record)
    return canonical.completed(symbol.value, earlier, symbol.absent)


class _Row(NamedTuple):
    time: int
    order: int
    partition: int
    offset: int
    key: bytes | None
    symbol: Symbol
    before: int | None = None


def _rows_of(chunk: Symbols | Truncate) -> Iterable[_Row]:
    order, partition = chunk.input_order, chunk.partition
    if isinstance(chunk, Truncate):
        yield _Row(chunk.time, order, partition, chunk.offset, None, None)
        return
    for index, (time, offset, key, symbol) in enumerate(
        zip(
            times_of(chunk.times, len(chunk.keys)),
            chunk.offsets,
            chunk.keys,
            _values(chunk),
            strict=True,
        )
    ):
        yield _Row(time, order, partition, offset, key, symbol, chunk.before.get(index))


def _rank(row: _Row) -> tuple[int, int, int, int]:
    return row[:4]


def _order(chunk: Symbols | Truncate) -> tuple[int, int, int]:
    if isinstance(chunk, Truncate):
        return chunk.input_order, chunk.partition, chunk.offset
    return chunk.input_order, chunk.partition, chunk.offsets[0] if chunk.offsets else 0


def _time_of(chunk: Symbols | Truncate) -> int | None:
    if isinstance(chunk, Truncate):
        return chunk.time
    return chunk.times if isinstance(chunk.times, int) else None


def _values(chunk: Symbols) -> Sequence[Symbol]:
    if not (chunk.bad or chunk.failed or chunk.partial):
        return chunk.values
    values: list[Symbol] = list(chunk.values)
    for index, record in chunk.bad.items():
        values[index] = Bad(record)
    for index, record in chunk.failed.items():
        values[index] = Bad(record, (None,))
    for index, partial in chunk.partial.items():
        values[index] = partial
    return values


def _wait(waiting: Part, row: _Row, index: int) -> None:
    """Keep a row, the `index`-th of those of its message that wait."""
    symbol = row.symbol
    entry = Waiting(row.key, None, None, before=row.before)
    if isinstance(symbol, Bad):
        entry.bad, entry.failed = symbol.record, bool(symbol.good)
    elif isinstance(symbol, Partial):
        entry.partial = symbol
    else:
        entry.value = symbol
    place = b"".join(map(_packed, (*_rank(row), index)))
    waiting.put(place, msgspec.msgpack.encode(entry))


def _packed(time: int) -> bytes:
    return time.to_bytes(8, "big")


def _due(waiting: Part, interval: Interval) -> list[_Row]:
    """Take out what waited for a time of the interval."""
    rows: list[_Row] = []
    places = []
    # Nothing waits for earlier times, but what did may still lie in the way.
    for place, entry in waiting.scan(b"", _packed(interval.lower)):
        time, order, partition, offset = (
            int.from_bytes(place[at : at + 8], "big") for at in range(0, 32, 8)
        )
        # Places are in order of time, so the first one beyond the frontier ends it.
        if time >= interval.upper:
            break
        found = msgspec.msgpack.decode(entry, type=Waiting)
        symbol: Symbol = found.value
        if found.bad is not None:
            symbol = Bad(found.bad, (None,) if found.failed else ())
        elif found.partial is not None:
            symbol = found.partial
        rows.append(_Row(time, order, partition, offset, found.key, symbol, found.before))
        places.append(place)
    for place in places:
        waiting.delete(place)
    return rows
