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
one, and those that are outdated are counted: see `Sequences`.

The state is itself the arrangement of the output by key.  The old value that a message claims
is only compared with the state: if they differ, this is counted as `drift`, and so is a delete of
a key that has no value.

`UpsertArrangement` is this arrangement.  Readers that lag behind the upsert also need the
value before each change at or after `since`.  These old values are in the same part of the store
under separate keys, which the upsert neither reads nor writes.  There are none if all readers are
at the upsert's frontier.  It lives for one micro-batch, like an `Arrangement`, from the updates
that the upsert has emitted in it.
"""

import heapq
import operator
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import NamedTuple
from zlib import crc32

import msgspec

from ikebana.arrangements.store import EntryDict, PrefixStore, Store
from ikebana.arrangements.update import Interval
from ikebana.codecs.canonical import widened, without_nulls
from ikebana.processor.base.rows import (
    MOST_NOTED,
    SOME_ROW,
    Columns,
    KeyedUpdate,
    Partial,
    Truncate,
    Upserts,
    columns_of,
    datum_of,
)
from ikebana.processor.kernels import history, upsert_waiting
from ikebana.processor.kernels.history import EntryCounts, Queue
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    Contents,
    PartKind,
    StateLayout,
    packed_time,
)
from ikebana.processor.kernels.upsert_waiting import (
    NOTHING_SAID,
    SPECIAL,
    Bad,
    MessageRank,
    PlainUpsert,
    UpsertRow,
    UpsertValue,
    Waited,
    combined,
    keep,
    keep_plain,
    plain_rank,
    rank_of,
    rows_of,
    take_due,
    value_after,
    values_of,
)

# Which upserts of a key count, if messages are numbered in the order of their source.
#
# An upsert may have a sequence: bytes that sort in the order in which the source has made its
# changes. The upsert of a key with the greatest sequence counts, in whatever order they arrive.
# An upsert with a lower sequence than an upsert before it, by time, input, partition and offset,
# is outdated, and left out.  Of equal sequences the later upsert counts.
#
# The sequence of a tombstone stays when the key is gone, so that no earlier value comes back.
# An upsert without a sequence counts at its place and changes no sequence: it is the error of a
# message that cannot be used, or a truncate.


class Sequences:
    """The greatest sequence of each key; `outdated` counts upserts that were left out.

    `places` has the places of the last of them.
    """

    def __init__(self, part: PrefixStore) -> None:
        self.outdated = 0
        self.places: deque[MessageRank] = deque(maxlen=MOST_NOTED)
        self._part = part

    def counting(self, rows: Sequence[UpsertRow]) -> list[UpsertRow]:
        """The rows that count, among rows in the order of their ranks."""
        keys = sorted({row.key for row in rows if row.key is not None and row.sequence})
        before = dict(zip(keys, self._part.get_many(keys), strict=True))
        greatest = dict(before)
        counting: list[UpsertRow] = []
        for row in rows:
            if row.key is not None and row.sequence:
                last = greatest[row.key]
                if last is not None and row.sequence < last:
                    self.outdated += 1
                    self.places.append((row.order, row.partition, row.offset))
                    continue
                greatest[row.key] = row.sequence
            counting.append(row)
        moved = {key: last for key, last in greatest.items() if last != before[key]}
        self._part.change(moved)
        return counting


# Upserts apply time by time, or one by one.  At equal times the order is that of (input,
# partition, offset).  A `Moment` has the last upsert of each key at one time, behind a truncate if
# there is one.


# An old image: its key, the combined upserts between the state and its message, its checksum or
# `SOME_ROW`, its place, and the upsert of its message.
OldImage = tuple[bytes, UpsertValue, int, MessageRank, UpsertValue]
# An upsert: its key, its value, the checksum of its old image if it has one, and its place.
_Ranked = tuple[bytes, UpsertValue, int | None, MessageRank]


class Moment(NamedTuple):
    """The upserts of one time: the last one of each key, perhaps after a truncate."""

    time: int
    last: dict[bytes, UpsertValue]
    truncated: bool = False
    olds: Sequence[OldImage] = ()


def in_sequence(
    waiting: PrefixStore, chunks: Sequence[Upserts | Truncate], interval: Interval
) -> list[Upserts] | None:
    """The chunks in an order in which time rises with every record, if there is one.

    In the offset domain there usually is one: no two messages have the same time.
    """
    full = [chunk for chunk in chunks if isinstance(chunk, Upserts) and chunk.keys]
    truncated = any(isinstance(chunk, Truncate) for chunk in chunks)
    if not full or truncated or any(isinstance(chunk.times, int) for chunk in full):
        return None
    if any(chunk.sequences for chunk in full):
        return None
    if next(iter(waiting.scan(b"", packed_time(interval.lower))), None) is not None:
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


def _first_time(chunk: Upserts) -> int:
    return chunk.times if isinstance(chunk.times, int) else chunk.times[0]


def by_time(
    waiting: PrefixStore,
    chunks: Sequence[Upserts | Truncate],
    interval: Interval,
    sequences: Sequences,
) -> Iterable[Moment | Upserts]:
    """The moments in order of time; upserts that are not due yet go to `waiting`.

    Upserts that are outdated by `sequences` are left out.  Plain upserts come as one chunk, with
    one upsert of each key at each time.
    """
    waited = Waited()
    rows, plain = take_due(waiting, interval, waited)
    simple = not rows and not plain and not any(map(_has_sequences, chunks))
    same_time = simple and len({_time_of(chunk) for chunk in chunks}) == 1
    if same_time and (time := _time_of(chunks[0])) is not None and time < interval.upper:
        # Nearly every batch in the ingest domain: rows need no tuples.
        assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
        return [_moment(time, sorted(chunks, key=_order))]
    for chunk in chunks:
        if (plain_rows := _plain_rows(chunk)) is not None:
            assert plain_rows[0][0] >= interval.lower, (
                f"time {plain_rows[0][0]} is before {interval.lower}"
            )
            cut = bisect_left(plain_rows, (interval.upper,))
            plain += plain_rows[:cut]
            keep_plain(waiting, plain_rows[cut:], waited)
            continue
        for row in rows_of(chunk):
            time = row.time
            assert time >= interval.lower, f"time {time} is not beyond the lower {interval.lower}"
            if time < interval.upper:
                rows.append(row)
            else:
                keep(waiting, row, waited)
    if any(row.sequence for row in rows):
        rows += [UpsertRow(*each) for each in plain]
        rows, plain = sequences.counting(sorted(rows, key=rank_of)), []
    if all(map(_is_plain, rows)):
        plain += [row[:6] for row in rows]  # type: ignore[misc]
        return [_last_of_each(sorted(plain, key=plain_rank))] if plain else ()
    rows += [UpsertRow(*each) for each in plain]
    rows.sort(key=rank_of)
    return _moments(rows)


def _plain_rows(chunk: Upserts | Truncate) -> list[PlainUpsert] | None:
    """The rows of a chunk in the order of their ranks, if all are plain values.

    Also None if a message has several rows, since these have one rank.
    """
    if isinstance(chunk, Truncate) or not chunk.keys or isinstance(chunk.times, int):
        return None
    if chunk.bad or chunk.failed or chunk.partial or chunk.before or chunk.sequences:
        return None
    if len(set(chunk.offsets)) < len(chunk.offsets):
        return None
    source = repeat(chunk.input_order), repeat(chunk.partition)
    columns = chunk.times, *source, chunk.offsets, chunk.keys, chunk.values
    # All ranks differ, so nothing behind them is compared.
    return sorted(zip(*columns, strict=False))


def _is_plain(row: UpsertRow) -> bool:
    return row.key is not None and row.before is None and row.upsert.__class__ not in SPECIAL


def _last_of_each(rows: Sequence[PlainUpsert]) -> Upserts:
    """Plain rows in their order as a chunk, with only the last row of each key and time."""
    last = {(row[0], row[4]): row[5] for row in rows}
    times, keys = map(list, zip(*last, strict=True))
    return Upserts("", 0, 0, times, keys, list(last.values()), [])


def _moment(time: int, chunks: Sequence[Upserts | Truncate]) -> Moment:
    """The moment of chunks of one time, in their order."""
    gathering = _Gathering(time)
    for chunk in chunks:
        if isinstance(chunk, Truncate):
            gathering.truncate()
        else:
            gathering.add_all(chunk)
    return gathering.moment()


def _moments(rows: "list[UpsertRow]") -> Iterable[Moment]:
    gathering: _Gathering | None = None
    for row in rows:
        if gathering is None or gathering.time != row.time:
            if gathering is not None:
                yield gathering.moment()
            gathering = _Gathering(row.time)
        if row.key is None:
            gathering.truncate()
        else:
            rank = row.order, row.partition, row.offset
            gathering.add([(row.key, row.upsert, row.before, rank)])
    if gathering is not None:
        yield gathering.moment()


class _Gathering:
    """The upserts of one time, one after the other."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.last: dict[bytes, UpsertValue] = {}
        self._truncated = False
        self._olds: list[OldImage] = []
        # The upsert that a key starts with.
        self._first: UpsertValue = NOTHING_SAID

    def add(self, upserts: Iterable[_Ranked]) -> None:
        """Add upserts."""
        last, first = self.last, self._first
        # It runs for every record, so the usual upsert is added without a call.
        for key, upsert, before, rank in upserts:
            if before is not None:
                self._olds.append((key, last.get(key, first), before, rank, upsert))
            last[key] = (
                combined(last.get(key, first), upsert) if upsert.__class__ in SPECIAL else upsert
            )

    def add_all(self, chunk: Upserts) -> None:
        """Add the upserts of a chunk."""
        if chunk.bad or chunk.failed or chunk.partial or chunk.before:
            self.add(_each(chunk))
        else:
            # A later upsert takes the place of an earlier one, not its position.
            self.last.update(zip(chunk.keys, chunk.values, strict=True))

    def truncate(self) -> None:
        """Remove every key, including the upserts of this time."""
        self._truncated = True
        self._first = None
        self.last = dict.fromkeys(self.last)

    def moment(self) -> Moment:
        """The moment of all upserts added so far."""
        return Moment(self.time, self.last, self._truncated, self._olds)


def _each(chunk: Upserts) -> Iterable[_Ranked]:
    """The upserts of a chunk."""
    ranks = zip(repeat(chunk.input_order), repeat(chunk.partition), chunk.offsets, strict=False)
    checksums = map(chunk.before.get, range(len(chunk.keys)))
    return zip(chunk.keys, values_of(chunk), checksums, ranks, strict=True)


def _has_sequences(chunk: Upserts | Truncate) -> bool:
    return isinstance(chunk, Upserts) and bool(chunk.sequences)


def _order(chunk: Upserts | Truncate) -> tuple[int, int, int]:
    if isinstance(chunk, Truncate):
        return chunk.input_order, chunk.partition, chunk.offset
    return chunk.input_order, chunk.partition, chunk.offsets[0] if chunk.offsets else 0


def _time_of(chunk: Upserts | Truncate) -> int | None:
    if isinstance(chunk, Truncate):
        return chunk.time
    return chunk.times if isinstance(chunk.times, int) else None


try:
    from ikebana.compiled._upserts import changed, move, move_each, take_states
except ImportError:
    changed = move = move_each = take_states = None  # type: ignore[assignment]

# A state is b"v" + value, or b"e" + (value or None, error record) when the slot is full.
_VALUE = b"v"
_ERROR = b"e"
_VALUE_TAG = _VALUE[0]
BEFORE = b"h"
"""The prefix of old values for readers that lag, which `UpsertArrangement` keeps."""


class UpsertChanges(NamedTuple):
    """The updates of the collection and those of the error records.

    `drift` is how many upserts differed from the state in what was before them; `drifted` has the
    places of the last of them.  So it is with `outdated` upserts and `outdated_at`.
    """

    updates: Columns
    errors: list[KeyedUpdate]
    drift: int = 0
    drifted: Sequence[MessageRank] = ()
    outdated: int = 0
    outdated_at: Sequence[MessageRank] = ()


def step(store: Store, chunks: Sequence[Upserts | Truncate], interval: Interval) -> UpsertChanges:
    """Apply the upserts with times before `interval.upper`; keep the others."""
    states, waiting = PrefixStore(store, b"k"), PrefixStore(store, b"w")
    run, sequences = _Run(states), Sequences(PrefixStore(store, b"n"))
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
    states = PrefixStore(store, b"k").get_many(keys)
    return list(map(_value_of, states))


def scan(store: Store, start: bytes = b"") -> Iterator[bytes]:
    """The keys that have a state, in order, from `start` on."""
    return (key for key, _ in PrefixStore(store, b"k").scan(b"", start))


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its value and its error record, if any."""
    for key, state in PrefixStore(store, b"k").scan(b"", start):
        value, record = split(state)
        yield key, () if value is None else (value,), () if record is None else (record,)


def waiting_times(store: Store) -> list[int]:
    """The times of the upserts that wait, in order."""
    return upsert_waiting.times(PrefixStore(store, b"w"))


def waiting(store: Store, upper: int, most: int) -> int:
    """How many upserts wait for times from `upper` on, counted up to about `most`."""
    return upsert_waiting.count(PrefixStore(store, b"w"), upper, most)


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

    def __init__(self, states: PrefixStore) -> None:
        self.updates = Columns([], [], [], [])
        self.errors: list[KeyedUpdate] = []
        self.drift = 0
        self.drifted: deque[MessageRank] = deque(maxlen=MOST_NOTED)
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
        self._compare(olds)
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
        slots = self._slots
        assert isinstance(chunk.times, list)
        if chunk.before:
            gathering = _Gathering(0)
            gathering.add(_each(chunk))
            self._compare(gathering.moment().olds)
        values = values_of(chunk)
        if move_each is not None and isinstance(values, list):
            columns = chunk.times, chunk.keys, values
            move_each(slots, *columns, self._columns, self._general)
            return
        add_key, add_value, add_time, add_diff = self._adding
        for time, key, upsert in zip(chunk.times, chunk.keys, values, strict=True):
            old = slots[key]
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

    def _compare(self, olds: Iterable[OldImage]) -> None:
        """Count the old images that the state, with the upserts before them, differs from."""
        for key, earlier, checksum, source, upsert in olds:
            value = value_after(earlier, _value_in(self._slots[key]))
            if value is None or not (
                checksum in (SOME_ROW, crc32(value))
                # Columns that the table got later are null in the old image.
                or checksum
                == crc32(
                    widened(value, upsert) if isinstance(upsert, bytes) else without_nulls(value)
                )
            ):
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


# Keys are read together, for a store answers many faster than one by one.
_AT_ONCE = 5_000
# Ascending times of changes, each with the value before it.
_Past = list[tuple[int, bytes | None]]
_encode = msgspec.msgpack.encode
_entry_of = msgspec.msgpack.Decoder(tuple[int, _Past]).decode


class UpsertArrangement:
    """The output of an upsert by its key, for lookups at or after `since`."""

    def __init__(
        self, store: Store, updates: Iterable[KeyedUpdate], interval: Interval, since: int
    ) -> None:
        self._store = store
        self._queue = Queue(store)
        assert self._queue.since <= since, f"since goes back from {self._queue.since} to {since}"
        assert since <= interval.lower, f"since {since} is beyond the lower {interval.lower}"
        self.since = since
        self.upper = interval.upper
        self._lags = not self._queue.empty()
        self._fresh: dict[bytes, _Past] = {}
        for key, value, time, diff in updates:
            assert key is not None, "an upsert's row has no key"
            changes = self._fresh.setdefault(key, [])
            # The upsert emits a retraction before the insertion of the same time.
            if diff < 0:
                changes.append((time, value))
            elif not changes or changes[-1][0] != time:
                changes.append((time, None))

    def groups(self, keys: Sequence[bytes]) -> Iterator[Iterable[tuple[bytes, EntryCounts]]]:
        """Yield for each key, in the order asked, each datum that it has or had."""
        entries, fresh = self._entries(keys), self._fresh
        for key, value in zip(keys, read(self._store, keys), strict=True):
            entry = entries.get(key)
            if entry is None and key not in fresh:
                yield () if value is None else ((datum_of(key, value), [1]),)
            else:
                past = [*(entry[1] if entry else ()), *fresh.get(key, ())]
                yield _counted(key, past, value)

    def contents(self, before: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, datum, 1) of the relation before a time, in order of keys from `start` on.

        The time is from `since` on, and no later than the interval's lower.
        """
        # Keys deleted since then have no state, but old values.
        gone = (place[1:] for place, _ in self._store.scan(BEFORE, start))
        # The old values of this batch are not in the store yet.
        fresh = sorted(key for key in self._fresh if key >= start)
        there = heapq.merge(scan(self._store, start), gone, fresh)
        merged = (key for key, _ in groupby(there))
        while keys := list(islice(merged, _AT_ONCE)):
            for key, group in zip(keys, self.groups(keys), strict=True):
                for datum, counts in group:
                    if history.count_before(counts, before):
                        yield key, datum, 1

    def sizes(self, keys: Sequence[bytes]) -> list[int]:
        """How many data each key has or had at any time from `since` on."""
        return [sum(1 for _ in group) for group in self.groups(keys)]

    def settle(self, since: int) -> None:
        """Write the old values that lookups at or after `since` need."""
        assert self.since <= since <= self.upper, f"since {since} is not reached yet"
        keys = dict.fromkeys(place[1:] for _, place in self._queue.due(since))
        if since < self.upper or self._lags:
            keys |= dict.fromkeys(self._fresh)
        entries = self._entries(list(keys))
        changes: EntryDict = {}
        for key in keys:
            entry, place = entries.get(key), BEFORE + key
            old, queued = (entry[1], entry[0]) if entry else ([], None)
            past = [change for change in (*old, *self._fresh.get(key, ())) if change[0] >= since]
            moved = history.queue_time(queued, past[-1][0], since) if past else None
            if entry or past:
                changes[place] = _encode((moved, past)) if past else None
            history.move(changes, place, queued, moved)
        self._queue.write(changes, since)
        self._fresh = {}

    def _entries(self, keys: Sequence[bytes]) -> dict[bytes, tuple[int, _Past]]:
        if not self._lags:
            return {}
        entries = self._store.get_many([BEFORE + key for key in keys])
        return {
            key: _entry_of(entry)
            for key, entry in zip(keys, entries, strict=True)
            if entry is not None
        }


def _counted(
    key: bytes, changes: _Past, value: bytes | None
) -> Iterator[tuple[bytes, EntryCounts]]:
    """All data of a key with their counts, from its value before each change."""
    by_value: dict[bytes, EntryCounts] = {}
    (_, old), *_ = changes
    if old is not None:
        by_value[old] = [1]
    after = [*(before for _, before in changes[1:]), value]
    for (time, before), new in zip(changes, after, strict=True):
        if before is not None:
            by_value[before] += [time, -1]
        if new is not None:
            by_value.setdefault(new, [0]).extend((time, 1))
    return ((datum_of(key, each), counts) for each, counts in by_value.items())
