"""Check a query by DuckDB's own parse tree, and find the collections that it reads.

A query is one SELECT.  Every table in it is a collection or a name that it defines itself; table
functions that read anything are refused, and so are functions that return settings.  DuckDB parses
the query, so the checked tree is the one that runs.

An equality of key columns with constants restricts which keys of a collection are read, if the
collection is named once, and the equality is a condition that every row of the result fulfils.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb

from ikebana.errors import IkebanaError

# References to tables; any other, such as SHOW, is refused.
_REFERENCES = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "CTE", "TABLE_FUNCTION"}
)
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat"})
_REFUSED = frozenset(
    {"current_setting", "getvariable", "getenv", "write_log", "query", "query_table"}
)
# A reference to a table has these fields, whatever it is.
_REFERENCE_FIELDS = frozenset({"type", "alias", "sample"})
_PLAIN_JOINS = frozenset({"REGULAR", "CROSS", "NATURAL"})
# Deeper queries would exceed Python's stack.
_MOST_NESTED = 200


class SqlError(IkebanaError):
    """A query is refused, or cannot be answered."""


# By column: the constants that it may have.
Equalities = dict[str, list[Any]]


class Query(NamedTuple):
    """The collections of a query, and the columns of each that equal constants."""

    tables: list[str]
    equalities: dict[str, Equalities]


def parsed(text: str) -> Query:
    """Parse a query, or refuse it.

    Raises:
        SqlError: it is not one SELECT, or uses something that is not allowed.
    """
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as parser:
        try:
            [content] = parser.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        except duckdb.Error as error:
            raise SqlError(f"cannot read the query: {_line(error)}") from error
    try:
        tree = json.loads(content)
    except RecursionError as error:
        raise SqlError("cannot read the query: it is nested too deeply") from error
    if tree["error"]:
        if tree.get("error_type") == "not implemented":
            raise SqlError(
                "cannot run the query: it is no SELECT",
                hint="Collections can be read only; pipelines change them.",
            )
        raise SqlError(f"cannot read the query: {tree['error_message']}")
    if len(tree["statements"]) != 1:
        raise SqlError("cannot run the query: give one statement")
    nodes = list(_nodes(tree, 0))
    defined = {entry["key"].lower() for node in nodes for entry in _definitions(node)}
    tables = []
    for node in nodes:
        if node.keys() >= _REFERENCE_FIELDS:
            if (name := _table(node, defined)) is not None:
                tables.append(name)
        elif node.get("class") == "FUNCTION" and node["function_name"].lower() in _REFUSED:
            raise SqlError(f"cannot run the query: it may not use {node['function_name']}()")
    once = {name for name, number in Counter(tables).items() if number == 1}
    equalities: dict[str, Equalities] = {}
    for node in nodes:
        if node.get("type") == "SELECT_NODE" and node.get("where_clause"):
            for table, of_table in _equalities(node).items():
                if table in once:
                    equalities[table] = of_table
    return Query(sorted(set(tables)), equalities)


def _nodes(tree: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MOST_NESTED:
        raise SqlError("cannot read the query: it is nested too deeply")
    if isinstance(tree, dict):
        yield tree
        for each in tree.values():
            yield from _nodes(each, depth + 1)
    elif isinstance(tree, list):
        for each in tree:
            yield from _nodes(each, depth + 1)


def _definitions(node: dict[str, Any]) -> list[dict[str, Any]]:
    definitions = node.get("cte_map")
    return definitions["map"] if isinstance(definitions, dict) else []


def _table(node: dict[str, Any], defined: set[str]) -> str | None:
    """Return the collection that a reference names; None if it names none."""
    kind = node["type"]
    if kind not in _REFERENCES:
        raise SqlError(f"cannot run the query: it may not use {kind.removesuffix('_REF')}")
    if kind == "TABLE_FUNCTION":
        function = node["function"]
        name = function.get("function_name", "")
        if name.lower() not in _TABLE_FUNCTIONS or function.get("schema"):
            raise SqlError(
                f"cannot run the query: it may not use the table function {name}()",
                hint="Tables are collections, by the names that `ikebana serve` has.",
            )
    if kind != "BASE_TABLE":
        return None
    name = str(node["table_name"])
    if node.get("schema_name") or node.get("catalog_name"):
        raise SqlError(
            f'cannot run the query: it names a schema of "{name}"',
            hint="Collections are named alone, in double quotes if they have dots or hyphens.",
        )
    return None if name.lower() in defined else name


def _equalities(select: dict[str, Any]) -> dict[str, Equalities]:
    """Return the equalities with constants that each table of a SELECT fulfils."""
    tables: dict[str, str] = {}
    if not _plain(select["from_table"], tables):
        return {}
    equalities: dict[str, Equalities] = {}
    for condition in _conjuncts(select["where_clause"]):
        column, constants = _equality(condition)
        if column is None:
            continue
        match column:
            case [name] if len(tables) == 1:
                table = next(iter(tables.values()))
            case [alias, name] if alias.lower() in tables:
                table = tables[alias.lower()]
            case _:
                continue
        equalities.setdefault(table, {}).setdefault(name.lower(), constants)
    return equalities


def _plain(reference: dict[str, Any], tables: dict[str, str]) -> bool:
    """Collect the tables of a FROM by alias; False if its joins are not by conditions alone."""
    if reference["type"] == "JOIN":
        return (
            reference["ref_type"] in _PLAIN_JOINS
            and reference["join_type"] in ("INNER", "LEFT", "RIGHT", "OUTER")
            and _plain(reference["left"], tables)
            and _plain(reference["right"], tables)
        )
    # A sample of fewer rows would be another one.
    if reference.get("sample") or reference.get("column_name_alias"):
        return False
    if reference["type"] == "BASE_TABLE":
        alias = (reference["alias"] or reference["table_name"]).lower()
        if alias in tables:
            return False
        tables[alias] = reference["table_name"]
        return True
    # An unqualified name could mean one of its columns.
    return False


def _conjuncts(condition: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if condition.get("type") == "CONJUNCTION_AND":
        for each in condition["children"]:
            yield from _conjuncts(each)
    else:
        yield condition


def _equality(condition: dict[str, Any]) -> tuple[list[str] | None, list[Any]]:
    """Read `column = constant` and `column IN (constants)`; None for anything else."""
    if condition.get("type") == "COMPARE_EQUAL":
        for one, other in (("left", "right"), ("right", "left")):
            column, constant = condition[one], condition[other]
            if column.get("type") == "COLUMN_REF" and _is_constant(constant):
                return column["column_names"], [_constant(constant)]
    elif condition.get("type") == "COMPARE_IN":
        column, *constants = condition["children"]
        if column.get("type") == "COLUMN_REF" and all(map(_is_constant, constants)):
            return column["column_names"], [_constant(each) for each in constants]
    return None, []


def _is_constant(node: dict[str, Any]) -> bool:
    return node.get("class") == "CONSTANT" and node.get("literal", {}).get("kind") in (
        "INTEGER",
        "STRING",
    )


def _constant(node: dict[str, Any]) -> int | str:
    literal = node["literal"]
    return int(literal["text"]) if literal["kind"] == "INTEGER" else str(literal["text"])


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]
