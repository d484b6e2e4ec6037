"""Window functions against their definition, over all rows of a partition at every time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval, accumulate, consolidate
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import stretches, window_functions
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import (
    ENDS,
    OFFSETS,
    RANKS,
    WHOLE_FRAME,
    End,
    Frame,
    FrameAggregate,
    FrameBound,
    InOwnOrder,
    Offset,
    Ranking,
    WindowFunction,
)
from support.relation_batches import pairs
from support.stores import entries, reopened
from support.strategies import unhurried
from support.window_oracle import Sorted, row_of

TIMES = 6
ORDER = ("row", (("o0", ""),))
SIDES = ("all", "preceding", "current", "following")
AGGREGATES = ("count", "sum", "avg", "var_pop", "min", "max", "list", "top", "distinct")


@pytest.fixture(autouse=True, scope="module")
def _low_levels() -> Iterator[None]:
    """Every second row begins a stretch, so that a few rows have several levels of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "_LEVEL_BITS", 1)
        yield


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Any frame of SQL; bounds by values are arguments of rows."""
    unit: Any = draw(st.sampled_from(["rows", "range", "groups"]))
    first, last = sorted(draw(st.tuples(st.integers(0, 3), st.integers(1, 4))))
    sides = [SIDES[min(first, 3)], (*SIDES[1:], "all")[max(last - 1, 0)]]
    bounds = []
    for side in sides:
        by = draw(st.integers(0, 2)) if side in ("preceding", "following") else 0
        is_value = unit == "range" and side in ("preceding", "following")
        bounds.append(FrameBound(side, f"{side[0]}{by}" if is_value else by))  # type: ignore[arg-type]
    if draw(st.integers(0, 4)) == 0:
        number = {"rows": "away", "groups": "away", "range": ""}[unit]
        bounds = [_of_row(each, number) for each in bounds]
    exclude: Any = draw(st.sampled_from(["", "", "", "row", "group", "ties"]))
    return Frame(unit, bounds[0], bounds[1], exclude)


def _of_row(bound: FrameBound, number: str) -> FrameBound:
    """The bound with a distance of each row, if it has one."""
    if bound.side not in ("preceding", "following"):
        return bound
    return FrameBound(bound.side, number or f"{bound.side[0]}_by_row", is_of_row=True)


@st.composite
def functions(draw: st.DrawFn) -> WindowFunction:
    """Any function over the argument x; some have a number by row, or an order of the call."""
    kind = draw(st.sampled_from([*RANKS, *OFFSETS, *ENDS, *AGGREGATES]))
    frame = draw(st.one_of(frames(), st.sampled_from(USUAL), st.sampled_from(AWAY)))
    number, ignores = draw(st.integers(1, 3)), draw(st.booleans())
    if kind in AGGREGATES:
        argument = draw(st.sampled_from(["", "x"])) if kind == "count" else "x"
        distinct = argument != "" and draw(st.booleans())
        aggregate = Aggregate("f", kind, argument, number, is_distinct=distinct)
        return FrameAggregate(aggregate, frame=frame)
    of_row = draw(st.sampled_from(["", "", "n", "m"]))
    is_within = draw(st.booleans())
    function: Ranking | Offset | End
    if kind in RANKS:
        function = Ranking(kind, "n" if of_row and kind == "ntile" else number)
    elif kind in OFFSETS:
        default = draw(st.sampled_from(["", "y"]))
        is_within &= not ignores
        function = Offset(kind, "x", of_row or number - 1, default, ignores)
    else:
        nth = (of_row or number) if kind == "nth_value" else 1
        function = End(kind, "x", nth, ignores, frame=WHOLE_FRAME if is_within else frame)
    if not is_within:
        return function
    order: Any = "row", (("o0", ""),)
    return InOwnOrder("f", function, "i", draw(st.booleans()), order, frame=frame)


USUAL = (
    Frame(),
    Frame("rows"),
    Frame("rows", end=FrameBound("all")),
    Frame("rows", FrameBound("current"), FrameBound("all")),
    Frame("rows", FrameBound("preceding", 1), FrameBound("following", 1)),
    Frame("range", FrameBound("preceding", "p1")),
)
# Frames that rows between the row and the frame move, and frames whose far end moves.
AWAY = tuple(
    Frame(unit, *bounds)
    for unit in ("rows", "groups")
    for bounds in (
        (FrameBound("following", 2), FrameBound("following", 3)),
        (FrameBound("preceding", 3), FrameBound("preceding", 2)),
        (FrameBound("all"), FrameBound("preceding", 2)),
        (FrameBound("all"), FrameBound("following", 2)),
        (FrameBound("preceding", 2), FrameBound("all")),
        (FrameBound("following", 2), FrameBound("all")),
    )
)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Up to four functions over one order."""
    found = draw(st.lists(functions(), min_size=1, max_size=4))
    most = draw(st.sampled_from([0, 0, 1, 2, 4]))
    if most:
        found = [Ranking(draw(st.sampled_from(["row_number", "rank", "dense_rank"]))), *found]
    return Window(tuple(found), ORDER, "", draw(st.booleans()), most)


def row(window: Window, identity: int, value: int | None, x: int | None) -> bytes:
    """A row, with the values of its order that lie before and behind."""
    found: dict[str, Any] = {"o": {"o0": value}, "r": {"id": identity, "v": value, "x": x}}
    for by in range(3):
        for side, sign in (("p", -1), ("f", 1)):
            away = by * sign * (-1 if window.is_descending else 1)
            found[f"{side}{by}"] = {"o0": None if value is None else value + away}
    for side in "pf":
        found[f"{side}_by_row"] = found[f"{side}{identity % 3}"]
    numbers = {
        "away": identity % 3,
        "n": None if x is None else x + 1,
        "m": None if value is None else value - 1,
    }
    return row_of(window, {**found, "x": x, "y": identity * 10, "i": {"o0": x}, **numbers})


rows = st.tuples(
    st.integers(0, 9), st.sampled_from([None, 0, 1, 1, 2, 3]), st.sampled_from([None, 0, 1, 5, 5])
)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[bytes, tuple[Any, ...], int, int]]:
    """Updates of few rows: key, row, time and diff."""
    data = draw(st.lists(st.tuples(st.sampled_from([b"1", b"22"]), rows), min_size=1, max_size=9))
    update = st.tuples(
        st.sampled_from(data),
        st.integers(0, TIMES - 1),
        st.sampled_from([-2, -1, -1, 1, 1, 1, 2]),
    )
    begun = [(datum, 0, 1) for datum in data] if draw(st.booleans()) else []
    found = [*begun, *draw(st.lists(update, max_size=15))]
    return [(key, each, time, diff) for (key, each), time, diff in found]


def updates_of(history: Iterable[Any], window: Window) -> list[KeyedUpdate]:
    return [KeyedUpdate(key, row(window, *of), time, diff) for key, of, time, diff in history]


def expected(updates: Sequence[KeyedUpdate], window: Window, time: int) -> Counter[Any]:
    """The collection at a time, by definition."""
    found: Counter[Any] = Counter()
    collected = accumulate(pairs(updates), time)
    for key in {key for key, _ in collected}:
        copies = [
            canonical.decode(value)
            for (of, value), count in collected.items()
            if of == key
            for _ in range(count)
        ]
        partition = Sorted(copies, window)
        for at, each in enumerate(partition.rows):
            values = [partition.value(function, at) for function in window.functions]
            if not window.most or values[0] <= window.most:
                found[key, plain({"row": each["r"], **named(values)})] += 1
    return found


def named(values: Sequence[Any]) -> dict[str, Any]:
    return {f"w{at}": value for at, value in enumerate(values)}


def plain(value: Any) -> Any:
    """A value as it is compared: fractions as ten digits tell them."""
    if isinstance(value, float):
        return round(value, 10)
    if isinstance(value, dict):
        return tuple((name, plain(value[name])) for name in sorted(value))
    return tuple(value) if isinstance(value, list) else value


def collected(updates: Iterable[KeyedUpdate], time: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for (key, value), count in accumulate(pairs(updates), time).items():
        found[key, plain(canonical.decode(value))] += count
    return found


def moved(
    store: MemoryStore, updates: Sequence[KeyedUpdate], uppers: Sequence[int], window: Window
) -> list[KeyedUpdate]:
    """What batches with these uppers come to, each after a restart."""
    found = []
    for lower, upper in zip([0, *uppers], uppers, strict=False):
        interval = Interval(lower, upper)
        own = [update for update in updates if update.time in interval]
        before = reopened(store)
        fresh = window_functions.step(store, own, interval, window)
        assert fresh == window_functions.step(before, own, interval, window)
        assert entries(store) == entries(before)
        found += fresh
    return found


@unhurried
@given(st.data(), windows(), histories())
def test_incremental_is_batch(data: st.DataObject, window: Window, history: list[Any]) -> None:
    """At every time the updates sum to the values of all rows, however batches are cut."""
    updates, store = updates_of(history, window), MemoryStore()
    uppers = sorted(data.draw(st.sets(st.integers(1, TIMES - 1), max_size=3)) | {TIMES})

    found = moved(store, updates, uppers, window)

    for time in range(TIMES):
        assert collected(found, time) == expected(updates, window, time)
    assert len(set(consolidate(pairs(found)))) == len(found)
    whole = MemoryStore()
    window_functions.step(whole, data.draw(st.permutations(updates)), Interval(0, TIMES), window)
    assert entries(whole) == entries(store)
    at_end = Counter(
        (key, value) for key, values, _ in window_functions.contents(store) for value in values
    )
    assert at_end == accumulate(pairs(found), TIMES)
    assert [key for key, *_ in window_functions.contents(store, b"2")] in ([], [b"22"])


@pytest.mark.parametrize("kind", ["count", "sum", "min", "max", "list", *ENDS])
def test_rows_between_move_a_frame(kind: str) -> None:
    """A row that comes or goes between a row and its frame, or a null in it, moves the frame."""
    values = [(at, at, None if at % 5 == 0 else at % 3) for at in range(10)]
    come = [(b"1", of, of[0] % 3, 1) for of in values]
    history = [*come, *((b"1", of, 3 + of[0] % 2, -1) for of in values[1:8:2] + values[2:8:3])]
    excludes: tuple[Any, ...] = ("", "row")
    for frame, exclude in product(AWAY, excludes):
        shifted = replace(frame, exclude=exclude)
        number = 2 if kind == "nth_value" else 1
        function: WindowFunction = FrameAggregate(Aggregate("f", kind, "x"), frame=shifted)
        if kind in ENDS:
            function = End(kind, "x", number, frame=shifted)
        window = Window((function,), ORDER, "")
        updates = updates_of(history, window)
        found = moved(MemoryStore(), updates, [TIMES], window)
        for time in range(TIMES):
            assert collected(found, time) == expected(updates, window, time), shifted


@unhurried
@given(windows(), histories(), histories())
def test_what_is_added_and_retracted_leaves_no_trace(
    window: Window, kept: list[Any], passing: list[Any]
) -> None:
    """The entries are those without it, and none when all is retracted."""
    store, own = MemoryStore(), updates_of(kept, window)
    window_functions.step(store, own, Interval(0, TIMES), window)
    before = entries(store)
    others = [each._replace(time=TIMES) for each in updates_of(passing, window)]
    back = [each._replace(time=TIMES + 1, diff=-each.diff) for each in others]
    window_functions.step(store, others, Interval(TIMES, TIMES + 1), window)
    window_functions.step(store, back, Interval(TIMES + 1, TIMES + 2), window)

    assert entries(store) == before

    all_back = [each._replace(time=TIMES + 2, diff=-each.diff) for each in own]
    window_functions.step(store, all_back, Interval(TIMES + 2, TIMES + 3), window)

    assert entries(store) == []
