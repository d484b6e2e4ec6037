"""SQL over several inputs: `o.custkey` is the column `custkey` of the input with the alias `o`.

Rows that are being joined have flat columns named "o.custkey", so that the rules of all
other expressions hold for these as well (`linear.expressions.parse`).  Over the data of one
input, the same text has no alias.  Names are taken literally: an input is never guessed from
the name of a column.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ikebana.processor.linear import expressions
from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.query import compiled
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    ExpressionError,
    FrozenScope,
    Hidden,
    Scope,
    StepError,
    UnknownError,
)
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import TOO_DEEP, Node, text_of, tree

_RESULT = "made"
_Names = Sequence[str]


@dataclass(frozen=True, slots=True)
class Flat:
    """A checked expression over flat columns: its SQL, the columns with their types, its type.

    `shown` is the expression as it was written, for people: the SQL may have more, such as how a
    cast reads JSON.
    """

    sql: str
    reads: Mapping[str, str]
    type: str
    shown: str = field(compare=False)

    @property
    def columns(self) -> frozenset[str]:
        """The flat columns that it reads."""
        return frozenset(self.reads)

    @property
    def aliases(self) -> frozenset[str]:
        """The inputs that it reads."""
        return frozenset(alias_of(column) for column in self.columns)


def flat_name(alias: str, column: str) -> str:
    """The name that a column of an input has in rows that are being joined."""
    return f"{alias}.{column}"


def alias_of(column: str) -> str:
    """The alias of a flat column's input."""
    return column.partition(".")[0]


def flat(node: Node, scopes: Mapping[str, Scope], *, condition: bool = False) -> Flat:
    """Check an expression over inputs, by alias.

    Raises:
        ExpressionError: it is not allowed, or names a column that does not exist.
        UnknownError: it reads what is unknown, and nothing else is wrong.
    """
    types: dict[str, str] = {}
    hidden: dict[str, Hidden] = {}
    problems: dict[str, None] = {}

    def renamed(names: _Names) -> _Names:
        try:
            alias, name = _column_of(names, scopes)
            column = scopes[alias].column(name)
        except ExpressionError as error:
            problems[str(error)] = None
            alias, column = names[0], names[-1]
            types[flat_name(alias, column)] = UNKNOWN
            return [flat_name(alias, column), *names[2:]]
        try:
            full_name = flat_name(alias, column)
            for other in (
                each for each in types if each != full_name and each.lower() == full_name.lower()
            ):
                problem = scopes[alias].alike(column, other.partition(".")[2], f"{alias}.")
                raise ExpressionError(problem)
            types[full_name] = scopes[alias].type_of(column)
            if column in scopes[alias].hidden:
                hidden[full_name] = scopes[alias].hidden[column]
        except ExpressionError as error:
            problems[f'input "{alias}": {error}'] = None
            types[flat_name(alias, column)] = UNKNOWN
        return [flat_name(alias, column), *names[2:]]

    expression: Flat | None = None
    try:
        flat_node = _with_names(node, renamed)
        expression = checked(flat_node, types, condition=condition, hidden=hidden)
    except UnknownError:
        if not problems:
            raise
    except ExpressionError as error:
        problems[str(error)] = None
    if expression is None or problems:
        raise ExpressionError("; and ".join(problems))
    return expression


def checked(
    node: Node,
    types: Mapping[str, str],
    *,
    condition: bool,
    shown: str | None = None,
    hidden: Mapping[str, Hidden] = {},
) -> Flat:
    """Check an expression over flat columns of these types; people see `shown`, if it is set.

    `hidden` is as in a scope.

    Raises: ExpressionError.
    """
    text = text_of(node) if shown is None else shown
    expression = expressions.checked(node, text, Scope(types, hidden=hidden), condition=condition)
    kind = _type_of(expression.sql, tuple(types.items()), condition=condition)
    return Flat(expression.sql, dict(types), kind, text)


def equality(one: Flat, other: Flat) -> Flat:
    """The condition that two expressions are equal."""
    shown = f"{one.shown} = {other.shown}"
    reads = {**one.reads, **other.reads}
    return checked(tree(f"{one.sql} = {other.sql}"), reads, condition=True, shown=shown)


def local(node: Node, alias: str, scope: Scope) -> str:
    """An expression over one input as an expression over the data of its relation."""

    def renamed(names: _Names) -> _Names:
        return [scope.column(names[1]), *names[2:]] if names[0] == alias else names

    return text_of(_with_names(node, renamed))


def _column_of(names: _Names, scopes: Mapping[str, Scope]) -> tuple[str, str]:
    if names[0] not in scopes:
        listed = ", ".join(scopes)
        if len(names) == 1:
            raise ExpressionError(
                f'"{names[0]}" is of no input; write it with one of {listed}, '
                f"as in {next(iter(scopes))}.{names[0]}"
            )
        raise ExpressionError(f'there is no input "{names[0]}"; there are {listed}')
    if len(names) == 1:
        raise ExpressionError(
            f'"{names[0]}" is an input; {names[0]}.value is the whole value of its data'
        )
    return names[0], names[1]


def _with_names(node: Node, renamed: Callable[[_Names], _Names]) -> Node:
    """An expression with its columns renamed; the parameters of lambdas keep their names."""
    try:
        result: Node = _walked(node, renamed, frozenset())
    except RecursionError:
        raise ExpressionError(TOO_DEEP) from None
    return result


def _walked(value: Any, renamed: Callable[[_Names], _Names], bound: frozenset[str]) -> Any:
    if isinstance(value, list):
        return [_walked(item, renamed, bound) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("class") == "COLUMN_REF":
        names = value["column_names"]
        if names[0] in bound:
            return value
        new_names = renamed(names)
        if new_names[0] in bound:
            raise ExpressionError(f'a parameter "{new_names[0]}" has the name of a column')
        return {**value, "column_names": list(new_names)}
    if value.get("class") == "LAMBDA" and value.get("syntax_type") != "SINGLE_ARROW":
        # `x -> y` on columns parses as a lambda, too, but is an access to JSON.
        within = bound | _parameters(value["lhs"])
        return {**value, "expr": _walked(value["expr"], renamed, within)}
    return {name: _walked(item, renamed, bound) for name, item in value.items()}


def _parameters(node: Node) -> frozenset[str]:
    if node.get("class") == "COLUMN_REF":
        return frozenset(node["column_names"][:1])
    inner = (_parameters(argument["expression"]) for argument in node.get("arguments", []))
    return frozenset().union(*inner)


@functools.lru_cache(maxsize=4096)
def _type_of(sql: str, types: tuple[tuple[str, str], ...], *, condition: bool) -> str:
    """The type of an expression over columns of these types."""
    if not condition and sql in (columns := {quoted(name): kind for name, kind in types}):
        return columns[sql]
    step = Sql(where=(sql,)) if condition else Sql(select=((_RESULT, sql),))
    scope = FrozenScope((*types, (KEY, JSON), (VALUE, JSON)), open=False, declare="")
    try:
        query = compiled((step,), scope)
    except StepError as error:
        raise ExpressionError(error.problem) from None
    return "BOOLEAN" if condition else query.result.types[_RESULT]
