"""Arrangements against their definition: the relation accumulated at each lookup's time."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore, Overlay, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import arrange, history
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, half_join
from support.relation_batches import (
    DATA,
    KEYS,
    Batch,
    accumulated,
    courses,
    in_order,
    matched,
    updates,
)
from support.stores import entries, reopened
from support.strategies import cuts, unhurried

END = 20
SHORT = [datum for datum in DATA if len(datum) < 2]


MOST_BATCHES = st.integers(1, 3)


def settled(store: Store, batch: Batch, most: int = history.MOST_BATCHES) -> None:
    """One batch without lookups, after which the updates of so many lie in blocks."""
    arrangement = Arrangement(store, batch.interval, batch.since)
    arrangement.update(batch.updates)
    with patch.object(history, "MOST_BATCHES", most):
        arrangement.settle(batch.settled)


def finished(store: Store, course: Sequence[Batch]) -> None:
    """A last batch after which no reader lags."""
    last = course[-1]
    since = max(last.settled, last.since)
    Arrangement(store, Interval(last.upper, last.upper), since).settle(last.upper)


@unhurried
@given(course=courses(), outer=st.booleans(), most=MOST_BATCHES)
def test_lookups_are_answered_as_of_their_own_times(
    course: list[Batch], *, outer: bool, most: int
) -> None:
    """R7. At any time from since on, before and after updates of the batch, also over restarts.

    That is so whether updates that readers may not see yet lie in blocks or in histories.
    """
    store, past = MemoryStore(), list[KeyedUpdate]()
    for batch in course:
        overlay = Overlay(reopened(store))
        arrangement = Arrangement(overlay, batch.interval, batch.since)
        early = [each for each in batch.lookups if each.time < batch.interval.lower]
        before = list(half_join(arrangement, early, outer=outer))
        arrangement.update(batch.updates)
        found = list(half_join(arrangement, batch.lookups, outer=outer))
        with patch.object(history, "MOST_BATCHES", most):
            arrangement.settle(batch.settled)
        for place, entry in overlay.changes.items():
            if entry is None:
                store.delete(place)
            else:
                store.put(place, entry)

        assert in_order(before) == matched(past, early, outer=outer)
        past += batch.updates
        assert in_order(found) == matched(past, batch.lookups, outer=outer)


@unhurried
@given(courses(), st.data())
def test_portions_of_a_batch_are_the_whole_of_it(course: list[Batch], data: st.DataObject) -> None:
    """Updates may come in any order and in any number of calls; the entries are the same."""
    whole, cut = MemoryStore(), MemoryStore()
    for batch in course:
        settled(whole, batch)
        arrangement = Arrangement(cut, batch.interval, batch.since)
        for piece in data.draw(cuts(data.draw(st.permutations(batch.updates)))):
            arrangement.update(piece)
        arrangement.settle(batch.settled)

    assert entries(cut) == entries(whole)


@unhurried
@given(courses(SHORT), MOST_BATCHES)
def test_in_the_end_neither_the_cut_nor_the_lag_matters(course: list[Batch], most: int) -> None:
    """Once no reader lags, the entries are those of one batch with everything."""
    store, upper = MemoryStore(), course[-1].upper
    for batch in course:
        settled(store, batch, most)
    finished(store, course)

    whole = MemoryStore()
    every = [update for batch in course for update in batch.updates]
    settled(whole, Batch(Interval(0, upper), 0, upper, every, []))
    assert lasting(store) == lasting(whole)


@unhurried
@given(courses(), MOST_BATCHES)
def test_history_is_queued_to_be_folded(course: list[Batch], most: int) -> None:
    """What keeps times is queued once, by a time that is to come and no later than all."""
    store = MemoryStore()
    for batch in course:
        settled(store, batch, most)
        queued: dict[bytes, int] = {}
        for place, entry in entries(store):
            if place[:1] == b"q":
                of = place[9:]
                assert entry == b""
                assert of not in queued
                queued[of] = int.from_bytes(place[1:9], "big")
        keeping = {}
        for place, entry in entries(store):
            if entry[:1] == b"m":
                time, data = msgspec.msgpack.decode(
                    entry[1:], type=tuple[int | None, dict[bytes, list[int]]]
                )
                times = [at for counts in data.values() for at in counts[1::2]]
                assert all(a < b for c in data.values() for a, b in pairwise(c[1::2]))
                assert (time is None) == (not times)
                if time is not None:
                    assert batch.settled <= time <= max(times)
                    keeping[place] = time
        assert queued == keeping


@unhurried
@given(courses(), MOST_BATCHES)
def test_what_is_retracted_leaves_nothing(course: list[Batch], most: int) -> None:
    """Of groups that were large as well."""
    store, upper = MemoryStore(), course[-1].upper
    for batch in course:
        settled(store, batch, most)
    every = [update for batch in course for update in batch.updates]
    last = [update._replace(time=upper, diff=-update.diff) for update in every]
    settled(store, Batch(Interval(upper, upper + 1), upper, upper + 1, last, []))

    assert lasting(store) == []


@unhurried
@given(courses(), st.integers(1, 3), MOST_BATCHES)
def test_contents_are_what_is_accumulated(course: list[Batch], portion: int, most: int) -> None:
    """Read in portions of keys, before any time that lookups may ask for."""
    store, past = MemoryStore(), list[KeyedUpdate]()
    for batch in course:
        for before in range(batch.since, batch.interval.lower + 1):
            arrangement = Arrangement(store, batch.interval, batch.since)
            found: dict[bytes | None, dict[bytes, int]] = {}
            start = b""
            while rows := first_keys(arrangement.contents(before, start), portion):
                for key, datum, count in rows:
                    assert datum not in found.setdefault(key, {})
                    found[key][datum] = count
                start = rows[-1][0] + b"\0"
            assert found == accumulated(past, before)
        settled(store, batch, most)
        past += batch.updates


@unhurried
@given(st.one_of(courses(SHORT[:1]), courses()), MOST_BATCHES)
def test_a_key_of_size_0_answers_no_lookup(course: list[Batch], most: int) -> None:
    """Whatever the signs of its counts: an extension asks no further for a row with none."""
    store, past = MemoryStore(), list[KeyedUpdate]()
    for batch in course:
        arrangement = Arrangement(store, batch.interval, batch.since)
        arrangement.update(batch.updates)
        past += batch.updates
        empty = {key for key, size in zip(KEYS, arrangement.sizes(KEYS), strict=True) if size == 0}
        for before in range(batch.since, batch.upper + 1):
            assert empty.isdisjoint(accumulated(past, before))
        with patch.object(history, "MOST_BATCHES", most):
            arrangement.settle(batch.settled)


def first_keys(
    contents: Iterable[tuple[bytes, bytes, int]], portion: int
) -> list[tuple[bytes, bytes, int]]:
    """All rows of the first few keys."""
    found: list[tuple[bytes, bytes, int]] = []
    seen: set[bytes] = set()
    for row in contents:
        seen.add(row[0])
        if len(seen) > portion:
            break
        found.append(row)
    return found


@unhurried
@given(courses(), st.integers(1, 4))
def test_every_entry_goes_with_its_key(course: list[Batch], shards: int) -> None:
    """Shards together have the entries of one that has all keys, which fall apart into theirs."""
    whole = MemoryStore()
    for batch in course:
        settled(whole, batch)
    together: dict[bytes, bytes] = {}
    for shard in range(shards):
        store = MemoryStore()
        for batch in course:
            own = [u for u in batch.updates if u.key is not None and at(u.key, shards) == shard]
            settled(store, batch._replace(updates=own))
        rows = lasting(store)
        layout, owner = arrange.PART.layout, partial(at, shards=shards)
        fallen = [
            (place, parts[shard])
            for place, entry in lasting(whole)
            if shard in (parts := layout.divided(place, entry, owner))
        ]
        assert fallen == rows
        for place, entry in rows:
            known = together.get(place)
            if known is not None:
                both = layout.united(place, known, entry)
                assert both is not None
                entry = both
            together[place] = entry
    assert sorted(together.items()) == lasting(whole)


@unhurried
@given(updates(0, END), updates(0, END), st.data())
def test_the_paths_of_a_join_sum_to_the_nested_loop(
    left: list[KeyedUpdate], right: list[KeyedUpdate], data: st.DataObject
) -> None:
    """Of two relations that change at equal times, at each time, whatever the cut."""
    stores, found = (MemoryStore(), MemoryStore()), list[KeyedUpdate]()
    ends = sorted(data.draw(st.sets(st.integers(1, END - 1), max_size=4)) | {END})
    for interval in (Interval(a, b) for a, b in pairwise([0, *ends])):
        own = [[u for u in side if u.time in interval] for side in (left, right)]
        both = [Arrangement(store, interval, interval.lower) for store in stores]
        for arrangement, fresh in zip(both, own, strict=True):
            arrangement.update(fresh)
        # The path of the first input does not see the second's updates of its own time.
        for mine, other in ((0, 1), (1, 0)):
            asked = (asking(update, sees_equal=mine > other) for update in own[mine])
            for payload, datum, time, diff in half_join(both[other], asked):
                assert datum is not None
                pair = (payload.value, datum) if mine == 0 else (datum, payload.value)
                found.append(KeyedUpdate(payload.key, b"|".join(pair), time, diff))
        for arrangement in both:
            arrangement.settle(interval.upper)

    for before in range(END + 1):
        lefts, rights = accumulated(left, before), accumulated(right, before)
        product = {
            key: {
                b"|".join((one, two)): count * times
                for one, count in lefts[key].items()
                for two, times in rights[key].items()
            }
            for key in lefts.keys() & rights.keys()
        }
        assert accumulated(found, before) == product


def asking(update: KeyedUpdate, *, sees_equal: bool) -> LookupRow:
    """What a path asks for an update."""
    assert update.key is not None
    return LookupRow(update.key, update, update.time, update.diff, sees_equal)


def at(key: bytes, shards: int) -> int:
    """Where a key lies."""
    return shard_of(key, shards)


def lasting(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """The entries that are some key's."""
    layout = arrange.PART.layout
    return [entry for entry in entries(store) if layout.divided(*entry, lambda _: 0)]
