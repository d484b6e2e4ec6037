"""What users' functions are given, and what is told of those that fail."""

from collections.abc import Iterator
from typing import Any

import pytest

from ikebana import Input, Linear, Output, Plan, ReduceRows, StateMachine, Upsert, evaluate, steps
from ikebana.processor.linear.functions import exception_line


def summed(states: list[Any], event: Any, time: int) -> list[Any]:
    return [(states[0] if states else 0.0) + event * 0.1]


def tenth(data: tuple[Any, Any]) -> tuple[Any, Any]:
    return data[0], data[1] * 0.1


def total(key: Any, rows: list[tuple[Any, int]]) -> Iterator[Any]:
    yield sum((row * count for row, count in rows), 0.25)


NUMBERS = Input("numbers", ("numbers",))
# Three tenths are a double of 17 digits.


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        pytest.param((StateMachine("out", "numbers", summed),), 0.6, id="a machine"),
        pytest.param(
            (Upsert("u", "numbers"), Linear("out", "u", (steps.map_(tenth), steps.map_(tenth)))),
            3 * 0.1 * 0.1,
            id="steps",
        ),
        pytest.param(
            (
                Upsert("u", "numbers"),
                Linear("tenths", "u", (steps.map_(tenth),)),
                ReduceRows("out", "tenths", total),
            ),
            0.25 + 3 * 0.1,
            id="a reduction",
        ),
    ],
)
def test_functions_compute_with_floats_of_any_digits(
    operators: tuple[Any, ...], expected: float
) -> None:
    """A float that a function has given comes back to the next one as a float."""
    plan = Plan("t", (NUMBERS,), operators, (Output("out", "out", "out"),))
    found = evaluate(plan, {"numbers": [("k", 1, 0), ("k", 2, 1), ("k", 3, 2)]})

    assert found["errors"] == []
    last = found["out"][-1]
    assert (type(last.data[1]), last.diff) == (float, 1)
    assert last.data[1] == pytest.approx(expected)


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no price"), "raised ValueError: no price"),
        (ValueError("two\n  lines"), "raised ValueError: two lines"),
        (ValueError(), "raised ValueError"),
        (SilentError(), "raised SilentError"),
        (ValueError("x" * 300), "raised ValueError: " + "x" * 199 + "…"),
        (ValueError(f"{object()}"), "raised ValueError: <object object at 0x…>"),
        (RecursionError("in a comparison"), "raised RecursionError"),
    ],
)
def test_what_a_function_raised_is_told_in_one_short_line(error: Exception, expected: str) -> None:
    """Without what differs from one process to the next, so that the error can be retracted."""
    assert exception_line(error) == expected
