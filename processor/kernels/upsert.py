"""Upsert: keep the current value of each key, emit what changes.

An upsert says what a key's value *is*; the output is the collection of (key, value)
that this describes, as updates.  At each time the last upsert of a key counts, by
(input, partition, offset); a value equal to the current one changes nothing; a
tombstone removes; an empty value is a value.  A time is processed once the interval
has closed it: an upsert at or beyond `upper` waits in the store.

A value that could not be decoded leaves the value as it is, which is what the last good
upsert has said, be it of the same time or before; it puts an error record into the
key's error slot, and the next good upsert or tombstone retracts the record.

A value that is not whole is completed by the one that is current at its place in the
order; without one it is an error, and the key has no value.  A truncate removes every key
at its place in the order.

The state is itself the arrangement of the output by key.  What a message claims the
old value was plays no part here, but for being counted as `drift` where it is another one.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from zlib import crc32

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.processor.kernels.upsert_moments import Moment, Source, by_time, in_sequence
from ikebana.processor.kernels.upsert_values import (
    SPECIAL,
    Bad,
    UpsertValue,
    value_after,
    values_of,
)
from ikebana.processor.kernels.upsert_waiting import Waiting, packed
from ikebana.processor.rows.noted import MOST
from ikebana.processor.rows.rows import KeyedUpdate, Partial, Truncate, Upserts

# A state is b"v" + value, or b"e" + (value or None, error record) when the slot is full.
_VALUE = b"v"
_ERROR = b"e"
_VALUE_TAG = _VALUE[0]
# What KeyedUpdate(...) comes to, without the call of a function in Python for each update.
_new = tuple.__new__


class Changes(NamedTuple):
    """The updates of the collection and those of the error records.

    `drift` is how many old images were not what the state had; the last of them lie at
    `drifted`.
    """

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]
    drift: int = 0
    drifted: Sequence[Source] = ()


def step(store: Store, chunks: Sequence[Upserts | Truncate], interval: Interval) -> Changes:
    """Apply the upserts whose time lies before `interval.upper`; keep the others."""
    states, waiting = Part(store, b"k"), Part(store, b"w")
    run = _Run(states)
    sequence = in_sequence(waiting, chunks, interval)
    if sequence is not None:
        run.load({key for chunk in sequence for key in chunk.keys})
        for chunk in sequence:
            run.apply_each(chunk)
    else:
        for moment in by_time(waiting, chunks, interval):
            run.apply(moment)
    run.store()
    return Changes(run.updates, run.errors, run.drift, tuple(run.drifted))


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
    """The times of the upserts that wait, in order."""
    return [int.from_bytes(place[:8], "big") for place, _ in Part(store, b"w").scan(b"")]


def waiting(store: Store, upper: int, most: int) -> int:
    """How many upserts wait for times from `upper` on, counted up to `most`."""
    found = Part(store, b"w").scan(b"", packed(upper))
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


class _Run:
    """The states of the keys that a batch touches, and what it emits."""

    def __init__(self, states: Part) -> None:
        self.updates: list[KeyedUpdate] = []
        self.errors: list[KeyedUpdate] = []
        self.drift = 0
        self.drifted: deque[Source] = deque(maxlen=MOST)
        self._states = states
        self._current: dict[bytes, bytes | None] = {}
        self._before: dict[bytes, bytes | None] = {}

    def load(self, keys: Iterable[bytes]) -> None:
        """Fetch the states of keys."""
        current = self._current
        missing = [key for key in keys if key not in current]
        if missing:
            # Neighbours lie together: a store finds them much faster in order.
            missing.sort()
            found = dict(zip(missing, self._states.get_many(missing), strict=True))
            current |= found
            self._before |= found

    def store(self) -> None:
        """Write the states that have changed."""
        before = self._before
        self._states.change(
            {key: state for key, state in self._current.items() if state != before[key]}
        )

    def apply(self, moment: Moment) -> None:
        """Move every key to its last upsert of one time."""
        time, last, truncated, olds = moment
        if truncated:
            self._load_all()
            for key, state in self._current.items():
                if state is not None and key not in last:
                    last[key] = None
        self.load(last)
        current, emit = self._current, self.updates.append
        for key, earlier, checksum, source in olds:
            self._compare(value_after(earlier, _value_of(current[key])), checksum, source)
        for key, upsert in last.items():
            old = current[key]
            if upsert.__class__ in SPECIAL or (old is not None and old[0] != _VALUE_TAG):
                current[key] = self._general(key, old, upsert, time)
                continue
            new = None if upsert is None else _VALUE + upsert  # type: ignore[operator]
            if new == old:
                continue
            if old is not None:
                emit(_new(KeyedUpdate, (key, old[1:], time, -1)))
            if upsert is not None:
                emit(_new(KeyedUpdate, (key, upsert, time, 1)))
            current[key] = new

    def apply_each(self, chunk: Upserts) -> None:
        """Move keys to one upsert after the other, each of which is alone at its time.

        What `apply` does with one upsert, written out: here it is done for every record.
        """
        current, emit, expected = self._current, self.updates.append, chunk.before
        assert isinstance(chunk.times, list)
        for index, (time, key, upsert) in enumerate(
            zip(chunk.times, chunk.keys, values_of(chunk), strict=True)
        ):
            old = current[key]
            if expected and (checksum := expected.get(index)) is not None:
                source = chunk.input_order, chunk.partition, chunk.offsets[index]
                self._compare(_value_of(old), checksum, source)
            if upsert.__class__ in SPECIAL or (old is not None and old[0] != _VALUE_TAG):
                current[key] = self._general(key, old, upsert, time)
                continue
            new = None if upsert is None else _VALUE + upsert  # type: ignore[operator]
            if new == old:
                continue
            if old is not None:
                emit(_new(KeyedUpdate, (key, old[1:], time, -1)))
            if upsert is not None:
                emit(_new(KeyedUpdate, (key, upsert, time, 1)))
            current[key] = new

    def _general(
        self, key: bytes, state: bytes | None, upsert: UpsertValue, time: int
    ) -> bytes | None:
        """The transition in full: with partial values, and with the error slot."""
        value, record = (None, None) if state is None else split(state)
        new, new_record = value_after(upsert, value), None
        if isinstance(upsert, Bad) or (isinstance(upsert, Partial) and value is None):
            new_record = upsert.record
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

    def _compare(self, value: bytes | None, checksum: int, source: Source) -> None:
        if value is None or crc32(value) != checksum:
            self.drift += 1
            self.drifted.append(source)

    def _load_all(self) -> None:
        current, before = self._current, self._before
        for key, state in self._states.scan(b""):
            if key not in current:
                current[key] = before[key] = state


def _value_of(state: bytes | None) -> bytes | None:
    return None if state is None else split(state)[0]
