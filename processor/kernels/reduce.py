"""Reduce: the rows of each key become one row of counts, sums, extremes and lists.

The input is a collection of (key, row), a row being canonical JSON of an object; the
output is the collection of (key, results), an object again.  At each time a key whose
results change gives -old and +new.  A key is there as long as the diffs of its rows do
not sum to zero, whatever is asked of them; in a collection whose counts are not
negative that is as long as it has a row.

An argument that is null or absent counts for nothing, but a count without a field
counts rows.  Of no values sum, avg, min and max are null, count and distinct 0, top is
empty.  Sums are exact, so what is added and retracted leaves no trace; an average has
15 digits.  What cannot be added is null to a sum and an average, and an error that goes
when its row goes.  A value of which there are fewer than none is not there.

Values are in order: false, true, numbers by value, texts by their UTF-8, arrays and
objects by their canonical bytes.  The store keeps one state a key and, for min, max,
top and distinct, the values in this order with their counts: an update costs the same
however many rows its key has.
"""

import bisect
import functools
import struct
from collections.abc import Iterator, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Literal, NamedTuple

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.codecs.error_record import error_record
from ikebana.processor.rows import KeyedUpdate

_STATE = b"k"
_VALUE = b"v"

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_AVERAGE = Context(prec=15)
# A sum of numbers of any exponents could need more digits than there is memory.
_SUMMED_DIGITS = 2_000
# Beyond it canonical JSON has integers only.
_LARGEST_EXPONENT = 308

_fields = canonical.decoder(dict[str, Any])


class Aggregate(msgspec.Struct, frozen=True, array_like=True):
    """One result: `kind` of the arguments in `field`; of `count` without one, of the rows.

    `limit` is how many of the greatest values `top` lists, each as often as it is there.
    """

    name: str
    kind: Literal["count", "sum", "avg", "min", "max", "top", "distinct"]
    field: str = ""
    limit: int = 0


class Reduced(NamedTuple):
    """The updates of the results and those of the error records, which have no key."""

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]


def step(
    store: Store,
    updates: Sequence[KeyedUpdate],
    interval: Interval,
    aggregates: Sequence[Aggregate],
) -> Reduced:
    """Apply the updates of one interval, which may come in any order."""
    changes, errors = _changes(updates, interval, aggregates)
    places = [_STATE + key for key in changes]
    places += {place for times in changes.values() for of in times.values() for place in of.values}
    before = dict(zip(places, store.get_many(places), strict=True))
    emitted: list[KeyedUpdate] = []
    writes: dict[bytes, bytes | None] = {}
    for key, times in changes.items():
        group = _Group(store, before, key, aggregates)
        for time in sorted(times):
            old = group.state.result
            new = group.after(times[time])
            if new != old:
                if old is not None:
                    emitted.append(KeyedUpdate(key, old, time, -1))
                if new is not None:
                    emitted.append(KeyedUpdate(key, new, time, 1))
        writes |= group.entries({place for of in times.values() for place in of.values})
    # All at the end: no key's scan meets a store that has changed since the last one.
    for place, entry in writes.items():
        if entry == before[place]:
            continue
        if entry is None:
            store.delete(place)
        else:
            store.put(place, entry)
    # Stable: of one time and key the retraction stays first.
    emitted.sort(key=lambda update: update.time)
    return Reduced(emitted, errors)


def read(store: Store, keys: Sequence[bytes]) -> list[bytes | None]:
    """The current results of `keys`."""
    states = store.get_many([_STATE + key for key in keys])
    return [None if state is None else _decoded(state).result for state in states]


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of the store belongs to, whatever kind of entry it is."""
    if place[:1] == _STATE:
        return place[1:]
    start = 1 + _LENGTH.size
    (length,) = _LENGTH.unpack(place[1:start])
    return place[start : start + length]


class _Change:
    """What the updates of one key and time add to its state, and to counts of values."""

    def __init__(self, aggregates: int) -> None:
        self.rows = 0
        self.counts = [0] * aggregates
        self.totals = [Decimal(0)] * aggregates
        self.values: dict[bytes, int] = {}


def _changes(
    updates: Sequence[KeyedUpdate], interval: Interval, aggregates: Sequence[Aggregate]
) -> tuple[dict[bytes, dict[int, _Change]], list[KeyedUpdate]]:
    """The changes of each key and time, and the updates of the error records."""
    sums: dict[tuple[bytes, int, bytes], int] = {}
    for key, row, time, diff in updates:
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        assert key is not None, "a row without a key belongs to no group"
        sums[key, time, row] = sums.get((key, time, row), 0) + diff
    changes: dict[bytes, dict[int, _Change]] = {}
    errors: dict[tuple[int, bytes], int] = {}
    for (key, time, row), diff in sums.items():
        if not diff:
            continue
        times = changes.setdefault(key, {})
        if (change := times.get(time)) is None:
            change = times[time] = _Change(len(aggregates))
        for field in _add(change, key, row, diff, aggregates):
            record = error_record(f"reduce: argument {field!r} is no number", None, key, None)
            errors[time, record] = errors.get((time, record), 0) + diff
    return changes, [
        KeyedUpdate(None, record, time, diff)
        for (time, record), diff in sorted(errors.items())
        if diff
    ]


def _add(
    change: _Change, key: bytes, row: bytes, diff: int, aggregates: Sequence[Aggregate]
) -> set[str]:
    """Add `diff` times a row to a change; the fields that should be numbers and are not."""
    change.rows += diff
    arguments = _fields(row)
    wrong = set()
    for at, (aggregate, prefix) in enumerate(zip(aggregates, _prefixes(aggregates), strict=True)):
        argument = arguments.get(aggregate.field) if aggregate.field else row
        if argument is None:
            continue
        if aggregate.kind in ("sum", "avg"):
            if (term := _term(argument)) is None:
                wrong.add(aggregate.field)
                continue
            more = _EXACT.multiply(term, Decimal(diff))
            change.totals[at] = _EXACT.add(change.totals[at], more)
        if prefix is None:
            change.counts[at] += diff
        elif aggregate.field not in wrong_once(change):
            pass
    return wrong
