"""Upsert: keep the current value of each key, emit what changes.

An upsert says what a key's value *is*; the output is the collection of (key, value)
that this describes, as updates.  At each time the last upsert of a key counts, by
(input, partition, offset); a value equal to the current one changes nothing; a
tombstone removes; an empty value is a value.  A time is processed once the interval
has closed it: an upsert at or beyond `upper` waits in the store.

A value that could not be decoded leaves the value of the last good upsert, whether that is of the
same time or of an earlier one; it puts an error record into the key's error slot, and the next
good upsert or tombstone retracts the record.

A partial value is completed from the current value at its place in the order; without one it is
an error, and the key has no value.  A truncate removes every key at its place in the order.

Where upserts have sequences, the one with a key's greatest sequence counts in place of the last
one, and those that are outdated are counted: see `upsert_sequences`.

The state is itself the arrangement of the output by key.  The old value that a message claims
is only compared with the state: if they differ, this is counted as `drift`.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.processor.base.columns import Columns, columns_of
from ikebana.processor.base.noted import MOST
from ikebana.processor.base.rows import KeyedUpdate, Partial, Truncate, Upserts
from ikebana.processor.kernels import history, upsert_waiting
from ikebana.processor.kernels.layout import KEY_IS_REST, Contents, PartKind, StateLayout
from ikebana.processor.kernels.upsert_moments import Moment, by_time, in_sequence
from ikebana.processor.kernels.upsert_sequences import Sequences
from ikebana.processor.kernels.upsert_values import (
    SPECIAL,
    Bad,
    Source,
    UpsertValue,
    value_after,
    values_of,
)

try:
    from ikebana.compiled._upserts import changed, move, move_each, take_states
except ImportError:
    changed = move = move_each = take_states = None  # type: ignore[assignment]

# A state is b"v" + value, or b"e" + (value or None, error record) when the slot is full.
_VALUE = b"v"
_ERROR = b"e"
_VALUE_TAG = _VALUE[0]
BEFORE = b"h"
"""The prefix of old values for readers that lag, which `arrange_upsert` keeps."""


class UpsertChanges(NamedTuple):
    """The updates of the collection and those of the error records.

    `drift` is how many old images differed from the state; `drifted` has the places of the last of
    them.  So it is with `outdated` upserts and `outdated_at`.
    """

    updates: Columns
    errors: list[KeyedUpdate]
    drift: int = 0
    drifted: Sequence[Source] = ()
    outdated: int = 0
    outdated_at: Sequence[Source] = ()


def step(store: Store, chunks: Sequence[Upserts | Truncate], interval: Interval) -> UpsertChanges:
    """Apply the upserts with times before `interval.upper`; keep the others."""
    states, waiting = Part(store, b"k"), Part(store, b"w")
    run, sequences = _Run(states), Sequences(Part(store, b"n"))
    sequence = in_sequence(waiting, chunks, interval)
    if sequence is not None:
        run.load(set().union(*(chunk.keys for chunk in sequence)))
        for chunk in sequence:
            run.apply_each(chunk)
    else:
        for each in by_time(waiting, chunks, interval, sequences):
            if isinstance(each, Upserts):
                run.load(set(each.keys))
                run.apply_each(each)
            else:
                run.apply(each)
    run.store()
    outdated = sequences.outdated, tuple(sequences.places)
    return UpsertChanges(run.updates, run.errors, run.drift, tuple(run.drifted), *outdated)


def read(store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
    """The current values of `keys`."""
    states = Part(store, b"k").get_many(keys)
    return list(map(_value_of, states))


def scan(store: Store, start: bytes = b"") -> Iterator[bytes]:
    """The keys that have a state, in order, from `start` on."""
    return (key for key, _ in Part(store, b"k").scan(b"", start))


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its value and its error record, if any."""
    for key, state in Part(store, b"k").scan(b"", start):
        value, record = split(state)
        yield key, () if value is None else (value,), () if record is None else (record,)


def waiting_times(store: Store) -> list[int]:
    """The times of the upserts that wait, in order."""
    return upsert_waiting.times(Part(store, b"w"))


def waiting(store: Store, upper: int, most: int) -> int:
    """How many upserts wait for times from `upper` on, counted up to about `most`."""
    return upsert_waiting.count(Part(store, b"w"), upper, most)


def waiting_in(place: bytes, entry: bytes) -> list[tuple[int, bytes]]:
    """The times and the keys of the waiting upserts of an entry."""
    return upsert_waiting.upserts_in(place[1:], entry)


PART = PartKind(
    "",
    StateLayout(
        {
            b"k": KEY_IS_REST,
            b"n": KEY_IS_REST,
            b"w": upsert_waiting.ENTRIES,
            **history.layout({BEFORE: KEY_IS_REST}),
        }
    ),
    contents,
    waiting,
    waiting_times,
)


def split(state: bytes) -> tuple[bytes | None, bytes | None]:
    """The value and the error record of a state."""
    if state[0] == _VALUE_TAG:
        return state[1:], None
    value, record = msgspec.msgpack.decode(state[1:], type=tuple[bytes | None, bytes])
    return value, record


class _Failed(NamedTuple):
    """The value and the error record of a key with a full error slot."""

    value: bytes | None
    record: bytes


# The state of a key: its value, None for no value, or its value with its error record.
_Slot = bytes | _Failed | None


class _Run:
    """The keys that a batch touches with their states, and the updates that it emits."""

    def __init__(self, states: Part) -> None:
        self.updates = Columns([], [], [], [])
        self.errors: list[KeyedUpdate] = []
        self.drift = 0
        self.drifted: deque[Source] = deque(maxlen=MOST)
        self._states = states
        self._columns = columns_of(self.updates)
        keys, values, times, diffs = self._columns
        self._adding = keys.append, values.append, times.append, diffs.append
        self._slots: dict[bytes, _Slot] = {}
        # The stored states of its keys, in the same order.
        self._before: list[bytes | None] = []

    def load(self, keys: Iterable[bytes]) -> None:
        """Fetch the states of keys."""
        slots = self._slots
        # Neighbours lie together: a store finds them much faster in order.
        missing = sorted([key for key in keys if key not in slots] if slots else keys)
        if missing:
            self._take(missing, self._states.get_many(missing))

    def store(self) -> None:
        """Write the states that have changed."""
        if changed is not None:
            self._states.change(changed(self._slots, self._before, _state_of))
            return
        changes: dict[bytes, bytes | None] = {}
        for (key, slot), before in zip(self._slots.items(), self._before, strict=True):
            state = _state_of(slot)
            if state != before:
                changes[key] = state
        self._states.change(changes)

    def apply(self, moment: Moment) -> None:
        """Move every key to its last upsert of one time."""
        time, last, truncated, olds = moment
        if truncated:
            self._load_all()
            for key, slot in self._slots.items():
                if slot is not None and key not in last:
                    last[key] = None
        self.load(last)
        slots = self._slots
        for key, earlier, checksum, source in olds:
            self._compare(value_after(earlier, _value_in(slots[key])), checksum, source)
        if move is not None:
            move(slots, last, time, self._columns, self._general)
            return
        add_key, add_value, add_time, add_diff = self._adding
        for key, upsert in last.items():
            old = slots[key]
            if upsert.__class__ in SPECIAL or old.__class__ is _Failed:
                slots[key] = self._general(key, old, upsert, time)
                continue
            if upsert == old:
                continue
            if old is not None:
                add_key(key)
                add_value(old)
                add_time(time)
                add_diff(-1)
            if upsert is not None:
                add_key(key)
                add_value(upsert)
                add_time(time)
                add_diff(1)
            slots[key] = upsert

    def apply_each(self, chunk: Upserts) -> None:
        """Move keys to one upsert after the other; no key has two upserts of one time.

        It does what `apply` does with one upsert, written out because it runs for every record.
        """
        slots, expected = self._slots, chunk.before
        assert isinstance(chunk.times, list)
        values = values_of(chunk)
        if move_each is not None and not expected and isinstance(values, list):
            columns = chunk.times, chunk.keys, values
            move_each(slots, *columns, self._columns, self._general)
            return
        add_key, add_value, add_time, add_diff = self._adding
        for index, (time, key, upsert) in enumerate(
            zip(chunk.times, chunk.keys, values, strict=True)
        ):
            old = slots[key]
            if expected and (checksum := expected.get(index)) is not None:
                source = chunk.input_order, chunk.partition, chunk.offsets[index]
                self._compare(_value_in(old), checksum, source)
            if upsert.__class__ in SPECIAL or old.__class__ is _Failed:
                slots[key] = self._general(key, old, upsert, time)
                continue
            if upsert == old:
                continue
            if old is not None:
                add_key(key)
                add_value(old)  # type: ignore[arg-type]
                add_time(time)
                add_diff(-1)
            if upsert is not None:
                add_key(key)
                add_value(upsert)  # type: ignore[arg-type]
                add_time(time)
                add_diff(1)
            slots[key] = upsert  # type: ignore[assignment]

    def _general(self, key: bytes, slot: _Slot, upsert: UpsertValue, time: int) -> _Slot:
        """The transition in full: with partial values, and with the error slot."""
        value, record = slot if isinstance(slot, _Failed) else (slot, None)
        new, new_record = value_after(upsert, value), None
        if isinstance(upsert, Bad) or (isinstance(upsert, Partial) and value is None):
            new_record = upsert.record
        add_key, add_value, add_time, add_diff = self._adding
        if value != new:
            for each, diff in ((value, -1), (new, 1)):
                if each is not None:
                    add_key(key)
                    add_value(each)
                    add_time(time)
                    add_diff(diff)
        if record != new_record:
            for each, diff in ((record, -1), (new_record, 1)):
                if each is not None:
                    self.errors.append(KeyedUpdate(key, each, time, diff))
        return new if new_record is None else _Failed(new, new_record)

    def _compare(self, value: bytes | None, checksum: int, source: Source) -> None:
        if value is None or crc32(value) != checksum:
            self.drift += 1
            self.drifted.append(source)

    def _load_all(self) -> None:
        missing = [each for each in self._states.scan(b"") if each[0] not in self._slots]
        if missing:
            self._take(*map(list, zip(*missing, strict=True)))

    def _take(self, keys: list[bytes], states: list[bytes | None]) -> None:
        self._before += states
        if take_states is not None:
            take_states(self._slots, keys, states, _slot_of)
        else:
            self._slots.update(zip(keys, map(_slot_of, states), strict=True))


def _value_of(state: bytes | None) -> bytes | None:
    return None if state is None else split(state)[0]


def _slot_of(state: bytes | None) -> _Slot:
    if state is None:
        return None
    value, record = split(state)
    return value if record is None else _Failed(value, record)


def _state_of(slot: _Slot) -> bytes | None:
    if isinstance(slot, _Failed):
        return _ERROR + msgspec.msgpack.encode((slot.value, slot.record))
    return None if slot is None else _VALUE + slot


def _value_in(slot: _Slot) -> bytes | None:
    return slot.value if isinstance(slot, _Failed) else slot
