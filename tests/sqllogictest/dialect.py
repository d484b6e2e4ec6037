"""Which queries of other suites fit the dialect of views: by rule, from their trees and catalogs.

A view is a query over rows of tables that change, and nothing else decides its result.  So these
do not fit:

* statements that are no query of SELECT, VALUES and set operations, and queries that change data;
* what reads anything but rows: functions in FROM that read files, settings or the catalog, tables
  of other schemas and databases, and `rowid`;
* what depends on chance, on the clock, on the order in which rows are stored or on the program:
  samples, POSITIONAL joins, functions that are not consistent, parameters of a prepared statement;
  and queries with answers that are others in DuckDB itself if its tables have the same rows in the
  opposite order, as `first(x)` has without ORDER BY (the runner asks it where answers differ);
* what is declared by other statements than those for tables and views: macros, types, sequences;
* states of aggregates, which are values of DuckDB alone.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb

ORDER = "the order in which rows are stored"
_LISTS = {"unnest", "range", "generate_series"}
# A recursion with USING KEY names its rows by the second.
_SCHEMAS = ("", "recurring")
_OF_STATES = "states of aggregates"
_STATES = {"finalize", "combine", "to_aggregate_state"}


def misfit(database: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Why a query does not fit; empty if it does."""
    ((text,),) = database.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    parsed = json.loads(text)
    if parsed["error"]:
        return "it is no query of SELECTs" if "Only SELECT" in parsed["error_message"] else ""
    others = _others(database)
    for each in _nodes(parsed):
        if reason := _of_node(each, others):
            return reason
        if each.get("type") == "BASE_TABLE" and (reason := _of_view(database, each["table_name"])):
            return reason
    return ""


def _of_view(database: duckdb.DuckDBPyConnection, name: str) -> str:
    """Why the query of a view does not fit."""
    found = database.execute(
        "SELECT sql FROM duckdb_views() WHERE NOT internal AND lower(view_name) = lower(?)", [name]
    ).fetchall()
    return next((misfit(database, query_of(sql)) for (sql,) in found), "")


def query_of(view: str) -> str:
    """The query that a CREATE VIEW has."""
    return re.sub(r"(?is)^CREATE .*? AS ", "", view, count=1).rstrip("; \n")


def _of_node(node: dict[str, Any], others: dict[str, str]) -> str:
    kind = node.get("type")
    function = str(node.get("function_name", "")).lower()
    if function in others:
        return others[function]
    if function in _STATES or node.get("export_state"):
        return _OF_STATES
    if node.get("sample"):
        return "samples"
    match kind:
        case "TABLE_FUNCTION":
            called = node["function"].get("function_name", "").lower()
            return "" if called in _LISTS else "functions in FROM that read no rows"
        case "BASE_TABLE" if node["catalog_name"] or node["schema_name"] not in _SCHEMAS:
            return "other schemas and databases"
        case "BASE_TABLE":
            return others.get(f"table {node['table_name'].lower()}", "")
        case "JOIN" if node.get("ref_type") == "POSITIONAL":
            return ORDER
        case "COLUMN_REF" if node["column_names"][-1].lower() == "rowid":
            return ORDER
        case "VALUE_PARAMETER":
            return "parameters"
        case "TYPE":
            return others.get(f"type {node['type_name'].lower()}", "")
        case str() if kind.endswith("_QUERY_NODE"):
            return "queries that change data"
    return ""


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from _nodes(each)
    elif isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _nodes(each)


def _others(database: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Functions, types and tables that do not fit, by name, with the reason."""
    others = {
        str(name).lower(): "functions that depend on more than their arguments"
        for (name,) in database.execute(
            "SELECT function_name FROM duckdb_functions() "
            "WHERE function_type = 'scalar' AND stability <> 'CONSISTENT'"
        ).fetchall()
    }
    for (name,) in database.execute(
        "SELECT function_name FROM duckdb_functions() WHERE NOT internal"
    ).fetchall():
        others[str(name).lower()] = "macros"
    for (name,) in database.execute(
        "SELECT type_name FROM duckdb_types() WHERE NOT internal"
    ).fetchall():
        others[f"type {str(name).lower()}"] = "types that are declared"
    for (name,) in database.execute(
        "SELECT table_name FROM duckdb_columns() WHERE data_type LIKE '%AGGREGATE_STATE%'"
    ).fetchall():
        others[f"table {str(name).lower()}"] = _OF_STATES
    return others
