"""SQL expressions of a pipeline: parse, check and rewrite them.

The dialect is DuckDB's, and DuckDB itself parses, binds and evaluates; what is done
here is on its syntax tree:

* An expression depends on one row alone.  Functions of the clock, of chance or of settings
  are refused, and so are aggregates, windows and subqueries.
* A field that is not declared has the type JSON.  It may be cast, tested for null, accessed
  with `->`, `->>`, dots and brackets, or passed on unchanged.  Anything else is refused: SQL
  would compare the *text* of JSON with a number.
* `AND` and `OR` of a condition become `CASE`, so that a condition guards those behind it.
  Otherwise their order would follow statistics of the batch, and with it the errors.

Parts that always fail are found when the plan is made: constants of the wrong type, and casts.
DuckDB casts the text of `id > 'x'` to the type of `id` when the expression runs, and fails for
every row.  So each part with a constant or a cast is evaluated alone, with nulls and with samples
in place of everything else.  A part is refused if it fails whatever the row is; parts that may not
be evaluated, as in `coalesce(id, 'x')` or a CASE, are judged only where they are reached.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from ikebana.codecs.sql_type import (
    NAMES,
    Array,
    Decimal,
    Enum,
    List,
    Map,
    Scalar,
    SqlType,
    Struct,
    TypeTextError,
    parsed,
    type_of,
)
from ikebana.processor.base.texts import hint
from ikebana.processor.linear import bound_query
from ikebana.processor.linear.allowed import LOOSE, loose, refuse_bare, refuse_call
from ikebana.processor.linear.database import first_line, rows_of
from ikebana.processor.linear.duckdb_messages import in_words
from ikebana.processor.linear.json_text import JSON, field_of, literal, quoted
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    ExpressionError,
    Scope,
    UnknownError,
    is_ours,
    plain,
)
from ikebana.processor.linear.syntax import TOO_DEEP, Node, column, columns, shown, text_of, tree
from ikebana.processor.linear.typed_json import from_json

# The messages of a cast between types that works for no value.
_SOURCE = " when casting from source column"
_NO_CAST = "Conversion Error: Unimplemented type for cast"


def misfits(root: Node, types: Mapping[str, str]) -> tuple[str, ...]:
    """The problems of an expression over columns of these types."""
    # Plans parse an expression many times.
    return _misfits(text_of(root), tuple(types.items()))


@functools.lru_cache(maxsize=4096)
def _misfits(text: str, types: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    problems = ((node, _problem(node, dict(types))) for node in _evaluated(tree(text)))
    return tuple(
        f"{plain(text_of(node))} can never be evaluated: {in_words(problem)}"
        for node, problem in problems
        if problem is not None
    )


def _evaluated(node: Node) -> Iterator[Node]:
    """The parts to test; not those in TRY, which catches failures, nor parameters of lambdas."""
    if node["class"] == "LAMBDA" or node["type"] == "OPERATOR_TRY":
        return
    children = [child for _, child in _children_at(node)]
    match node["class"]:
        case "CAST" if not node["try_cast"]:
            yield node
        case "COMPARISON" | "BETWEEN" | "OPERATOR":
            yield node
        case "FUNCTION" | "CASE" if any(map(_is_text, children)):
            yield node
    for child in children:
        yield from _evaluated(child)


def _is_text(node: Node) -> bool:
    return node["class"] == "CONSTANT" and (node.get("literal") or {}).get("kind") == "STRING"


def _children_at(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Node]]:
    """The direct child expressions of a node, each with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        if isinstance(item, dict) and item.get("class") == "TYPE":
            continue
        if isinstance(item, dict) and "class" in item:
            yield (*path, name), item
        elif isinstance(item, dict | list):
            yield from _children_at(item, (*path, name))


def _problem(node: Node, types: Mapping[str, str]) -> str | None:
    """Why a part fails, whatever its other operands are; None if it may succeed."""
    others: list[tuple[str, SqlType]] = []
    conditions: list[str] = []
    try:
        for path, child in _children_at(node):
            if child["class"] == "LAMBDA" or not columns(child):
                continue
            name = f"c{len(others)}"
            others.append((name, type_of(bound_query.type_of(child, types))))
            if path[-1] == "when_expr":
                conditions.append(name)
            node = _with(node, path, column(name))
        sql = text_of(node)
        nulls = _failure(sql, tuple((name, "NULL", str(kind)) for name, kind in others))
        failures = [_failure(sql, row) for row in _samples(others, conditions)]
    except ExpressionError:
        # A problem of binding is reported where the whole statement is bound.
        return None
    if nulls is None:
        return next((each for each in failures if each is not None and _is_no_cast(each)), None)
    return nulls if None not in failures else None


def _is_no_cast(failure: str) -> bool:
    # Values of the type of NULL are null, whatever the sample is.
    return failure.startswith(_NO_CAST) and not failure.endswith('-> "NULL")')


def _samples(
    others: Sequence[tuple[str, SqlType]], conditions: Sequence[str]
) -> Iterator[tuple[tuple[str, str, str], ...]]:
    """Rows without nulls, as far as there are samples; for a CASE one for each condition."""
    if others:
        for true in conditions or [""]:
            yield tuple(
                (
                    name,
                    "false" if name in conditions and name != true else _sample(kind),
                    str(kind),
                )
                for name, kind in others
            )


def _with(value: Any, path: tuple[Any, ...], new: Node) -> Any:
    """A tree with another node at a path."""
    if not path:
        return new
    first, *rest = path
    if isinstance(value, list):
        return [_with(e, tuple(rest), new) if at == first else e for at, e in enumerate(value)]
    return {**value, first: _with(value[first], tuple(rest), new)}


@functools.lru_cache(maxsize=4096)
def _failure(sql: str, columns: tuple[tuple[str, str, str], ...]) -> str | None:
    """Why an expression over such columns (name, value, type) fails, if types are the reason."""
    row = ", ".join(f"CAST({value} AS {kind})" for _, value, kind in columns) or "NULL"
    names = ", ".join(name for name, *_ in columns) or "c0"
    try:
        # Two rows, since DuckDB does not evaluate an expression over a constant null.
        rows_of(f"SELECT {sql} FROM (VALUES ({row}), ({row})) each_({names})")
    except duckdb.ConversionException as error:
        return first_line(error).partition(_SOURCE)[0]
    except duckdb.Error:
        pass
    return None


_SAMPLES = {
    "VARCHAR": "'x'",
    "BOOLEAN": "true",
    "DATE": "'2000-01-01'",
    "TIME": "'00:00:00'",
    "INTERVAL": "'1 day'",
    "UUID": "'00000000-0000-0000-0000-000000000000'",
    "BLOB": "'x'",
    **dict.fromkeys(("DOUBLE", "FLOAT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT"), "1"),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UBIGINT", "UINTEGER", "USMALLINT"), "1"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"), "'2000-01-01'"),
    **dict.fromkeys(("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "'2000-01-01'"),
    **dict.fromkeys(("TIME WITH TIME ZONE", "TIME_NS"), "'00:00:00'"),
    **dict.fromkeys(("JSON", "BIT", "UTINYINT", "BIGNUM"), "'1'"),
}


def _sample(kind: SqlType) -> str:
    """A value of a type as SQL; null if there is no sample."""
    match kind:
        case Decimal():
            return "0"
        case Enum(values):
            return literal(values[0])
        case List(of):
            return f"[{_sample(of)}]"
        case Array(of, size):
            return f"[{', '.join([_sample(of)] * size)}]"
        case Map():
            return "MAP {}"
        case Struct(fields) if fields:
            return f"{{{', '.join(f'{quoted(name)}: {_sample(of)}' for name, of in fields)}}}"
        case Scalar(name):
            return _SAMPLES.get(name, "NULL")
    return "NULL"


# The types of arguments, those that data most often have first.
_LIKELY = ("VARCHAR", "TIMESTAMP", "BIGINT", "DOUBLE", "DATE", "BOOLEAN", "BLOB")
_ARITHMETIC = ("+", "-", "*", "/", "//", "%")
_LITERALS = {"INTEGER": "BIGINT", "STRING": "VARCHAR", "BOOLEAN": "BOOLEAN"}
TypeOf = Callable[[Node], str]


def within(node: Node, child: Node, scope: Scope, type_of_cast: TypeOf) -> str | None:
    """The type that a child of a node should have; None if nothing suggests one."""
    if node.get("class") == "CONJUNCTION" or node.get("type") == "OPERATOR_NOT":
        return "BOOLEAN"
    if node.get("class") == "FUNCTION" and node["function_name"] not in _ARITHMETIC:
        arguments = [argument["expression"] for argument in node["arguments"]]
        likely = _argument_types(node["function_name"].lower(), len(arguments))
        places = zip(arguments, likely, strict=True)
        return next((kind for each, kind in places if each is child), None)
    if any(check["when_expr"] is child for check in node.get("case_checks", ())):
        return "BOOLEAN"
    kinds = (_obvious_type(other, scope, type_of_cast) for other in _children(node))
    return next(filter(None, kinds), None)


def _children(value: Any) -> Iterator[Node]:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict) and "class" in item:
            yield item
        elif isinstance(item, list | dict):
            yield from _children(item)


def _obvious_type(node: Node, scope: Scope, type_of_cast: TypeOf) -> str | None:
    """The type of an expression, if it is obvious."""
    match node.get("class"):
        case "CONSTANT":
            literal = node.get("literal") or {}
            if literal.get("kind") == "NUMERIC":
                digits = len(literal["text"].partition(".")[2])
                return "DOUBLE" if "e" in literal["text"].lower() else f"DECIMAL(18,{digits})"
            return _LITERALS.get(str(literal.get("kind")))
        case "CAST":
            try:
                return type_of_cast(node)
            except ExpressionError:
                return None
        case "COLUMN_REF":
            kind = scope.types.get(node["column_names"][0])
            return None if kind in (JSON, UNKNOWN) else kind
        case "FUNCTION" if node["function_name"] in _ARITHMETIC:
            kinds = (_obvious_type(child, scope, type_of_cast) for child in _children(node))
            return next(filter(None, kinds), None)
        case "FUNCTION":
            return _result_type(node["function_name"].lower())
        case "COMPARISON" | "CONJUNCTION" | "BETWEEN":
            return "BOOLEAN"
    return None


@functools.lru_cache(maxsize=256)
def _argument_types(name: str, count: int) -> list[str | None]:
    """The likeliest types of a function's arguments."""
    rows = rows_of(
        "SELECT parameter_types FROM duckdb_functions() WHERE lower(function_name) = ? "
        "AND function_type = 'scalar'",
        name,
    )
    forms = [types for (types,) in rows if len(types) == count]
    return [_likeliest({types[at] for types in forms}) for at in range(count)]


def _likeliest(kinds: set[str]) -> str | None:
    return next((kind for kind in _LIKELY if kind in kinds), None)


@functools.lru_cache(maxsize=256)
def _result_type(name: str) -> str | None:
    """The type of a function's results, if it has one."""
    rows = rows_of(
        "SELECT DISTINCT return_type FROM duckdb_functions() WHERE lower(function_name) = ? "
        "AND function_type = 'scalar'",
        name,
    )
    kinds = {kind for (kind,) in rows}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {*_LIKELY} else None


# These functions access parts of JSON or pass it on; they do not compare it.
_JSON_FUNCTIONS = {"->", "->>", "from_json", "from_json_strict", "to_json"}
_CARRIERS = {"struct_pack", "list_value", "row"}
# The operators `j['a']`, `j[0]` and `(j).a` access parts of JSON as well, as `j.a` does.
_OVER_JSON = ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "ARRAY_EXTRACT", "STRUCT_EXTRACT")
_KINDS = {
    *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION"),
    *("CONSTANT", "FUNCTION", "LAMBDA", "OPERATOR", "TYPE"),
}
_NOT_OVER_ONE = {
    "WINDOW": "a window has no meaning over one datum; what the rows of a key come to is for a "
    "reduce operator, such as top(3, …)",
    "SUBQUERY": "a subquery has no meaning over one datum; what another collection has is for a "
    "delta_join",
    "STAR": '"*" has no meaning here; name the columns',
    "PARAMETER": "a parameter has no meaning here",
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


def parse(text: str, scope: Scope, *, condition: bool = False) -> Expression:
    """Check an expression, and find the columns that it reads.

    Raises:
            ExpressionError: it cannot be parsed, or is not allowed; with all problems.
            UnknownError: it has no other problem, but reads a column of unknown type.
    """
    return checked(tree(text), text, scope, condition=condition)


def checked(root: Node, text: str, scope: Scope, *, condition: bool) -> Expression:
    """Check a parsed expression, as `parse` does."""
    try:
        checking = _Checked(scope)
        node = checking.node(root, outermost=True, fits=lambda: "BOOLEAN" if condition else None)
        if any(loose(node)):
            checking.note(LOOSE)
        called = {scope.called(name): kind for name, kind in checking.reads.items()}
        for problem in misfits(root, {**called, **checking.reads}):
            checking.note(problem)
        checking.refuse()
        if condition:
            node = _ordered(node)
        return Expression(text, text_of(node), dict(checking.reads), node)
    except RecursionError:
        raise ExpressionError(TOO_DEEP) from None


class _Checked:
    """Walks a syntax tree, notes what is not allowed, and renames columns."""

    def __init__(self, scope: Scope) -> None:
        self.reads: dict[str, str] = {}
        self._scope = scope
        self._bound: list[str] = []
        self._problems: dict[str, None] = {}
        self._unknown = False

    def note(self, problem: str) -> None:
        """Note a problem."""
        self._problems[problem] = None

    def refuse(self) -> None:
        """Raise an error with all problems, if there are any."""
        if self._problems:
            raise ExpressionError("; and ".join(self._problems))
        if self._unknown:
            raise UnknownError

    def node(
        self,
        node: Node,
        *,
        outermost: bool = False,
        takes_json: bool = False,
        fits: Callable[[], str | None] = lambda: None,
    ) -> Node:
        """The node with its columns under the names of the query.

        `fits` returns the type to which a column of JSON would best be cast here.
        """
        kind = node.get("class")
        try:
            self._require_field(node)
            match kind:
                case "COLUMN_REF":
                    return self._column(node, takes_json=outermost or takes_json, fits=fits)
                case "FUNCTION":
                    return self._function(node)
                case "CAST":
                    return self._cast(node)
                case "LAMBDA":
                    return self._lambda(node)
            if kind in _NOT_OVER_ONE:
                raise ExpressionError(_NOT_OVER_ONE[kind])
            if kind not in _KINDS:
                named = str(kind).lower().replace("_", " ")
                raise ExpressionError(f"a {named} has no meaning here")
        except UnknownError:
            self._unknown = True
            return node
        except ExpressionError as error:
            self.note(str(error))
            return node
        return self._children(node, takes_json=node.get("type") in _OVER_JSON)

    def _children(self, node: Node, *, takes_json: bool = False) -> Node:
        def walked(value: Any) -> Any:
            if isinstance(value, list):
                return [walked(item) for item in value]
            if isinstance(value, dict):
                if "class" in value:
                    fits = functools.partial(within, node, value, self._scope, _type_text)
                    return self.node(value, takes_json=takes_json, fits=fits)
                return {name: walked(item) for name, item in value.items()}
            return value

        return {name: walked(value) for name, value in node.items()}

    def _column(self, node: Node, *, takes_json: bool, fits: Callable[[], str | None]) -> Node:
        name, *parts = node["column_names"]
        if name in self._bound:
            return node
        name = self._scope.column(name)
        if name not in self._scope.types:
            refuse_bare(name)
            if is_ours(name):
                raise ExpressionError(
                    f'no column can be named "{name}"; a field of it is {field_of(VALUE, name)}'
                )
        declared = self._scope.type_of(name)
        if declared == UNKNOWN:
            raise UnknownError
        if declared == JSON and not takes_json:
            names, kind = [self._scope.called(name), *parts], fits() or "BIGINT"
            remedy = f"cast it, as in {'.'.join(map(shown, names))}::{kind}"
            if len(names) > 1 and kind == "VARCHAR":
                # A cast would leave its quotes.
                *way, last = map(literal, names[1:])
                path = "".join(f"->{field}" for field in way)
                remedy = f"read its text, as in {shown(names[0])}{path}->>{last}"
            raise ExpressionError(self._untyped(name, names) + remedy)
        for other in self.reads:
            if other == name or other.lower() != name.lower():
                continue
            raise ExpressionError(self._scope.alike(name, other))
        self.reads[name] = declared
        return {**node, "column_names": [name, *parts]}

    def _require_field(self, node: Node) -> None:
        """Refuse a path to a field that no value has."""
        if self._scope.hidden and (path := _first_field(node)) is not None:
            name, field_name = path
            if name not in self._bound and (of := self._scope.column(name)) in self._scope.hidden:
                self._scope.hidden[of].require(field_name)

    def _untyped(self, name: str, names: Sequence[str]) -> str:
        """The problem that a column, or a field of it, is JSON, and where to declare its type.

        `names` is what users call the column and its fields.
        """
        if len(names) > 1 or (name in self._scope.types and name not in (KEY, VALUE)):
            return f'"{".".join(names)}" is JSON; '
        if not self._scope.declare or name in (KEY, VALUE):
            return f'the type of "{self._scope.called(name)}" is not known here; '
        return (
            f'the type of "{name}" is not known here; '
            f"declare it under {self._scope.declare}.{name}, or "
        )

    def _function(self, node: Node) -> Node:
        refuse_call(node)
        name = node["function_name"].lower()
        takes_json = name in _JSON_FUNCTIONS | _CARRIERS or name.startswith("json")
        return self._children(node, takes_json=takes_json)

    def _cast(self, node: Node) -> Node:
        child = node["child"]
        kind = _type_text(node)
        if (
            child.get("class") == "COLUMN_REF"
            and len(child["column_names"]) == 1
            and child["column_names"][0] not in self._bound
            and self._scope.type_of(child["column_names"][0]) == JSON
        ):
            # Casts as a declaration would, so that x::VARCHAR is x and not its JSON text; but
            # here, where a condition before it guards it.
            (name,) = self._column(child, takes_json=True, fits=lambda: kind)["column_names"]
            text = f"{quoted(name)}::VARCHAR"
            cast = from_json(text, kind)
            return tree(f"TRY({cast})" if node["try_cast"] else cast)
        return self._children(node, takes_json=True)

    def _lambda(self, node: Node) -> Node:
        if node.get("syntax_type") == "SINGLE_ARROW":
            # `x -> y` on columns parses as a lambda and binds as an access to JSON.
            left = self.node(node["lhs"], takes_json=True)
            return {**node, "lhs": left, "expr": self.node(node["expr"])}
        names = list(_column_names(node["lhs"]))
        self._bound += names
        walked = {**node, "expr": self.node(node["expr"])}
        del self._bound[len(self._bound) - len(names) :]
        return walked


def _first_field(node: Node) -> tuple[str, str] | None:
    """The column, and the field of it, at the beginning of a path of constants."""
    if node.get("class") == "COLUMN_REF":
        name, *parts = node["column_names"]
        return (name, parts[0]) if parts else None
    nothing: Node = {}
    of, path, *_ = [*_operands(node), nothing, nothing]
    takes_path = _TAKES_PATH(node.get("function_name", "->").lower())
    if not takes_path or of.get("class") != "COLUMN_REF" or len(of["column_names"]) != 1:
        return None
    while path.get("class") in ("FUNCTION", "LAMBDA"):
        # In `x -> 'a' ->> 'b'` the second arrow is the outer node.
        path = next(iter(_operands(path)), nothing)
    text = (path.get("literal") or {}).get("text")
    if not isinstance(text, str):
        return None
    return of["column_names"][0], _FIRST_STEP.sub(r"\1\2\3", text)


_TAKES_PATH = re.compile("->>?|json_(?!contains|merge_patch).*").fullmatch
# Texts that begin with "$" or "/" are paths.
_FIRST_STEP = re.compile(r'(?s)^(?:\$\.?\[?(?:"([^"]*)".*|([^.\["]*).*)|/([^/]*).*)$')


def _operands(node: Node) -> list[Node]:
    if node.get("class") == "LAMBDA":
        return [node["lhs"], node["expr"]]
    arguments = [argument["expression"] for argument in node.get("arguments", [])]
    return arguments or node.get("children", [])


def _column_names(node: Node) -> Iterator[str]:
    if node.get("class") == "COLUMN_REF":
        yield node["column_names"][0]
    for argument in node.get("arguments", []):
        yield from _column_names(argument["expression"])


def _type_text(cast: Node) -> str:
    """The type of a cast as SQL writes it in full."""
    child = {**tree("CAST(NULL AS BIGINT)"), "type_expr": cast["type_expr"]}
    try:
        ((kind,),) = rows_of(f"SELECT typeof({text_of(child)})")
    except duckdb.Error as error:
        raise ExpressionError(in_words(error)) from None
    return str(kind)


def type_named(text: str) -> str:
    """The full name of a SQL type.  Raises: ExpressionError."""
    try:
        return str(parsed(text))
    except TypeTextError as error:
        meant = "" if error.reason else hint(text, NAMES, "{}")
        raise ExpressionError(f"{error}{meant}") from None


@functools.lru_cache(maxsize=256)
def column_type(text: str) -> str:
    """The full name of a SQL type that columns of messages may have.  Raises: ExpressionError."""
    kind = type_named(text)
    from_json("x", kind)
    return kind


def _ordered(node: Node) -> Node:
    """A condition with CASE in place of AND and OR, wherever only true or not true matters."""
    kind = node.get("type")
    if kind not in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        return node
    first, *others = (_ordered(child) for child in node["children"])
    result = others.pop() if others else first
    for condition in [*reversed(others), first]:
        if kind == "CONJUNCTION_AND":
            result = _case(condition, result, _boolean(value=False))
        else:
            result = _case(condition, _boolean(value=True), result)
    return result


def _case(condition: Node, then: Node, otherwise: Node) -> Node:
    at = {"alias": "", "query_location": 0, "query_location_length": 0}
    check = {"when_expr": condition, "then_expr": then}
    return {
        "class": "CASE",
        "type": "CASE_EXPR",
        **at,
        "case_checks": [check],
        "else_expr": otherwise,
    }


def _boolean(*, value: bool) -> Node:
    at = {"alias": "", "query_location": 0, "query_location_length": 0}
    text = "true" if value else "false"
    return {
        "class": "CONSTANT",
        "type": "VALUE_CONSTANT",
        **at,
        "literal": {"kind": "BOOLEAN", "text": text},
    }
