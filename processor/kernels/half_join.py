"""Half join: updates of one relation meet an arrangement of another, as of their own times.

A lookup with time t and diff d gives, for each datum that its key has as of t with a
multiplicity m, the pair of its payload and the datum at time t with diff d * m.  It sees
the arrangement's updates of times before t, and those of t itself if `sees_equal`: the planner
of the join decides once for each pair of inputs which comes first within a time, so that exactly
one path produces every pair of updates.

The half join keeps no state and holds no results: it yields matches one at a time.  The time of
a lookup must be at or after `since`, because older updates are compacted, and before `upper`,
because later ones are not complete.

Source of the method: `half_join` of differential dataflow's `dogsdogsdogs`.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from ikebana.processor.kernels.history import EntryCounts, count_before

try:
    from ikebana.compiled._half_join import Lookups as _Compiled
except ImportError:
    _Compiled = None  # type: ignore[assignment,misc]

# Makes a Match without the call of a function in Python for each.
_new = tuple.__new__
_TIME_OF = itemgetter(2)
# Lookups are answered together, for a store answers many keys faster than one by one.
_AT_ONCE = 10_000
# A watcher is asked before the lookups of a key are answered if there are this many.
_MANY = 100
# About this many matches are yielded together.
_PORTION = 10_000


class LookupRow(NamedTuple):
    """A lookup of a key as of a time, for an update with `diff` and `payload`.

    `sees_equal` says whether the lookup sees updates of its own time.
    """

    key: bytes
    payload: Any
    time: int
    diff: int
    sees_equal: bool


class Match(NamedTuple):
    """An update of a payload and a datum, which is None if the lookup has no match."""

    payload: Any
    datum: bytes | None
    time: int
    diff: int


class Lookups(NamedTuple):
    """Lookups in columns of one length; `sees_equal` holds for all of them or for none."""

    keys: list[bytes]
    payloads: list[Any]
    times: list[int]
    diffs: list[int]
    sees_equal: bool

    def row(self, at: int) -> LookupRow:
        """The lookup at a position."""
        keys, payloads, times, diffs, sees_equal = self
        return LookupRow(keys[at], payloads[at], times[at], diffs[at], sees_equal)

    def rows(self) -> Iterator[LookupRow]:
        """Yield each lookup as a row."""
        columns = zip(*self[:4], repeat(self.sees_equal), strict=False)
        # LookupRow(...) without the call of a function in Python for each.
        return map(_new, repeat(LookupRow), columns)


class Matches(NamedTuple):
    """Matches in columns of one length; see `Match`."""

    payloads: list[Any]
    data: list[bytes | None]
    times: list[int]
    diffs: list[int]

    def divided(self, at: int) -> "tuple[Matches, Matches]":
        """The first `at` matches, and the others."""
        payloads, data, times, diffs = self
        return (
            Matches(payloads[:at], data[:at], times[:at], diffs[:at]),
            Matches(payloads[at:], data[at:], times[at:], diffs[at:]),
        )

    @staticmethod
    def of(matches: Iterable[Match]) -> "Matches":
        """The columns of matches."""
        columns = Matches([], [], [], [])
        for match in matches:
            columns.append(match)
        return columns

    def append(self, match: Match) -> None:
        """Add a match."""
        payload, datum, time, diff = match
        self.payloads.append(payload)
        self.data.append(datum)
        self.times.append(time)
        self.diffs.append(diff)

    def row(self, at: int) -> Match:
        """The match at a position."""
        return Match(self.payloads[at], self.data[at], self.times[at], self.diffs[at])


class Arranged(Protocol):
    """An index of a relation; lookups are exact from `since` up to `upper`."""

    since: int
    upper: int

    def groups(self, keys: Sequence[bytes]) -> Iterator[Iterable[tuple[bytes, EntryCounts]]]:
        """Yield for each key, in the order asked, each datum with its counts.

        A group is to be read before the next one is asked for, and before anything is
        written.
        """
        ...

    def sizes(self, keys: Sequence[bytes]) -> list[int]:
        """About how many data each key has or had at any time from `since` on.

        It is 0 only where no lookup finds anything.
        """
        ...


class JoinWatcher(Protocol):
    """Sees how many results the keys of lookups have, and may raise to end the batch."""

    def expect(self, key: bytes, results: int) -> None:
        """Handle a key that is about to give about `results` results."""
        ...

    def met(self, key: bytes, matches: int) -> None:
        """Handle a key that has met `matches` data, counted for each of its lookups."""
        ...


def half_join(
    arranged: Arranged,
    lookups: Iterable[LookupRow],
    *,
    outer: bool = False,
    once: bool = False,
    watcher: JoinWatcher | None = None,
) -> Iterator[Match]:
    """Yield the matches of lookups; with `outer`, also one with None for each without a match.

    With `once`, a lookup has one match at most: the caller only asks whether there is one, and
    the other data of its key are not read.

    Matches come in the order of keys and of their data, not of the lookups.  A `watcher` hears of
    keys with many lookups before these are answered, and of every key after that.
    """
    assert not (outer and once), "nobody asks whether there is one, and for those without"
    pending = iter(lookups)
    while chunk := list(islice(pending, _AT_ONCE)):
        by_key: dict[bytes, list[LookupRow]] = {}
        _check(arranged, chunk)
        for lookup in chunk:
            key = lookup[0]
            if (same_key := by_key.get(key)) is None:
                by_key[key] = [lookup]
            else:
                same_key.append(lookup)
        # Neighbours lie together: a store finds them much faster in order.
        keys = sorted(by_key)
        for key, group in zip(keys, arranged.groups(keys), strict=True):
            key_lookups = by_key[key]
            if not once:
                yield from _matches_of(arranged, key_lookups, group, outer=outer, watcher=watcher)
                continue
            met = yield from _first_matches(key_lookups, group)
            if watcher is not None:
                watcher.met(key, met)


def half_join_in_columns(
    arranged: Arranged,
    lookups: Lookups,
    *,
    outer: bool = False,
    watcher: JoinWatcher | None = None,
) -> Iterator[Matches]:
    """Like `half_join`, in portions of columns; a watcher may not hear of keys with few matches.

    Compiled code makes the matches of most keys, from what `entries` of an arrangement returns.
    """
    entries_of = getattr(arranged, "entries", None)
    if _Compiled is None or entries_of is None:
        matches = half_join(arranged, lookups.rows(), outer=outer, watcher=watcher)
        while some := list(islice(matches, _PORTION)):
            yield Matches.of(some)
        return
    buffer = Matches([], [], [], [])
    for start in range(0, len(lookups.keys), _AT_ONCE):
        end = min(start + _AT_ONCE, len(lookups.keys))
        _check_times(arranged, lookups.times[start:end], sees_equal=lookups.sees_equal)
        chunk = _Compiled(*lookups, start, end)
        entries, earlier, fresh = entries_of(chunk.keys)
        groups = arranged.groups(chunk.left(entries))
        at = 0
        while at < len(entries):
            at = chunk.meet(entries, at, earlier, fresh, buffer, _PORTION, outer=outer)
            if len(buffer.times) < _PORTION and at < len(entries):
                key_lookups, is_left = list(map(lookups.row, chunk.rows(at))), entries[at] is False
                group = next(groups if is_left else arranged.groups([key_lookups[0].key]))
                at += 1
                for match in _matches_of(
                    arranged, key_lookups, group, outer=outer, watcher=watcher
                ):
                    buffer.append(match)
                    if len(buffer.times) >= _PORTION:
                        yield buffer
                        buffer = Matches([], [], [], [])
            # The last key may have exceeded a portion; it is divided as the loop in Python would.
            while len(buffer.times) >= _PORTION:
                portion, buffer = buffer.divided(_PORTION)
                yield portion
    if buffer.times:
        yield buffer


def _matches_of(
    arranged: Arranged,
    lookups: list[LookupRow],
    group: Iterable[tuple[bytes, EntryCounts]],
    *,
    outer: bool,
    watcher: JoinWatcher | None,
) -> Iterator[Match]:
    """Read a group for all lookups of its key, and report it to the watcher."""
    key = lookups[0].key
    if len(lookups) > 1:
        if watcher is not None and len(lookups) >= _MANY:
            watcher.expect(key, len(lookups) * arranged.sizes([key])[0])
        met = yield from _matches_of_many(lookups, group, arranged.upper, outer=outer)
    else:
        met = yield from _matches_of_one(lookups[0], group, outer=outer)
    if watcher is not None:
        watcher.met(key, met)


def _matches_of_one(
    lookup: LookupRow, group: Iterable[tuple[bytes, EntryCounts]], *, outer: bool
) -> Generator[Match, None, int]:
    """Read a group for the only lookup of its key; return the number of matches."""
    _, payload, time, diff, sees_equal = lookup
    met = 0
    for datum, counts in group:
        count = counts[0] if len(counts) == 1 else count_before(counts, time + sees_equal)
        if count:
            met += 1
            yield _new(Match, (payload, datum, time, diff * count))
    if outer and not met:
        yield Match(payload, None, time, diff)
    return met


def _matches_of_many(
    lookups: list[LookupRow],
    group: Iterable[tuple[bytes, EntryCounts]],
    upper: int,
    *,
    outer: bool,
) -> Generator[Match, None, int]:
    """Read a group once for all lookups of its key; return the number of matches.

    Between two of its changes, the count of a datum is the same for all lookups: a key that
    changes often is not searched for each of them.
    """
    met = 0
    bounds: list[int] = []
    unmatched = set(range(len(lookups))) if outer else None
    for datum, counts in group:
        if len(counts) == 1:
            if count := counts[0]:
                unmatched = None
                met += len(lookups)
                for _, payload, time, diff, _ in lookups:
                    yield _new(Match, (payload, datum, time, diff * count))
            continue
        if not bounds:
            # Only now does their order matter, and so far all or none have matched.
            lookups.sort(key=_before_time)
            bounds = list(map(_before_time, lookups))
        since, count = bounds[0] - 1, counts[0]
        # The change at the upper ends the last range: no lookup sees beyond it.
        for changed, change in (*zip(counts[1::2], counts[2::2], strict=True), (upper, 0)):
            if count and changed > since:
                start, end = bisect_right(bounds, since), bisect_right(bounds, changed)
                if start < end:
                    met += end - start
                    for _, payload, time, diff, _ in lookups[start:end]:
                        yield _new(Match, (payload, datum, time, diff * count))
                    if unmatched:
                        unmatched.difference_update(range(start, end))
            since, count = changed, count + change
    for at in sorted(unmatched or ()):
        yield Match(lookups[at].payload, None, lookups[at].time, lookups[at].diff)
    return met


def _first_matches(
    lookups: list[LookupRow], group: Iterable[tuple[bytes, EntryCounts]]
) -> Generator[Match, None, int]:
    """Read a group until each lookup of its key has a match; return how many have one."""
    left = lookups
    for datum, counts in group:
        unmatched = []
        for lookup in left:
            if count := count_before(counts, _before_time(lookup)):
                yield Match(lookup.payload, datum, lookup.time, lookup.diff * count)
            else:
                unmatched.append(lookup)
        left = unmatched
        if not left:
            break
    return len(lookups) - len(left)


def _before_time(lookup: LookupRow) -> int:
    """The time before which a lookup sees updates."""
    return lookup.time + lookup.sees_equal


def _check(arranged: Arranged, lookups: Sequence[LookupRow]) -> None:
    """Refuse lookups that the arrangement cannot answer exactly."""
    least = min(map(_TIME_OF, lookups))
    assert least >= arranged.since, f"a lookup at {least} is before the since {arranged.since}"
    if max(map(_TIME_OF, lookups)) >= arranged.upper:
        last = max(lookups, key=_before_time)
        assert _before_time(last) <= arranged.upper, (
            f"a lookup at {last.time} is not before the upper {arranged.upper}"
        )


def _check_times(arranged: Arranged, times: Sequence[int], *, sees_equal: bool) -> None:
    """Refuse lookups by their times, as `_check` does."""
    least, last = min(times), max(times)
    assert least >= arranged.since, f"a lookup at {least} is before the since {arranged.since}"
    assert last + sees_equal <= arranged.upper, (
        f"a lookup at {last} is not before the upper {arranged.upper}"
    )
