"""As-of join with `retract: locked`: a retraction retracts the matches of its insertion.

For each left datum the store has the matches of every insertion, in order, also if there
were none.  A retraction emits the negation of the latest matches and removes them, without a
lookup.  A retraction without a stored insertion is an error record at its time, which is never
retracted: no later insertion can be the one that it meant.

At one time only the sum of a datum's updates counts.  The store keeps the results, so it
grows with the number of left data times the matches of each.

Where data are *locked by* some of their fields, a retraction and an insertion of one time that
agree in these fields are an update of the others: the insertion takes over the matches of the
retraction, and looks up nothing.  If there are several, they are paired in the order of data.
"""

# Decision (locked matches pass on within a time): An insertion takes what a retraction of the
# same time, key and locked columns gives back, so nothing more is stored. Columns of `on` must be
# locked: other rows lie in other shards.

import struct
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval, pieces, sums
from ikebana.codecs.errors import error_record
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import shown
from ikebana.processor.kernels.half_join import Match
from ikebana.processor.kernels.layout import (
    KEY_WITH_LENGTH,
    PartKind,
    StateLayout,
    with_length,
    write_entries,
)

# The matches of an insertion: data, or None where an outer join found nothing, with diffs.
LockedResults = list[tuple[bytes | None, int]]

# A place is one of these + length of the key + key + digest of the left datum, for the latest
# of its insertions, and + number, for earlier ones if there are many.
_LATEST, _EARLIER = b"l", b"e"
PART = PartKind("locked ", StateLayout({_LATEST: KEY_WITH_LENGTH, _EARLIER: KEY_WITH_LENGTH}))
_NUMBER = struct.Struct(">Q")
_DIGEST_BYTES = 16
# When there are twice as many runs as this, half of them move to an earlier entry.
_RUNS = 16

# Consecutive insertions with the same matches, and their number.
_Run = tuple[int, LockedResults]
_At = tuple[bytes | None, bytes, int]
_Met = dict[_At, LockedResults]
Locks = Callable[[Sequence[bytes]], Sequence[Hashable]]
"""Returns the fields that each left datum is locked by."""
_encode = msgspec.msgpack.encode
_latest_of = msgspec.msgpack.Decoder(tuple[int, list[_Run]]).decode
_earlier_of = msgspec.msgpack.Decoder(list[_Run]).decode


class LockedLookup(NamedTuple):
    """An insertion to look up; its matches have the same `payload`."""

    key: bytes
    payload: Any
    value: bytes
    time: int


class LockedMatches(NamedTuple):
    """Matches with the left (key, value) as payload, and the updates of error records."""

    matches: list[Match]
    errors: list[KeyedUpdate]


def step(
    store: Store,
    lefts: Iterable[KeyedUpdate],
    interval: Interval,
    meet: Callable[[Iterable[LockedLookup]], Iterable[Match]],
    operator: str,
    locks: Locks | None = None,
) -> LockedMatches:
    """Join the left's updates of the interval, which may come in any order.

    `operator` is the join's name, for its error records.  `meet` returns the matches of
    insertions; it is asked for each at most once, with a diff of 1.  `locks` returns the fields
    that left data are locked by; without it, every insertion is looked up.
    """
    diffs = {at: diff for at, diff in sums(lefts).items() if diff}
    places = {at[:2]: _place(_key(at), at[1]) for at in diffs}
    entries = dict(zip(places, store.get_many(list(places.values())), strict=True))
    stacks = {left: _Stack(store, places[left], entry) for left, entry in entries.items()}
    held = _Held(diffs, locks)
    met = _met((at for at, diff in diffs.items() if diff > 0 and at not in held), meet)
    joined = LockedMatches([], [])
    for time, some in groupby(sorted(diffs, key=lambda at: (at[2], at[1])), lambda at: at[2]):
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        here = list(some)
        for at in here:
            if (diff := diffs[at]) < 0:
                returned = list(stacks[at[:2]].pop(-diff))
                held.give(at, returned)
                joined.matches.extend(_matches(at, -1, returned))
                joined.errors.extend(_unremembered(at, -diff - _count(returned), operator))
        runs = {at: held.take(at, diffs[at]) for at in here if diffs[at] > 0}
        rest = {at: diffs[at] - _count(own_runs) for at, own_runs in runs.items()}
        met |= _met((at for at, count in rest.items() if count and at in held), meet)
        for at, own_runs in runs.items():
            pushed = [*own_runs, *([(rest[at], met[at])] if rest[at] else [])]
            for count, results in pushed:
                stacks[at[:2]].push(count, results)
            joined.matches.extend(_matches(at, 1, pushed))
    for stack in stacks.values():
        stack.write()
    return joined


_REASON = "a row is retracted of which no result is remembered"


class _Held:
    """Matches that retractions pass to insertions of the same time and locked fields.

    It contains all insertions for which there is such a retraction.
    """

    def __init__(self, diffs: dict[_At, int], locks: Locks | None) -> None:
        self._locks: dict[_At, Hashable] = {}
        self._returned: dict[Hashable, deque[_Run]] = {}
        if locks is None:
            return
        goes = {(at[0], at[2]) for at, diff in diffs.items() if diff < 0}
        some = [at for at in diffs if (at[0], at[2]) in goes]
        parts = zip(some, locks([value for _, value, _ in some]), strict=True)
        by_lock = {at: (at[0], at[2], part) for at, part in parts}
        self._returned = {lock: deque() for at, lock in by_lock.items() if diffs[at] < 0}
        self._locks = {at: lock for at, lock in by_lock.items() if lock in self._returned}

    def __contains__(self, at: _At) -> bool:
        return at in self._locks

    def give(self, at: _At, runs: Iterable[_Run]) -> None:
        """Add the matches of a retraction."""
        if at in self._locks:
            self._returned[self._locks[at]].extend(runs)

    def take(self, at: _At, count: int) -> list[_Run]:
        """Take matches for an insertion, up to a count; those added first are taken first."""
        queue = self._returned[self._locks[at]] if at in self._locks else deque()
        runs: list[_Run] = []
        while count and queue:
            number, results = queue.popleft()
            if number > count:
                queue.appendleft((number - count, results))
            runs.append((min(number, count), results))
            count -= runs[-1][0]
        return runs


def _met(ats: Iterable[_At], meet: Callable[[Iterable[LockedLookup]], Iterable[Match]]) -> _Met:
    """The matches of each insertion, in the order of data."""
    met: _Met = {at: [] for at in ats}
    asked = (LockedLookup(_key(at), at, at[1], at[2]) for at in met)
    for at, datum, _, diff in meet(asked) if met else ():
        met[at].append((datum, diff))
    for results in met.values():
        # None is alone where it is.
        results.sort(key=lambda result: result[0] or b"")
    return met


def _key(left: _At) -> bytes:
    assert left[0] is not None, "a left row has no key"
    return left[0]


def _matches(left: _At, sign: int, runs: Iterable[_Run]) -> Iterator[Match]:
    for count, results in runs:
        for datum, diff in results:
            yield Match(left[:2], datum, left[2], sign * count * diff)


def _unremembered(left: _At, count: int, operator: str) -> Iterator[KeyedUpdate]:
    """The error records of retractions without a stored insertion."""
    if count:
        record = error_record(f"operator {shown(operator)}: {_REASON}", None, left[0], None)
        yield from (KeyedUpdate(None, record, left[2], piece) for piece in pieces(count))


def _count(runs: Iterable[_Run]) -> int:
    return sum(count for count, _ in runs)


class _Stack:
    """The stored insertions of one left datum, during a batch."""

    def __init__(self, store: Store, place: bytes, entry: bytes | None) -> None:
        self._store = store
        self._place = place
        self._stored = entry
        self._earlier, self._runs = (0, []) if entry is None else _latest_of(entry)
        self._changes: dict[bytes, bytes | None] = {}

    def push(self, count: int, results: LockedResults) -> None:
        """Add insertions with equal matches."""
        if self._runs and self._runs[-1][1] == results:
            count += self._runs.pop()[0]
        self._runs += [(piece, results) for piece in pieces(count)]
        if len(self._runs) >= 2 * _RUNS:
            self._changes[self._earlier_place()] = _encode(self._runs[:_RUNS])
            self._earlier += 1
            del self._runs[:_RUNS]

    def pop(self, count: int) -> Iterator[_Run]:
        """Remove the latest insertions, up to a number, and yield their matches."""
        while count and (self._runs or self._earlier):
            if not self._runs:
                self._earlier -= 1
                self._runs = self._take_earlier(self._earlier_place())
            number, results = self._runs.pop()
            if number > count:
                self._runs.append((number - count, results))
            some = min(number, count)
            count -= some
            yield some, results

    def write(self) -> None:
        """Write what has changed."""
        is_there = self._runs or self._earlier
        entry = _encode((self._earlier, self._runs)) if is_there else None
        changes = self._changes | ({} if entry == self._stored else {self._place: entry})
        write_entries(self._store, changes)

    def _take_earlier(self, place: bytes) -> list[_Run]:
        entry = self._changes.get(place)
        if entry is None:
            (entry,) = self._store.get_many([place])
        assert entry is not None, "earlier insertions are gone"
        self._changes[place] = None
        return _earlier_of(entry)

    def _earlier_place(self) -> bytes:
        return _EARLIER + self._place[1:] + _NUMBER.pack(self._earlier)


def _place(key: bytes, value: bytes) -> bytes:
    digest = blake2b(value, digest_size=_DIGEST_BYTES).digest()
    return _LATEST + with_length(key) + digest
