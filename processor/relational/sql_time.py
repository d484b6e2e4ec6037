"""Temporal filters of SQL: conditions that compare an expression with `ikebana_now()`.

The collection as of a time has the rows for which the conditions are true at that time.  So each
row counts in an interval, which a linear step has as `valid_from` and `valid_until`.  A condition
over one collection is applied before joins, and a condition over several after their join; the
result is the same at every time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.bound_query import SqlQueryError, types_of
from ikebana.processor.linear.json_text import INSTANTS, quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import Node, text_of
from ikebana.processor.linear.trees import conjuncts
from ikebana.processor.relational.making import Table
from ikebana.processor.relational.matching import aliases_of, without
from ikebana.processor.relational.sql_refusals import is_now, reads_now, refuse_now
from ikebana.processor.relational.sql_scope import Froms, Names
from ikebana.processor.relational.sql_whole import Query

_TURNED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A time from which (inclusive) or until which (`is_upper`, exclusive) a row counts.

    With `is_after` the bound is the first moment after the expression's value.
    """

    node: Node
    is_upper: bool
    is_after: bool
    place: int | None


def told_from_others(where: Node | None) -> tuple[list[Bound], list[Node]]:
    """Split the conditions of a WHERE into bounds in time and other conditions.

    Raises: QueryError.
    """
    bounds: list[Bound] = []
    others: list[Node] = []
    for condition in conjuncts(where):
        if reads_now(condition):
            bounds += _bounds(condition)
        else:
            others.append(condition)
    return bounds, others


def _bounds(node: Node) -> list[Bound]:
    if node["type"] == "COMPARE_BETWEEN" and is_now(node["input"]):
        refuse_now([node["lower"], node["upper"]])
        return [
            _bound(node["lower"], "COMPARE_LESSTHANOREQUALTO", node),
            _bound(node["upper"], "COMPARE_GREATERTHANOREQUALTO", node),
        ]
    if node["type"] in _TURNED and is_now(node["left"]) != is_now(node["right"]):
        is_left = is_now(node["left"])
        other = node["right" if is_left else "left"]
        refuse_now(other)
        return [_bound(other, _TURNED[node["type"]] if is_left else node["type"], node)]
    refuse_now(node)
    raise AssertionError("a condition that reads the time has no call of it")


def _bound(node: Node, comparison: str, whole: Node) -> Bound:
    """The bound that `node comparison ikebana_now()` is."""
    is_upper = comparison.startswith("COMPARE_GREATERTHAN")
    is_after = comparison in ("COMPARE_GREATERTHANOREQUALTO", "COMPARE_LESSTHAN")
    return Bound(node, is_upper, is_after, whole.get("query_location"))


def bounded(query: Query, names: Names, bounds: Sequence[Bound]) -> list[Bound]:
    """Apply bounds over one collection to this collection, before joins.

    Returns the bounds over several collections.  Raises: QueryError.
    """
    left = list(bounds)
    for at, item in enumerate(names.froms.items):
        of_item = [each for each in bounds if _aliases(names, each) == {item.alias}]
        if of_item:
            relation = _valid(query, names, item.alias, item.relation, of_item)
            names.froms.items[at] = replace(item, relation=relation)
            left = [each for each in left if each not in of_item]
    return left


def bounded_after(query: Query, names: Names, bounds: Sequence[Bound]) -> None:
    """Apply the other bounds to the join of all collections.

    Raises: QueryError.
    """
    if not bounds:
        return
    item = query.item(names.froms, "where")
    names.froms = Froms([item], [], names.froms.merged)
    for each in bounds:
        if _aliases(names, each) != {item.alias}:
            raise SqlQueryError(
                "a time to compare ikebana_now() with is an expression over columns of FROM",
                each.place,
            )
    relation = _valid(query, names, item.alias, item.relation, bounds)
    names.froms.items[0] = replace(item, relation=relation)


def _aliases(names: Names, each: Bound) -> set[str]:
    return aliases_of(names.resolved(each.node))


def _valid(
    query: Query, names: Names, alias: str, source: Table, bounds: Iterable[Bound]
) -> Table:
    lower: list[str] = []
    upper: list[str] = []
    for each in bounds:
        text = text_of(without(alias, names.resolved(each.node)))
        (kind,) = types_of([text], source.keyed())
        if kind not in INSTANTS:
            raise SqlQueryError(
                f"ikebana_now() is compared with {kind}; make a timestamp of it, as in "
                "make_timestamp_ms(x)",
                each.place,
            )
        if each.is_after:
            if kind == "TIMESTAMP_NS":
                problem = "cast TIMESTAMP_NS to TIMESTAMP to compare it with ikebana_now()"
                raise SqlQueryError(problem, each.place)
            # In whole microseconds, t <= x is t < x + 1.
            text = f"{text} + INTERVAL 1 MICROSECOND"
        (upper if each.is_upper else lower).append(text)
    steps = [Sql(valid_from=text) for text in lower] + [Sql(valid_until=text) for text in upper]
    if len(lower) == len(upper) == 1:
        steps = [Sql(valid_from=lower[0], valid_until=upper[0])]
    if not query.making.is_whole(source):
        steps.append(Sql(select=tuple((name, quoted(name)) for name in source.types)))
    return query.making.linear(source, "valid", *steps)
