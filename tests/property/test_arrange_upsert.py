"""The state of an upsert as an arrangement: its lookups are those of one of its output."""

from functools import partial
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Upserts, datum_of
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import upsert
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, half_join
from ikebana.processor.kernels.upsert import UpsertArrangement
from support.relation_batches import KEYS, accumulated, in_order, keys, lookups, matched
from support.stores import CountingStore, entries, reopened
from support.strategies import unhurried

VALUES = [b"", b"a", b"b", None, None]


class Batch(NamedTuple):
    """Upserts that come in one micro-batch; lookups as for an arrangement."""

    interval: Interval
    since: int
    settled: int
    upserts: Upserts
    lookups: list[LookupRow]


@st.composite
def courses(draw: st.DrawFn) -> list[Batch]:
    """Batches of any size, with readers that lag by any number of them."""
    lower = since = offset = 0
    found = []
    for _ in range(draw(st.integers(1, 5))):
        upper = lower + draw(st.integers(0, 3))
        # Some wait for a later batch.
        row = st.tuples(keys, st.sampled_from(VALUES), st.integers(lower, upper + 1))
        rows = draw(st.lists(row, max_size=8))
        upserts = Upserts(
            "names",
            0,
            0,
            [time for _, _, time in rows],
            [key for key, _, _ in rows],
            [value for _, value, _ in rows],
            list(range(offset, offset + len(rows))),
        )
        settled = draw(st.integers(since, upper))
        asked = draw(lookups(since, upper))
        found.append(Batch(Interval(lower, upper), since, settled, upserts, asked))
        since = draw(st.integers(settled, upper))
        lower, offset = upper, offset + len(rows)
    return found


@unhurried
@given(course=courses(), outer=st.booleans())
def test_lookups_are_those_of_an_arrangement_of_the_output(
    course: list[Batch], *, outer: bool
) -> None:
    """Each sees the value of its own time, over restarts, and the upsert does not notice."""
    store, plain, apart, past = MemoryStore(), MemoryStore(), MemoryStore(), list[KeyedUpdate]()
    for interval, since, settled, upserts, asked in course:
        store, apart = reopened(store), reopened(apart)
        fresh = upsert.step(store, [upserts], interval).updates
        assert fresh == upsert.step(plain, [upserts], interval).updates
        whole = [u._replace(value=datum_of(u.key, u.value)) for u in fresh]
        past += whole
        beside = UpsertArrangement(store, fresh, interval, since)
        assert in_order(half_join(beside, asked, outer=outer)) == matched(past, asked, outer=outer)
        beside.settle(settled)
        own = Arrangement(apart, interval, since)
        own.update(whole)
        assert in_order(half_join(own, asked, outer=outer)) == matched(past, asked, outer=outer)
        own.settle(settled)

    assert [e for e in entries(store) if e[0][:1] in b"kw"] == entries(plain)


@unhurried
@given(courses())
def test_a_key_of_size_0_answers_no_lookup(course: list[Batch]) -> None:
    """A key that is gone by now has a size as long as lookups see what it was."""
    store, past = MemoryStore(), list[KeyedUpdate]()
    for interval, since, settled, upserts, _ in course:
        fresh = upsert.step(store, [upserts], interval).updates
        past += fresh
        arrangement = UpsertArrangement(store, fresh, interval, since)
        sizes = zip(KEYS, arrangement.sizes(KEYS), strict=True)
        empty = {key for key, size in sizes if size == 0}
        for before in range(since, interval.upper + 1):
            assert empty.isdisjoint(accumulated(past, before))
        arrangement.settle(settled)


@unhurried
@given(courses())
def test_history_goes_when_since_has_passed_it(course: list[Batch]) -> None:
    """In the end the upsert's own entries are all that there is, but for the since."""
    store = MemoryStore()
    for interval, since, settled, upserts, _ in course:
        changes = upsert.step(store, [upserts], interval)
        UpsertArrangement(store, changes.updates, interval, since).settle(settled)
        queued = {place[9:] for place, _ in entries(store) if place[:1] == b"q"}
        assert queued == {place for place, _ in entries(store) if place[:1] == b"h"}
    last = course[-1].interval.upper
    since = max(course[-1].since, course[-1].settled)
    UpsertArrangement(store, [], Interval(last, last), since).settle(last)

    assert {place[:1] for place, _ in entries(store)} <= {b"k", b"w", b"s"}


@unhurried
@given(courses(), st.integers(2, 4))
def test_every_entry_goes_with_its_key(course: list[Batch], shards: int) -> None:
    """The history of a key lies where its value lies."""
    for shard in range(shards):
        store = MemoryStore()
        for interval, since, settled, upserts, _ in course:
            kept = [at for at, key in enumerate(upserts.keys) if shard_of(key, shards) == shard]
            assert isinstance(upserts.times, list)
            own = Upserts(
                "names",
                0,
                0,
                [upserts.times[at] for at in kept],
                [upserts.keys[at] for at in kept],
                [upserts.values[at] for at in kept],
                [upserts.offsets[at] for at in kept],
            )
            changes = upsert.step(store, [own], interval)
            UpsertArrangement(store, changes.updates, interval, since).settle(settled)
        rows = entries(store)
        at = partial(shard_of, shards=shards)
        assert {found for row in rows for found in upsert.PART.layout.divided(*row, at)} <= {shard}


def test_frank_at_every_time() -> None:
    """Of one batch or of several, in between he has no name."""
    said = [b"mcsherry", b"zappa", None, b"oz", b"oz", None]
    for uppers in ([6], [1, 2, 3, 4, 5, 6], [2, 6]):
        store, lower = MemoryStore(), 0
        for upper in uppers:
            interval, rows = Interval(lower, upper), range(lower, upper)
            upserts = Upserts(
                "names", 0, 0, [*rows], [b"frank"] * len(rows), said[lower:upper], [*rows]
            )
            arrangement = UpsertArrangement(
                store, upsert.step(store, [upserts], interval).updates, interval, 0
            )
            lookups = [
                LookupRow(b"frank", None, time, 1, sees_equal=True) for time in range(upper)
            ]
            found = [m[1:] for m in half_join(arrangement, lookups, outer=True)]
            arrangement.settle(0)
            lower = upper

            assert sorted(found, key=lambda match: match[1]) == [
                (value and datum_of(b"frank", value), time, 1)
                for time, value in enumerate(said[:upper])
            ]


def test_without_lag_nothing_is_written_beside_the_upsert() -> None:
    """A batch looks at the queue, and a lookup is one get."""
    store = CountingStore()
    upserts = Upserts("names", 0, 0, 0, list(KEYS), [b"a"] * len(KEYS), list(range(len(KEYS))))
    changes = upsert.step(store, [upserts], Interval(0, 1))
    store.counted()
    arrangement = UpsertArrangement(store, changes.updates, Interval(0, 1), 0)
    assert store.counted() == (1, 0)
    assert len(list(half_join(arrangement, [LookupRow(b"k", None, 0, 1, sees_equal=True)]))) == 1
    assert store.counted() == (1, 0)
    arrangement.settle(1)
    assert store.counted() == (0, 0)
