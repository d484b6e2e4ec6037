"""The CDCv2 reader against the history that was written, whatever becomes of the messages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import cdcv2, cdcv2_avro
from ikebana.codecs.cdcv2 import END, Cdcv2Message, Fact, Progress, UpdateFacts
from ikebana.processor.base.diff_reader import Cdcv2Reader, ContradictionError, Published

LAST = 12
forms = st.sampled_from([cdcv2, cdcv2_avro])
keys = st.sampled_from([None, b"null", b"1", b'{"id":1}'])
values = st.sampled_from([b"null", b'{"n":1}', b'{"n":2}'])
updates = st.tuples(keys, values, st.integers(0, LAST), st.sampled_from([-2, -1, 1, 2]))


class Written(NamedTuple):
    """A history, consolidated, where its progress ends, and its messages in any order."""

    history: list[Fact]
    upper: int
    messages: list[Cdcv2Message]


def counts_of(given_updates: list[Fact]) -> dict[int, int]:
    """The numbers of distinct updates by time."""
    return dict(Counter(time for _, _, time, _ in cdcv2.consolidate(given_updates)))


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Updates written batch by batch; messages repeated and shuffled afterwards."""
    form: ModuleType = draw(forms)
    given_updates: list[Fact] = draw(st.lists(updates, max_size=16))
    bounds = sorted({0, *draw(st.lists(st.integers(1, LAST), max_size=5)), LAST + 1})
    if draw(st.booleans()):
        bounds.append(END)
    sizes = st.integers(1, 200)
    messages: list[bytes] = []
    for lower, upper in pairwise(bounds):
        batch = [update for update in given_updates if lower <= update[2] < upper]
        messages += form.encode_updates(batch, draw(sizes))
        messages += form.encode_progress(lower, upper, counts_of(batch), draw(sizes))
    counts = counts_of(given_updates)
    interval = st.tuples(st.integers(0, LAST + 1), st.integers(0, LAST + 1)).map(sorted)
    for lower, upper in draw(st.lists(interval, max_size=3)):
        within = {time: count for time, count in counts.items() if lower <= time < upper}
        messages += form.encode_progress(lower, upper, within, draw(sizes))
    repeated = draw(st.lists(st.sampled_from(messages), max_size=6))
    arriving = draw(st.permutations([*messages, *repeated]))
    return Written(
        in_order(cdcv2.consolidate(given_updates)),
        bounds[-1],
        [form.decode(message) for message in arriving],
    )


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """By time, key and value."""
    return sorted(facts, key=lambda fact: (fact[2], fact[0] is not None, fact[0] or b"", fact[1]))


def frontier_of(seen: Sequence[Cdcv2Message]) -> int:
    """By the definition: the first time that is not covered, or not complete."""
    facts = {
        fact for message in seen if isinstance(message, UpdateFacts) for fact in message.updates
    }
    stated = [message for message in seen if isinstance(message, Progress)]
    for time in range(LAST + 2):
        counts = [one.counts.get(time, 0) for one in stated if one.lower <= time < one.upper]
        if not counts or counts[0] != sum(fact[2] == time for fact in facts):
            return time
    return END


def feed(reader: Cdcv2Reader, messages: Iterable[Cdcv2Message]) -> None:
    """All of them, one after the other."""
    for message in messages:
        reader.feed(message)


def check_steps(taken: Sequence[Published], lower: int = 0) -> list[Fact]:
    """All updates of what was taken, which are whole times, one by one, in order."""
    found: list[Fact] = []
    for number, (upper, given_updates) in enumerate(taken):
        assert lower < upper
        assert all(lower <= update.time < upper for update in given_updates)
        # A step without updates only moves the frontier.
        assert len({update.time for update in given_updates}) <= 1, number
        found += given_updates
        lower = upper
    return found


@given(written(), st.data())
def test_what_is_published_is_the_history(case: Written, data: st.DataObject) -> None:
    """Each time once, in order, with exactly its updates, however often somebody looks."""
    reader, taken = Cdcv2Reader(), []
    for message in case.messages:
        reader.feed(message)
        if data.draw(st.booleans()):
            taken += reader.take()
    taken += reader.take()

    assert check_steps(taken) == case.history
    assert reader.upper == (taken[-1].upper if taken else 0) == case.upper
    assert reader.take() == []


@given(written())
def test_a_time_is_published_as_soon_as_it_is_complete_and_not_before(case: Written) -> None:
    """After every message the frontier is the one that its definition gives."""
    reader, found, frontier = Cdcv2Reader(), list[Fact](), 0
    for number, message in enumerate(case.messages, start=1):
        reader.feed(message)
        found += check_steps(reader.take(), frontier)
        frontier = frontier_of(case.messages[:number])
        assert reader.upper == frontier
        assert found == [fact for fact in case.history if fact[2] < frontier]


@given(written())
def test_what_was_published_is_forgotten_and_stays_published(case: Written) -> None:
    """Memory is bounded by what is open; late repetitions change nothing."""
    reader = Cdcv2Reader()
    feed(reader, case.messages)
    reader.take()
    feed(reader, case.messages)

    assert reader.take() == []
    assert not any(held for held in vars(reader).values() if not isinstance(held, int))


@given(written(), st.integers(0, LAST + 1))
def test_a_new_reader_goes_on_where_another_stopped(case: Written, lower: int) -> None:
    """From its `lower` on it publishes what is left."""
    reader = Cdcv2Reader(lower)
    feed(reader, case.messages)

    taken = reader.take()

    assert check_steps(taken, lower) == [fact for fact in case.history if fact[2] >= lower]
    assert reader.upper == case.upper


ONE: Fact = (b"1", b"1", 3, 1)
OTHER: Fact = (b"2", b"1", 3, 1)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        pytest.param(
            [UpdateFacts([ONE]), UpdateFacts([(b"1", b"1", 3, 2)])],
            "one of them comes with two diffs",
            id="two diffs",
        ),
        pytest.param(
            [UpdateFacts([ONE, (b"1", b"1", 3, -1)])],
            "one of them comes with two diffs",
            id="two diffs in one message",
        ),
        pytest.param(
            [UpdateFacts([ONE]), UpdateFacts([OTHER]), Progress(0, 4, {3: 1})],
            "there are 2, and progress counts 1",
            id="more than are counted",
        ),
        pytest.param(
            [UpdateFacts([ONE]), Progress(0, 9, {5: 1})],
            "there are 1, and progress counts 0",
            id="one where none is",
        ),
        pytest.param(
            [UpdateFacts([(b"1", b"1", 0, 1)]), Progress(0, 9, {})],
            "there are 1, and progress counts 0",
            id="one where none is, at the frontier",
        ),
        pytest.param(
            [Progress(0, 4, {3: 1}), Progress(2, 6, {3: 2})],
            "progress gives two counts of them",
            id="two counts",
        ),
        pytest.param(
            [Progress(0, 4, {}), Progress(3, 6, {3: 2})],
            "progress gives two counts of them",
            id="a count and none",
        ),
        pytest.param(
            [Progress(2, 6, {3: 1}), Progress(2, 6, {3: 2})],
            "progress gives two counts of them",
            id="two counts beyond a gap",
        ),
    ],
)
def test_facts_that_cannot_all_be_true_are_an_error(
    messages: Sequence[Cdcv2Message], problem: str
) -> None:
    """In whatever order they come; the time is named, and no data."""
    for order in permutations(messages):
        with pytest.raises(ContradictionError) as caught:
            feed(Cdcv2Reader(), order)

        assert caught.value.time in (0, 3)
        assert caught.value.message == (
            f"cannot read CDCv2 updates of time {caught.value.time}: {problem}"
        )


def test_times_come_one_by_one_and_the_frontier_with_the_last() -> None:
    """What lies between two times with updates is closed with the first of them."""
    reader = Cdcv2Reader()
    reader.feed(UpdateFacts([(b"2", b"1", 5, 1), (b"2", b"1", 3, -1), (b"1", b"1", 3, 1)]))
    reader.feed(Progress(0, 9, {5: 1, 3: 2}))

    assert reader.take() == [
        (4, [(b"1", b"1", 3, 1), (b"2", b"1", 3, -1)]),
        (9, [(b"2", b"1", 5, 1)]),
    ]
