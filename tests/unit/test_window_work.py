"""What a change of one row costs of window functions, in entries, however many rows there are."""

from collections.abc import Sequence
from typing import Any

import pytest

from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import argument_values, window_functions
from ikebana.processor.kernels.order import ordered
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import (
    End,
    Frame,
    FrameAggregate,
    FrameBound,
    Offset,
    Ranking,
    WindowFunction,
)
from support.stores import CountingStore

ORDER = ("row", (("o0", ""),))
SUM = FrameAggregate(Aggregate("s", "sum", "x"))
NUMBER = Ranking("row_number")
LAG = Offset("lag", "x")
NEAR = FrameAggregate(Aggregate("a", "avg", "x"), frame=Frame("rows", FrameBound("preceding", 3)))
MAX = FrameAggregate(Aggregate("m", "max", "x"))
TO_END = Frame("rows", FrameBound("current"), FrameBound("all"))
FIRST, LAST = End("first_value", "x"), End("last_value", "x", frame=TO_END)


def row(at: float, x: int) -> bytes:
    return canonical.encode({"o": {"o0": at}, "r": {"at": at, "x": x}, "a0": x})


def moved(rows: int, window: Window, changes: Sequence[tuple[float, int, int]]) -> list[int]:
    """How many entries are read and written, and updates made, by changes of a partition."""
    store = CountingStore()
    all_rows = [KeyedUpdate(b"1", row(at, at % 7), 0, 1) for at in range(rows)]
    window_functions.step(store, all_rows, Interval(0, 1), window)
    store.counted()
    updates = [KeyedUpdate(b"1", row(at, x), 1, diff) for at, x, diff in changes]
    made = window_functions.step(store, updates, Interval(1, 2), window)
    return [*store.counted(), len(made)]


SIZES = (100, 3_000)


@pytest.mark.parametrize(
    ("functions", "most", "changes", "made"),
    [
        pytest.param((SUM, NUMBER), 0, [(1e6, 5, 1)], 1, id="a running sum at the end"),
        pytest.param((LAG, NEAR), 0, [(40.5, 500, 1)], 7, id="a frame of few rows"),
        pytest.param((MAX,), 0, [(40.5, 5, 1)], 1, id="a maximum that stays"),
        pytest.param((FIRST, LAST), 0, [(40.5, 5, 1)], 1, id="the ends of a partition"),
        pytest.param((NUMBER,), 0, [(40, 5, -1), (40, 6, 1)], 2, id="a place that stays"),
        pytest.param((Ranking("rank"),), 3, [(0.5, 1, 1)], 4, id="the first ranks"),
        pytest.param((Ranking("rank"),), 3, [(77.5, 1, 1)], 0, id="behind them"),
    ],
)
def test_a_change_costs_what_it_moves(
    functions: tuple[WindowFunction, ...],
    most: int,
    changes: list[tuple[float, int, int]],
    made: int,
) -> None:
    """Thirty times as many rows are a level more, of about 32 entries."""
    few, many = (moved(n, Window(functions, ORDER, "", most=most), changes) for n in SIZES)

    assert few[2] == many[2] == made
    assert many[0] < 800
    assert many[1] <= few[1] + 4


def test_a_number_of_the_middle_moves_all_behind_it() -> None:
    _, written, made = moved(600, Window((NUMBER,), ORDER, ""), [(299.5, 1, 1)])

    assert made == 1 + 2 * 300
    assert 300 < written < 340


@pytest.mark.parametrize("kind", ["distinct", "top"])
def test_values_of_a_frame_are_those_of_the_row_before(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What enters a frame and what leaves it is read, not all of it for each row."""
    reads = []

    def counted(value: object, **options: Any) -> bytes:
        reads.append(value)
        return ordered(value, **options)

    monkeypatch.setattr(argument_values, "ordered", counted)
    for start in (FrameBound("all"), FrameBound("preceding", 50)):
        reads.clear()
        aggregate = FrameAggregate(Aggregate("v", kind, "x", 3), frame=Frame("rows", start))
        moved(500, Window((aggregate,), ORDER, ""), [])
        assert 500 <= len(reads) < 1000
