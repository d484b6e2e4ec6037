"""Facts on literal updates: each is held once, and released when its time is closed."""

from collections.abc import Sequence
from itertools import permutations

import pytest

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.cdcv2 import END
from ikebana.processor.base.diff_reader import ContradictionError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import facts
from ikebana.processor.kernels.facts import ReleasedFacts
from support.stores import CountingStore, entries

ONE = KeyedUpdate(b"1", b"v", 3, 1)
OTHER = KeyedUpdate(b"2", b"v", 3, -2)
LATER = KeyedUpdate(None, b"v", 7, 1)


def test_facts_wait_until_the_frontier_has_passed_their_time() -> None:
    """Those of a time are released together, in the batch whose interval it lies in."""
    store = MemoryStore()

    assert facts.step(store, [LATER, ONE], Interval(0, 0)) == ReleasedFacts([], {7: 1, 3: 1}, 0)
    assert facts.step(store, [OTHER], Interval(0, 3)) == ReleasedFacts([], {3: 1}, 0)
    assert facts.due_times(store) == [3, 3, 7]
    released = facts.step(store, [], Interval(3, 7))
    assert sorted(released.updates) == [ONE, OTHER]
    assert released[1:] == ({}, 0)
    assert facts.step(store, [], Interval(7, 8)) == ReleasedFacts([LATER], {}, 0)
    assert entries(store) == []


def test_a_repetition_is_counted_and_changes_nothing() -> None:
    """In its batch, while it is held, when it is due, and when it was released."""
    store = MemoryStore()

    assert facts.step(store, [ONE, ONE, ONE], Interval(0, 0)) == ReleasedFacts([], {3: 1}, 2)
    held = entries(store)
    assert facts.step(store, [ONE], Interval(0, 0)) == ReleasedFacts([], {}, 1)
    assert entries(store) == held
    assert facts.step(store, [ONE, ONE], Interval(0, 9)) == ReleasedFacts([ONE], {}, 2)
    assert facts.step(store, [ONE, ONE], Interval(9, 9)) == ReleasedFacts([], {}, 2)
    assert entries(store) == []


def test_facts_differ_in_key_value_and_time() -> None:
    """No key is not the key null, and long values differ at the end."""
    different = [
        KeyedUpdate(key, value, time, 1)
        for key in (None, b"", b"null")
        for value in (b"", b"v" * 999 + b"1", b"v" * 999 + b"2")
        for time in (3, 259)
    ]

    found = facts.step(MemoryStore(), [*different, *different], Interval(0, 0))

    assert found == ReleasedFacts([], {3: 9, 259: 9}, 18)


TWO_DIFFS = "cannot read CDCv2 updates of time 3: one of them comes with two diffs"
TOO_MANY = "cannot read CDCv2 updates of time 3: there are more of them than progress counts"


@pytest.mark.parametrize("order", list(permutations([ONE, ONE, ONE._replace(diff=2)])))
def test_two_diffs_of_one_datum_and_time_are_an_error(order: Sequence[KeyedUpdate]) -> None:
    """In one batch, while one is held, and in the batch that releases it."""
    with pytest.raises(ContradictionError) as caught:
        facts.step(MemoryStore(), order, Interval(0, 0))
    assert caught.value.message == TWO_DIFFS

    for upper in (0, 4):
        store = MemoryStore()
        facts.step(store, order[:1], Interval(0, 0))
        with pytest.raises(ContradictionError) as caught:
            facts.step(store, order[1:], Interval(0, upper))
        assert caught.value.message == TWO_DIFFS


def test_a_new_fact_of_a_time_that_is_complete_is_an_error() -> None:
    """It is one more than progress counts, and does not slip in with the others."""
    store = MemoryStore()
    facts.step(store, [ONE], Interval(0, 0))

    with pytest.raises(ContradictionError) as caught:
        facts.step(store, [ONE, OTHER], Interval(0, 4))

    assert caught.value.message == TOO_MANY


def test_what_was_released_is_not_remembered() -> None:
    """Another diff then is one more repetition: the frontier is all that is known."""
    store = MemoryStore()
    facts.step(store, [ONE], Interval(0, 0))
    facts.step(store, [], Interval(0, 4))

    late = [ONE._replace(diff=2), OTHER, ONE._replace(time=-1)]
    assert facts.step(store, late, Interval(4, 4)) == ReleasedFacts([], {}, 3)


def test_the_last_time_there_is_can_be_held_and_released() -> None:
    """Facts lie in the order of numbers."""
    store = MemoryStore()
    last = ONE._replace(time=END - 1)
    facts.step(store, [last, LATER], Interval(0, 0))

    assert facts.due_times(store) == [7, END - 1]
    assert facts.step(store, [], Interval(0, END)).updates == [LATER, last]


def test_an_entry_goes_where_its_repetitions_go() -> None:
    """By its key; all without one lie together, so that they can be reduced together."""
    store = MemoryStore()
    facts.step(store, [ONE, LATER, KeyedUpdate(b"", b"w", 9, 1)], Interval(0, 0))

    keys = [b"1", b"null", b""]
    divided = [facts.PART.layout.divided(*entry, keys.index) for entry in entries(store)]
    assert [list(each) for each in divided] == [[0], [1], [2]]


@pytest.mark.parametrize("due", [0, 5])
def test_a_batch_looks_only_at_what_comes_and_what_is_due(due: int) -> None:
    """With 10,000 waiting, no more than these and one beyond is read."""
    store = CountingStore()
    held = [KeyedUpdate(b"%d" % at, b"v", 1_000 + at, 1) for at in range(10_000)]
    first = [KeyedUpdate(b"%d" % at, b"v", 20, 1) for at in range(due)]
    facts.step(store, [*held, *first], Interval(0, 10))
    store.counted()

    found = facts.step(store, [held[7], KeyedUpdate(b"new", b"v", 2_000, 1)], Interval(10, 30))

    assert (len(found.updates), found.counts, found.repeated) == (due, {2_000: 1}, 1)
    assert store.counted()[0] <= 2 + due + 1


def test_facts_of_times_before_the_first_one_are_released_at_it() -> None:
    """An input may begin when times are closed, and have facts of one datum at several of them."""
    store = MemoryStore()
    early = [ONE, ONE._replace(time=5, diff=-1), OTHER]

    found = facts.step(store, [*early, LATER, *early], Interval(6, 6), since=0)
    assert found == ReleasedFacts([], {3: 2, 5: 1, 7: 1}, 3)
    assert facts.step(store, early, Interval(6, 6), since=0) == ReleasedFacts([], {}, 3)
    released = facts.step(store, early, Interval(6, 7), since=0)
    assert sorted(released.updates) == sorted(fact._replace(time=6) for fact in early)
    assert facts.step(store, [], Interval(7, 8)) == ReleasedFacts([LATER], {}, 0)
