"""Loops against their definition: rounds over all rows, computed again at every time."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ikebana import accumulate, consolidate
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.errors import ConvergenceError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import loop
from support.loop_programs import (
    NoEndError,
    Recursion,
    Rows,
    alternating,
    closure,
    limited,
    nearest,
    nonzero,
    parts,
    shown,
    tagged,
)
from support.relation_batches import pairs
from support.stores import CountingStore, entries, reopened
from support.strategies import unhurried

END = 6
KEYS = [b'""', b'"k"', b"0"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Recursion, list[KeyedUpdate]]:
    """A recursion, and updates of few edges between few nodes."""
    nodes = st.integers(0, 4)
    edges: st.SearchStrategy[tuple[int, ...]]
    has_lengths = draw(st.booleans())
    if has_lengths:
        recursion = draw(st.sampled_from([nearest(rounds=40), parts()]))
        edges = st.tuples(nodes, nodes, st.integers(1, 3))
        if recursion.program.rounds == 30:
            # In a cycle there would be no end.
            edges = edges.filter(lambda edge: edge[0] < edge[1])
    else:
        recursion = draw(st.sampled_from([closure(rounds=40), alternating(rounds=40)]))
        edges = st.tuples(nodes, nodes)
    update = st.builds(
        KeyedUpdate,
        st.sampled_from(KEYS),
        edges.map(lambda edge: tagged(0, edge)),
        st.integers(0, END - 1),
        st.sampled_from([-1, -1, 1, 1, 1, 2]),
    )
    updates = draw(st.lists(update, max_size=25))
    # Edges that count less than nothing may come and go from round to round.
    assume(all(_ends(recursion, updates, time) for time in range(END)))
    return recursion, updates


def _ends(recursion: Recursion, updates: Sequence[KeyedUpdate], time: int) -> bool:
    try:
        expected(recursion, updates, time)
    except NoEndError:
        return False
    return True


def edges_at(updates: Iterable[KeyedUpdate], key: bytes, time: int) -> Rows:
    """The rows of the source of a key at a time."""
    found = Rows()
    for of, value, at, diff in updates:
        if of == key and at <= time:
            found[shown(value)[1]] += diff
    return nonzero(found)


def expected(recursion: Recursion, updates: Sequence[KeyedUpdate], time: int) -> Counter[object]:
    """What shows at a time."""
    found: Counter[object] = Counter()
    for key in KEYS:
        results = recursion.fixpoint([edges_at(updates, key, time)])
        for of, rows in enumerate(results):
            found.update({(key, of, row): count for row, count in rows.items()})
    return found


def shown_at(updates: Iterable[KeyedUpdate], time: int) -> Counter[object]:
    """What updates come to at a time."""
    found: Counter[object] = Counter()
    for (key, value), count in accumulate(pairs(updates), time).items():
        found[key, *shown(value)] += count
    return found


def ran(
    store: MemoryStore,
    recursion: Recursion,
    updates: Sequence[KeyedUpdate],
    uppers: Iterable[int] = (END,),
    between: Callable[[MemoryStore], MemoryStore] = lambda store: store,
) -> tuple[MemoryStore, list[KeyedUpdate]]:
    """The updates of all batches, and the store after them."""
    found: list[KeyedUpdate] = []
    lower = 0
    for upper in uppers:
        interval = Interval(lower, upper)
        own = [update for update in updates if update.time in interval]
        fresh = loop.step(store, own, interval, recursion.program)
        assert fresh.errors == []
        assert all(update.time in interval for update in fresh.updates)
        found += fresh.updates
        lower, store = upper, between(store)
    return store, found


def drawn_uppers(data: st.DataObject) -> list[int]:
    """Where batches end."""
    return sorted(data.draw(st.sets(st.integers(1, END - 1), max_size=5)) | {END})


@unhurried
@given(st.data(), histories())
def test_incremental_is_batch(
    data: st.DataObject, history: tuple[Recursion, list[KeyedUpdate]]
) -> None:
    """At every time the updates sum to what the definition gives, also over restarts."""
    recursion, updates = history
    store, found = ran(MemoryStore(), recursion, updates, drawn_uppers(data), reopened)

    for time in range(END):
        assert shown_at(found, time) == expected(recursion, updates, time), time
    assert len(consolidate(pairs(found))) == len(found)
    kept = {
        (key, *shown(value)): values.count(value)
        for key, values, _ in loop.contents(store)
        for value in values
    }
    assert kept == {at: n for at, n in expected(recursion, updates, END).items() if n > 0}


@unhurried
@given(st.data(), histories())
def test_neither_the_cut_nor_the_order_matters(
    data: st.DataObject, history: tuple[Recursion, list[KeyedUpdate]]
) -> None:
    """The same updates and the same entries, however they come."""
    recursion, updates = history
    whole = ran(MemoryStore(), recursion, updates)
    shuffled = data.draw(st.permutations(updates))
    cut = ran(MemoryStore(), recursion, shuffled, drawn_uppers(data))

    assert entries(whole[0]) == entries(cut[0])
    assert Counter(whole[1]) == Counter(cut[1])


@unhurried
@given(histories())
def test_what_is_retracted_leaves_no_trace(history: tuple[Recursion, list[KeyedUpdate]]) -> None:
    """When all is retracted there are no entries, and nothing shows."""
    recursion, updates = history
    store, found = ran(MemoryStore(), recursion, updates)
    back = [update._replace(time=END, diff=-update.diff) for update in updates]
    fresh = loop.step(store, back, Interval(END, END + 1), recursion.program)

    assert shown_at([*found, *fresh.updates], END) == {}
    assert entries(store) == []


@unhurried
@given(histories(), st.integers(1, 4))
def test_shards_together_emit_what_one_would(
    history: tuple[Recursion, list[KeyedUpdate]], shards: int
) -> None:
    """Keys have nothing to do with each other, and every entry goes with its key."""
    recursion, updates = history
    store, whole = ran(MemoryStore(), recursion, updates)
    found: Counter[KeyedUpdate] = Counter()
    places: list[tuple[bytes, bytes]] = []
    for shard in range(shards):
        own = [u for u in updates if u.key is not None and shard_of(u.key, shards) == shard]
        of_shard, made = ran(MemoryStore(), recursion, own)
        found.update(made)
        places += entries(of_shard)
        for place, entry in entries(of_shard):
            divided = loop.PART.layout.divided(place, entry, lambda key: shard_of(key, shards))
            assert divided == {shard: entry}

    assert found == Counter(whole)
    assert sorted(places) == entries(store)


def edges(*pairs_: tuple[int, int], time: int = 0, diff: int = 1) -> list[KeyedUpdate]:
    """Updates of edges."""
    return [KeyedUpdate(b"0", tagged(0, edge), time, diff) for edge in pairs_]


def test_what_an_edge_into_a_cycle_brought_goes_with_it() -> None:
    """In the cycle each node is reached from the other, yet from 0 neither is any more."""
    store = MemoryStore()
    begun = edges((0, 1), (1, 2), (2, 1))
    found = loop.step(store, begun, Interval(0, 1), closure().program).updates
    gone = edges((0, 1), time=1, diff=-1)
    found += loop.step(store, gone, Interval(1, 2), closure().program).updates

    assert {
        (row, at, diff) for (_, value), at, diff in pairs(found) for _, row in [shown(value)]
    } == {
        *(((a, b), 0, 1) for a in (0, 1, 2) for b in (1, 2)),
        ((0, 1), 1, -1),
        ((0, 2), 1, -1),
    }


@pytest.mark.parametrize("rounds", [1, 7, 30])
def test_what_does_not_end_is_an_error_that_names_the_operator(rounds: int) -> None:
    """Parts of a cycle are there once more for each time around it."""
    cycle = [KeyedUpdate(b"0", tagged(0, (a, 1 - a, 1)), 0, 1) for a in (0, 1)]
    recursion = limited(parts(), rounds)

    with pytest.raises(NoEndError):
        recursion.fixpoint([edges_at(cycle, b"0", 0)])
    with pytest.raises(ConvergenceError, match=f'"p" still changes after {rounds} rounds'):
        loop.step(MemoryStore(), cycle, Interval(0, 1), recursion.program, "p")


def test_the_limit_allows_as_many_rounds_as_it_says() -> None:
    """A path of n edges takes a round for each, and one in which nothing changes."""
    path = edges(*((at, at + 1) for at in range(5)))

    loop.step(MemoryStore(), path, Interval(0, 1), closure(rounds=5).program)
    with pytest.raises(ConvergenceError):
        loop.step(MemoryStore(), path, Interval(0, 1), closure(rounds=4).program)


def test_a_change_costs_what_it_touches() -> None:
    """An edge at the end of a long path, and one beside it, leave the rest alone."""
    store = CountingStore()
    path = edges(*((at, at + 1) for at in range(40)), *((100 + at, 101 + at) for at in range(40)))
    loop.step(store, path, Interval(0, 1), closure().program)
    loaded = store.counted()
    loop.step(store, edges((300, 301), time=1), Interval(1, 2), closure().program)
    read, written = store.counted()

    assert loaded[1] > 1600
    assert written == 6
    assert read <= 12


def test_nothing_is_written_of_what_cancels() -> None:
    """An edge that comes and goes at one time is none."""
    store = MemoryStore()
    both = [*edges((0, 1), (1, 2)), *edges((1, 2), diff=-1)]
    loop.step(store, both, Interval(0, 1), closure().program)
    one = MemoryStore()
    loop.step(one, edges((0, 1)), Interval(0, 1), closure().program)

    assert entries(store) == entries(one)
