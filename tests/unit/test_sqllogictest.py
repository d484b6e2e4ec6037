"""Queries of files in the form of SQLite's sqllogictest are answered as the files say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ikebana.processor.base.calls import CallStopped
from sqllogictest import runner
from sqllogictest.records import FormatError, Query, Statement, records
from sqllogictest.runner import Kind, outcomes

QUERIES = Path(__file__).parents[1] / "sqllogictest" / "queries"


@pytest.mark.parametrize("file", sorted(QUERIES.glob("*.test")), ids=lambda file: file.stem)
def test_every_query_of_a_file_has_the_rows_that_it_says(file: Path) -> None:
    found = list(outcomes(records(file.read_text(), file.name)))

    assert found
    wrong = [each for each in found if each.kind is not Kind.RIGHT]
    assert not wrong, "\n".join(f"{each.query.place}: {each.kind} {each.reason}" for each in wrong)


def of(text: str) -> list[Kind]:
    table = (
        "statement ok\nCREATE TABLE t (a INTEGER)\n\nstatement ok\nINSERT INTO t VALUES (1)\n\n"
    )
    return [each.kind for each in outcomes(records(table + text, "f"))]


def test_what_comes_of_a_query_is_told_apart() -> None:
    assert of("query I\nSELECT a FROM t\n----\n1") == [Kind.RIGHT]
    assert of("query I\nSELECT a FROM t\n----\n2") == [Kind.OTHERWISE]
    assert of("query I\nSELECT a FROM t USING SAMPLE 1 ROWS\n----\n1") == [Kind.MISFIT]
    assert of("query I\nSELECT now() < a FROM t\n----\n1") == [Kind.MISFIT]
    assert of("query I\nSELECT fill(a) OVER (ORDER BY a) FROM t\n----\n1") == [Kind.REFUSED]
    assert of("query I\nSELECT b FROM t\n----\n1") == [Kind.ELSEWHERE]
    assert of("query I\nSELECT a FROM t\n----\n1\n2") == [Kind.OTHERWISE]


def test_bytes_and_fractions_of_seconds_are_compared_by_value() -> None:
    text = "query I\nSELECT {} AS x FROM t\n----\n1"
    for value in ("'1'::BLOB", "['1'::BLOB]", "TIMESTAMPTZ '2024-01-01 08:15:55.50+00'"):
        assert of(text.format(value)) == [Kind.OTHERWISE]


def test_a_table_that_is_made_anew_has_the_rows_of_the_new_one() -> None:
    text = (
        "statement ok\nDROP TABLE t\n\nstatement ok\nCREATE TABLE t (b TEXT)\n\n"
        "query I\nSELECT count(*) AS n FROM t\n----\n0\n"
    )

    assert of(f"query I\nSELECT a FROM t\n----\n1\n\n{text}") == [Kind.RIGHT, Kind.RIGHT]


def test_a_query_that_takes_too_long_is_left_out_wherever_it_is_stopped() -> None:
    """DuckDB is asked for the answer first, and tells of a signal by an error of its own."""
    text = "query I\nSELECT sum(x * y) FROM range(1000000) a(x), range(1000000) b(y)\n----\n1"

    assert [each.kind for each in outcomes(records(text, "f"), seconds=0.1)] == [Kind.LEFT_OUT]


def test_a_query_whose_call_is_stopped_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that stops a call is no Exception, and the queries behind it are run."""
    run = runner.rows_of
    monkeypatch.setattr(runner, "rows_of", stopped_once(run))
    text = "query I\nSELECT a FROM t\n----\n1\n\n"

    assert of(text * 2) == [Kind.LEFT_OUT, Kind.RIGHT]


def stopped_once(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is stopped at its first call."""
    errors = [CallStopped]

    def stopped(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return run(*arguments)

    return stopped


def test_a_query_in_a_transaction_that_has_failed_is_refused_by_duckdb_too() -> None:
    text = "query I\nSELECT a FROM t\n----\n1\n\n"
    failing = "statement ok\nBEGIN\n\nstatement error\nSELECT CAST('x' AS INTEGER)\n\n"

    assert of(f"{failing}{text}statement ok\nROLLBACK\n\n{text}") == [Kind.ELSEWHERE, Kind.RIGHT]


def test_a_file_says_where_its_records_are() -> None:
    text = (
        "# a comment\n\nstatement error\nSELECT x\n----\nno x\n\n"
        "query II rowsort\nSELECT 1,\n2;\n----\n1\t2"
    )

    assert list(records(text, "f")) == [
        Statement("SELECT x", "f:3", fails=True),
        Query("SELECT 1,\n2", "f:8", "II", "rowsort", ("1\t2",)),
    ]


def test_a_loop_without_an_end_is_told_with_its_place() -> None:
    with pytest.raises(FormatError, match="f:3: there is no endloop"):
        list(records("\n\nloop i 0 3\n\nstatement ok\nSELECT 1", "f"))
