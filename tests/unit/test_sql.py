"""Views in SQL: what they become, what is refused, and where they may stand."""

import textwrap
from pathlib import Path

import pytest

import ikebana as ik
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.authoring import pipeline
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.nest import statement
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Linear, Plan, Reduce, Upsert
from support.sql_oracle import Change, plan_of, records_of

TABLES = {
    "t": {"a": "BIGINT", "b": "DECIMAL(12,2)", "c": "VARCHAR"},
    "u": {"a": "BIGINT", "d": "DOUBLE"},
}
HEAD = """
pipeline: shop
inputs:
  orders: {topic: orders, columns: {customer: BIGINT, amount: "DECIMAL(12,2)"}}
operators:
"""
TAIL = """
outputs:
  out: {from: large, topic: large}
kafka: {bootstrap.servers: localhost:9092}
run: {checkpoint: ./checkpoint}
"""


def read(operators: str, folder: Path) -> Plan:
    """The plan of a file with these operators."""
    path = folder / "shop.yaml"
    path.write_text(HEAD + textwrap.indent(textwrap.dedent(operators).strip(), "  ") + TAIL)
    return pipeline.read(path, environ={}).plan


def made(query: str) -> list[object]:
    """What a query over the tables becomes."""
    return list(plan_of(TABLES, {"view": query}).operators[len(TABLES) :])


def test_a_condition_and_columns_are_one_linear_operator() -> None:
    step = Sql(where=("(a > 1)",), select=(("c", "c"), ("twice", "(b * 2)")))

    assert made("SELECT c, b * 2 AS twice FROM t WHERE a > 1") == [Linear("view", "t", (step,))]


def test_inner_joins_are_one_delta_join() -> None:
    query = "SELECT x.c, y.d FROM t x, u y JOIN t z ON z.a = y.a WHERE x.a = y.a AND z.b > x.b"

    (join,) = made(query)

    assert isinstance(join, DeltaJoin)
    assert join.inputs == (JoinInput("x", "t"), JoinInput("y", "u"), JoinInput("z", "t"))
    assert join.where == ("(z.a = y.a)", "(x.a = y.a)", "(z.b > x.b)")


@pytest.mark.parametrize(
    ("query", "before"),
    [
        pytest.param(
            "SELECT x.c, z.b FROM t x JOIN u y ON x.a = y.a LEFT JOIN t z ON z.a = y.a "
            "WHERE x.b > 1 AND z.b > 2 AND (y.a < 9 OR x.a < 9)",
            {"(x.a = y.a)", "(x.b > 1)", "((y.a < 9) OR (x.a < 9))"},
            id="left",
        ),
        pytest.param(
            "SELECT x.c, z.b FROM t z RIGHT JOIN (t x JOIN u y ON x.a = y.a) ON z.a = y.a "
            "WHERE x.b > 1 AND z.b > 2",
            {"(x.a = y.a)", "(x.b > 1)"},
            id="right",
        ),
        pytest.param(
            "SELECT x.c, z.b FROM t z FULL JOIN (t x JOIN u y ON x.a = y.a) ON z.a = y.a "
            "WHERE x.b > 1",
            {"(x.a = y.a)"},
            id="full: not of rows that it may fill with nulls",
        ),
        pytest.param(
            "SELECT x.c, z.b FROM t z LEFT JOIN (t x JOIN u y ON x.a = y.a) ON z.a = y.a "
            "WHERE x.b > 1",
            {"(x.a = y.a)"},
            id="nor of those of the right of a left join",
        ),
    ],
)
def test_conditions_over_what_an_outer_join_keeps_are_tested_before_it(
    query: str, before: set[str]
) -> None:
    """So neither it nor the joins before it have rows that are left out in the end."""
    first, *_ = (each for each in made(query) if isinstance(each, DeltaJoin))

    assert [each.relation for each in first.inputs] == ["t", "u"]
    assert set(first.where) == before


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT t, d FROM t LEFT JOIN u ON t.a = u.a", "a t u_a d"),
        ("SELECT * FROM (SELECT b, d FROM t LEFT JOIN u ON t.a = u.a) v", "a b t u_a d"),
        ("SELECT u.*, b FROM t LEFT JOIN u ON t.a = u.a", "a b t u_a d e"),
        ("SELECT u, b FROM t LEFT JOIN u ON t.a = u.a", "a b t u_a d e"),
    ],
)
def test_an_outer_join_has_only_columns_that_are_read(query: str, kept: str) -> None:
    """A column may have the name of its table, and a star is of the tables of its own FROM."""
    tables = {
        "t": dict.fromkeys(("a", "b", "t", "c"), "BIGINT"),
        "u": dict.fromkeys(("a", "d", "e"), "BIGINT"),
    }
    operators = plan_of(tables, {"view": query}).operators
    joined = next(each for each in operators if isinstance(each, DeltaJoin))

    assert [name for name, _ in joined.select] == kept.split()


def test_groups_are_a_reduction() -> None:
    reduce, linear = made("SELECT c, sum(b) AS total FROM t GROUP BY c HAVING count(*) > 1")

    assert reduce == Reduce(
        "view.groups", "t", (("sum", "sum(b)"), ("count_star", "count(*)")), by="c"
    )
    assert isinstance(linear, Linear)


def test_a_condition_with_the_time_is_when_a_row_counts() -> None:
    """Of the input that it reads, before a join; both bounds are one step."""
    whole = (
        "SELECT x.a FROM t x JOIN u y ON x.a = y.a WHERE make_timestamp_ms(x.a) > ikebana_now() "
        "AND ikebana_now() >= make_timestamp_ms(x.a)"
    )

    linear, join = made(whole)

    at = "make_timestamp_ms(a)"
    bounds = Sql(valid_from=at, valid_until=at)
    assert isinstance(linear, Linear)
    assert (linear.source, linear.steps[0]) == ("t", bounds)
    assert isinstance(join, DeltaJoin)


@pytest.mark.parametrize(
    "rest", ["ORDER BY a NULLS FIRST, b)", "ORDER BY a) FILTER (WHERE a > 0)"]
)
def test_the_first_value_of_a_group_is_first(rest: str) -> None:
    """As in RisingWave and PostgreSQL, where windows alone have first_value in DuckDB."""
    query = "SELECT c, {}(b {} AS x FROM t GROUP BY c HAVING {}(b {} > 1"
    for name, ours in (("first_value", "first"), ("Last_Value", "last")):
        assert made(query.format(name, rest, name, rest)) == made(
            query.format(ours, rest, ours, rest)
        )


def test_aggregates_without_groups_are_a_total() -> None:
    """Which has a row where there are none."""
    reduce, linear = made("SELECT sum(b) AS total, count(*) AS n FROM t")

    assert reduce == Reduce(
        "view.groups", "t", (("sum", "sum(b)"), ("count_star", "count(*)")), total=True
    )
    assert isinstance(linear, Linear)


def test_a_view_that_is_named_twice_is_made_once() -> None:
    query = """
        WITH v AS (SELECT a, sum(b) AS s FROM t GROUP BY a)
        SELECT x.a FROM v x JOIN v y ON x.a = y.a WHERE x.s < y.s
    """

    assert [type(each) for each in made(query)] == [Reduce, Linear, DeltaJoin]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT z FROM t", 'line 1, column 8: there is no column "z"; there are a, b, c'),
        ("SELECT a\nFROM tt", 'line 2, column 6: there is no input or operator "tt"'),
        ("SELECT FROM t WHERE", "line 1, column"),
        ("SELECT now() AS n, a FROM t", "now() depends on more than the datum"),
        (
            "SELECT a FROM t WHERE make_timestamp_ms(a) > now() - INTERVAL 1 MONTH",
            "line 1, column 46: now() depends on more than the datum; for rows that leave in time "
            "ikebana_now() stands alone on one side of a comparison in WHERE, or beside an "
            "INTERVAL without months, as in placed > ikebana_now() - INTERVAL 30 DAYS; now() and "
            "mz_now() mean the same there",
        ),
        (
            "SELECT a FROM t WHERE make_timestamp_ms(a) > ikebana_now() - to_days(a::INTEGER)",
            "line 1, column 46: ikebana_now() stands alone on one side of a comparison",
        ),
        (
            "SELECT a FROM t WHERE now() - make_timestamp_ms(a) < to_days(a::INTEGER)",
            "line 1, column 23: now() depends on more than the datum",
        ),
        (
            "SELECT a FROM t WHERE ikebana_now() - NULL::INTERVAL < make_timestamp_ms(a)",
            "line 1, column 23: ikebana_now() stands alone on one side of a comparison",
        ),
        ("SELECT ikebana_now() AS n FROM t", "line 1, column 8: ikebana_now() stands alone"),
        ("SELECT current_date AS d FROM t", "line 1, column 8: current_date depends on more"),
        (
            "SELECT a FROM t WHERE make_timestamp_ms(a) > Current_Timestamp",
            "line 1, column 46: Current_Timestamp depends on more than the datum; for rows that",
        ),
        ("SELECT today() AS d FROM t", "line 1, column 8: today() depends on more than the datum"),
        (
            "SELECT a FROM t WHERE make_timestamp_ms(a) > proctime()",
            "line 1, column 46: there is no function proctime(); write FROM orders WHERE placed",
        ),
        (
            "SELECT 'é' AS x FROM t WHERE make_timestamp_ms(a) = ikebana_now()",
            "line 1, column 53: ikebana_now() stands alone on one side of a comparison in WHERE",
        ),
        ("SELECT 'é' AS x FROM t WHERE WHERE", 'line 1, column 30: syntax error at or near "WHE'),
        (
            "SELECT a FROM t\nUNION ALL SELECT TRUE\nUNION ALL SELECT [a] FROM t",
            'line 1, column 8: "a" is BIGINT, and in its place in another part of the set '
            "operation stands BIGINT[]; cast both to one type, as in a::VARCHAR",
        ),
        (
            "SELECT a, count(*) AS n FROM t GROUP BY a, 3",
            "line 1, column 44: a number in GROUP BY names a column of the select list, from 1 to",
        ),
        ("SELECT a FROM t GROUP BY -1", "line 1, column 26: a number in GROUP BY names a column"),
        (
            "SELECT a, sum(a) OVER (ORDER BY c RANGE 1 PRECEDING) AS s FROM t",
            "line 1, column 11: a RANGE frame has no distance for VARCHAR and INTEGER; write ROWS",
        ),
        (
            "SELECT c, first_value(b) AS f FROM t GROUP BY c",
            "line 1, column 11: a window function stands in the select list or QUALIFY, with OVER",
        ),
        (
            "SELECT c, first_value(b ORDER BY z) AS f FROM t GROUP BY c",
            'line 1, column 34: there is no column "z"',
        ),
        ("DESCRIBE t", "DESCRIBE, SHOW and SUMMARIZE are not supported; write a SELECT"),
        ("SELECT * FROM (SUMMARIZE t)", "DESCRIBE, SHOW and SUMMARIZE are not supported"),
        (
            "SELECT a FROM t WHERE ikebana_now() < make_timestamp_ms(5) "
            "OR make_timestamp_ms(a) > ikebana_now()",
            "ikebana_now() stands alone on one side of a comparison in WHERE",
        ),
        (
            "SELECT a FROM t WHERE make_timestamp_ms(a) = ikebana_now()",
            "ikebana_now() stands alone on one side of a comparison in WHERE",
        ),
        (
            "SELECT a FROM t WHERE a > ikebana_now()",
            "cannot compare BIGINT and TIMESTAMP; cast one of them",
        ),
        ("SELECT a AS ikebana_a FROM t", 'no column can be named "ikebana_a"'),
        (
            "SELECT reservoir_quantile(a, 0.5) AS m FROM t",
            "line 1, column 8: reservoir_quantile() is not supported: it needs more",
        ),
        (
            "SELECT a FROM t ORDER BY a LIMIT 134%",
            "Limit percent out of range, should be between 0% and 100%",
        ),
        ("SELECT a FROM t ORDER BY a LIMIT 1.5", "LIMIT must be a whole number"),
        (
            "SELECT a FROM t ORDER BY a LIMIT (SELECT max(a) FROM u)",
            "line 1, column 34: LIMIT must be a whole number; write QUALIFY row_number() OVER "
            "(ORDER BY x) <= (SELECT …)",
        ),
        ("SELECT a FROM t ORDER BY a LIMIT ?", "LIMIT must be a whole number"),
        ("SELECT ? AS x FROM t", "line 1, column 8: a parameter has no value here"),
        ("SELECT a FROM t WHERE a = $n", "line 1, column 27: a parameter has no value here"),
        ("SELECT lag(a) AS x FROM t", "a window function stands in the select list or QUALIFY"),
        ("SELECT '1'::BIT AS x FROM t", '"x": is of type BIT, which JSON does not have; cast it'),
        ("SELEC a FROM t", 'line 1, column 1: syntax error at or near "SELEC"'),
        ("SELECT a FROM t WHERE", 'near "WHERE"; something is missing behind it'),
        ("SELECT a FROM t WHERE a =", 'near "="; something is missing behind it'),
        ("SELECT * FROM read_csv('x')", "line 1, column 15: read_csv() in FROM is not supported"),
        (
            "WITH p AS (\nPIVOT t ON c USING sum(b)) SELECT * FROM p",
            "line 2, column 1: PIVOT needs the list of its values, as in PIVOT t ON kind "
            "IN ('a', 'b') USING sum(x), since columns do not change with the rows",
        ),
        (
            "SELECT * FROM t UNPIVOT (v FOR n IN (a + 1, b))",
            "line 1, column 40: UNPIVOT is of columns; compute one in a query in FROM",
        ),
        (
            "SELECT * FROM t PIVOT (sum(b) FILTER (WHERE a > 1) FOR c IN ('x'))",
            "line 1, column 24: an aggregate of PIVOT has no FILTER; filter the rows in a",
        ),
        (
            "SELECT * FROM t PIVOT (sum(z) FOR c IN ('x'))",
            'line 1, column 28: there is no column "z"',
        ),
        (
            "SELECT * FROM t PIVOT (sum(b) FOR c IN (lower(c)))",
            'line 1, column 41: there is no column "c"',
        ),
        (
            "SELECT a FROM t QUALIFY lag(a ORDER BY b IGNORE NULLS) OVER (ORDER BY a) = 1",
            "line 1, column 25: ORDER BY and IGNORE NULLS within the call of lag() is not",
        ),
        (
            "SELECT a, lag(row_number() OVER (ORDER BY a)) OVER (ORDER BY b) AS x FROM t",
            "line 1, column 15: window functions cannot have such a function as an argument",
        ),
        (
            "SELECT sum(a) OVER (ORDER BY a, b RANGE 1 PRECEDING) AS s FROM t",
            "RANGE",
        ),
        (
            "SELECT sum(a) OVER (ORDER BY a ROWS 1.5 PRECEDING) AS s FROM t",
            "line 1, column 8: the frame begins or ends a whole number of rows away",
        ),
        (
            'SELECT lead("default" := 7, col := a) OVER (ORDER BY a) AS s FROM t',
            "line 1, column 8: an argument by name of lead() is not supported",
        ),
        (
            "SELECT arg_min(val := a, arg := b) AS m FROM t",
            "line 1, column 8: an argument by name of arg_min() is not supported",
        ),
        ("SELECT ntile(0) OVER (ORDER BY a) AS s FROM t", "ntile(n) takes a number above zero"),
        ("SELECT fill(a) OVER (ORDER BY a) AS s FROM t", "fill() is not supported"),
        (
            "SELECT CAST(x'123e4567e89b12d3a456426655440000ff' AS UUID) AS s FROM t",
            "can never be evaluated",
        ),
        (
            "SELECT list(DISTINCT b ORDER BY a) OVER (ORDER BY a) AS s FROM t",
            "line 1, column 8: an aggregate with DISTINCT is ordered by its argument alone",
        ),
        (
            "SELECT t.a FROM t, LATERAL (SELECT 1 AS q FROM u z RIGHT JOIN u ON z.a = t.a) y",
            "line 1, column 52: a join (RIGHT) that reads what stands to its left, or a query",
        ),
        (
            "SELECT t.a FROM t LEFT JOIN (u JOIN LATERAL (SELECT max(d) AS m FROM u z "
            "WHERE z.a = t.a) y ON y.m = u.d) ON true",
            "tables in parentheses that read what stands to their left are not supported",
        ),
        (
            "SELECT CASE WHEN 1 IN (SELECT (SELECT max(a))) THEN 2 END AS x FROM t",
            "an aggregate in a subquery that reads columns of the query around alone is an aggre",
        ),
        (
            "SELECT c, histogram(a, [a, 7]) AS h FROM t GROUP BY c",
            "line 1, column 11: all arguments of histogram() but the first are constants; "
            "list_value(a, 7) is none",
        ),
        ("SELECT arg_max(a, b, 2 ORDER BY a) AS x FROM t", "arg_max(x, y, n) has no ORDER BY"),
        (
            "SELECT t.a FROM t ASOF JOIN u ON t.a >= u.a AND u.d > (SELECT min(d) FROM u z)",
            "a subquery in ON of an ASOF JOIN is not supported; write it",
        ),
        (
            "SELECT (SELECT a, d FROM u LIMIT 1) AS x FROM t",
            "a subquery for one value must select 1 column; it selects 2",
        ),
        (
            "SELECT count(*) OVER (PARTITION BY a, i) AS n FROM (SELECT a, to_days(1) i FROM t)",
            "line 1, column 8: i is of type INTERVAL, whose equal values may differ as data",
        ),
        (
            "SELECT a FROM (SELECT a, to_days(1) AS i FROM t) WHERE i IN (SELECT to_days(2) AS i)",
            'line 1, column 8: "i" is of type INTERVAL, whose equal values may differ as data',
        ),
        ("SELECT rowid FROM t", 'line 1, column 8: "rowid" is no column of what FROM names'),
        (
            "SELECT a FROM t WHERE a > (SELECT min(d) FROM u USING SAMPLE 0 ROWS)",
            "a sample depends on chance",
        ),
        (
            "WITH v AS (SELECT a FROM t ORDER BY a LIMIT 500%) SELECT a FROM v",
            "Limit percent out of range",
        ),
        ("SELECT a FROM t UNION SELECT a, d FROM u", "must select as many columns as each other"),
        (
            "WITH v(x, y) AS (SELECT a FROM t) SELECT x FROM v",
            'line 1, column 49: "v" names 2 columns, and its query has 1',
        ),
        ("DELETE FROM t", "it must be one query that begins with SELECT or WITH"),
        ("SELECT a FROM t; SELECT a FROM t", "it must be one query"),
        ("SELECT avg(a) EXPORT_STATE AS s FROM t", "line 1, column 8: EXPORT_STATE is not"),
        ("SELECT t.a FROM t POSITIONAL JOIN u", "line 1, column 19: POSITIONAL JOIN is by an"),
        ("SELECT unnest({'x': a}) FROM t", "unnest() in a select list takes a list; this is STR"),
        ("SELECT a FROM t, repeat('x', 2) r", "line 1, column 18: repeat() in FROM is not suppor"),
        ("SELECT t.a FROM t ASOF JOIN u ON t.a + u.d > 3", "ASOF JOIN needs an inequality in ON"),
        (
            "SELECT t.a FROM t LEFT JOIN range(t.a) r(n) ON n > 1",
            "line 1, column 19: a list of columns is joined by a comma, or by LEFT JOIN … ON true",
        ),
        (
            "SELECT a FROM t WHERE COLUMNS('a') > 1",
            "* and COLUMNS(…) stand for columns in a select",
        ),
        (
            "SELECT COLUMNS(a) FROM t",
            "COLUMNS expression can only contain lambda parameters",
        ),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(query: str, problem: str) -> None:
    tables = ik.Pipeline("p")
    for name, columns in TABLES.items():
        tables.topic(name, columns=[ik.Column(*each) for each in columns.items()]).upsert()

    with pytest.raises(ConfigError) as told:
        tables.sql(query, name="view")

    assert problem in str(told.value)


def test_an_order_without_a_limit_is_noted_with_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wherever it stands; the view is the same as without it."""
    tables = ik.Pipeline("p")
    tables.topic("t", columns=[ik.Column(*each) for each in TABLES["t"].items()]).upsert()

    tables.sql(
        "SELECT a FROM (SELECT a FROM t ORDER BY b) x\nUNION SELECT a FROM t ORDER BY 1", name="v"
    )
    tables.sql("SELECT a FROM t ORDER BY a LIMIT 1", name="first")

    said = "a collection has no order, so this ORDER BY says nothing"
    assert [each.getMessage().partition(";")[0] for each in caplog.records] == [
        f"operators.v.sql: line 1, column 41: {said}",
        f"operators.v.sql: line 2, column 32: {said}",
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x.* FROM t x WHERE x.key::BIGINT > 1",
        "SELECT * FROM t WHERE key::BIGINT > 1",
        "SELECT x.a, x.b, x.c FROM (SELECT a FROM u) y JOIN t x ON x.a = y.a "
        "WHERE key::BIGINT > 1",
    ],
)
def test_a_key_may_be_named_beside_a_star(query: str) -> None:
    """It is the key of an input or an operator: `*` does not have it, nor has a query in FROM."""
    rows: list[Change] = [(at, {"a": 1, "b": at, "c": "x"}, 0) for at in (1, 5)]
    changes: dict[str, list[Change]] = {"t": rows, "u": [(9, {"a": 1, "d": 3}, 0)]}

    found = ik.evaluate(plan_of(TABLES, {"view": query}), records_of(changes), 1)

    assert [update.data[1] for update in found["view"]] == [{"a": 1, "b": 5, "c": "x"}]


def test_a_key_is_of_no_query_in_from() -> None:
    with pytest.raises(SqlQueryError, match='"key" is no column of what FROM names'):
        made("SELECT key FROM (SELECT * FROM t) x")


def test_many_conditions_are_one_layer_of_sql() -> None:
    """Binding a layer for each of them took time by the square of their number."""
    query = "SELECT a FROM t WHERE " + " AND ".join(f"a <> {at}" for at in range(300))
    failing = f"{query} AND CAST(c AS INTEGER) > 0"

    (linear,) = made(query)
    assert isinstance(linear, Linear)
    (step,) = linear.steps
    assert isinstance(step, Sql)
    types = Scope({KEY: "JSON", VALUE: "JSON", **TABLES["t"]})
    plain, checked = (statement((step,), types, checked=each) for each in (False, True))
    found = ik.evaluate(
        plan_of(TABLES, {"view": failing}), {"t_changes": [(1, {"a": 500, "c": "x"}, 0)]}, 1
    )

    assert len(step.where) == 300
    assert plain.sql.count("SELECT") < 10
    assert checked.sql.count("SELECT") < 15
    assert [update.data["reason"] for update in found["errors"]] == [
        "operator view: could not evaluate where (CAST(c AS INTEGER) > 0): "
        "Conversion Error: Could not convert string '…' to INT32"
    ]


def test_a_view_of_a_file_may_read_what_stands_behind_it(tmp_path: Path) -> None:
    plan = read(
        """
        large: {sql: SELECT * FROM totals WHERE total > 10}
        totals: {sql: "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"}
        """,
        tmp_path,
    )

    assert [each.name for each in plan.operators] == [
        "large",
        "orders.rows",
        "totals.groups",
        "totals",
    ]
    assert isinstance(plan.operators[1], Upsert)


def test_a_view_may_have_a_with_of_its_own_name(tmp_path: Path) -> None:
    """What is named there is no operator, so the view does not read itself."""
    query = "WITH large AS (SELECT customer FROM orders) SELECT customer FROM large"

    plan = read(f"large: {{sql: {query}}}", tmp_path)

    assert [each.name for each in plan.operators] == ["orders.rows", "large"]


def test_a_file_and_python_make_one_plan(tmp_path: Path) -> None:
    query = "SELECT customer, sum(amount) AS total FROM current GROUP BY customer"
    in_file = read(
        f"""
        current: {{upsert: orders}}
        large: {{sql: "{query}", key: customer}}
        """,
        tmp_path,
    )
    shop = ik.Pipeline("shop")
    columns = [ik.Column("customer", "BIGINT"), ik.Column("amount", "DECIMAL(12,2)")]
    shop.topic("orders", columns=columns).upsert(name="current")
    shop.sql(query, name="large", key="customer").to("large", name="out")

    assert shop.plan() == in_file
    assert shop.plan().fingerprint() == in_file.fingerprint()


def refused(operators: str, folder: Path) -> str:
    with pytest.raises((PlanError, ConfigError)) as told:
        read(operators, folder)
    return str(told.value)


def test_the_problem_of_a_view_has_the_line_of_the_file(tmp_path: Path) -> None:
    problem = refused("large: {sql: SELECT amont FROM orders}", tmp_path)

    assert "operators.large.sql: line 1, column 8: " in problem
    assert "(line 6)" in problem


def test_what_follows_from_the_problem_of_another_is_not_told(tmp_path: Path) -> None:
    problem = refused(
        """
        broken: {linear: orders, select: {x: amont}}
        totals: {sql: SELECT x FROM broken}
        large: {sql: SELECT x FROM totals}
        """,
        tmp_path,
    )

    assert "1 problem" in problem
    assert "totals" not in problem


def test_views_that_read_each_other_are_refused(tmp_path: Path) -> None:
    problem = refused(
        """
        one: {sql: SELECT customer FROM large}
        large: {sql: SELECT customer FROM one}
        """,
        tmp_path,
    )

    assert "operators.one.sql: it reads itself" in problem


def test_columns_must_be_declared() -> None:
    shop = ik.Pipeline("shop")
    shop.topic("open").upsert()

    with pytest.raises(ConfigError) as told:
        shop.sql("SELECT x FROM open", name="view")

    assert 'the columns of "open" are not known; declare them under inputs.open' in str(told.value)
