"""What DuckDB says of a query is in ikebana's words: the place, the fact and a remedy."""

import re

import pytest

import ikebana as ik
from ikebana.errors import ConfigError
from ikebana.processor.linear.bound_query import BindingError, columns_of
from ikebana.processor.linear.duckdb_messages import ELSEWHERE, in_words

TABLES = {
    "t": {
        "a": "BIGINT",
        "b": "VARCHAR",
        "d": "DATE",
        "s": "STRUCT(x INTEGER, y VARCHAR)",
        "l": "INTEGER[]",
        "m": "MAP(VARCHAR, INTEGER)",
    },
    "u": {"a": "BIGINT", "c": "VARCHAR"},
}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT s.z FROM t", '1:10 there is no field "z"; the nearest are x'),
        ("SELECT a.z FROM t", '1:10 "a" has no field "z": it is no struct, and no JSON'),
        ("SELECT a.* FROM t", '- "a.*" is the fields of a struct, or the columns of a table; a'),
        (
            "SELECT sum(a) OVER (ORDER BY b RANGE 1 PRECEDING) FROM t",
            "- a RANGE frame has no distance for VARCHAR and INTEGER; write ROWS or GROUPS",
        ),
        (
            "SELECT sum(a) OVER (ORDER BY a, b RANGE 1 PRECEDING) FROM t",
            "1:8 a RANGE frame with a distance has one expression in ORDER BY; write ROWS or G",
        ),
        (
            "SELECT b + 1 FROM t",
            "1:10 + does not take (VARCHAR, INTEGER); it takes (INTEGER, INTEGER) or (DATE, INTEG",
        ),
        ("SELECT a LIKE 'x' FROM t", "1:10 LIKE does not take (BIGINT, VARCHAR); it takes (VARC"),
        (
            "SELECT\n upper(b, b) FROM t",
            "2:2 upper() does not take (VARCHAR, VARCHAR); it takes (string VARCHAR)",
        ),
        (
            "SELECT extract(day FROM b) FROM t",
            "1:8 date_part() does not take (VARCHAR, VARCHAR); it takes (part VARCHAR, ts DATE)",
        ),
        ("SELECT rank(a) OVER () FROM t", "1:8 rank() does not take (BIGINT); it takes nothing"),
        (
            "SELECT strftime(b, 'x') FROM t",
            "1:8 strftime() does not take (VARCHAR, VARCHAR); it takes (format VARCHAR, data TIM",
        ),
        ("SELECT upper(b) OVER () FROM t", "1:8 upper() is no aggregate and no window function; "),
        ("SELECT uper(b) FROM t", "1:8 there is no function uper(); did you mean upper()?"),
        ("SELECT b::INTEGR FROM t", "1:11 there is no type INTEGR; did you mean integer?"),
        (
            "SELECT d > a FROM t",
            "1:8 cannot compare DATE and BIGINT; cast one of them, as in x::D",
        ),
        (
            "SELECT coalesce(a, b) FROM t",
            "1:8 cannot combine BIGINT and VARCHAR in COALESCE operator; cast one of them",
        ),
        (
            "SELECT a IN (SELECT d FROM t) FROM t",
            "1:13 cannot compare BIGINT and DATE in IN/ANY/ALL clause; cast one of them",
        ),
        ("SELECT [a, d] FROM t", "1:12 the arguments of list_value(T, T) do not have fitting ty"),
        ("SELECT a FROM t, u", '1:8 "a" is a column of several tables; write t.a or u.a'),
        ("SELECT a FROM t, t", '1:8 "a" is in several tables of one name; give one another name'),
        ("SELECT q.a FROM t q JOIN u q USING (a)", '- several tables of FROM are named "q"; give'),
        (
            "SELECT t.a FROM t JOIN u USING (b)",
            "1:33 USING needs a column of both sides; there is",
        ),
        (
            "SELECT a FROM t WHERE sum(a) > 1",
            "1:23 WHERE has no aggregates; put a condition on gr",
        ),
        ("SELECT a FROM t WHERE rank() OVER () > 1", "1:23 WHERE has no window functions; put a"),
        ("SELECT sum(sum(a)) FROM t", "1:12 aggregate functions cannot have such a function as a"),
        (
            "SELECT sum(a), b FROM t",
            '1:16 "b" is neither in GROUP BY nor in an aggregate; group b',
        ),
        ("SELECT a FROM t GROUP BY 2", "- a number in GROUP BY names a column of the select list"),
        (
            "SELECT a FROM t QUALIFY a > 1",
            "- QUALIFY is for window functions; write the condition",
        ),
        ("SELECT a FROM t QUALIFY q > 1", '1:25 there is no column "q"; there are a, b, c, d, l'),
        (
            "WITH q AS (SELECT a FROM t) SELECT b FROM q",
            '1:36 there is no column "b"; the nearest are a',
        ),
        ("SELECT a FROM t UNION SELECT a, b FROM t", "- the queries of UNION, EXCEPT and INTERSE"),
        (
            "SELECT (SELECT a, b FROM t) FROM t",
            "1:8 a subquery for one value must select 1 column",
        ),
        (
            "SELECT * EXCLUDE (q) FROM u",
            '1:19 EXCLUDE is of columns that * has; it has no "q"; th',
        ),
        (
            "SELECT a FROM t ASOF JOIN u USING (a, c)",
            "1:39 USING needs a column of both sides; th",
        ),
        (
            "WITH RECURSIVE q(n) AS (SELECT n FROM q UNION SELECT 1) SELECT n FROM q",
            '1:39 "q" reads itself in its first part; read it in the part behind UNION',
        ),
    ],
)
def test_what_duckdb_does_not_bind_is_refused_with_place_and_remedy(
    query: str, problem: str
) -> None:
    with pytest.raises(BindingError) as caught:
        columns_of(query, TABLES)

    place = re.sub(r"^line (\d+), column (\d+): ", r"\1:\2 ", caught.value.with_place(query))
    shown = place if caught.value.at is not None else f"- {place}"
    assert shown.startswith(problem)
    assert "Error: " not in shown


COLUMNS = {
    **dict.fromkeys(("x", "y"), "BIGINT"),
    **dict.fromkeys(("placed", "paid"), "TIMESTAMP"),
    "items": "VARCHAR[]",
    "text": "VARCHAR",
    "document": "JSON",
    "s": "STRUCT(a INTEGER)",
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_named_for_a_function_of_another_system_is_taken(name: str) -> None:
    """The name itself is refused with it."""
    shop = ik.Pipeline("shop")
    shop.topic("orders", columns=[ik.Column(*each) for each in COLUMNS.items()]).upsert()
    same = ELSEWHERE[name]

    with pytest.raises(ConfigError, match=re.escape(f"no function {name}(); write {same}")):
        shop.sql(f"SELECT {name}(x) AS r FROM orders", name="refused")
    if not same.startswith("FROM "):
        shop.sql(f"SELECT {same} AS r FROM orders", name="view")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT unnest(s) AS r FROM orders", "this is STRUCT(a INTEGER), whose fields are sel"),
        ("SELECT first_value(x) AS r FROM orders", "aggregates are first(x ORDER BY y)"),
        (
            "SELECT listagg(text, ',') WITHIN GROUP (ORDER BY x) AS r FROM orders",
            "listagg() has no WITHIN GROUP, as quantile_cont(0.5) has; others take an order",
        ),
    ],
)
def test_a_refusal_names_what_is_taken(query: str, problem: str) -> None:
    shop = ik.Pipeline("shop")
    shop.topic("orders", columns=[ik.Column(*each) for each in COLUMNS.items()]).upsert()

    with pytest.raises(ConfigError, match=re.escape(problem)):
        shop.sql(query, name="refused")


def test_words_without_a_rule_lose_the_name_of_the_error() -> None:
    """What remains is DuckDB's own sentence."""
    assert in_words("Binder Error: LIMIT/OFFSET cannot be negative") == (
        "LIMIT/OFFSET cannot be negative"
    )
