"""What can never be evaluated is refused with the plan, and what fails says why."""

import json
from typing import Any

import pytest

from ikebana import Column, Input, Linear, Output, Plan, PlanError, Upsert, evaluate
from ikebana.processor.linear import query as query_module
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.database import rows_over
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.query import Query
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope
from ikebana.processor.linear.steps import (
    Sql,
    Step,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)
from ikebana.processor.planning.checking import checked
from support.sql_oracle import plan_of

TYPES = {
    "b": "BIGINT",
    "s": "VARCHAR",
    "y": "DATE",
    "o": "BOOLEAN",
    "l": "BIGINT[]",
    "r": "STRUCT(a BIGINT)",
    "j": "JSON",
    "key": "JSON",
    "value": "JSON",
}
NO_NUMBER = "'x' is no BIGINT"
NO_DATE = 'invalid date field format: "x"'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b > 'x'", NO_NUMBER),
        ("'x' = b", NO_NUMBER),
        ("b + 'x'", NO_NUMBER),
        ("b IN (1, 'x')", NO_NUMBER),
        ("b BETWEEN 1 AND 'x'", NO_NUMBER),
        ("coalesce('x', b)", NO_NUMBER),
        ("coalesce(b + 'x', b)", NO_NUMBER),
        ("CASE WHEN o THEN b + 'x' ELSE b END", NO_NUMBER),
        ("CASE b WHEN 'x' THEN 1 END", NO_NUMBER),
        ("nullif(b, 'x')", NO_NUMBER),
        ("l[1] = 'x'", NO_NUMBER),
        ("r.a = 'x'", NO_NUMBER),
        ("key::BIGINT > 'x'", NO_NUMBER),
        ("j::BIGINT > 'x'", NO_NUMBER),
        ("NOT (o AND (s = 'x' OR b = 'x'))", NO_NUMBER),
        ("CAST('x' AS BIGINT)", NO_NUMBER),
        ("y > 'x'", NO_DATE),
        ("DATE 'x'", NO_DATE),
        ("CAST(300 AS TINYINT)", "out of range"),
        ("['x']::BIGINT[]", NO_NUMBER),
        ("{'a': ['5', 'x']}::STRUCT(a BIGINT[])", NO_NUMBER),
        ("list_transform(['x'], lambda e: e)::BIGINT[]", NO_NUMBER),
        ("l = ['x']::BIGINT[]", NO_NUMBER),
        ("b = y", "BIGINT cannot be cast to DATE"),
        ("b IN (b, y)", "BIGINT cannot be cast to DATE"),
        ("CAST(b AS DATE)", "BIGINT cannot be cast to DATE"),
    ],
)
def test_types_that_can_never_fit_are_refused(text: str, reason: str) -> None:
    """With the reason; it would fail for each row."""
    with pytest.raises(ExpressionError, match=f"can never be evaluated: .*{reason}"):
        parse(text, Scope(TYPES))


@pytest.mark.parametrize(
    "text",
    [
        *("b > '5'", "y = '2024-01-31'", "o = 'true'", "s > 'x'", "b || 'x'", "s IN ('x', 'y')"),
        *("TRY_CAST('x' AS BIGINT)", "CAST(s AS BIGINT)", "coalesce(s, 'x')::BIGINT > 5"),
        *("CASE WHEN b > 1 THEN s ELSE 'x' END", "CASE WHEN o THEN NULL ELSE 'x' END"),
        *("list_transform(l, lambda e: e = 5)", "strftime(y, '%Y')", "j->>'x' = 'x'", "j->'x'"),
        *("TRY('x'::BIGINT)", "coalesce(TRY(b > 'x'), o)"),
        *("coalesce(b, 'x')", "coalesce(NULL, b, 'x')", "coalesce(l, 'x')", "coalesce(r, 'x')"),
        *("CASE WHEN o THEN b ELSE 'x' END", "CASE WHEN o THEN 'x' ELSE b END"),
        *("CASE WHEN o THEN 'x' WHEN s = 'x' THEN b ELSE 'x' END", "['5']::BIGINT[]"),
        *(
            'key::"NULL"',
            'b::"NULL"',
            "l = '[1]'",
            "NULL::DATE",
            "b::VARCHAR::DATE",
            "y::TIMESTAMP",
            "b // 0",
            "j::BIGINT",
        ),
    ],
)
def test_what_some_value_fits_is_no_misfit(text: str) -> None:
    """What depends on the row is left to the row."""
    assert parse(text, Scope(TYPES)).sql


@pytest.mark.parametrize(
    "query",
    [
        "SELECT b FROM t WHERE b > 'x'",
        "SELECT s, count(*) AS n FROM t GROUP BY s HAVING max(b) > 'x'",
        "SELECT t.b FROM t JOIN t u ON t.b = u.b AND u.b + t.b > 'x'",
        "SELECT b + 'x' AS n FROM t",
        "SELECT sum(b + 'x') AS n FROM t",
    ],
)
def test_a_view_is_refused_too(query: str) -> None:
    """Wherever in the query it stands."""
    with pytest.raises(SqlQueryError, match=NO_NUMBER):
        plan_of({"t": {"b": "BIGINT", "s": "VARCHAR"}}, {"view": query})


def plan(*steps: Step) -> Plan:
    """Steps over a table of a number and a text."""
    columns = (Column("b", "BIGINT"), Column("s", "VARCHAR"))
    return Plan(
        "p",
        (Input("t", ("t",), columns=columns),),
        (Upsert("u", "t"), Linear("l", "u", steps)),
        (Output("o", "l", "o"),),
    )


def test_a_plan_is_refused_with_the_place() -> None:
    """Like any other mistake in an expression."""
    with pytest.raises(PlanError, match=r"operators\.l.*b > 'x'"):
        checked(plan(where("b > 'x'")))


def records(*rows: Any) -> dict[str, list[Any]]:
    """Rows, one after the other, of one key."""
    return {"t": [(1, row, at) for at, row in enumerate(rows)]}


@pytest.mark.parametrize(
    ("step", "row", "reason"),
    [
        (
            where("s::BIGINT > 1"),
            {"s": "it's 5"},
            "where s::BIGINT > 1: Conversion Error: Could not convert string '…' to INT64",
        ),
        (
            select(n="b * 10"),
            {"b": 2**62},
            "select.n b * 10: Out of Range Error: Overflow in multiplication of INT64 (… * …)!",
        ),
        (
            select(n="b", d="s::DATE"),
            {"b": 1, "s": 'a "day"'},
            'select.d s::DATE: Conversion Error: invalid date field format: "…", expected format '
            "is (YYYY-MM-DD)",
        ),
    ],
)
@pytest.mark.parametrize("others", [0, 3])
def test_an_error_record_says_why_without_the_data(
    step: Step, row: Any, reason: str, others: int
) -> None:
    """The engine's reason, the same alone and beside others, and it goes with its row."""
    good = {"b": 1, "s": "2024-01-31" if "DATE" in reason else "7"}
    more = [(key, good, 0) for key in range(10, 10 + others)]

    found = evaluate(plan(step), {"t": [*records(row, good)["t"], *more]})

    assert [(e.data["reason"], e.time, e.diff) for e in found["errors"]] == [
        (f"operator l: could not evaluate {reason}", 0, 1),
        (f"operator l: could not evaluate {reason}", 1, -1),
    ]


FAILING: list[tuple[Sql, ...]] = [
    (select(n="s::BIGINT", d="s::DATE", m="b * 10"),),
    (where("s::BIGINT > 1", "b * 10 > 0"), select(d="s::DATE")),
    (select(t="upper(s)", b="b"), select(n="t::BIGINT + b", d="t::DATE")),
    (unnest("e", "[s, '5']"), where("e::BIGINT > 1"), select(e="e::TINYINT")),
    (Sql(flat_map=("e", "[s, '5']"), where=("e::BIGINT > 1",), select=(("n", "b * 10"),)),),
    (rekey("s::DATE"), valid_between("s::TIMESTAMP", "to_timestamp(b)")),
    (Sql(diff="s::INTEGER * b"), Sql(valid_from="b * 1000")),
    (unnest("n", "repeat_row(s::INTEGER)"), select(y="strptime(s, '%Y')")),
]


@pytest.mark.parametrize("steps", FAILING, ids=str)
def test_a_row_fails_for_the_same_reason_alone_and_beside_others(steps: tuple[Sql, ...]) -> None:
    """So that its error is retracted when it is, whatever the batch has; of any form of text."""
    texts = ("x", "5", "2024-01-31", "2024-13-01", "99999999999", "it's", None)
    numbers = (1, 2**62, "9")
    rows = [json.dumps({"s": s, "b": b}).encode() for s in texts for b in numbers]
    types = Scope({"s": "VARCHAR", "b": "BIGINT", KEY: "JSON", VALUE: "JSON"})

    together = Query(steps, types)
    _, failed = together.run([b'"k%d"' % at for at in range(len(rows))], rows)

    assert any("Error: " in failure.reason for failure in failed)
    for at, row in enumerate(rows):
        _, alone = Query(steps, types).run([b'"other"'], [row])
        own = [failure._replace(row=0) for failure in failed if failure.row == at]
        assert sorted(alone) == sorted(own)


def test_what_fails_by_the_same_value_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the rows have: each question takes DuckDB as long as thousands of rows."""
    asked = []

    def counted(sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return rows_over(sql, *rest)

    monkeypatch.setattr(query_module, "rows_over", counted)
    types = Scope({"s": "VARCHAR", "b": "BIGINT", KEY: "JSON", VALUE: "JSON"})
    query = Query([select(b="b", n="s::BIGINT", d="s::DATE")], types)
    rows = [b'{"s":"n/a","b":%d}' % at for at in range(50)]
    _, failed = query.run([b"%d" % at for at in range(50)], rows)

    assert len(failed) == 50
    # All rows, those rows checked, and what is wrong with one.
    assert len(asked) == 3
