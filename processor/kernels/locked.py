"""As-of join with `retract: locked`: a retraction takes back what its insertion had met.

For each left datum the store has the matches of every insertion, in order, also if there
were none.  A retraction emits the negation of the latest matches and removes them, without a
lookup.  A retraction without a stored insertion is an error record at its time, which is never
retracted: a later insertion cannot be the one that it meant.

At one time only the sum of a datum's updates counts.  The store keeps the results, so it
grows with what the left relation has, times what each has met.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.arrangements.update import pieces, sums
from ikebana.codecs.error_record import error_record
from ikebana.processor.ground.generations import shown
from ikebana.processor.kernels.half_join import Match
from ikebana.processor.rows.rows import KeyedUpdate

# What an insertion has met: data, or None where an outer join met nothing, with diffs.
Results = list[tuple[bytes | None, int]]

# A place is one of these + length of the key + key + digest of the left datum, for the latest
# of its insertions, and + number, for earlier ones if there are many.
_LATEST, _EARLIER = b"l", b"e"
_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_DIGEST_BYTES = 16
# So many runs go to an earlier entry when there are twice as many.
_RUNS = 16

# Insertions one after the other that have met the same.
_Run = tuple[int, Results]
_encode = msgspec.msgpack.encode
_latest_of = msgspec.msgpack.Decoder(tuple[int, list[_Run]]).decode
_earlier_of = msgspec.msgpack.Decoder(list[_Run]).decode


class Asked(NamedTuple):
    """An insertion to look up; its matches have the same `payload`."""

    key: bytes
    payload: Any
    value: bytes
    time: int


class Joined(NamedTuple):
    """Matches whose payload is the left (key, value), and the updates of error records."""

    matches: list[Match]
    errors: list[KeyedUpdate]


def step(
    store: Store,
    lefts: Iterable[KeyedUpdate],
    interval: Interval,
    meet: Callable[[Iterable[Asked]], Iterable[Match]],
    operator: str,
) -> Joined:
    """Join the left's updates of the interval, which may come in any order.

    `operator` is the join's name, for its error records.
    `meet` gives the matches of insertions, of which each is asked once, with a diff of 1.
    """
    diffs = {at: diff for at, diff in sums(lefts).items() if diff}
    found = Joined([], [])
    met = _met(diffs, meet)
    changes: dict[bytes, bytes | None] = {}
    places = {at[:2]: _place(_key(at), at[1]) for at in diffs}
    entries = dict(zip(places, store.get_many(list(places.values())), strict=True))
    stacks = {left: _Stack(store, places[left], entry) for left, entry in entries.items()}
    for key, value, time in sorted(diffs, key=lambda left: left[2]):
        assert time in interval, f"time {time} is not in {interval.lower} to {interval.upper}"
        diff, stack = diffs[key, value, time], stacks[key, value]
        if diff > 0:
            results = met[key, value, time]
            stack.push(diff, results)
            found.matches.extend(_matches((key, value), time, diff, results))
            continue
        for count, results in stack.pop(-diff):
            diff += count
            found.matches.extend(_matches((key, value), time, -count, results))
        if diff:
            record = error_record(f"operator {shown(operator)}: {_REASON}", None, key, None)
            found.errors.extend(KeyedUpdate(None, record, time, n) for n in pieces(-diff))
    for stack in stacks.values():
        changes |= stack.changes()
    for place, entry in changes.items():
        if entry is None:
            store.delete(place)
        else:
            store.put(place, entry)
    return found


def key_of(place: bytes) -> bytes:
    """The key that an entry of the store belongs to."""
    (length,) = _LENGTH.unpack_from(place, 1)
    start = 1 + _LENGTH.size
    return place[start : start + length]


_REASON = "a row is retracted of which no result is remembered"

_At = tuple[bytes | None, bytes, int]


def _met(
    diffs: dict[_At, int], meet: Callable[[Iterable[Asked]], Iterable[Match]]
) -> dict[_At, Results]:
    """The matches of each insertion, in the order of data."""
    met: dict[_At, Results] = {at: [] for at, diff in diffs.items() if diff > 0}
    asked = (Asked(_key(at), at, at[1], at[2]) for at in met)
    for at, datum, _, diff in meet(asked):
        met[at].append((datum, diff))
    for results in met.values():
        # None is alone where it is.
        results.sort(key=lambda result: result[0] or b"")
    return met


def _key(left: _At) -> bytes:
    assert left[0] is not None, "a left row has no key"
    return left[0]


def _matches(
    left: tuple[bytes | None, bytes], time: int, diff: int, results: Results
) -> Iterator[Match]:
    for datum, count in results:
        yield Match(left, datum, time, diff * count)


class _Stack:
    """The stored insertions of one left datum, during a batch."""

    def __init__(self, store: Store, place: bytes, entry: bytes | None) -> None:
        self._store = store
        self._place = place
        self._stored = entry
        self._earlier, self._runs = (0, []) if entry is None else _latest_of(entry)
        self._changes: dict[bytes, bytes | None] = {}

    def push(self, count: int, results: Results) -> None:
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
                self._runs = self._taken(self._earlier_place())
            known, results = self._runs.pop()
            if known > count:
                self._runs.append((known - count, results))
            taken = min(known, count)
            count -= taken
            yield taken, results

    def changes(self) -> dict[bytes, bytes | None]:
        """The changes to write."""
        kept = self._runs or self._earlier
        entry = _encode((self._earlier, self._runs)) if kept else None
        return self._changes | ({} if entry == self._stored else {self._place: entry})

    def _taken(self, place: bytes) -> list[_Run]:
        known = self._changes.get(place)
        if known is None:
            (known,) = self._store.get_many([place])
        assert known is not None, "earlier insertions are gone"
        self._changes[place] = None
        return _earlier_of(known)

    def _earlier_place(self) -> bytes:
        return _EARLIER + self._place[1:] + _NUMBER.pack(self._earlier)


def _place(key: bytes, value: bytes) -> bytes:
    digest = blake2b(value, digest_size=_DIGEST_BYTES).digest()
    return _LATEST + _LENGTH.pack(len(key)) + key + digest
