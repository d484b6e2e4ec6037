"""A field of a column of JSON or of a struct, by dots and brackets: as DuckDB reads it."""

import json
from typing import Any

import duckdb
import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert, evaluate
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.steps import select
from support.sql_oracle import plan_of, records_of

TABLES = {
    "o": {"id": "BIGINT", "j": "JSON", "s": "STRUCT(a STRUCT(b BIGINT), c BIGINT[])"},
    "p": {"id": "BIGINT", "k": "JSON"},
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "o": [
        {"id": 1, "j": {"city": "Rome", "a": {"b": [1, 2]}, "n": 5}, "s": {"a": {"b": 7}}},
        {"id": 2, "j": {"town": "Rome", "a": 5, "City": "x"}, "s": {"c": [8, 9]}},
        {"id": 3, "j": [6, 7], "s": None},
        {"id": 4, "j": None, "s": {"a": None, "c": None}},
    ],
    "p": [{"id": 1, "k": {"city": "Rome"}}, {"id": 2, "k": {"town": "Rome"}}],
}
FIELDS = [
    *("j.city", "o.j.city", "j.a.b", "j['city']", "j['a']['b']", "j['a']['b'][0]", "j.a.b[1]"),
    *("j[0]", "j[1]", "(j).city", "j['a'].b", "j.City", "j.nope", "j.n::BIGINT + 1"),
    *("json_type(j.a)", "j.a IS NULL", "s.a.b", "o.s.a.b", "s['a']['b']", "s.c[1]", "s.a"),
    *("coalesce(s.a.b, 0)", "j->'a'->>'b'"),
]
QUERIES = [
    "SELECT j.city, count(*) AS n FROM o GROUP BY j.city",
    "SELECT j['city'] AS c, count(*) AS n FROM o GROUP BY c",
    "SELECT s.a.b AS b, count(*) AS n FROM o GROUP BY s.a.b",
    "SELECT count(j.city) AS n, sum(j.n::BIGINT) AS s FROM o",
    "SELECT DISTINCT j.a.b AS x FROM o",
    "SELECT id FROM o WHERE j.n::BIGINT > 3 AND s.a.b = 7",
    "SELECT id FROM o WHERE j.city IS NOT NULL",
    "SELECT o.j.city AS c, p.k.city AS d FROM o JOIN p ON o.id = p.id",
    "SELECT o.id, p.id AS q FROM o JOIN p ON o.j.city = p.k.city",
    "SELECT o.id, s.a.b AS x FROM o JOIN p ON o.s.a.b = p.id + 6",
    "SELECT x.city AS y FROM (SELECT j AS x FROM o) t",
    "SELECT o.id FROM o LEFT JOIN p ON o.j['city'] = p.k['city'] WHERE p.k.city IS NULL",
]


def answered(query: str) -> list[str]:
    """What DuckDB answers; its JSON as data."""
    base = duckdb.connect()
    for name, columns in TABLES.items():
        base.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {k}' for c, k in columns.items())})")
        for row in ROWS[name]:
            values = [
                json.dumps(row[c]) if kind == "JSON" and row[c] is not None else row[c]
                for c, kind in columns.items()
            ]
            base.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    found = base.execute(query)
    names = [(column[0], str(column[1])) for column in found.description or ()]
    return sorted(
        json.dumps(
            {
                name: json.loads(value) if kind == "JSON" and value is not None else value
                for (name, kind), value in zip(names, row, strict=True)
            },
            sort_keys=True,
        )
        for row in found.fetchall()
    )


def shown(query: str) -> list[str]:
    """What a view has."""
    changes = {name: [(row["id"], row, 0) for row in rows] for name, rows in ROWS.items()}
    found = evaluate(plan_of(TABLES, {"view": query}), records_of(changes), 1)
    assert found["errors"] == []
    return sorted(
        json.dumps(value, sort_keys=True)
        for (_, value), _, diff in found["view"]
        for _ in range(diff)
    )


@pytest.mark.parametrize(
    "query", [*(f"SELECT id, {each} AS x FROM o" for each in FIELDS), *QUERIES]
)
def test_a_view_reads_fields_as_duckdb_does(query: str) -> None:
    """Selected, in conditions, as keys of groups and joins; a field that is not there is null.

    But for a null in JSON, which is data of its own in DuckDB, and here null as everywhere.
    """
    assert shown(query) == answered(query)


@pytest.mark.parametrize("field", [each for each in FIELDS if not each.startswith("o.")])
@pytest.mark.parametrize("declared", [True, False])
def test_a_linear_operator_reads_fields_as_duckdb_does(field: str, declared: bool) -> None:  # noqa: FBT001
    """Of a declared column, and of JSON as it comes."""
    if not declared and "s." in field and not field.startswith("json"):
        pytest.skip("fields of structs have types only where they are declared")
    columns = tuple(Column(*each) for each in TABLES["o"].items()) if declared else ()
    source = Input("o", ("o",), columns=columns)
    plan = Plan(
        "p",
        (source,),
        (Upsert("u", "o"), Linear("l", "u", (select(id="id", x=field),))),
        (Output("l", "l", "l"),),
    )

    found = evaluate(plan, {"o": [(row["id"], row, 0) for row in ROWS["o"]]}, 1)

    assert found["errors"] == []
    made = sorted(json.dumps(value, sort_keys=True) for (_, value), _, _ in found["l"])
    assert made == answered(f"SELECT id, {field} AS x FROM o")


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("j.n > 3", '"j.n" is JSON; cast it, as in j.n::BIGINT'),
        ("j.city = 'Rome'", "\"j.city\" is JSON; read its text, as in j->>'city'"),
        ("lower(j.a.b)", "\"j.a.b\" is JSON; read its text, as in j->'a'->>'b'"),
        ("j = 3", '"j" is JSON; cast it, as in j::BIGINT'),
        ("s.zz", 'there is no field "zz"; the nearest are a'),
        ("id.x", '"id" has no field "x"'),
    ],
)
def test_what_a_field_of_json_is_not_compared_with(field: str, problem: str) -> None:
    """It is refused with the remedy, which is not to declare what is declared already."""
    query = f"SELECT {field} AS x FROM o"
    with pytest.raises(SqlQueryError) as caught:
        plan_of(TABLES, {"view": query})

    assert problem in str(caught.value)
    assert "inputs." not in str(caught.value)
