"""docs/comparison.md: our programs do what the page says, and are as long as it says."""

import ast
import io
import re
import tokenize

import pytest

import ikebana as ik
import priced_orders
import recent_orders
import small_orders
from support.doc_blocks import ROOT

PAGE, _, OTHERS = (
    (ROOT / "docs" / "comparison.md")
    .read_text()
    .partition("\n## Streaming databases and AUTO CDC\n")
)
TASKS = ("small", "priced", "recent")
SYSTEMS = ("ikebana", "Quix Streams", "Pathway", "Flink (Python)")
DATABASES = ("Materialize", "RisingWave", "Feldera", "Spark, AUTO CDC")
HOUR = 3_600_000

_PROGRAM = re.compile(r"^\*\*([^*]+)\*\*[^\n]*\n\n```py(?:thon)?\n(.*?)^```$", re.M | re.S)
_OTHERS = re.compile(r"^\*\*([^*]+)\*\*\n\n```(py|postgresql)\n(.*?)^```$", re.M | re.S)
_COUNTS = re.compile(r"^\| \[(\w+) orders\][^|]*\|(.*)\|$", re.M)
_SKIPPED = {tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def programs() -> dict[tuple[str, str], str]:
    """The programs of the page by task and system."""
    found = _PROGRAM.findall(PAGE)
    pairs = [(task, system) for task in TASKS for system in SYSTEMS]
    assert [system for system, _ in found] == [system for _, system in pairs]
    return {pair: text for pair, (_, text) in zip(pairs, found, strict=True)}


def lines(program: str) -> int:
    """How many lines of a program are neither empty nor a comment nor its docstring."""
    tree = ast.parse(program)
    first = tree.body[0]
    begin = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        begin = first.end_lineno or 0
    counted: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(program).readline):
        if token.type not in _SKIPPED and token.string.strip():
            counted.update(range(token.start[0], token.end[0] + 1))
    return len([number for number in counted if number > begin])


@pytest.mark.parametrize("task", TASKS)
def test_our_program_is_the_example(task: str) -> None:
    """The page shows the module that a type checker reads, without its docstring."""
    text = (ROOT / "examples" / f"{task}_orders.py").read_text()

    assert programs()[task, "ikebana"] == text.split('"""\n\n', 1)[1]


def test_the_table_counts_the_lines() -> None:
    """By the rule that the page states."""
    told = {task: [int(n) for n in row.split("|")] for task, row in _COUNTS.findall(PAGE)}

    assert told == {
        task: [lines(programs()[task, system]) for system in SYSTEMS] for task in TASKS
    }


def test_the_table_counts_the_lines_of_databases() -> None:
    """Lines of SQL that are not empty, and Python's by the same rule."""
    found = _OTHERS.findall(OTHERS)
    assert [system for system, _, _ in found] == [*DATABASES, *DATABASES]
    counts = [
        lines(text) if language == "py" else len([line for line in text.split("\n") if line])
        for _, language, text in found
    ]
    rows = re.findall(r"^\| orders [^|]*, lines \|(.*)\|$", OTHERS, re.M)

    assert [int(n) for row in rows for n in row.split("|")] == counts


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    """Lines within a text that is a value do."""
    assert lines('"""A page.\n\nOf two."""\n\n# Why.\na = 1  # so\n\nb = """\nc\n"""\n') == 4


def test_small_orders_leave_when_they_grow_or_are_deleted() -> None:
    found = small_orders.shop.evaluate(
        orders=[
            (1, {"product": "tea", "quantity": 5}, 0),
            (1, {"product": "tea", "quantity": 12}, 1),
            (2, {"product": "ink", "quantity": 3}, 2),
            (2, None, 3),
        ]
    )

    assert found == {
        "small": [
            ik.Update((1, {"product": "tea", "quantity": 5}), 0, 1),
            ik.Update((1, {"product": "tea", "quantity": 5}), 1, -1),
            ik.Update((2, {"product": "ink", "quantity": 3}), 2, 1),
            ik.Update((2, {"product": "ink", "quantity": 3}), 3, -1),
        ],
        "errors": [],
    }


def test_priced_orders_keep_the_price_of_their_time() -> None:
    """Also when they are taken back after it has changed."""
    order = {"product": "tea", "quantity": 5}

    found = priced_orders.shop.evaluate(
        prices=[("tea", {"price": 5}, 0), ("tea", {"price": 6}, 20)],
        orders=[(1, order, 10), (2, order, 25), (1, None, 30)],
    )

    assert found == {
        "priced": [
            ik.Update((1, {**order, "price": 5}), 10, 1),
            ik.Update((2, {**order, "price": 6}), 25, 1),
            ik.Update((1, {**order, "price": 5}), 30, -1),
        ],
        "errors": [],
    }


def test_recent_orders_leave_a_state_or_leave_after_an_hour() -> None:
    """In order of time, whatever the order in which the events came."""
    events = [(1, "pay", 20), (1, "place", 0), (2, "place", 10)]

    found = recent_orders.shop.evaluate({"order-events": events})

    assert found.pop("errors") == []
    counts = {"placed": 0, "paid": 0}
    at: dict[int, dict[str, int]] = {}
    for (status, value), time, diff in found["recent"]:
        counts[status] += diff * value["orders"]
        at[time] = dict(counts)
    assert at == {
        0: {"placed": 1, "paid": 0},
        10: {"placed": 2, "paid": 0},
        20: {"placed": 1, "paid": 1},
        HOUR + 10: {"placed": 0, "paid": 1},
        HOUR + 20: {"placed": 0, "paid": 0},
    }


def test_an_event_that_cannot_follow_is_an_error_until_one_can() -> None:
    found = recent_orders.shop.evaluate({"order-events": [(1, "place", 0), (1, "ship", 5)]})

    (error,) = found["errors"]
    assert (error.time, error.diff) == (5, 1)
    assert "KeyError: 'ship'" in error.data["reason"]
