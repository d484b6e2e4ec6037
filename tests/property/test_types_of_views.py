"""A view has the types that DuckDB gives its columns, and the rows that it answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ikebana import Plan, evaluate
from ikebana.codecs import canonical
from ikebana.codecs.sql_type import type_of
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.json_text import to_object
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.linear.typed_json import from_json
from ikebana.processor.planning.catalog import catalog_of
from support.random_expressions import TABLES, Expressions, rows
from support.sql_oracle import Change, plan_of, records_of
from support.strategies import few
from support.sums import summed


class Answer:
    """What DuckDB says of a query over tables with rows: its types, then its rows."""

    def __init__(
        self, tables: Mapping[str, Mapping[str, str]], changes: Mapping[str, Any]
    ) -> None:
        self.database = duckdb.connect()
        for setting in ("SET TimeZone = 'UTC'", "PRAGMA disable_optimizer"):
            self.database.execute(setting).fetchall()
        for name, columns in tables.items():
            listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            self.database.execute(f'CREATE TABLE "{name}" ({listed})').fetchall()
            read = ", ".join(from_json(f"c{at}", kind) for at, kind in enumerate(columns.values()))
            texts = ", ".join(f"? AS c{at}" for at in range(len(columns)))
            for _, row, _ in changes[name]:
                values = [canonical.encode(row[column]).decode() for column in columns]
                insert = f'INSERT INTO "{name}" SELECT {read} FROM (SELECT {texts})'
                self.database.execute(insert, values).fetchall()

    def types(self, query: str) -> dict[str, str]:
        """The types of columns.  Raises: duckdb.Error, if it is no query."""
        listed = self.database.execute(f"DESCRIBE {query}").fetchall()
        return {str(name): str(kind) for name, kind, *_ in listed}

    def rows(self, query: str) -> "Counter[str]":
        """The rows as JSON, with their counts.  Raises: duckdb.Error, if it cannot be."""
        types = {name: type_of(kind) for name, kind in self.types(query).items()}
        listed = self.database.execute(f"SELECT {to_object(types)} FROM ({query})").fetchall()
        return Counter(shown(msgspec.json.decode(text)) for (text,) in listed)


def shown(value: Any) -> str:
    """A value as it is compared: numbers as 12 digits tell them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {shown(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return repr(value)
    return f"{float(value) + 0.0:.11e}"


def types_of(plan: Plan) -> dict[str, str]:
    """The types of the view's columns, as the plan has them."""
    types = catalog_of(plan).relation("view").scope.types
    return {name: kind for name, kind in types.items() if name not in (KEY, VALUE)}


def assert_as_in_duckdb(
    tables: Mapping[str, Mapping[str, str]], query: str, changes: Mapping[str, Sequence[Change]]
) -> None:
    """A view has DuckDB's types, and its rows where it answers."""
    assert_as_in(Answer(tables, changes), plan_of(tables, {"view": query}), query, changes)


def assert_as_in(
    duck: Answer, plan: Plan, query: str, changes: Mapping[str, Sequence[Change]]
) -> None:
    """A plan with a view of this query has the types and rows of an answer to it."""
    assert types_of(plan) == duck.types(query)
    found = evaluate(plan, records_of(changes))
    with suppress(duckdb.Error):
        expected = duck.rows(query)
        assert found["errors"] == []
        assert summed((shown(value), diff) for (_, value), _, diff in found["view"]) == expected


@few
@given(st.randoms(use_true_random=False))
def test_an_accepted_view_has_the_types_and_rows_of_duckdb(choice: Random) -> None:
    """Whatever expressions it has, of whatever types; what DuckDB refuses is refused."""
    query, changes = Expressions(choice).query(), rows(choice)
    note(query)
    duck = Answer(TABLES, changes)
    try:
        duck.types(query)
    except duckdb.Error:
        with pytest.raises(SqlQueryError):
            plan_of(TABLES, {"view": query})
        return
    with suppress(SqlQueryError):
        assert_as_in(duck, plan_of(TABLES, {"view": query}), query, changes)


TEXTS = ["x", "007", "1.50", "true", "null", "[1, 2]", "", None]
OF_TEXTS = {"a": {"s": "VARCHAR", "n": "BIGINT"}}
NULLS = (
    "SELECT s FROM a UNION ALL SELECT NULL FROM a",
    "SELECT NULL AS s FROM a UNION ALL SELECT s FROM a",
    "SELECT NULL AS s FROM a UNION SELECT s FROM a UNION SELECT NULL FROM a",
    "SELECT s FROM a EXCEPT SELECT NULL FROM a",
    "SELECT s FROM a INTERSECT ALL SELECT NULL FROM a",
    "WITH v AS (SELECT NULL AS s FROM a) SELECT s FROM a UNION ALL SELECT s FROM v",
    "SELECT s FROM a UNION ALL SELECT x FROM (SELECT NULL AS x FROM a GROUP BY s) v",
    "SELECT DISTINCT NULL AS s FROM a",
    "SELECT NULL AS s, [NULL] AS l, {'f': NULL} AS r, MAP {'k': NULL} AS m FROM a",
    "SELECT [NULL] AS l FROM a UNION ALL SELECT [s] FROM a",
    "SELECT {'f': NULL} AS r FROM a UNION SELECT {'f': s} FROM a",
    "SELECT coalesce(x, s) AS s, coalesce(x, n) AS n FROM (SELECT NULL AS x, s, n FROM a) v",
    "SELECT x, max(s) AS s, max(x) AS m FROM (SELECT NULL AS x, s FROM a) v GROUP BY x",
    "SELECT v.x, a.s FROM a LEFT JOIN (SELECT n, NULL AS x FROM a) v ON v.n = a.n",
)


@pytest.mark.parametrize("query", NULLS)
def test_a_null_without_a_type_has_duckdbs_type_of_null(query: str) -> None:
    """Beside it, texts stay texts, also those that look like JSON."""
    changes = {"a": [(at, {"s": text, "n": at}, 0) for at, text in enumerate(TEXTS)]}

    assert_as_in_duckdb(OF_TEXTS, query, changes)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT s FROM a UNION ALL SELECT to_json(n) FROM a",
        "SELECT [s] AS s FROM a UNION SELECT [to_json(n)] FROM a",
    ],
)
def test_texts_are_not_read_as_json_beside_json(query: str) -> None:
    """A query that would do so is refused, with what to write."""
    with pytest.raises(SqlQueryError, match=r"would be read as JSON; write to_json\(s\) here"):
        plan_of(OF_TEXTS, {"view": query})


@pytest.mark.parametrize(
    ("shown", "by"),
    [
        ("CAST(m AS DATE)", "CAST(m AS date)"),
        ("m::Date", "m::DATE"),
        ("n::Numeric(5,1)", "CAST(n AS DECIMAL(5,1))"),
        ("n::INT", "n::integer"),
        ("[n]::VARCHAR[]", "CAST([n] AS varchar[])"),
        ("n::double precision", "n::DOUBLE"),
    ],
)
def test_a_type_is_one_however_it_is_spelt(shown: str, by: str) -> None:
    """In the select list, in GROUP BY, HAVING and ORDER BY."""
    tables = {"a": {"m": "TIMESTAMP", "n": "BIGINT"}}
    moments = ["2020-01-01 10:00:00", "2020-01-01 12:00:00", None]
    changes = {"a": [(at, {"m": each, "n": 1}, 0) for at, each in enumerate(moments)]}

    for query in (
        f"SELECT {shown} AS k, count(*) AS n FROM a GROUP BY {by}",
        f"SELECT {shown} AS k FROM a GROUP BY {by} HAVING {by} IS NOT NULL",
        f"SELECT {shown} AS k FROM a GROUP BY {by} ORDER BY {by} LIMIT 1",
    ):
        assert_as_in_duckdb(tables, query, changes)


@pytest.mark.parametrize("call", ["sum", "avg", "var_samp", "stddev_pop", "max", "list"])
def test_numbers_of_single_precision_are_added_as_in_duckdb(call: str) -> None:
    """As the doubles that they are; what is not added stays as it is, also after changes."""
    tables = {"a": {"f": "FLOAT", "g": "BIGINT"}}
    numbers = [38083.53, 57681.18, 0.1, None, -2.5e-7, 3e38]
    changes = {"a": [(at, {"f": each, "g": at % 2}, 0) for at, each in enumerate(numbers)]}
    order = " ORDER BY f" if call == "list" else ""

    for query in (
        f"SELECT {call}(f{order}) AS x, sum(f) AS s FROM a",
        f"SELECT g, {call}(f{order}) FILTER (f > 0) AS x, min(f) AS m FROM a GROUP BY g",
    ):
        assert_as_in_duckdb(tables, query, changes)
