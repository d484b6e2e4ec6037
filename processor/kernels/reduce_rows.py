"""Reduce by a function: a user's function returns the results of all rows of a key.

The input is a collection of (key, row), both canonical JSON; the output is the collection
of (key, value) with each value that `function(key, rows)` returns.  The function is called
once for each time at which the rows of a key have changed, after all updates of that time
were added, and the difference from the former results is emitted at that time.

Rows are pairs (row, count) in the order of their canonical bytes, so the results do not depend
on the order in which rows came.  No count is zero; a count is below zero where the input has
retracted more than it has inserted, and the function decides what that means.  The values may
come in any order; a value that is returned twice has the count 2.

If the function fails or refuses, the key has no results but an error record, until its rows
change and the function succeeds.  So the results depend on the rows alone, not on their
history.  A key without rows has no results; the function is not called for it.

The store has each row with its count, and the results as they were emitted, so that they
can be retracted after the function has changed.  A call reads and decodes all rows of
its key.  Only rows that have changed are written.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.codecs.errors import error_record
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    KEY_WITH_LENGTH,
    Contents,
    PartKind,
    StateLayout,
    changes_by_key,
    with_length,
    write_entries,
)
from ikebana.processor.kernels.reduce import Reduced
from ikebana.processor.kernels.user_calls import FailureError, canonical_results

# Of the key and its rows with their counts, over JSON data as Python has it.
RowsFunction = Callable[[Any, list[tuple[Any, int]]], Iterable[Any]]


def step(
    store: Store,
    updates: Collection[KeyedUpdate],
    interval: Interval,
    function: RowsFunction,
    operator: str = "",
) -> Reduced:
    """Apply the updates of one interval, which may come in any order.

    `operator` is the one that errors name.
    """
    changes = changes_by_key(updates, interval)
    reduced = Reduced([], [])
    after: dict[bytes, bytes | None] = {}
    stored = store.get_many([_SHOWN + key for key in changes])
    for (key, times), entry in zip(changes.items(), stored, strict=True):
        group = _Group(store, key)
        shown = was = _NOTHING if entry is None else _shown_of(entry)
        for time in sorted(times):
            group.add(times[time])
            before, shown = shown, _called(function, key, group, operator)
            reduced.updates.extend(_differences(key, time, before.values, shown.values))
            reduced.errors.extend(_differences(None, time, before.slot, shown.slot))
        after |= group.entries()
        if shown != was:
            after[_SHOWN + key] = None if shown == _NOTHING else _encode(shown)
    write_entries(store, after)
    # Stable: of one time and key the retractions stay first.
    reduced.updates.sort(key=lambda update: update.time)
    reduced.errors.sort(key=lambda update: update.time)
    return reduced


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, from `start` on, each with its results and its error record."""
    for place, entry in store.scan(_SHOWN, start):
        state = _shown_of(entry)
        yield place[1:], state.values, state.slot


# A place is b"k" + key for the results, and b"r" + length of the key + key + digest of the
# row for a row, since rows may be long.
_SHOWN = b"k"
_ROW = b"r"
PART = PartKind(
    "reduce-rows ", StateLayout({_SHOWN: KEY_IS_REST, _ROW: KEY_WITH_LENGTH}), contents
)
_DIGEST_BYTES = 16
# An entry of a row is its count in digits, this, and the row.
_END = b"\n"


class _Shown(msgspec.Struct, array_like=True, frozen=True):
    """The results of a key: values in order, each as often as it occurs, or an error record."""

    values: tuple[bytes, ...] = ()
    record: bytes | None = None

    @property
    def slot(self) -> tuple[bytes, ...]:
        """The error slot."""
        return () if self.record is None else (self.record,)


_NOTHING = _Shown()
_encode = msgspec.msgpack.encode
_shown_of = msgspec.msgpack.Decoder(_Shown).decode

_Diffs = Mapping[bytes, int]


class _Group:
    """All rows of one key in the course of a batch."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._start = _ROW + with_length(key)
        self._counts: Counter[bytes] = Counter()
        for _, entry in store.scan(self._start):
            count, _, row = entry.partition(_END)
            self._counts[row] = int(count)
        # The stored counts of rows that have changed since.
        self._before: dict[bytes, int] = {}

    def add(self, diffs: _Diffs) -> None:
        """Add to the counts."""
        for row, diff in diffs.items():
            self._before.setdefault(row, self._counts[row])
            self._counts[row] += diff
            if not self._counts[row]:
                del self._counts[row]

    def rows(self) -> list[tuple[Any, int]]:
        """The rows in order, decoded for each call, since a function may change its arguments."""
        return [(canonical.decode(row), count) for row, count in sorted(self._counts.items())]

    def __bool__(self) -> bool:
        return bool(self._counts)

    def entries(self) -> dict[bytes, bytes | None]:
        """The entries that differ from the store; None where a row is gone."""
        return {
            self._start + blake2b(row, digest_size=_DIGEST_BYTES).digest(): (
                b"%d" % count + _END + row if (count := self._counts[row]) else None
            )
            for row, before in self._before.items()
            if self._counts[row] != before
        }


def _called(function: RowsFunction, key: bytes, group: _Group, operator: str) -> _Shown:
    """The results of a key, from a call of the function."""
    if not group:
        return _NOTHING
    try:
        values = canonical_results(
            "reduce", function, lambda: function(canonical.decode(key), group.rows()), operator
        )
    except FailureError as failure:
        return _Shown(record=error_record(failure.reason(operator), None, key, None))
    return _Shown(tuple(sorted(values)))


def _differences(
    key: bytes | None, time: int, old: tuple[bytes, ...], new: tuple[bytes, ...]
) -> list[KeyedUpdate]:
    """The updates that turn one list of values into another, retractions first."""
    if old == new:
        return []
    diffs = Counter(new)
    diffs.subtract(old)
    changed = sorted((diff > 0, value, diff) for value, diff in diffs.items() if diff)
    return [KeyedUpdate(key, value, time, diff) for _, value, diff in changed]
