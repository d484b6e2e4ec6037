"""Upserts with sequences against a plain fold: the greatest of each key counts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.kernels import upsert as kernel
from support.strategies import unhurried
from support.sums import summed


class Said(NamedTuple):
    """What a message says: the value of a key, or the record of what is no value."""

    key: bytes
    value: bytes | None
    sequence: bytes | None
    time: int
    is_bad: bool = False


KEYS = st.sampled_from([b"a", b"b", b""])
VALUES = st.none() | st.sampled_from([b"1", b"2", b"3"])
NUMBERS = st.integers(1, 9).map(lambda n: b"%d" % n)
GOOD = st.builds(Said, KEYS, VALUES, NUMBERS, st.integers(0, 3), st.just(value=False))
# A message of which nothing can be used has no sequence either.
BAD = st.builds(Said, KEYS, st.none(), st.none(), st.integers(0, 3), st.just(value=True))
HISTORIES = st.lists(st.one_of(GOOD, GOOD, GOOD, BAD), max_size=16)


def collection(history: Sequence[Said], as_of: int) -> Counter[tuple[bytes, bytes]]:
    """By definition: of each key what was said with the greatest sequence, the last if equal."""
    greatest: dict[bytes, Said] = {}
    for said in sorted(history, key=lambda said: said.time):
        if said.time > as_of or said.sequence is None:
            continue
        known = greatest.get(said.key)
        if known is None or (known.sequence or b"") <= said.sequence:
            greatest[said.key] = said
    return Counter((key, said.value) for key, said in greatest.items() if said.value is not None)


def outdated(history: Sequence[Said]) -> int:
    """How many messages come after one of their key with a greater sequence."""
    found, greatest = 0, dict[bytes, bytes]()
    for said in sorted(history, key=lambda said: said.time):
        if said.sequence is not None:
            found += said.sequence < greatest.get(said.key, b"")
            greatest[said.key] = max(said.sequence, greatest.get(said.key, b""))
    return found


def chunk(history: Iterable[tuple[int, Said]], *, partition: int = 0) -> Upserts:
    """Messages of a partition as the kernel gets them, each with its offset."""
    made = Upserts("in", 0, partition, [], [], [], [])
    assert isinstance(made.times, list)
    for at, (offset, said) in enumerate(history):
        made.times.append(said.time)
        made.keys.append(said.key)
        made.values.append(said.value)
        made.offsets.append(offset)
        if said.is_bad:
            made.bad[at] = b"record"
        if said.sequence is not None:
            made.sequences[at] = said.sequence
    return made


def emitted(updates: Iterable[KeyedUpdate], as_of: int) -> Counter[tuple[bytes | None, bytes]]:
    """A collection by its updates."""
    return summed(((u.key, u.value), u.diff) for u in updates if u.time <= as_of)


@unhurried
@given(HISTORIES, st.lists(st.integers(0, 16), max_size=3))
def test_the_greatest_sequence_counts_at_every_time(history: list[Said], cuts: list[int]) -> None:
    """However the history is cut into batches, with a restart between any two."""
    store, updates, left_out = MemoryStore(), list[KeyedUpdate](), 0
    placed = list(enumerate(history))
    bounds = [0, *sorted(min(cut, len(placed)) for cut in cuts), len(placed)]
    for begin, end in pairwise(bounds):
        found = kernel.step(store, [chunk(placed[begin:end])], Interval(0, 0))
        assert not found.updates
        store = deepcopy(store)
    for upper in range(1, 5):
        found = kernel.step(store, [], Interval(upper - 1, upper))
        updates += found.updates
        left_out += found.outdated
        assert len(found.outdated_at) == min(found.outdated, 5)

    for as_of in range(4):
        assert emitted(updates, as_of) == collection(history, as_of)
    assert left_out == outdated(history)


@unhurried
@given(HISTORIES, st.lists(st.integers(0, 16), max_size=3))
def test_batches_of_one_time_are_one_after_the_other(history: list[Said], cuts: list[int]) -> None:
    """A batch has the time of its interval, as in the domain of ingestion."""
    bounds = [0, *sorted(min(cut, len(history)) for cut in cuts), len(history)]
    store, updates, placed = MemoryStore(), list[KeyedUpdate](), list[Said]()
    for time, (begin, end) in enumerate(pairwise(bounds)):
        own = [said._replace(time=time) for said in history[begin:end]]
        made = chunk(enumerate(own, begin))
        made.times = time
        found = kernel.step(store, [made], Interval(time, time + 1))
        updates += found.updates
        placed += own
        assert emitted(updates, time) == collection(placed, time)


@unhurried
@given(st.data(), st.lists(GOOD, max_size=12))
def test_the_order_within_a_key_does_not_matter(data: st.DataObject, history: list[Said]) -> None:
    """Where no two sequences are equal, all orders end with one collection."""
    numbered = [said._replace(sequence=b"%02d" % at, time=0) for at, said in enumerate(history)]
    mixed = data.draw(st.permutations(numbered))
    ends = []
    for order in (numbered, mixed):
        changes = kernel.step(MemoryStore(), [chunk(enumerate(order))], Interval(0, 1))
        ends.append(emitted(changes.updates, 0))

    assert ends[0] == ends[1] == collection(numbered, 0)


def test_what_was_deleted_does_not_come_back() -> None:
    """The state has the sequence of a key that is gone, in a later batch as well."""
    store = MemoryStore()
    first = chunk(enumerate([Said(b"a", b"1", b"5", 0), Said(b"a", None, b"7", 0)]))
    assert not kernel.step(store, [first], Interval(0, 1)).updates

    late = kernel.step(store, [chunk([(2, Said(b"a", b"1", b"6", 1))])], Interval(1, 2))
    assert not late.updates
    assert list(late.outdated_at) == [(0, 0, 2)]
    newer = kernel.step(store, [chunk([(3, Said(b"a", b"2", b"8", 2))])], Interval(2, 3))
    assert [*newer.updates] == [KeyedUpdate(b"a", b"2", 2, 1)]
