"""Locked retractions against their definition: a stack of results for each left datum."""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import locked
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, Match, half_join
from support.relation_batches import diffs, keys, matched
from support.stores import CountingStore, entries, reopened
from support.strategies import unhurried
from support.sums import summed

END = 40
KEY = b'"k"'


def histories(data: Sequence[bytes], size: int) -> st.SearchStrategy[list[KeyedUpdate]]:
    """Updates of few data, so that they meet."""
    times = st.integers(0, END - 1)
    return st.lists(
        st.builds(KeyedUpdate, keys, st.sampled_from(data), times, diffs), max_size=size
    )


lefts = st.one_of(histories([b"one", b"two"], 20), histories([b"one"], 60))
rights = histories([b"5", b"7", b"x" * 1_500, b"y" * 1_500], 15)


def by_first_byte(data: Sequence[bytes]) -> list[bytes]:
    """Locks of data by the first byte alone: "two" and "three" are of the same."""
    return [datum[:1] for datum in data]


def defined(
    left: Iterable[KeyedUpdate],
    right: Sequence[KeyedUpdate],
    *,
    sees_equal: bool,
    outer: bool,
    locks: locked.Locks | None = None,
) -> tuple[Counter[Match], Counter[tuple[bytes | None, int]]]:
    """The matches, and of which keys how often nothing was there to retract, one by one."""
    found, errors = Counter[Match](), Counter[tuple[bytes | None, int]]()
    stacks: dict[tuple[bytes | None, bytes], list[list[Match]]] = {}
    sums = Counter[tuple[int, bytes | None, bytes]]()
    for key, value, time, diff in left:
        sums[time, key, value] += diff
    # What retractions of a time have taken back, by what insertions must have in common with them.
    back: dict[tuple[Any, ...], list[list[Match]]] = {}
    in_order = sorted(sums.items(), key=lambda each: (each[0][0], each[1] > 0, each[0]))
    for (time, key, value), diff in in_order:
        stack = stacks.setdefault((key, value), [])
        own = (time, key, *([value] if locks is None else locks([value])))
        for _ in range(diff):
            lookup = LookupRow(key or b"", (key, value), time, 1, sees_equal)
            kept = back.get(own)
            met = kept.pop(0) if kept else matched(right, [lookup], outer=outer)
            stack.append([match._replace(payload=(key, value)) for match in met])
            for match in stack[-1]:
                found[match._replace(time=time, diff=0)] += match.diff
        for _ in range(-diff):
            if not stack:
                errors[key, time] += 1
                continue
            back.setdefault(own, []).append(stack.pop())
            for match in back[own][-1]:
                found[match._replace(time=time, diff=0)] -= match.diff
    return Counter({m: n for m, n in found.items() if n}), errors


def meeting(
    arrangement: Arrangement, *, sees_equal: bool, outer: bool
) -> Callable[[Iterable[locked.LockedLookup]], Iterable[Match]]:
    """Insertions meet whatever an arrangement has of their key."""

    def meet(asking: Iterable[locked.LockedLookup]) -> Iterable[Match]:
        lookups = (LookupRow(key, at, time, 1, sees_equal) for key, at, _, time in asking)
        return half_join(arrangement, lookups, outer=outer)

    return meet


def ran(
    left: Sequence[KeyedUpdate],
    right: Sequence[KeyedUpdate],
    uppers: Iterable[int],
    *,
    sees_equal: bool = True,
    outer: bool = False,
    between: Callable[[MemoryStore], MemoryStore] = lambda store: store,
    locks: locked.Locks | None = None,
) -> tuple[MemoryStore, list[Match], list[KeyedUpdate]]:
    """The matches and the errors of all batches, and the store after them."""
    store, arranged, lower = MemoryStore(), MemoryStore(), 0
    found = locked.LockedMatches([], [])
    for upper in uppers:
        interval = Interval(lower, upper)
        arrangement = Arrangement(arranged, interval, lower)
        arrangement.update(update for update in right if update.time in interval)
        own = [update for update in left if update.time in interval]
        meet = meeting(arrangement, sees_equal=sees_equal, outer=outer)
        fresh = locked.step(store, own, interval, meet, "j", locks)
        arrangement.settle(upper)
        found.matches.extend(fresh.matches)
        found.errors.extend(fresh.errors)
        lower, store, arranged = upper, between(store), between(arranged)
    return store, found.matches, found.errors


def consolidated(matches: Iterable[Match]) -> Counter[Match]:
    """The diffs of equal matches of one time."""
    return summed((match._replace(diff=0), match.diff) for match in matches)


def failed(errors: Iterable[KeyedUpdate]) -> Counter[tuple[bytes | None, int]]:
    """How many errors of each key there are at each time."""
    found = Counter[tuple[bytes | None, int]]()
    for _, record, time, diff in errors:
        found[b64decode(json.loads(record)["key"]), time] += diff
    return found


uppers = st.sets(st.integers(1, END - 1), max_size=4).map(lambda ends: [*sorted(ends), END])


@unhurried
@given(
    left=st.one_of(lefts, histories([b"one", b"two", b"three"], 40)),
    right=rights,
    ends=uppers,
    sees_equal=st.booleans(),
    outer=st.booleans(),
    locks=st.sampled_from([None, by_first_byte]),
)
def test_a_retraction_takes_back_the_latest_insertion(
    left: list[KeyedUpdate],
    right: list[KeyedUpdate],
    ends: list[int],
    *,
    sees_equal: bool,
    outer: bool,
    locks: locked.Locks | None,
) -> None:
    """In order, also of what has met nothing, over any cut and restarts.

    If data are locked by a part, an insertion that agrees in it with a retraction of its time
    takes over what that has met.
    """
    how: Any = {"sees_equal": sees_equal, "outer": outer, "locks": locks}
    _, matches, errors = ran(left, right, ends, between=reopened, **how)

    expected, missing = defined(left, right, **how)
    assert consolidated(matches) == expected
    assert failed(errors) == missing
    assert all(match.diff for match in matches)


phases = st.lists(st.tuples(st.integers(1, 45), st.sampled_from([1, -1])), max_size=6)


@unhurried
@given(phases, st.integers(1, 80))
def test_many_results_of_one_row_are_taken_back_in_order(
    drawn: list[tuple[int, int]], step: int
) -> None:
    """Each insertion has met another price, and there may be more of them than an entry has."""
    signs = [sign for count, sign in drawn for _ in range(count)]
    left = [KeyedUpdate(KEY, b"order", time, sign) for time, sign in enumerate(signs)]
    right = [KeyedUpdate(KEY, b"%d" % time, time, 1) for time in range(len(signs))]
    right += [KeyedUpdate(KEY, b"%d" % time, time + 1, -1) for time in range(len(signs))]
    ends = [*range(step, len(signs), step), len(signs) + 1]
    _, matches, errors = ran(left, right, ends, between=reopened)

    stack: list[bytes] = []
    expected = []
    for time, sign in enumerate(signs):
        if sign > 0:
            stack.append(b"%d" % time)
            expected.append((stack[-1], time, 1))
        elif stack:
            expected.append((stack.pop(), time, -1))
    assert [match[1:] for match in matches] == expected
    assert sum(update.diff for update in errors) == len(signs) - len(expected)


@unhurried
@given(st.data(), lefts, rights, uppers, st.sampled_from([None, by_first_byte]))
def test_neither_the_cut_nor_the_order_matters(
    data: st.DataObject,
    left: list[KeyedUpdate],
    right: list[KeyedUpdate],
    ends: list[int],
    locks: locked.Locks | None,
) -> None:
    """The same entries, however updates come."""
    store, _, _ = ran(left, right, [END], locks=locks)
    permuted = data.draw(st.permutations(left)), data.draw(st.permutations(right))
    again, _, _ = ran(*permuted, ends, locks=locks)

    assert entries(again) == entries(store)


@unhurried
@given(lefts, rights)
def test_what_is_all_retracted_leaves_nothing(
    left: list[KeyedUpdate], right: list[KeyedUpdate]
) -> None:
    """Neither in the store nor in what was emitted."""
    inserted = [u._replace(diff=abs(u.diff)) for u in left]
    retracted = [u._replace(time=END + u.time, diff=-u.diff) for u in reversed(inserted)]
    store, matches, errors = ran(inserted + retracted, right, [END, 2 * END])

    assert entries(store) == []
    assert errors == []
    assert consolidated(match._replace(time=0) for match in matches) == {}


@unhurried
@given(lefts, rights, st.integers(2, 4))
def test_every_entry_goes_with_its_key(
    left: list[KeyedUpdate], right: list[KeyedUpdate], shards: int
) -> None:
    """Shards together have the entries of one that has all keys."""
    whole, _, _ = ran(left, right, [END])
    found = []
    for shard in range(shards):
        own = [u for u in left if u.key is not None and shard_of(u.key, shards) == shard]
        store, _, _ = ran(own, right, [END])
        at = partial(shard_of, shards=shards)
        divided = (locked.PART.layout.divided(*entry, at) for entry in entries(store))
        assert all(list(each) == [shard] for each in divided)
        found += entries(store)

    assert sorted(found) == entries(whole)


PRICES = [
    KeyedUpdate(KEY, b"5", 1, 1),
    KeyedUpdate(KEY, b"5", 3, -1),
    KeyedUpdate(KEY, b"7", 3, 1),
]
ORDERS = [KeyedUpdate(KEY, b"order", 2, 1), KeyedUpdate(KEY, b"order", 4, -1)]


def test_locked_beside_current() -> None:
    """The order of price 5 is retracted with price 5; `current` retracts another one."""
    _, matches, _ = ran(ORDERS, PRICES, [2, 3, 4, 5])
    assert [match[1:] for match in matches] == [(b"5", 2, 1), (b"5", 4, -1)]

    arrangement = Arrangement(MemoryStore(), Interval(0, 5), 0)
    arrangement.update(PRICES)
    lookups = [LookupRow(KEY, b"order", time, d, sees_equal=True) for _, _, time, d in ORDERS]
    assert [match[1:] for match in half_join(arrangement, lookups)] == [
        (b"5", 2, 1),
        (b"7", 4, -1),
    ]


def test_an_update_that_leaves_the_lock_keeps_what_was_met() -> None:
    """An order of price 5 is changed when that is 7: it looks up only when its lock changes."""
    asked: list[bytes] = []

    def meet(asking: Iterable[locked.LockedLookup]) -> Iterable[Match]:
        for _, payload, value, time in asking:
            asked.append(value)
            yield Match(payload, b"5" if time < 3 else b"7", time, 1)

    store, found = MemoryStore(), []
    orders = [b"tea, 1", b"tea, 2", b"tea, 3", b"ink, 3", b"tea, 3"]
    for time, (before, after) in enumerate(pairwise([b"", *orders]), start=2):
        own = [KeyedUpdate(KEY, before, time, -1)] if before else []
        own.append(KeyedUpdate(KEY, after, time, 1))
        step = locked.step(store, own, Interval(time, time + 1), meet, "j", by_first_byte)
        found += [(match.payload[1], *match[1:]) for match in step.matches]

    assert asked == [b"tea, 1", b"ink, 3", b"tea, 3"]
    assert found == [
        (b"tea, 1", b"5", 2, 1),
        (b"tea, 1", b"5", 3, -1),
        (b"tea, 2", b"5", 3, 1),
        (b"tea, 2", b"5", 4, -1),
        (b"tea, 3", b"5", 4, 1),
        (b"tea, 3", b"5", 5, -1),
        (b"ink, 3", b"7", 5, 1),
        (b"ink, 3", b"7", 6, -1),
        (b"tea, 3", b"7", 6, 1),
    ]


@pytest.mark.parametrize("outer", [False, True])
def test_an_empty_result_is_remembered(*, outer: bool) -> None:
    """What had met nothing takes back nothing, whatever it would meet now."""
    orders = [ORDERS[0]._replace(time=0), ORDERS[1]]
    _, matches, errors = ran(orders, PRICES, [5], outer=outer)

    nothing = [(None, 0, 1), (None, 4, -1)] if outer else []
    assert [match[1:] for match in matches] == nothing
    assert errors == []


def test_a_retraction_of_what_is_not_remembered_is_an_error() -> None:
    """A record of its key and time, as often as it is so; what is remembered goes first."""
    orders = [ORDERS[0], ORDERS[1]._replace(diff=-3)]
    _, matches, errors = ran(orders, PRICES, [5])

    assert [match[1:] for match in matches] == [(b"5", 2, 1), (b"5", 4, -1)]
    assert failed(errors) == {(KEY, 4): 2}
    reason = "operator j: a row is retracted of which no result is remembered"
    assert [json.loads(record)["reason"] for _, record, _, _ in errors] == [reason]


def test_insertions_that_meet_the_same_are_counted() -> None:
    """A thousand of them take no more room than a few."""
    orders = [KeyedUpdate(KEY, b"order", time, 1) for time in range(3, 1_003)]
    store, matches, _ = ran(orders, PRICES, [*range(3, 1_003, 100), 1_003])

    assert len(matches) == 1_000
    ((_, entry),) = entries(store)
    assert len(entry) < 20


def test_a_batch_does_not_read_all_insertions() -> None:
    """However many are remembered of one row, each with a result of its own."""
    store, arranged = CountingStore(), MemoryStore()
    most = 0
    for time in range(200):
        interval = Interval(time, time + 1)
        arrangement = Arrangement(arranged, interval, time)
        arrangement.update([KeyedUpdate(KEY, b"%d" % time, time, 1)])
        arrangement.update([KeyedUpdate(KEY, b"%d" % (time - 1), time, -1)] if time else [])
        _step(store, interval, arrangement, 1)
        arrangement.settle(time + 1)
    for time in range(200, 400):
        arrangement = Arrangement(arranged, Interval(time, time + 1), time)
        store.counted()
        matches = _step(store, Interval(time, time + 1), arrangement, -1)
        most = max(most, store.counted()[0])
        assert matches == [(b"%d" % (399 - time), time, -1)]

    assert most <= 2
    assert entries(store) == []


def _step(
    store: Store, interval: Interval, arrangement: Arrangement, diff: int
) -> list[tuple[bytes | None, int, int]]:
    order = KeyedUpdate(KEY, b"order", interval.lower, diff)
    meet = meeting(arrangement, sees_equal=True, outer=False)
    found = locked.step(store, [order], interval, meet, "j")
    return [match[1:] for match in found.matches]
