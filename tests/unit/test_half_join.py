"""Arrangements and half joins on literal updates: tables, traces, refusals, and what it costs."""

import itertools
from collections.abc import Iterator, Sequence

import pytest

from ikebana.arrangements.store import MemoryStore, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import history
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, Match, half_join
from ikebana.processor.kernels.history import EntryCounts
from support.stores import CountingStore

KEY = b'"k"'


def arranged(
    updates: Sequence[KeyedUpdate], upper: int, since: int = 0, store: Store | None = None
) -> Arrangement:
    """An arrangement that has been moved to `upper` and compacted to `since`, opened again."""
    store = MemoryStore() if store is None else store
    first = Arrangement(store, Interval(0, upper), 0)
    first.update(updates)
    first.settle(since)
    return Arrangement(store, Interval(upper, upper), since)


def asked(time: int, diff: int = 1, *, sees_equal: bool = False, key: bytes = KEY) -> LookupRow:
    return LookupRow(key, "asked", time, diff, sees_equal)


def priced(price: bytes, time: int, diff: int = 1) -> KeyedUpdate:
    return KeyedUpdate(KEY, price, time, diff)


PRICES = [priced(b"5", 1), priced(b"5", 3, -1), priced(b"7", 3)]


@pytest.mark.parametrize(
    ("lookup", "expected"),
    [
        pytest.param(asked(2), [(b"5", 2, 1)], id="the order meets the price as it stands"),
        pytest.param(asked(4, -1), [(b"7", 4, -1)], id="its retraction meets another one"),
        pytest.param(asked(3), [(b"5", 3, 1)], id="neu does not see what is of its time"),
        pytest.param(asked(3, sees_equal=True), [(b"7", 3, 1)], id="alt does"),
        pytest.param(asked(1), [], id="before the first one there is nothing"),
        pytest.param(asked(4, 3), [(b"7", 4, 3)], id="multiplicities multiply"),
        pytest.param(asked(4, key=b"other"), [], id="another key has nothing"),
    ],
)
def test_as_of(lookup: LookupRow, expected: list[tuple[bytes, int, int]]) -> None:
    """Each order meets the price as it stands at the order's own time."""
    found = half_join(arranged(PRICES, 5), [lookup])

    assert [(datum, time, diff) for _, datum, time, diff in found] == expected


def test_outer_tells_of_what_has_no_match() -> None:
    """One None for each lookup that meets nothing, be it too early or of another key."""
    lookups = [asked(1), asked(2), asked(2, -2, key=b"other")]
    found = list(half_join(arranged(PRICES, 5), lookups, outer=True))

    assert sorted(found, key=repr) == sorted(
        [
            Match("asked", None, 1, 1),
            Match("asked", b"5", 2, 1),
            Match("asked", None, 2, -2),
        ],
        key=repr,
    )


def test_what_is_compacted_is_seen_by_lookups_that_do_not_see_their_own_time() -> None:
    """A price of time 1 compacted to 3 is no price of time 3."""
    arrangement = arranged([priced(b"5", 1)], 3, since=3)

    assert [match.datum for match in half_join(arrangement, [asked(3)])] == [b"5"]


def test_a_lookup_waits_for_what_is_to_come_before_it() -> None:
    """A price at 52 that is still on its way is not passed over by the order at 55."""
    store = MemoryStore()
    behind = arranged([priced(b"old", 1)], 50, since=50, store=store)
    with pytest.raises(AssertionError, match="55 is not before the upper 50"):
        list(half_join(behind, [asked(55)]))

    ahead = Arrangement(store, Interval(50, 60), 50)
    ahead.update([priced(b"old", 52, -1), priced(b"new", 52), priced(b"new", 57, -1)])
    ahead.settle(55)
    later = Arrangement(store, Interval(60, 70), 55)
    later.update([priced(b"newest", 61)])
    # The order was in flight, and the arrangement has moved on by a batch.
    assert [match.datum for match in half_join(later, [asked(55)])] == [b"new"]


def test_what_is_not_complete_cannot_be_seen() -> None:
    """At the upper only lookups that do not see their own time are answered."""
    arrangement = arranged(PRICES, 5)
    assert len(list(half_join(arrangement, [asked(5)]))) == 1
    with pytest.raises(AssertionError, match="5 is not before the upper 5"):
        list(half_join(arrangement, [asked(5, sees_equal=True)]))


def test_before_since_nothing_is_answered() -> None:
    """It has been folded together."""
    with pytest.raises(AssertionError, match="a lookup at 2 is before the since 3"):
        list(half_join(arranged(PRICES, 5, since=3), [asked(2)]))


def test_since_does_not_go_back() -> None:
    """Neither from batch to batch nor within one, and not beyond what is there."""
    store = MemoryStore()
    arranged(PRICES, 5, since=3, store=store)
    with pytest.raises(AssertionError, match="since goes back from 3 to 2"):
        Arrangement(store, Interval(5, 6), 2)
    with pytest.raises(AssertionError, match="since 2 is not reached yet"):
        Arrangement(store, Interval(5, 6), 3).settle(2)
    with pytest.raises(AssertionError, match="since 7 is not reached yet"):
        Arrangement(store, Interval(5, 6), 3).settle(7)


def test_updates_are_of_the_interval() -> None:
    """What is early or late is somebody's mistake."""
    with pytest.raises(AssertionError, match="time 5 is not in 3 to 5"):
        Arrangement(MemoryStore(), Interval(3, 5), 0).update([priced(b"5", 5)])


def of_keys(count: int, time: int, value: bytes = b"v", diff: int = 1) -> list[KeyedUpdate]:
    return [KeyedUpdate(b"%d" % at, value, time, diff) for at in range(count)]


def test_a_unique_key_is_found_by_one_get() -> None:
    """Whatever else there is, and however many ask for it."""
    store = CountingStore()
    arranged(of_keys(1_000, 0), 1, since=1, store=store)
    arrangement = Arrangement(store, Interval(1, 1), 1)
    store.counted()

    lookups = [asked(1, key=b"7"), asked(1, key=b"8"), asked(1, key=b"7"), asked(1, key=b"none")]
    assert len(list(half_join(arrangement, lookups))) == 3
    assert store.counted() == (3, 0)


def test_without_lag_an_update_is_one_entry_written() -> None:
    """No history, no queue; the one more is the since."""
    store = CountingStore()
    arranged(of_keys(100, 0), 1, since=1, store=store)
    assert store.counted()[1] == 100 + 1

    arrangement = Arrangement(store, Interval(1, 2), 1)
    arrangement.update(of_keys(10, 1, b"v", -1) + of_keys(10, 1, b"w"))
    arrangement.settle(2)
    # Ten entries, the since, and the first and last look at the queue.
    assert store.counted() == (10 + 1, 10 + 1)


def test_a_batch_that_readers_lag_behind_is_a_block_more() -> None:
    """Its entries are written once; when no reader lags any more, the block goes as a whole."""
    store = CountingStore()
    arranged(of_keys(100, 0), 1, since=0, store=store)
    assert store.counted()[1] == 100 + 1

    Arrangement(store, Interval(1, 2), 0).settle(0)
    # The since and the block; nothing is queued.
    assert store.counted() == (2, 0)
    Arrangement(store, Interval(2, 3), 0).settle(1)
    # The block goes, and there is a since.
    assert store.counted() == (2, 2)


def test_batches_while_time_stands_still_each_have_blocks() -> None:
    """An edit that fills brings updates of one time in several batches; none is seen before it."""
    store = CountingStore()
    arranged(of_keys(1, 1, b"old"), 5, since=5, store=store)
    for value in (b"one", b"two", b"three", b"four", b"five", b"six", b"seven"):
        filling = Arrangement(store, Interval(5, 6), 5)
        filling.update(of_keys(1, 5, value))
        asking = [asked(5, key=b"0"), asked(5, key=b"0", sees_equal=True)]
        early, late = (list(half_join(filling, [lookup])) for lookup in asking)
        assert [match.datum for match in early] == [b"old"]
        assert value in [match.datum for match in late]
        filling.settle(5)

    after = Arrangement(store, Interval(6, 7), 5)
    assert [match.datum for match in half_join(after, [asked(5, key=b"0")])] == [b"old"]
    assert len(list(half_join(after, [asked(6, key=b"0")]))) == 8


def test_what_is_not_due_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch reads what it touches, blocks and what is due, and one entry of the queue beyond."""
    store, gap = CountingStore(), 10
    monkeypatch.setattr(history, "MOST_BATCHES", 1)
    for time in range(4):
        arrangement = Arrangement(store, Interval(time * gap, (time + 1) * gap), 0)
        arrangement.update(
            u._replace(key=b"%d %s" % (time, u.key or b"")) for u in of_keys(100, time * gap)
        )
        arrangement.settle(0)
    monkeypatch.undo()
    store.counted()

    Arrangement(store, Interval(40, 41), 0).settle(0)
    blocks = 2
    assert store.counted() == (1 + blocks + 1, 0)
    Arrangement(store, Interval(41, 42), 1).settle(1)
    # The first 100 are due: each is read from the queue and by its key.
    assert store.counted() == (1 + blocks + 101 + 100, 100 + 100 + 1)
    Arrangement(store, Interval(42, 43), 1).settle(1)
    assert store.counted() == (1 + blocks + 1, 0)


def test_a_large_group_is_scanned_and_changed_by_datum() -> None:
    """A lookup reads its data once for all who ask; an update touches its own entries."""
    store, size = CountingStore(), 500
    rows = [priced(b"datum %d" % at, 0) for at in range(size)]
    arranged(rows, 1, since=1, store=store)
    store.counted()

    arrangement = Arrangement(store, Interval(1, 2), 1)
    arrangement.update([priced(b"datum 7", 1, -1), priced(b"another", 1)])
    matches = half_join(arrangement, [asked(1), asked(2), asked(1, sees_equal=True)])
    store.counted()
    first = list(itertools.islice(matches, 3))
    assert store.counted()[0] < 10
    assert len(first + list(matches)) == size * 3
    arrangement.settle(2)
    # Of 500 data two are written, beside the size of the group, which is the same, and since.
    assert store.counted()[1] == 2 + 1


@pytest.mark.parametrize("left", [[b"x" * 900], [b"a", b"b"]])
def test_a_large_group_that_shrinks_is_one_entry_again(left: list[bytes]) -> None:
    """One get finds what is left: one datum, however long it is, or a few that are short."""
    store = CountingStore()
    passing = [priced(b"x" * 900 + b"%d" % at, 0) for at in range(9)]
    arranged([*passing, *(priced(datum, 0) for datum in left)], 1, since=1, store=store)
    shrinking = Arrangement(store, Interval(1, 2), 1)
    shrinking.update(row._replace(time=1, diff=-1) for row in passing)
    shrinking.settle(2)
    arrangement = Arrangement(store, Interval(2, 2), 2)
    store.counted()

    assert [match.datum for match in half_join(arrangement, [asked(2)])] == left
    assert store.counted()[0] == 1


def test_a_key_that_changes_often_is_read_once_for_all() -> None:
    """Each of 500 lookups meets the one of 500 prices that was its own; kept or just come."""
    prices = [priced(b"%d" % at, at) for at in range(500)]
    prices += [priced(b"%d" % at, at + 1, -1) for at in range(499)]
    store = CountingStore()
    kept = arranged(prices, 500, store=store)
    fresh = Arrangement(MemoryStore(), Interval(0, 500), 0)
    fresh.update(prices)
    store.counted()

    for arrangement in (kept, fresh):
        found = half_join(arrangement, [asked(at, sees_equal=True) for at in range(500)])
        assert sorted(found) == sorted(Match("asked", b"%d" % at, at, 1) for at in range(500))
    assert store.counted()[0] <= 500 + 1


def test_what_cancels_writes_nothing() -> None:
    """Not in one batch, be the key there or not."""
    store = CountingStore()
    arranged(PRICES[:1], 2, since=2, store=store)
    store.counted()
    arrangement = Arrangement(store, Interval(2, 4), 2)
    arrangement.update([priced(b"9", 2), priced(b"5", 3, 2), priced(b"9", 2, -1)])
    arrangement.update([priced(b"5", 3, -2), KeyedUpdate(b"new", b"", 2, 0)])
    arrangement.settle(2)

    assert store.counted()[1] == 0


@pytest.mark.parametrize("lookups", [1, 3])
def test_whether_there_is_a_match_is_answered_by_the_first(lookups: int) -> None:
    """However many data the key has, one is read, and each lookup has one match."""
    read = 0

    class Hot:
        since, upper = 0, 10

        def groups(self, keys: Sequence[bytes]) -> Iterator[Iterator[tuple[bytes, EntryCounts]]]:
            return (self._group() for _ in keys)

        def _group(self) -> Iterator[tuple[bytes, EntryCounts]]:
            nonlocal read
            for at in range(100_000):
                read += 1
                yield b"%d" % at, [1]

        def sizes(self, keys: Sequence[bytes]) -> list[int]:
            return [100_000 for _ in keys]

    found = list(half_join(Hot(), [asked(5)] * lookups, once=True))

    assert found == [Match("asked", b"0", 5, 1)] * lookups
    assert read == 1


def test_a_first_match_is_one_that_the_lookup_sees() -> None:
    """Data of later times, or of earlier ones alone, are passed over."""
    rows = [priced(b"1", 4), priced(b"2", 1), priced(b"2", 3, -1), priced(b"3", 2)]
    lookups = [LookupRow(KEY, time, time, 1, sees_equal=False) for time in (1, 2, 3, 4, 5)]

    found = list(half_join(arranged(rows, 6), lookups, once=True))

    assert sorted(match.payload for match in found) == [2, 3, 4, 5]
    assert all(match.datum in (b"2", b"3") for match in found if match.payload < 5)
    assert {match.datum for match in found if match.payload == 3} <= {b"2", b"3"}
