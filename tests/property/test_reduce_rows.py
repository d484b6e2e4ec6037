"""Reduce by a function against its definition: the function of all rows at every time."""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Update, accumulate, consolidate
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import reduce_rows
from ikebana.processor.kernels.reduce_rows import RowsFunction
from ikebana.processor.kernels.user_calls import Refused
from support.relation_batches import pairs
from support.stores import entries, reopened
from support.strategies import cuts, unhurried

END = 10
KEYS = [b'""', b'"k"', b'"kk"', b"1", b"[1]"]
ROWS = [b"0", b"1", b"2", b"10", b'"a"', b'{"a":1}', b'{"a":[0.5]}', b"null"]


def as_they_are(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
    """All that a function is given."""
    return [[key, [[row, count] for row, count in rows]]]


def each(key: Any, rows: list[tuple[Any, int]]) -> Iterator[Any]:
    """Every row as often as it is there, in another order."""
    for row, count in reversed(rows):
        yield from [row] * count


def numbers(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
    """The sum of numbers, twice where it is even; nothing of none, and fails on others."""
    total = sum(row * count for row, count in rows)
    return [total] * (1 + (total % 2 == 0)) if total else []


def picky(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
    """Spoils what it is given, and does not always like it."""
    first, count = rows.pop(0)
    if count < 0:
        raise Refused("less than nothing")
    if isinstance(first, dict):
        first["a"] = object()
        return [first]
    return [len(rows), key]


FUNCTIONS = [as_they_are, each, numbers, picky]


@st.composite
def histories(draw: st.DrawFn) -> list[KeyedUpdate]:
    """Updates of few data, so that they meet."""
    update = st.builds(
        KeyedUpdate,
        st.sampled_from(KEYS),
        st.sampled_from(ROWS),
        st.integers(0, END - 1),
        st.sampled_from([-2, -1, -1, 1, 1, 1, 2]),
    )
    return draw(st.lists(update, max_size=25))


functions = st.sampled_from(FUNCTIONS)


def written(data: Any) -> bytes:
    """Data as its canonical bytes, by another encoder than ours."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def expected(
    function: RowsFunction, updates: Iterable[KeyedUpdate], as_of: int
) -> tuple[Counter[tuple[bytes, bytes]], Counter[bytes]]:
    """What shows at a time, and whose function fails."""
    values: Counter[tuple[bytes, bytes]] = Counter()
    failed: Counter[bytes] = Counter()
    collected = accumulate(pairs(updates), as_of)
    for key in {key for key, _ in collected}:
        rows = sorted((row, count) for (of, row), count in collected.items() if of == key)
        try:
            given = [
                written(value)
                for value in function(
                    json.loads(key), [(json.loads(row), count) for row, count in rows]
                )
            ]
        except Exception:  # noqa: BLE001 -- the function's own, or of what it gives
            failed[key] += 1
        else:
            values.update((key, value) for value in given)
    return values, failed


def failing(updates: Iterable[KeyedUpdate]) -> list[Update[bytes]]:
    """Updates of error records, by key."""
    return [
        Update(b64decode(json.loads(value)["key"]), time, diff) for _, value, time, diff in updates
    ]


def ran(
    store: MemoryStore,
    function: RowsFunction,
    updates: Sequence[KeyedUpdate],
    uppers: Iterable[int] = (END,),
    between: Callable[[MemoryStore], MemoryStore] = lambda store: store,
) -> tuple[MemoryStore, list[KeyedUpdate], list[KeyedUpdate]]:
    """The updates and the errors of all batches, and the store after them."""
    found: list[KeyedUpdate] = []
    errors: list[KeyedUpdate] = []
    lower = 0
    for upper in uppers:
        interval = Interval(lower, upper)
        own = [update for update in updates if update.time in interval]
        fresh = reduce_rows.step(store, own, interval, function)
        assert all(update.time in interval for update in fresh.updates + fresh.errors)
        found += fresh.updates
        errors += fresh.errors
        lower, store = upper, between(store)
    return store, found, errors


def drawn_uppers(data: st.DataObject) -> list[int]:
    """Where batches end."""
    return sorted(data.draw(st.sets(st.integers(1, END - 1), max_size=5)) | {END})


@unhurried
@given(st.data(), functions, histories())
def test_incremental_is_batch(
    data: st.DataObject, function: RowsFunction, updates: list[KeyedUpdate]
) -> None:
    """At every time the updates sum to what the function gives of all rows, also over restarts."""
    _, found, errors = ran(MemoryStore(), function, updates, drawn_uppers(data), reopened)

    for time in range(END):
        values, failed = expected(function, updates, time)
        assert accumulate(pairs(found), time) == values
        assert accumulate(failing(errors), time) == failed
    assert len(consolidate(pairs(found))) == len(found)
    assert len(consolidate(pairs(errors))) == len(errors)
    assert [update.time for update in found] == sorted(update.time for update in found)


@unhurried
@given(st.data(), functions, histories())
def test_neither_the_cut_nor_the_order_matters(
    data: st.DataObject, function: RowsFunction, updates: list[KeyedUpdate]
) -> None:
    """The same updates and the same entries, however they come."""
    whole = ran(MemoryStore(), function, updates)
    shuffled = data.draw(st.permutations(updates))
    cut = ran(MemoryStore(), function, shuffled, drawn_uppers(data))

    assert entries(whole[0]) == entries(cut[0])
    assert Counter(whole[1]) == Counter(cut[1])
    assert Counter(whole[2]) == Counter(cut[2])


@unhurried
@given(functions, histories(), histories())
def test_what_is_added_and_retracted_leaves_no_trace(
    function: RowsFunction, kept: list[KeyedUpdate], passing: list[KeyedUpdate]
) -> None:
    """The entries are those without it; and none when all is retracted."""
    store, _, _ = ran(MemoryStore(), function, kept)
    before = entries(store)

    def later(updates: list[KeyedUpdate], time: int, sign: int) -> None:
        moved = [u._replace(time=time, diff=sign * u.diff) for u in updates]
        reduce_rows.step(store, moved, Interval(time, time + 1), function)

    later(passing, END, 1)
    later(passing, END + 1, -1)
    assert entries(store) == before

    later(kept, END + 2, -1)
    assert entries(store) == []


@unhurried
@given(st.data(), functions, histories())
def test_another_function_retracts_what_the_first_one_gave(
    data: st.DataObject, function: RowsFunction, updates: list[KeyedUpdate]
) -> None:
    """No value stays behind, whatever the function has become since."""
    store, found, errors = MemoryStore(), [], []
    for time, piece in enumerate(data.draw(cuts(updates))):
        now = [update._replace(time=time) for update in piece]
        chosen = data.draw(functions)
        fresh = reduce_rows.step(store, now, Interval(time, time + 1), chosen)
        found += fresh.updates
        errors += fresh.errors
    last = [update._replace(time=99, diff=-update.diff) for update in updates]
    fresh = reduce_rows.step(store, last, Interval(99, 100), function)

    assert consolidate(u._replace(time=0) for u in pairs(found + fresh.updates)) == []
    assert consolidate(u._replace(time=0) for u in pairs(errors + fresh.errors)) == []
    assert entries(store) == []


@unhurried
@given(functions, histories(), st.integers(1, 4))
def test_shards_together_emit_what_one_would(
    function: RowsFunction, updates: list[KeyedUpdate], shards: int
) -> None:
    """Keys have nothing to do with each other, and every entry goes with its key."""
    _, whole, errors = ran(MemoryStore(), function, updates)
    found: Counter[KeyedUpdate] = Counter()
    told: Counter[KeyedUpdate] = Counter()
    for shard in range(shards):
        own = [u for u in updates if u.key is not None and shard_of(u.key, shards) == shard]
        store, made, failed = ran(MemoryStore(), function, own)
        found.update(made)
        told.update(failed)
        at = partial(shard_of, shards=shards)
        divided = (reduce_rows.PART.layout.divided(*entry, at) for entry in entries(store))
        assert all(list(each) == [shard] for each in divided)

    assert found == Counter(whole)
    assert told == Counter(errors)
