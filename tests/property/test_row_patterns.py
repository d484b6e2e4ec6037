"""Matches of row patterns against their definition, over all rows of a partition at every time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval, accumulate, consolidate
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import stretches, window_functions
from ikebana.processor.kernels.row_patterns import PatternError, parsed
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import RowPattern
from support.pattern_oracle import Pattern, Repeated, Sequenced, Variable, matches, patterns
from support.relation_batches import pairs
from support.stores import entries, reopened
from support.strategies import unhurried

TIMES = 5
ORDER = ("row", (("o0", ""),))


@pytest.fixture(autouse=True, scope="module")
def _low_levels() -> Iterator[None]:
    """Every second row begins a stretch, so that a few rows have several levels of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "_LEVEL_BITS", 1)
        yield


# Where a row stands in the order, and the variables that it may stand for.
rows = st.tuples(st.integers(0, 9), st.sampled_from(["", "A", "A", "B", "AB", "BC", "C", "ABC"]))


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[tuple[int, str], int, int]]:
    """Updates of few rows: row, time and diff."""
    data = draw(st.lists(rows, min_size=1, max_size=10))
    update = st.tuples(
        st.sampled_from(data), st.integers(0, TIMES - 1), st.sampled_from([-1, -1, 1, 1, 2])
    )
    return [*((datum, 0, 1) for datum in data), *draw(st.lists(update, max_size=8))]


def window_of(pattern: Pattern) -> Window:
    """A window with a pattern alone, or an assumption that it is one."""
    try:
        parsed(str(pattern))
    except PatternError:
        reject()
    return Window((RowPattern("x", str(pattern)),), ORDER, "")


def updates_of(history: Sequence[Any], window: Window) -> list[KeyedUpdate]:
    """Updates with a bit for each variable of the pattern that a row may stand for."""
    (function,) = window.functions
    assert isinstance(function, RowPattern)
    variables = parsed(function.pattern).variables

    def written(at: int, may_be: str) -> bytes:
        bits = sum(1 << bit for bit, name in enumerate(variables) if name in may_be)
        return canonical.encode({"o": {"o0": at}, "r": {"at": at, "v": may_be}, "a0": bits})

    return [KeyedUpdate(b"1", written(*row), time, diff) for row, time, diff in history]


def expected(updates: Sequence[KeyedUpdate], pattern: Pattern, time: int) -> Counter[Any]:
    """The matches at a time, each with its rows; and a match of None for each other row."""
    there = [
        (row["r"]["at"], row["r"]["v"])
        for (_, value), count in accumulate(pairs(updates), time).items()
        for row in [canonical.decode(value)]
        for _ in range(count)
    ]
    there.sort()
    found: Counter[Any] = Counter()
    at = 0
    for variables in matches(pattern, [frozenset(may_be) for _, may_be in there]):
        some = there[at : at + max(len(variables), 1)]
        found[tuple(zip(some, variables or (None,), strict=True))] += 1
        at += len(some)
    return found


def collected(updates: Sequence[KeyedUpdate], time: int) -> Counter[Any]:
    """The same of what was emitted."""
    by_match: dict[str, list[Any]] = {}
    found: Counter[Any] = Counter()
    for (_, value), count in accumulate(pairs(updates), time).items():
        row, value = (canonical.decode(value)[name] for name in ("row", "w0"))
        each = (row["at"], row["v"]), value["variable"]
        if value["match"] is None:
            found[each,] += count
        else:
            assert count == 1, "each copy of a row has its place in a match"
            by_match.setdefault(value["match"], []).append((value["number"], each))
    for members in by_match.values():
        members.sort()
        assert [number for number, _ in members] == [*range(1, len(members) + 1)]
        found[tuple(each for _, each in members)] += 1
    return found


@unhurried
@given(st.data(), patterns, histories())
def test_matches_are_those_of_all_rows_at_every_time(
    data: st.DataObject, pattern: Pattern, history: list[Any]
) -> None:
    """However batches are cut, after restarts, and with the same entries in the store."""
    window = window_of(pattern)
    updates, store = updates_of(history, window), MemoryStore()
    uppers = sorted(data.draw(st.sets(st.integers(1, TIMES - 1), max_size=3)) | {TIMES})
    found: list[KeyedUpdate] = []
    for lower, upper in zip([0, *uppers], uppers, strict=False):
        own = [update for update in updates if lower <= update.time < upper]
        store = reopened(store)
        found += window_functions.step(store, own, Interval(lower, upper), window)

    for time in range(TIMES):
        assert collected(found, time) == expected(updates, pattern, time)
    assert len(set(consolidate(pairs(found)))) == len(found)
    whole = MemoryStore()
    window_functions.step(whole, data.draw(st.permutations(updates)), Interval(0, TIMES), window)
    assert entries(whole) == entries(store)


@unhurried
@given(patterns, histories(), histories())
def test_rows_that_come_and_go_leave_no_trace(
    pattern: Pattern, kept: list[Any], passing: list[Any]
) -> None:
    """The entries are those without them."""
    window, store = window_of(pattern), MemoryStore()
    window_functions.step(store, updates_of(kept, window), Interval(0, TIMES), window)
    before = entries(store)
    others = [each._replace(time=TIMES) for each in updates_of(passing, window)]
    back = [each._replace(time=TIMES + 1, diff=-each.diff) for each in others]
    window_functions.step(store, others, Interval(TIMES, TIMES + 1), window)
    window_functions.step(store, back, Interval(TIMES + 1, TIMES + 2), window)

    assert entries(store) == before


def test_an_appended_row_costs_the_rows_that_are_pending() -> None:
    """A thousand matches before it are neither read again nor emitted."""
    window = window_of(Sequenced((Variable("A"), Repeated(Variable("B"), 1, None))))
    store = MemoryStore()
    history = [((at, "AB"[at % 3 > 0]), 0, 1) for at in range(3_000)]
    window_functions.step(store, updates_of(history, window), Interval(0, 1), window)

    found = window_functions.step(
        store, updates_of([((3_000, "A"), 1, 1)], window), Interval(1, 2), window
    )

    # The match before is over, which the rows with its variables do not say again.
    assert len(found) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A*", "also matches no row"),
        ("A B*)", '"\\)" is not expected here'),
        ("(A B", "is to be closed"),
        ("A |", "a variable is expected"),
        ("^ A", "is not supported"),
        ("PERMUTE(A, B)", "is not supported"),
        ("A{3,2}", "repeats nothing"),
        ("(A{50} B){50}", "repeats too often"),
    ],
)
def test_what_is_no_pattern_is_refused(text: str, problem: str) -> None:
    """With its place in the text."""
    with pytest.raises(PatternError, match=problem):
        parsed(text)
