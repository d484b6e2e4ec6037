"""Upsert: keep the current value of each key, emit what changes.

A symbol says what a key's value *is*; the output is the collection of (key, value)
that this describes, as updates.  At each time the last symbol of a key counts, by
(input, partition, offset); a value equal to the current one changes nothing; a
tombstone removes; an empty value is a value.  A time is processed once the interval
has closed it: a symbol at or beyond `upper` waits in the store.

A value that could not be decoded leaves the value as it is, which is what the last good
symbol has said, be it of the same time or before; it puts an error record into the
key's error slot, and the next good symbol or tombstone retracts the record.

The state is itself the arrangement of the output by key.  What a message claims the
old value was plays no part here.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.processor.rows import KeyedUpdate, Rank, Symbols, times_of

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
    good: tuple[bytes | None] | tuple[()] = ()


class Waiting(msgspec.Struct, array_like=True):
    """A symbol whose time is not closed yet, as it lies in the store."""

    key: bytes
    value: bytes | None
    bad: bytes | None


Symbol = bytes | Bad | None


class Changes(NamedTuple):
    """The updates of the collection and those of the error records."""

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]


def step(store: Store, chunks: Sequence[Symbols], interval: Interval) -> Changes:
    """Apply the symbols whose time lies before `interval.upper`; keep the others."""
    states, waiting = Part(store, b"k"), Part(store, b"w")
    changes = Changes([], [])
    current: dict[bytes, bytes | None] = {}
    before: dict[bytes, bytes | None] = {}
    in_sequence = _in_sequence(waiting, chunks, interval)
    if in_sequence is not None:
        keys = list({key for chunk in in_sequence for key in chunk.keys})
        current = dict(zip(keys, states.get_many(keys), strict=True))
        before = current.copy()
        for chunk in in_sequence:
            _apply_each(current, chunk, changes)
        chunks = []
    for time, last in _by_time(waiting, chunks, interval):
        missing = [key for key in last if key not in current]
        if missing:
            found = dict(zip(missing, states.get_many(missing), strict=True))
            current |= found
            before |= found
        _apply(current, last, time, changes)
    for key, state in current.items():
        if state == before[key]:
            continue
        if state is None:
            states.delete(key)
        else:
            states.put(key, state)
    return changes


def read(store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
    """The current values of `keys`."""
    states = Part(store, b"k").get_many(keys)
    return [None if state is None else split(state)[0] for state in states]


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of the store belongs to, whatever kind of entry it is."""
    if place[:1] == b"k":
        return place[1:]
    return msgspec.msgpack.decode(entry, type=Waiting).key


def split(state: bytes) -> tuple[bytes | None, bytes | None]:
    """The value and the error record of a state."""
    if state[0] == _VALUE_TAG:
        return state[1:], None
    value, record = msgspec.msgpack.decode(state[1:], type=tuple[bytes | None, bytes])
    return value, record


def _apply(
    current: dict[bytes, bytes | None], last: dict[bytes, Symbol], time: int, changes: Changes
) -> None:
    """Move every key to its last symbol of one time."""
    emit = changes.updates.append
    for key, symbol in last.items():
        old = current[key]
        if isinstance(symbol, Bad) or (old is not None and old[0] != _VALUE_TAG):
            current[key] = _with_errors(key, old, symbol, time, changes)
            continue
        new = None if symbol is None else _VALUE + symbol
        if new == old:
            continue
        if old is not None:
            emit(KeyedUpdate(key, old[1:], time, -1))
        if symbol is not None:
            emit(KeyedUpdate(key, symbol, time, 1))
        current[key] = new


def _apply_each(current: dict[bytes, bytes | None], chunk: Symbols, changes: Changes) -> None:
    """Move keys to one symbol after the other, each of which is alone at its time.

    What `_apply` does with one symbol, written out: here it is done for every record.
    """
    emit = changes.updates.append
    assert isinstance(chunk.times, list)
    for time, key, symbol in zip(chunk.times, chunk.keys, _values(chunk), strict=True):
        old = current[key]
        if symbol.__class__ is Bad or (old is not None and old[0] != _VALUE_TAG):
            current[key] = _with_errors(key, old, symbol, time, changes)
            continue
        new = None if symbol is None else _VALUE + symbol  # type: ignore[operator]
        if new == old:
            continue
        if old is not None:
            emit(KeyedUpdate(key, old[1:], time, -1))
        if symbol is not None:
            emit(KeyedUpdate(key, symbol, time, 1))  # type: ignore[arg-type]
        current[key] = new


def _with_errors(
    key: bytes, state: bytes | None, symbol: Symbol, time: int, changes: Changes
) -> bytes | None:
    """The general transition: the error slot was full, or is to be filled."""
    value, record = (None, None) if state is None else split(state)
    if isinstance(symbol, Bad):
        new_value, new_record = symbol.good[0] if symbol.good else value, symbol.record
    else:
        new_value, new_record = symbol, None
    for updates, old, new in (
        (changes.updates, value, new_value),
        (changes.errors, record, new_record),
    ):
        if old != new:
            if old is not None:
                updates.append(KeyedUpdate(key, old, time, -1))
            if new is not None:
                updates.append(KeyedUpdate(key, new, time, 1))
    if new_record is not None:
        return _ERROR + msgspec.msgpack.encode((new_value, new_record))
    return None if new_value is None else _VALUE + new_value


def _in_sequence(
    waiting: Part, chunks: Sequence[Symbols], interval: Interval
) -> list[Symbols] | None:
    """The chunks in an order in which time goes up with every record, if there is one.

    In the offset domain there always is: no two records have the same time.
    """
    full = [chunk for chunk in chunks if chunk.keys]
    if not full or any(isinstance(chunk.times, int) for chunk in full):
        return None
    if next(iter(waiting.scan(b"")), None) is not None:
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
    waiting: Part, chunks: Sequence[Symbols], interval: Interval
) -> Iterable[tuple[int, dict[bytes, Symbol]]]:
    """The last symbol of each key, time by time; what is not yet due goes to `waiting`."""
    due = _due(waiting, interval.upper)
    same_time = not due and len({_time_of(chunk) for chunk in chunks}) == 1
    if same_time and isinstance(time := chunks[0].times, int) and time < interval.upper:
        # Nearly every batch in the ingest domain: no row needs a tuple of its own.
        assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
        last: dict[bytes, Symbol] = {}
        for chunk in sorted(chunks, key=_order):
            if chunk.bad:
                for key, symbol in zip(chunk.keys, _values(chunk), strict=True):
                    last[key] = _over(last, key, symbol) if isinstance(symbol, Bad) else symbol
            else:
                # A later symbol takes the place of an earlier one, not its position.
                last.update(zip(chunk.keys, chunk.values, strict=True))
        return [(time, last)]
    rows = due
    for chunk in chunks:
        order, partition = chunk.input_order, chunk.partition
        for time, offset, key, symbol in zip(
            times_of(chunk.times, len(chunk.keys)),
            chunk.offsets,
            chunk.keys,
            _values(chunk),
            strict=True,
        ):
            assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
            if time < interval.upper:
                rows.append((time, order, partition, offset, key, symbol))
            else:
                _wait(waiting, time, Rank(order, partition, offset), key, symbol)
    rows.sort(key=_rank)
    return _runs(rows)


_Row = tuple[int, int, int, int, bytes, Symbol]


def _runs(rows: list[_Row]) -> Iterable[tuple[int, dict[bytes, Symbol]]]:
    last: dict[bytes, Symbol] = {}
    now: int | None = None
    for time, _, _, _, key, symbol in rows:
        if time != now:
            if now is not None:
                yield now, last
            now, last = time, {}
        last[key] = _over(last, key, symbol) if isinstance(symbol, Bad) else symbol
    if now is not None:
        yield now, last


def _over(last: Mapping[bytes, Symbol], key: bytes, bad: Bad) -> Bad:
    """A bad symbol after those of its time: what they have said of the value stands."""
    if key not in last:
        return bad
    before = last[key]
    return Bad(bad.record, before.good if isinstance(before, Bad) else (before,))


def _rank(row: _Row) -> tuple[int, int, int, int]:
    return row[:4]


def _order(chunk: Symbols) -> tuple[int, int, int]:
    return chunk.input_order, chunk.partition, chunk.offsets[0] if chunk.offsets else 0


def _time_of(chunk: Symbols) -> int | None:
    return chunk.times if isinstance(chunk.times, int) else None


def _values(chunk: Symbols) -> Sequence[Symbol]:
    if not chunk.bad:
        return chunk.values
    values: list[Symbol] = list(chunk.values)
    for index, record in chunk.bad.items():
        values[index] = Bad(record)
    return values


def _wait(waiting: Part, time: int, rank: Rank, key: bytes, symbol: Symbol) -> None:
    entry = (
        Waiting(key, None, symbol.record)
        if isinstance(symbol, Bad)
        else Waiting(key, symbol, None)
    )
    place = b"".join(n.to_bytes(8, "big") for n in (time, *rank))
    waiting.put(place, msgspec.msgpack.encode(entry))


def _due(waiting: Part, upper: int) -> list[_Row]:
    """Take out what waited for a time before `upper`."""
    rows: list[_Row] = []
    places = []
    for place, entry in waiting.scan(b""):
        time, order, partition, offset = (
            int.from_bytes(place[at : at + 8], "big") for at in range(0, 32, 8)
        )
        # Places are in order of time, so the first one beyond the frontier ends it.
        if time >= upper:
            break
        symbol = msgspec.msgpack.decode(entry, type=Waiting)
        value: Symbol = symbol.value if symbol.bad is None else Bad(symbol.bad)
        rows.append((time, order, partition, offset, symbol.key, value))
        places.append(place)
    for place in places:
        waiting.delete(place)
    return rows
