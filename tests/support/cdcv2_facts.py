"""What a CDCv2 topic may tell: facts of one collection, in pieces, repeated and shuffled."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from ikebana.codecs.cdcv2 import END, Cdcv2Message, Fact, Progress, UpdateFacts

LAST = 12
# Few data, so that they meet; None is not the key null, and long data differ at the end.
keys = st.sampled_from([None, b"null", b"1", b"2"])
values = st.sampled_from([b"null", b"v" * 99 + b"1", b"v" * 99 + b"2"])
times = st.integers(0, LAST)
nonzero = st.sampled_from([-2, -1, 1, 2])
data_diffs = st.dictionaries(st.tuples(keys, values, times), nonzero, max_size=16)
spans = st.tuples(st.integers(0, LAST + 1), st.integers(0, LAST + 1)).map(sorted)


def statement(history: Iterable[Fact], lower: int, upper: int) -> Progress:
    """What is true of an interval."""
    counts = Counter(time for _, _, time, _ in history if lower <= time < upper)
    return Progress(lower, upper, counts)


@st.composite
def histories(draw: st.DrawFn) -> list[Fact]:
    """A collection: each (key, value, time) has one diff."""
    return [(*data, diff) for data, diff in draw(data_diffs).items()]


@st.composite
def tellings(draw: st.DrawFn, history: Sequence[Fact]) -> list[Cdcv2Message]:
    """All of a history: facts that overlap, and statements that do, without a gap."""
    bounds = sorted({0, *draw(st.lists(times, max_size=5)), LAST + 1})
    if draw(st.booleans()):
        bounds.append(END)
    pieces = [*pairwise(bounds), *draw(st.lists(spans, max_size=3))]
    messages: list[Cdcv2Message] = [statement(history, lower, upper) for lower, upper in pieces]
    messages += [UpdateFacts([fact]) for fact in history]
    if history:
        again = st.lists(st.sampled_from(history), max_size=4)
        messages += [UpdateFacts(some) for some in draw(st.lists(again, max_size=3))]
    messages += draw(st.lists(st.sampled_from(messages), max_size=6))
    return draw(st.permutations(messages))


def facts_of(messages: Iterable[Cdcv2Message]) -> Iterator[Fact]:
    """The facts of all updates, as often as they come."""
    return (fact for one in messages if isinstance(one, UpdateFacts) for fact in one.updates)


def statements_of(messages: Iterable[Cdcv2Message]) -> list[Progress]:
    """The progress statements."""
    return [one for one in messages if isinstance(one, Progress)]


def contradictory(messages: Sequence[Cdcv2Message]) -> bool:
    """By the definition: no collection has all these facts, whenever they are told."""
    facts, stated = set(facts_of(messages)), statements_of(messages)
    there = Counter(time for _, _, time in {fact[:3] for fact in facts})
    counted: dict[int, set[int]] = {
        time: {one.counts.get(time, 0) for one in stated if one.lower <= time < one.upper}
        for time in range(2 * LAST)
    }
    return (
        there.total() < len(facts)
        or any(len(counts) > 1 for counts in counted.values())
        or any(there[time] > count for time, counts in counted.items() for count in counts)
    )
