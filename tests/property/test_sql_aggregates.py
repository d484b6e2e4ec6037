"""Aggregates of SQL, drawn at random, against what DuckDB answers at every time."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import evaluate
from ikebana.processor.kernels.aggregate_kinds import KINDS
from ikebana.processor.linear.bound_query import SqlQueryError
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at
from support.strategies import few

TIMES = 3
TABLES = {
    "t": {
        "g": "VARCHAR",
        "u": "BIGINT",
        "a": "INTEGER",
        "b": "DECIMAL(9,2)",
        "c": "VARCHAR",
        "d": "DOUBLE",
        "e": "BOOLEAN",
        "f": "DATE",
        "h": "TIMESTAMP",
        "n": "DOUBLE",
        "w": "HUGEINT",
        "i": "INTERVAL",
        "s": "STRUCT(x BIGINT, y VARCHAR[])",
    }
}
VALUES: dict[str, list[Any]] = {
    "g": ["x", "x", "y", None],
    "a": [None, -3, 0, 1, 2],
    "b": [None, "-1.50", "0.00", "1.25", "2"],
    "c": [None, "", "a", "B", "{0}", "ä"],
    "d": [None, -1.5, 0.0, 2.25],
    "e": [None, True, False],
    "f": [None, "1969-12-31", "2024-02-29", "infinity"],
    "h": [None, "2024-01-01 00:00:00", "1950-06-07 08:09:10.123456", "-infinity"],
    "n": [None, "NaN", "Infinity", "-Infinity", 1.5],
    "w": [None, -(2**127), 2**127 - 1, -1, 0, 5],
    "i": [None, "1 month", "30 days", "29 days 24:00:01", "-1 year", "00:00:00.000001"],
    "s": [None, {"x": 1, "y": ["b"]}, {"x": 1, "y": None}, {"x": None, "y": []}],
}
NUMBERS, ANY = ("a", "b", "d"), ("a", "b", "c", "d", "e", "f", "h", "s")
# No two rows are equal in the last of these, so that what comes first does not hang on chance.
ORDERS = ["", "u", "u DESC", "a, u", "c DESC NULLS FIRST, u DESC", "f DESC, u DESC"]
ORDERS += ["b NULLS FIRST, u", "e, h, u"]
# In two directions.
ORDERS += ["a, u DESC", "c DESC, a NULLS FIRST, u", "h DESC NULLS FIRST, e, u DESC", "d, u DESC"]
FILTERS = ["", "", "a > 0", "c IS NULL", "a > 100", "e"]
PAIRS = tuple(name for name, kind in KINDS.items() if kind.is_of_pairs)
# What double arithmetic comes to depends on the order of rows in DuckDB.
EXACT = ("a", "b")


@st.composite
def calls(draw: st.DrawFn) -> str:
    """A call of an aggregate that is supported."""

    def one(columns: tuple[str, ...]) -> str:
        return draw(st.sampled_from(columns))

    order = draw(st.sampled_from(ORDERS))
    by = f" ORDER BY {order}" if order else ""
    told = f" ORDER BY {draw(st.sampled_from([each for each in ORDERS if each]))}"
    fraction = draw(st.sampled_from(["0", "0.3", "0.5", "1", "[0.25, 0.8]"]))
    number, way = one(NUMBERS), draw(st.sampled_from(["", " DESC", " DESC NULLS FIRST"]))
    distinct = draw(st.sampled_from(["", "DISTINCT "]))
    separator = draw(st.sampled_from(["','", "''", "'{0}'", "NULL", "'a' || '{1}'"]))
    call = draw(
        st.sampled_from(
            [
                "count(*)",
                f"count({distinct}{one(ANY)})",
                f"count_if({one(('e', 'a > 0', 'c IS NULL'))}{by})",
                f"{one(('sum', 'avg', 'mean', 'fsum', 'favg'))}({distinct}{one(NUMBERS)})",
                f"sum({one(('e', 'w', 'n'))})",
                f"{one(('var_samp', 'var_pop', 'stddev', 'stddev_pop', 'sem'))}"
                f"({distinct}{one(EXACT)})",
                f"{one(('bit_and', 'bit_or', 'bit_xor'))}({distinct}{one(('a', 'w', 'u'))})",
                f"{one(PAIRS)}({one(EXACT)}, {one(EXACT)})",
                f"{one(('histogram', 'approx_count_distinct'))}({one(('c', 'f'))})",
                f"count(DISTINCT ({one(ANY)}, {one(ANY)}))",
                f"{one(('min', 'max'))}(({one(ANY)}, {one(ANY)}))[1]",
                f"{one(('min', 'max'))}({distinct}{one(NUMBERS)}, 2)",
                f"{one(('arg_min', 'arg_max'))}(u, u, 2)",
                f"epoch({one(('min', 'max'))}(i))",
                f"list(DISTINCT {number} ORDER BY {number}{way})",
                f"string_agg(DISTINCT c, '+' ORDER BY c{way})",
                f"{one(('min', 'max'))}({distinct}{one(ANY)})",
                f"{one(('bool_and', 'bool_or'))}({distinct}e)",
                f"any_value({one(ANY)}{told})",
                f"{one(('first', 'last', 'arbitrary'))}({one(ANY)}{told})",
                f"{one(('arg_min', 'max_by'))}({one(ANY)}, {one(ANY)}{told})",
                f"{one(('list', 'array_agg'))}({one(ANY)}{told})",
                f"{one(('string_agg', 'listagg'))}({one(('a', 'c', 'e'))}, {separator}{told})",
                f"median({one(NUMBERS)})",
                f"quantile_disc({number}, {fraction} ORDER BY {number}{way})",
                f"quantile_cont({number}, {fraction})",
                f"percentile_disc({fraction}) WITHIN GROUP (ORDER BY {number}{way})",
                f"percentile_cont({fraction}) WITHIN GROUP (ORDER BY {number}{way})",
            ]
        )
    )
    # What stands around a call, or behind it, takes no FILTER.
    is_call = not call.startswith("epoch(") and call.endswith(")")
    condition = draw(st.sampled_from(FILTERS if is_call else [""]))
    return f"{call} FILTER ({condition})" if condition else call


def history(choice: Random) -> list[Change]:
    """Rows that come, change and go; some of them all at once."""
    found: dict[tuple[int, int], Change] = {}
    for _ in range(choice.randrange(9)):
        key, time = choice.randrange(7), choice.randrange(TIMES)
        row = {"u": key, **{name: choice.choice(each) for name, each in VALUES.items()}}
        found[key, time] = (key, None if choice.random() < 0.2 else row, time)
    if choice.random() < 0.2:
        found |= {(key, TIMES - 1): (key, None, TIMES - 1) for key in range(7)}
    return sorted(found.values(), key=lambda each: each[2])


@few
@given(
    st.lists(calls(), min_size=1, max_size=4),
    st.sampled_from(
        [
            "{} FROM t",
            "{} FROM t",
            "g, {} FROM t GROUP BY g",
            "g, {} FROM t GROUP BY g",
            "g, e, grouping(g, e) AS s, {} FROM t GROUP BY CUBE (g, e)",
            "e, g, grouping_id(g) AS s, {} FROM t GROUP BY GROUPING SETS ((g, e), e, ())",
            "g, e, {} FROM t GROUP BY ROLLUP (g, e) HAVING grouping(e) = 0 OR count(*) > 1",
        ]
    ),
    st.randoms(use_true_random=False),
)
def test_aggregates_are_what_duckdb_says(calls: list[str], query: str, choice: Random) -> None:
    """Of groups and of all rows, also of none; after rows have come, changed and gone."""
    changes = {"t": history(choice)}
    listed = ", ".join(f"{call} AS v{at}" for at, call in enumerate(calls))
    query = f"SELECT {query.format(listed)}"

    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), query)
        assert shown_at(found["view"], names, time) == expected, (time, query, changes)


@pytest.mark.parametrize(
    "call",
    [
        "any_value(c ORDER BY u DESC)",
        "arg_max(c, a ORDER BY u DESC)",
        "arg_min(c, a ORDER BY u)",
        "quantile_disc(b, 0.3 ORDER BY b DESC)",
        "percentile_cont([0.2, 0.4]) WITHIN GROUP (ORDER BY a DESC)",
        "percentile_cont(0) WITHIN GROUP (ORDER BY a DESC)",
        "percentile_disc([0, 0.5, 1]) WITHIN GROUP (ORDER BY a DESC)",
        "quantile_cont(a, 0.0 ORDER BY a DESC)",
        "count_if(a > 5) FILTER (WHERE a > 100)",
        "count_if(c IS NULL)",
        "string_agg(c, '{0}' ORDER BY c)",
        "string_agg(c, NULL)",
        "last(c ORDER BY a, u)",
        "sum(a) FILTER (WHERE CASE WHEN c IN ('x', 'y') THEN a + u > 2 ELSE u = 2 END)",
        "count(DISTINCT (a, (c, b)))",
        "list((a, c) ORDER BY u DESC)[1][1]",
        "sum(DISTINCT a) FILTER (WHERE u > 1)",
        "corr(a, u) FILTER (WHERE c IS NOT NULL)",
        "list_aggregate(list(a), 'mode')",
        "product(a)",
        "entropy(c)",
        "mad(a)",
        "skewness(u)",
        "kurtosis(u)",
        "kurtosis_pop(a)",
        "quantile(b, 0.5)",
        "first(c ORDER BY c DESC NULLS LAST)",
    ],
)
def test_calls_of_all_forms(call: str) -> None:
    """Orders, a count of nothing, separators, filters, tuples, and what is made of a list."""
    rows = [(1, 2, "x"), (2, 2, "X"), (3, 1, "y"), (4, None, None)]
    tables = {"t": {"u": "BIGINT", "a": "BIGINT", "b": "DECIMAL(9,2)", "c": "VARCHAR"}}
    changes = {"t": [(u, {"u": u, "a": a, "b": u, "c": c}, 0) for u, a, c in rows]}
    query = f"SELECT {call} AS v FROM t"

    found = evaluate(plan_of(tables, {"view": query}), records_of(changes))

    assert found["errors"] == []
    names, expected = answer(tables, tables_at(changes, 0), query)
    assert shown_at(found["view"], names, 0) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("mode(a)", 2),
        ("mode(g)", "x"),
        ("mode(g ORDER BY g DESC)", "y"),
        ("mode() WITHIN GROUP (ORDER BY g DESC)", "y"),
        ("first(g)", "x"),
        ("last(g)", "y"),
        ("arbitrary(a)", 1),
        ("CAST(max(i) AS VARCHAR)", "30 days"),
    ],
)
def test_what_of_several_does_not_hang_on_the_order_of_rows(call: str, expected: object) -> None:
    """Of texts and numbers the least, of lengths of time the one with the greater text."""
    rows = [("y", 2, "30 days"), ("x", 2, "1 month"), ("x", 1, "29 days"), ("y", None, None)]
    columns = {"u": "BIGINT", "g": "VARCHAR", "a": "BIGINT", "i": "INTERVAL"}
    for some in (rows, rows[::-1]):
        changes = [(u, {"u": u, "g": g, "a": a, "i": i}, 0) for u, (g, a, i) in enumerate(some)]
        plan = plan_of({"t": columns}, {"view": f"SELECT {call} AS v FROM t"})

        found = evaluate(plan, records_of({"t": changes}))

        assert [value["v"] for (_, value), _, diff in found["view"] if diff > 0] == [expected]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("quantile_disc(b, 0.3 ORDER BY a DESC)", "by its argument alone, as in quantile_disc(b"),
        ("quantile_cont(b, 0.3 ORDER BY b, a)", "ORDER BY in quantile_cont() is supported by"),
        ("list(c ORDER BY a, s DESC)", "which is ordered in another direction than other columns"),
        (
            "string_agg(DISTINCT c, ',' ORDER BY a)",
            "ORDER BY expressions must appear in the argum",
        ),
        ("max(a, u)", "max() lists so many values as a whole number says, as in max(a, 3)"),
        ("count(DISTINCT i)", "INTERVAL, of which SQL takes some that differ as data for equal"),
        ("reservoir_quantile(a, 0.5)", "reservoir_quantile() is not supported: it needs more"),
    ],
)
def test_an_aggregate_that_is_not_supported_is_refused(call: str, problem: str) -> None:
    with pytest.raises(SqlQueryError) as told:
        plan_of(TABLES, {"view": f"SELECT {call} AS v FROM t"})

    assert problem in str(told.value)
