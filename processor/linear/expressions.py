"""SQL expressions of a pipeline file: what they name, whether they may stand, how they are run.

The dialect is DuckDB's, and DuckDB itself parses, binds and evaluates; what is done
here is on its syntax tree:

* An expression depends on one datum alone.  What asks a clock, chance or settings is
  refused, and so are aggregates, windows and subqueries.
* A field that is not declared has the type JSON.  It may be cast, tested for null, taken
  apart with `->` and `->>`, or handed on as it is.  Anything else is refused: SQL would
  compare the *text* of JSON with a number.
* `AND` and `OR` of a condition become `CASE`, so that a condition guards those behind it.
  Otherwise their order would follow statistics of the batch, and with it the errors.
"""

import functools
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import msgspec

from ikebana.processor.linear.json_text import JSON, literal, quoted
from ikebana.processor.linear.scope import OURS, ExpressionError, Scope
from ikebana.processor.linear.typed_json import from_json

_Node = dict[str, Any]
# Names that SQL takes for functions when there is no column of theirs.
_BARE_FUNCTIONS = {
    *("current_catalog", "current_date", "current_role", "current_schema", "current_time"),
    *("current_timestamp", "current_user", "get_current_time", "localtime", "localtimestamp"),
    *("session_user", "user"),
}
# JSON given to one of these is taken apart or carried along, not compared.
_JSON_FUNCTIONS = {"->", "->>", "from_json", "from_json_strict", "to_json"}
_CARRIERS = {"struct_pack", "list_value", "row"}
_NULL_TESTS = ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL")
# DuckDB calls these consistent, but they ask the clock, the catalog, or the program.
_DEPENDENT = {
    *("alias", "current_localtime", "current_localtimestamp", "index_key"),
    *("json_serialize_plan", "version"),
}
# Aggregates over a list by name, and those of them that draw a sample.
_LIST_AGGREGATES = {
    *("aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"),
}
_SAMPLING = ("reservoir_quantile",)
_KINDS = {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION"),
    *("CONSTANT", "FUNCTION", "LAMBDA", "OPERATOR", "TYPE"),
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression: its SQL, and the columns that it reads, with their types."""

    text: str
    sql: str
    reads: Mapping[str, str] = field(default_factory=dict)
    node: Any = None

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the scope that it reads."""
        return frozenset(self.reads)


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's database in memory, which reaches no file and no network."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if found is None:
        found = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": "false"}
        )
        found.execute("SET TimeZone = 'UTC'").fetchall()
        # A statement is run as it is written: casts for every row, conditions in order.
        found.execute("PRAGMA disable_optimizer").fetchall()
        found.execute("SET autoinstall_known_extensions = false").fetchall()
        found.execute("SET autoload_known_extensions = false").fetchall()
        _local.connection = found
    return found


def parsed(sql: str) -> duckdb.Statement:
    """A statement for this thread's database, parsed once."""
    database = connection()
    known: dict[str, duckdb.Statement] = _local.__dict__.setdefault("statements", {})
    if sql not in known:
        (known[sql],) = database.extract_statements(sql)
    return known[sql]


_local = threading.local()


def asked(sql: str, *parameters: str) -> list[tuple[Any, ...]]:
    """All rows of a statement's answer."""
    rows: list[tuple[Any, ...]] = connection().execute(sql, list(parameters)).fetchall()
    return rows


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> bytes:
    ((tree,),) = asked("SELECT json_serialize_sql(?)", "SELECT " + text)
    return str(tree).encode()


def tree_of(text: str) -> _Node:
    """The syntax tree of an expression, as a SELECT of it."""
    try:
        tree: _Node = msgspec.json.decode(_parsed(text))
    except RecursionError:
        return {"error": True, "error_message": _TOO_DEEP}
    return tree


_TOO_DEEP = "it is nested too deeply"


def parse(text: str, scope: Scope, *, condition: bool = False) -> Expression:
    """Check an expression and find out what it reads.

    Raises:
        ExpressionError: it cannot be parsed, or must not stand.
    """
    _refuse_unwritable(text)
    answer = tree_of(text)
    if answer["error"]:
        problem = _first_line(answer["error_message"])
        if problem.startswith("syntax error"):
            problem += '; names that SQL reserves stand in double quotes, as in "at"'
        raise ExpressionError(problem)
    node = answer["statements"][0]["node"]
    listed = node.get("select_list", [])
    if len(answer["statements"]) != 1 or len(listed) != 1 or not _only_an_expression(node):
        raise ExpressionError("it is not one expression")
    (root,) = listed
    if root.get("alias"):
        raise ExpressionError("an alias has no meaning here")
    checked = _Checked(scope)
    try:
        root = checked.node(root, outermost=True)
        if condition:
            root = _ordered(root)
        node["select_list"] = [root]
        return Expression(text, written(node), dict(checked.reads), root)
    except RecursionError:
        raise ExpressionError(_TOO_DEEP) from None


def _refuse_unwritable(text: str) -> None:
    if "\0" in text or (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)):
        raise ExpressionError("it holds a character that SQL cannot")


def written(node: _Node) -> str:
    """The expression that a SELECT node has, as SQL."""
    statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    return _printed(msgspec.json.encode(statement).decode())


@functools.lru_cache(maxsize=4096)
def _printed(tree: str) -> str:
    ((sql,),) = asked("SELECT json_deserialize_sql(?)", tree)
    return str(sql).removeprefix("SELECT ").removesuffix(";")


def conjuncts(text: str) -> list[str]:
    """The conditions that AND joins in a condition, each as SQL of its own."""
    answer = tree_of(text)
    if answer["error"]:
        return [text]
    node = answer["statements"][0]["node"]
    (root,) = node["select_list"]
    if root.get("type") != "CONJUNCTION_AND":
        return [text]
    parts = [written({**node, "select_list": [child]}) for child in root["children"]]
    return [condition for part in parts for condition in conjuncts(part)]


def called(text: str) -> tuple[str, str] | None:
    """The function that an expression is a call of, and its one argument."""
    answer = tree_of(text)
    if answer["error"] or len(answer["statements"]) != 1:
        return None
    node = answer["statements"][0]["node"]
    listed = node.get("select_list", [])
    if len(listed) != 1 or listed[0].get("class") != "FUNCTION":
        return None
    arguments = listed[0]["arguments"]
    if len(arguments) != 1:
        return None
    argument = written({**node, "select_list": [arguments[0]["expression"]]})
    return listed[0]["function_name"].lower(), argument


def _only_an_expression(node: _Node) -> bool:
    return (
        node["type"] == "SELECT_NODE"
        and node["from_table"]["type"] == "EMPTY"
        and not node["modifiers"]
        and not any(
            node.get(part)
            for part in ("where_clause", "group_expressions", "having", "qualify", "sample")
        )
    )


class _Checked:
    """Walks a syntax tree, refuses what must not stand, names columns anew."""

    def __init__(self, scope: Scope) -> None:
        self.reads: dict[str, str] = {}
        self._scope = scope
        self._bound: list[str] = []

    def node(self, node: _Node, *, outermost: bool = False, takes_json: bool = False) -> _Node:
        """The node with its columns named as the query names them."""
        kind = node.get("class")
        match kind:
            case "COLUMN_REF":
                return self._column(node, takes_json=outermost or takes_json)
            case "FUNCTION":
                return self._function(node)
            case "CAST":
                return self._cast(node)
            case "LAMBDA":
                return self._lambda(node)
            case "WINDOW":
                raise ExpressionError("a window has no meaning over one datum")
            case "SUBQUERY":
                raise ExpressionError("a subquery has no meaning over one datum")
            case "STAR":
                raise ExpressionError('"*" has no meaning here; name the columns')
            case "PARAMETER":
                raise ExpressionError("a parameter has no meaning here")
        if kind not in _KINDS:
            raise ExpressionError(f"a {str(kind).lower().replace('_', ' ')} has no meaning here")
        json_allowed = node.get("type") in _NULL_TESTS
        return self._children(node, takes_json=json_allowed)

    def _children(self, node: _Node, *, takes_json: bool = False) -> _Node:
        def walked(value: Any) -> Any:
            if isinstance(value, list):
                return [walked(item) for item in value]
            if isinstance(value, dict):
                if "class" in value:
                    return self.node(value, takes_json=takes_json)
                return {name: walked(item) for name, item in value.items()}
            return value

        return {name: walked(value) for name, value in node.items()}

    def _column(self, node: _Node, *, takes_json: bool) -> _Node:
        name = node["column_names"][0]
        if name in self._bound:
            return node
        if name.lower() in _BARE_FUNCTIONS and name not in self._scope.types:
            raise ExpressionError(f"{name} depends on more than the datum")
        if name.startswith(OURS):
            raise ExpressionError(
                f'the name "{name}" is taken; a field of it is value->>{literal(name)}'
            )
        declared = self._scope.type_of(name)
        if declared == JSON and not takes_json:
            raise ExpressionError(
                f'the type of "{name}" is not known here{self._declare(name)}'
                f"cast it, as in {name}::BIGINT"
            )
        for other in self.reads:
            if other == name or other.lower() != name.lower():
                continue
            raise ExpressionError(
                f'"{name}" and "{other}" differ in case alone, which SQL does not see'
            )
        self.reads[name] = declared
        return node

    def _declare(self, name: str) -> str:
        if not self._scope.declare:
            return "; "
        return f"; declare it under {self._scope.declare}.{name}, or "

    def _function(self, node: _Node) -> _Node:
        name = node["function_name"].lower()
        if reason := _refused_functions().get(name):
            raise ExpressionError(f"{name}() {reason}")
        if name not in _functions():
            raise ExpressionError(f"there is no function {name}()")
        arguments = [argument["expression"] for argument in node["arguments"]]
        if name == "age" and len(arguments) == 1:
            raise ExpressionError("age() of one argument depends on more than the datum")
        if name in _LIST_AGGREGATES and any(_text_of(a) in _SAMPLING for a in arguments[1:]):
            raise ExpressionError(f"{name}() with a sample depends on more than the datum")
        known = _JSON_FUNCTIONS | _CARRIERS
        takes_json = name in known or name.startswith("json")
        return self._children(node, takes_json=takes_json)

    def _cast(self, node: _Node) -> _Node:
        child = node["child"]
        kind = _type_text(node)
        if (
            child.get("class") == "COLUMN_REF"
            and len(child["column_names"]) == 1
            and child["column_names"][0] not in self._bound
            and self._scope.type_of(child["column_names"][0]) == JSON
        ):
            # What a declaration would do, so that x::VARCHAR is x and not its JSON text; but
            # here, where a condition before it guards it.
            self._column(child, takes_json=True)
            text = f"{quoted(child['column_names'][0])}::VARCHAR"
            made_of = from_json(text, kind)
            wanted = f"TRY({made_of})" if node["try_cast"] else made_of
            (made,) = tree_of(wanted)["statements"][0]["node"]["select_list"]
            return dict(made)
        return self._children(node, takes_json=True)

    def _lambda(self, node: _Node) -> _Node:
        if node.get("syntax_type") == "SINGLE_ARROW":
            # `x -> y` on columns parses as a lambda and binds as an access to JSON.
            left = self.node(node["lhs"], takes_json=True)
            return {**node, "lhs": left, "expr": self.node(node["expr"])}
        names = list(_column_names(node["lhs"]))
        self._bound += names
        walked = {**node, "expr": self.node(node["expr"])}
        del self._bound[len(self._bound) - len(names) :]
        return walked


def _column_names(node: _Node) -> Iterator[str]:
    if node.get("class") == "COLUMN_REF":
        yield node["column_names"][0]
    for argument in node.get("arguments", []):
        yield from _column_names(argument["expression"])


def _type_text(cast: _Node) -> str:
    """The type of a cast as SQL writes it in full."""
    node = msgspec.json.decode(_parsed("typeof(CAST(NULL AS BIGINT))"))["statements"][0]["node"]
    (root,) = node["select_list"]
    root["arguments"][0]["expression"]["type_expr"] = cast["type_expr"]
    try:
        ((found,),) = asked("SELECT " + written(node))
    except duckdb.Error as error:
        raise ExpressionError(_first_line(str(error))) from None
    return str(found)


@functools.lru_cache(maxsize=256)
def type_named(text: str) -> str:
    """The full name of a SQL type.  Raises: ExpressionError."""
    answer = tree_of(f"CAST(NULL AS {text})")
    if answer["error"]:
        raise ExpressionError(f'"{text}" is not a SQL type')
    node = answer["statements"][0]["node"]
    root = node.get("select_list", [])
    single = len(answer["statements"]) == 1 and len(root) == 1 and _only_an_expression(node)
    if not single or root[0].get("class") != "CAST":
        raise ExpressionError(f'"{text}" is not a SQL type')
    try:
        return _type_text(root[0])
    except ExpressionError:
        raise ExpressionError(f'"{text}" is not a SQL type') from None


def _ordered(node: _Node) -> _Node:
    """A condition whose AND and OR are CASEs, wherever only true or not true matters."""
    kind = node.get("type")
    if kind not in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        return node
    first, *others = (_ordered(child) for child in node["children"])
    made = others.pop() if others else first
    for condition in [*reversed(others), first]:
        if kind == "CONJUNCTION_AND":
            made = _case(condition, made, _boolean(value=False))
        else:
            made = _case(condition, _boolean(value=True), made)
    return made


def _case(condition: _Node, then: _Node, otherwise: _Node) -> _Node:
    at = {"alias": "", "query_location": 0, "query_location_length": 0}
    check = {"when_expr": condition, "then_expr": then}
    return {
        "class": "CASE",
        "type": "CASE_EXPR",
        **at,
        "case_checks": [check],
        "else_expr": otherwise,
    }


def _boolean(*, value: bool) -> _Node:
    at = {"alias": "", "query_location": 0, "query_location_length": 0}
    text = "true" if value else "false"
    return {
        "class": "CONSTANT",
        "type": "VALUE_CONSTANT",
        **at,
        "literal": {"kind": "BOOLEAN", "text": text},
    }


def _text_of(node: _Node) -> str:
    literal_ = node.get("literal") or {}
    return str(literal_.get("text", "")).lower()


_WITHIN = "depends on more than the datum"
_AGGREGATE = "is an aggregate, which has no meaning over one datum"
_REPEATS = "can only stand in flat_map"


@functools.cache
def _functions() -> frozenset[str]:
    """The names of all functions of values, be they built in or macros."""
    rows = asked(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type IN ('scalar', 'macro')"
    )
    return frozenset(name for (name,) in rows if not name.startswith(OURS))


@functools.cache
def _refused_functions() -> dict[str, str]:
    """Why a function must not be called, by its name."""
    refused = dict.fromkeys(_DEPENDENT | _BARE_FUNCTIONS, _WITHIN)
    kinds: dict[str, set[str]] = {}
    macros: dict[str, set[str]] = {}
    wanted = "function_name, function_type, stability, macro_definition"
    for name, kind, stability, definition in asked(f"SELECT {wanted} FROM duckdb_functions()"):
        kinds.setdefault(name, set()).add(kind)
        if kind == "scalar" and stability != "CONSISTENT":
            refused[name] = _WITHIN
        if kind == "macro":
            macros.setdefault(name, set()).update(_names_in(definition or "NULL"))
    for name, found in kinds.items():
        if "aggregate" in found and not found & {"scalar", "macro"}:
            refused.setdefault(name, _AGGREGATE)
    refused["count_star"] = _AGGREGATE
    for name in ("unnest", "repeat_row"):
        refused[name] = _REPEATS
    # A macro is what it stands for, and it may stand for another.
    for _ in macros:
        found_more = {
            name: refused[used]
            for name, uses in macros.items()
            for used in sorted(uses, reverse=True)
            if name not in refused and used in refused
        }
        if not found_more:
            break
        refused |= found_more
    return refused


def _names_in(definition: str) -> set[str]:
    """The functions that the definition of a macro names; a subquery counts as one."""
    answer = tree_of(definition)
    if answer["error"]:
        return {"now"}
    found: set[str] = set()
    waiting: list[Any] = [answer["statements"]]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += node.values()
            match node.get("class"):
                case "FUNCTION":
                    found.add(node["function_name"].lower())
                case "COLUMN_REF":
                    found |= _BARE_FUNCTIONS & {node["column_names"][-1].lower()}
                case "SUBQUERY" | "WINDOW":
                    found.add("now")
    return found


def _first_line(message: str) -> str:
    return message.strip().partition("\n")[0]
