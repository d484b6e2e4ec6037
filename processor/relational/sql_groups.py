"""GROUP BY and aggregates: a reduction, and expressions over what it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.processor.linear.bound_query import QueryError, types_of
from ikebana.processor.linear.json_text import WHOLE
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import bare, changed, column, nodes
from ikebana.processor.relational.matching import without
from ikebana.processor.relational.sql_aggregates import calls, is_aggregate, parts_of, result_tree
from ikebana.processor.relational.sql_scope import Item
from ikebana.processor.relational.sql_whole import Listed, Query, free


@dataclass(frozen=True, slots=True)
class Grouped:
    """A reduction as an item, and what expressions over its rows become over its columns."""

    item: Item
    known: tuple[tuple[Node, Node], ...]
    """What is grouped by, and calls of aggregates, without places; and what stands for them."""

    def over(self, node: Node) -> Node:
        """An expression over groups and aggregates.  Raises: QueryError."""

        def change(found: Node) -> Node | None:
            plain = bare(found)
            made = next((made for each, made in self.known if each == plain), None)
            if made is None and found["class"] == "COLUMN_REF":
                made = self._part(plain)
            # A name alone is a parameter of a lambda.
            if made is None and found["class"] == "COLUMN_REF" and len(found["column_names"]) > 1:
                name = ".".join(found["column_names"][1:])
                problem = f'"{name}" is neither grouped by nor in an aggregate'
                raise QueryError(problem, found.get("query_location"))
            return made

        made: Node = changed(node, change)
        return made

    def _part(self, node: Node) -> Node | None:
        """What stands for a part of a struct that is grouped by."""
        *names, part = node["column_names"]
        if len(names) < 2:
            return None
        whole = {**node, "column_names": names}
        made = next((made for each, made in self.known if each == whole), None)
        made = self._part(whole) if made is None else made
        return made and {**made, "column_names": [*made["column_names"], part]}

    def with_names_of(self, item: Item) -> Item:
        """The reduction, in which columns that are grouped by have the names of another item."""
        stands = {
            tuple(each["column_names"]): made["column_names"][1]
            for each, made in self.known
            if each["class"] == made["class"] == "COLUMN_REF"
        }
        columns = [
            (of, name, stands[item.alias, field])
            for of, name, field in item.columns
            if (item.alias, field) in stands
        ]
        return replace(self.item, columns=tuple(columns))


def grouped(
    query: Query, item: Item, groups: Listed, asked: Sequence[Node], what: str = "groups"
) -> Grouped:
    """Group an item by expressions, and compute all aggregates that are in what is asked for."""
    columns = item.relation.keyed()
    by_sql = [text_of(without(item.alias, node)) for _, node in groups]
    by_types = types_of(by_sql, columns)
    used: set[str] = set()
    alias = query.free_alias("g")
    by: list[tuple[str, str, str]] = []
    known: list[tuple[Node, Node]] = []
    for (name, node), sql, kind in zip(groups, by_sql, by_types, strict=True):
        if kind == '"NULL"':
            # What is always null has no type, and tells no rows apart.
            known.append((bare(node), tree("NULL")))
            continue
        by.append((free(name, used), sql, kind))
        known.append((bare(node), column(alias, by[-1][0])))
    named: dict[str, str] = {}
    for call in (call for node in asked for call in calls(node)):
        if any(bare(call) == each for each, _ in known):
            continue
        inner = [each for each in nodes(call["arguments"]) if is_aggregate(each)]
        if inner:
            raise QueryError(
                "an aggregate of an aggregate is not supported", inner[0].get("query_location")
            )
        own = without(item.alias, call)
        parts = parts_of(own, lambda sql: types_of([sql], columns)[0])
        for text in parts.aggregates:
            if text not in named:
                named[text] = free(call["function_name"].lower(), used)
        (kind,) = types_of([text_of(own)], columns)
        _refuse_other_types(call, own, kind, columns)
        names = [named[text] for text in parts.aggregates]
        known.append((bare(call), result_tree(parts, names, alias, kind)))
    if not named:
        # A group is there as long as it has a row.
        named["count(*)"] = free("count_star", used)
    aggregates = [(name, text) for text, name in named.items()]
    # Without groups SQL has one row, also of no rows.
    relation = query.making.reduce(
        item.relation, what, by, aggregates, total=not groups, minimal=True
    )
    return Grouped(Item(alias, relation), tuple(known))


_NUMBERS = {*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE"}


def _refuse_other_types(call: Node, own: Node, kind: str, columns: dict[str, str]) -> None:
    """Refuse sums, averages and the like of what are no numbers, such as intervals or booleans."""
    name = call["function_name"].lower()
    if name not in ("sum", "avg", "mean") and not name.startswith(("var", "stddev")):
        return
    (of,) = types_of([text_of(own["arguments"][0]["expression"])], columns)
    if of not in _NUMBERS and not isinstance(type_of(of), Decimal):
        raise QueryError(
            f"{call['function_name']}() of {of} is not supported; cast it to a number",
            call.get("query_location"),
        )
