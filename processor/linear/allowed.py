"""What expressions may call and compare: functions of their arguments alone, and collations.

DuckDB says of each function whether it is consistent.  Some functions that it calls consistent
depend on the clock, the catalog or the program; these are refused as well.  So are functions that
take the name of an aggregate as text, unless it is a constant: a computed name might be that of a
sampling aggregate.

SQL gives collations to texts for comparisons, but data do not have them.  A collation counts
within one expression only: the result of an expression is a plain text for whatever reads it, be
it a group, an order or a join.
"""

import functools
from collections.abc import Iterator
from typing import Any

from ikebana.processor.base.texts import hint
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.sql_functions import is_long_name, short_name, user_aggregate
from ikebana.processor.linear.syntax import Node, modifiers_of, nodes, tree_of

# Names that SQL takes for functions if no column has the name.
BARE_FUNCTIONS = {
    *("current_catalog", "current_date", "current_role", "current_schema", "current_time"),
    *("current_timestamp", "current_user", "get_current_time", "localtime", "localtimestamp"),
    *("session_user", "user"),
}
# DuckDB calls these consistent, but they depend on the clock, the catalog, or the program; or they
# continue the state of an aggregate, which may draw a sample.
_DEPENDENT = {
    *("alias", "current_localtime", "current_localtimestamp", "index_key"),
    *("json_serialize_plan", "version"),
    *("combine", "finalize", "to_aggregate_state"),
}
# Aggregates over a list by name, and those of them that draw a sample.
_LIST_AGGREGATES = {
    *("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"),
}
_SAMPLING = ("reservoir_quantile",)
CLOCKS = {
    *("ago", "current_date", "current_localtime", "current_localtimestamp", "current_time"),
    *("current_timestamp", "get_current_time", "get_current_timestamp", "localtime"),
    *("localtimestamp", "now", "today", "transaction_timestamp"),
}
_WITHIN = "depends on more than the datum"
_TIMES = (
    "; until when a row counts is its valid_until, and when it happened its input's event_time"
)
_AGGREGATE = "is an aggregate, which has no meaning over one datum"
_REPEATS = "makes several rows"


def refuse_call(call: Node) -> None:
    """Refuse a call that is not allowed.  Raises: ExpressionError."""
    name = call["function_name"].lower()
    arguments = [argument["expression"] for argument in call["arguments"]]
    if user_aggregate(name) is not None:
        raise ExpressionError(f"{short_name(name)}() {_AGGREGATE}{_remedy(name, _AGGREGATE)}")
    if is_long_name(name):
        if more := modifiers_of(call):
            raise ExpressionError(f"{short_name(name)}() is no aggregate: {more} has no meaning")
        return
    if reason := refused_functions().get(name):
        raise ExpressionError(f"{name}() {reason}{_remedy(name, reason)}")
    if name not in functions():
        raise ExpressionError(f"there is no function {name}(){_close(name)}")
    if name == "age" and len(arguments) == 1:
        raise ExpressionError(f"age() of one argument {_WITHIN}{_TIMES}")
    if name in _LIST_AGGREGATES:
        _refuse_aggregate(name, arguments)
    if more := modifiers_of(call):
        raise ExpressionError(f"{name}() is no aggregate: {more} has no meaning in it")


def refuse_bare(name: str) -> None:
    """Refuse a name that SQL takes for a function.  Raises: ExpressionError."""
    if name.lower() in BARE_FUNCTIONS:
        raise ExpressionError(f"{name} {_WITHIN}{_remedy(name.lower(), _WITHIN)}")


def _remedy(name: str, reason: str) -> str:
    if name in CLOCKS:
        return _TIMES
    if reason == _REPEATS:
        return "; a list does so in flat_map, or by unnest in a view: string_split_regex(x, ',')"
    return "; what rows come to is for a reduce operator" if reason == _AGGREGATE else ""


def _close(name: str) -> str:
    return hint(name, functions() - refused_functions().keys(), "{}()")


def _refuse_aggregate(name: str, arguments: list[Node]) -> None:
    """Refuse an aggregate over a list if its name is computed, or is a sampling one."""
    for argument in arguments[1:2]:
        if argument.get("class") != "CONSTANT":
            raise ExpressionError(f"{name}() needs the aggregate's name as a constant")
        named = text_of(argument)
        if named not in _SAMPLING and named not in aggregates():
            meant = hint(named, aggregates())
            raise ExpressionError(f'there is no aggregate "{named}"{meant}')
    if any(text_of(argument) in _SAMPLING for argument in arguments[1:]):
        raise ExpressionError(f"{name}() with a sample {_WITHIN}")


def text_of(node: Node) -> str:
    """The text of a constant, in lower case; empty for any other node."""
    literal = node.get("literal") or {}
    return str(literal.get("text", "")).lower()


@functools.cache
def aggregates() -> frozenset[str]:
    """The names of all aggregates."""
    rows = rows_of(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    )
    return frozenset(name.lower() for (name,) in rows)


@functools.cache
def functions() -> frozenset[str]:
    """The names of all functions of values, built-in ones and macros."""
    rows = rows_of(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type IN ('scalar', 'macro')"
    )
    return frozenset(
        name.lower() for (name,) in rows if not name.startswith("__") and not is_long_name(name)
    )


@functools.cache
def refused_functions() -> dict[str, str]:
    """Why a function must not be called, by its name."""
    refused = dict.fromkeys(_DEPENDENT | BARE_FUNCTIONS, _WITHIN)
    kinds: dict[str, set[str]] = {}
    macros: dict[str, set[str]] = {}
    fields = "lower(function_name), function_type, stability, macro_definition"
    for name, kind, stability, definition in rows_of(f"SELECT {fields} FROM duckdb_functions()"):
        kinds.setdefault(name, set()).add(kind)
        if kind == "scalar" and stability != "CONSISTENT":
            refused[name] = _WITHIN
        if kind == "macro":
            macros.setdefault(name, set()).update(_names_in(definition or "NULL"))
    for name, types in kinds.items():
        if "aggregate" in types and not types & {"scalar", "macro"}:
            refused.setdefault(name, _AGGREGATE)
    refused["count_star"] = _AGGREGATE
    for name in ("unnest", "repeat_row"):
        refused[name] = _REPEATS
    # A macro is refused if its definition uses a refused function, or another such macro.
    for _ in macros:
        more = {
            name: refused[used]
            for name, uses in macros.items()
            for used in sorted(uses, reverse=True)
            if name not in refused and used in refused
        }
        if not more:
            break
        refused |= more
    return refused


def _names_in(definition: str) -> set[str]:
    """The functions that the definition of a macro names; a subquery counts as one."""
    answer = tree_of(definition)
    if answer["error"]:
        return {"now"}
    names: set[str] = set()
    for node in nodes(answer["statements"]):
        match node["class"]:
            case "FUNCTION":
                names.add(node["function_name"].lower())
            case "COLUMN_REF":
                names |= BARE_FUNCTIONS & {node["column_names"][-1].lower()}
            case "SUBQUERY" | "WINDOW":
                names.add("now")
    return names


LOOSE = (
    "COLLATE counts in a comparison alone, as in name COLLATE NOCASE = 'x'; select, group, order "
    "and join by a text that is made alike instead, as in lower(name)"
)
_COMPARISONS = ("COMPARISON", "BETWEEN")
_MEMBERSHIPS = ("COMPARE_IN", "COMPARE_NOT_IN")


def loose(value: Any, *, within: bool = False) -> Iterator[Node]:
    """The collations in a tree that no comparison of the same expression uses.

    The arguments of a subquery, an aggregate or a window are computed before the comparison around
    it, so collations in them do not count.
    """
    if isinstance(value, list):
        for item in value:
            yield from loose(item, within=within)
    elif isinstance(value, dict):
        kind = value.get("class")
        if kind == "COLLATE" and not within:
            yield value
        name = str(value.get("function_name", "")).lower()
        if kind in ("SUBQUERY", "WINDOW") or (kind == "FUNCTION" and name in aggregates()):
            within = False
        elif kind in _COMPARISONS or value.get("type") in _MEMBERSHIPS:
            within = True
        for item in value.values():
            yield from loose(item, within=within)
