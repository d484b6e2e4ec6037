"""Recursive queries: `WITH RECURSIVE`, and `WITH MUTUALLY RECURSIVE`.

`WITH RECURSIVE t AS (base UNION part)`, where the part reads t, is the least collection with the
rows of both.  With UNION ALL a row is there once for each derivation of it.

`WITH MUTUALLY RECURSIVE a (x BIGINT) AS (…), b (…) AS (…)` names collections, with the types of
their columns, and each query may read all of them.  They begin empty, and each round computes all
of them from the round before, until nothing changes.  DuckDB does not parse this, so each query is
cut out of the text and translated alone, over tables with these columns.  Spaces replace the rest
of the text, so positions in errors stay right.

`(ERROR AT RECURSION LIMIT n)` after RECURSIVE limits the number of rounds.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.scope import OURS, ExpressionError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.tokens import Token, closing, replaced, tokens, unquoted
from ikebana.processor.relational import rows
from ikebana.processor.relational.carried import carried
from ikebana.processor.relational.known import MakingError, Table, Translate
from ikebana.processor.relational.looping import (
    Limits,
    Recursive,
    looped,
    of_types,
    refuse_nonlinear,
)
from ikebana.processor.relational.making import Making

_FORM = "write WITH MUTUALLY RECURSIVE name (column TYPE, …) AS (SELECT …), … SELECT …"
_LIMIT = ("ERROR", "AT", "RECURSION", "LIMIT")
_KEYS = re.compile(rf"\b({OURS})?key\b", re.IGNORECASE)


def limits_of(text: str) -> tuple[str, Limits]:
    """The text without the limit of rounds, and the limits.  Raises: QueryError."""
    limits = Limits(reads_keys=_KEYS.search(text) is not None)
    lexemes = tokens(text) if "recursion" in text.lower() else []
    for at in range(1, len(lexemes) - len(_LIMIT) - 2):
        words = [token.text.upper() for token in lexemes[at - 1 : at + 1 + len(_LIMIT)]]
        if words != ["RECURSIVE", "(", *_LIMIT]:
            continue
        number, end = lexemes[at + 1 + len(_LIMIT)], lexemes[at + 2 + len(_LIMIT)]
        if not number.text.isdigit() or not int(number.text) or end.text != ")":
            raise SqlQueryError(
                "a limit is a number, as in (ERROR AT RECURSION LIMIT 100)", number.at
            )
        return replaced(text, lexemes[at].at, end.end), limits._replace(rounds=int(number.text))
    return text, limits


def recursive(query: Any, view: Any, name: str, limits: Limits) -> Table:
    """The collection of a recursive view.  Raises: QueryError."""
    making, node = query.making, view.node
    if node.get("key_targets"):
        raise SqlQueryError(
            f'USING KEY of "{name}" is not supported; write WITH MUTUALLY RECURSIVE and GROUP BY',
            node["key_targets"][0].get("query_location"),
        )
    try:
        base = query.query(node["left"], view.views)
        names = [*view.names, *list(base.types)[len(view.names) :]]
        columns = dict(zip(names, base.types.values(), strict=True))
        if len(columns) < len(base.types):
            raise SqlQueryError(f'"{name}" names a column twice')
        base = of_types(making, base, columns, f'"{name}"')
        variable = making.variable(columns)
        inner_view = replace(view, relation=variable)
        right = node["right"] if node["union_all"] else _once(node["right"])
        part = query.query(right, {**view.views, name.lower(): inner_view})
        part = of_types(making, part, columns, f'"{name}"')
        refuse_nonlinear(making, variable)
        table = rows.all_of(making, [base, part])
        divided = carried(making.behind({variable.name}), variable, table)
        if not node["union_all"]:
            table = rows.distinct(making, table)
        (result,) = looped(making, [Recursive(variable, table)], limits, divided)
    except MakingError as error:
        raise SqlQueryError(f'WITH RECURSIVE "{name}": {error}') from None
    return result


def _once(node: Node) -> Node:
    """A query without its DISTINCT, as UNION makes rows distinct anyway."""
    modifiers = node.get("modifiers") or []
    if [each["type"] for each in modifiers] != ["DISTINCT_MODIFIER"]:
        return node
    if modifiers[0].get("distinct_on_targets"):
        return node
    return {**node, "modifiers": []}


class _Named(NamedTuple):
    """A named query with its declared columns, and its position in the text."""

    name: str
    columns: Mapping[str, str]
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Mutual:
    """Queries that read each other, and the last one, which is the result."""

    queries: tuple[_Named, ...]
    last: str

    def result(self, making: Making, translate: Translate, limits: Limits) -> Table:
        """The collection of the last query; `translate` translates a query over tables.

        Raises: QueryError.
        """
        variables = {each.name: making.variable(each.columns) for each in self.queries}
        recursions = []
        for each in self.queries:
            try:
                part = translate(each.text, variables)
                table = of_types(making, part, each.columns, f'"{each.name}"')
            except MakingError as error:
                raise SqlQueryError(str(error), each.at) from None
            recursions.append(Recursive(variables[each.name], table))
        try:
            results = looped(making, recursions, limits)
        except MakingError as error:
            raise SqlQueryError(f"WITH MUTUALLY RECURSIVE: {error}") from None
        return translate(self.last, dict(zip(variables, results, strict=True)))

    def tables(self, named: Callable[[str], list[str]]) -> list[str]:
        """The collections outside that they read; `named` lists the names in a query's FROM."""
        names = {each.name.lower() for each in self.queries}
        texts = (*(each.text for each in self.queries), self.last)
        return [name for text in texts for name in named(text) if name.lower() not in names]


def mutual(text: str) -> Mutual | None:
    """The parts of a query that begins WITH MUTUALLY RECURSIVE.  Raises: QueryError."""
    lexemes = tokens(text)
    words = [token.text.upper() for token in lexemes[:3]]
    if words != ["WITH", "MUTUALLY", "RECURSIVE"]:
        return None
    queries: list[_Named] = []
    at = 3
    while True:
        name, columns, at = _head(text, lexemes, at)
        if any(name.lower() == each.name.lower() for each in queries):
            raise SqlQueryError(f'"{name}" is named twice', lexemes[at].at)
        end = _closing(lexemes, at)
        query = _only(text, lexemes[at].end, lexemes[end].at)
        queries.append(_Named(name, columns, query, lexemes[at].end))
        at = end + 1
        if at >= len(lexemes) or lexemes[at].text != ",":
            break
        at += 1
    if at >= len(lexemes):
        raise SqlQueryError("there is no SELECT behind the queries", len(text))
    return Mutual(tuple(queries), _only(text, lexemes[at].at, len(text)))


def _head(text: str, lexemes: Sequence[Token], at: int) -> tuple[str, Mapping[str, str], int]:
    """The name and columns of a query, and the index of the parenthesis that opens it."""
    begin = at + 1
    if begin >= len(lexemes) or lexemes[begin].text != "(":
        place = lexemes[min(at, len(lexemes) - 1)].at
        raise SqlQueryError(f"the columns with their types are missing; {_FORM}", place)
    end = _closing(lexemes, begin)
    columns = dict(_columns(text, lexemes[begin + 1 : end]))
    after = [token.text.upper() for token in lexemes[end + 1 : end + 3]]
    if after != ["AS", "("]:
        place = lexemes[min(end + 1, len(lexemes) - 1)].at
        raise SqlQueryError(f"AS ( is missing; {_FORM}", place)
    return unquoted(lexemes[at]), columns, end + 2


def _columns(text: str, lexemes: Sequence[Token]) -> Iterator[tuple[str, str]]:
    depth, parts = 0, list[list[Token]]([[]])
    for token in lexemes:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    for part in parts:
        if len(part) < 2:
            raise SqlQueryError(f"a column needs a name and a type; {_FORM}", lexemes[0].at)
        kind = text[part[1].at : part[-1].end]
        try:
            yield unquoted(part[0]), column_type(kind)
        except ExpressionError as error:
            raise SqlQueryError(str(error), part[1].at) from None


def _closing(lexemes: Sequence[Token], begin: int) -> int:
    """The index of the token that closes the parenthesis opened at `begin`."""
    if (end := closing(lexemes, begin)) is not None:
        return end
    raise SqlQueryError("a parenthesis is not closed", lexemes[begin].at)


def _only(text: str, begin: int, end: int) -> str:
    """The text with everything outside of a part replaced by spaces."""
    return replaced(replaced(text, end, len(text)), 0, begin)
