"""GROUP BY and aggregates: a reduction, and expressions over what it gives."""

from collections.abc import Sequence
from dataclasses import dataclass

from ikebana.processor.linear.bound_query import QueryError, types_of
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import bare, changed, column, nodes, text_of
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
            # A name alone is a parameter of a lambda.
            if made is None and found["class"] == "COLUMN_REF" and len(found["column_names"]) > 1:
                name = ".".join(found["column_names"][1:])
                problem = f'"{name}" is neither grouped by nor in an aggregate'
                raise QueryError(problem, found.get("query_location"))
            return made

        made: Node = changed(node, change)
        return made


def grouped(
    query: Query, item: Item, groups: Listed, asked: Sequence[Node], what: str = "groups"
) -> Grouped:
    """Group an item by expressions, and compute all aggregates that are in what is asked for."""
    columns = {**item.relation.types, KEY: item.relation.key}
    by_sql = [text_of(without(item.alias, node)) for _, node in groups]
    by_types = types_of(by_sql, columns)
    used: set[str] = set()
    by = [
        (free(name, used), sql, kind)
        for (name, _), sql, kind in zip(groups, by_sql, by_types, strict=True)
    ]
    alias = query.free_alias("g")
    known = [
        (bare(node), column(alias, name)) for (_, node), (name, *_) in zip(groups, by, strict=True)
    ]
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
    relation = query.making.reduce(item.relation, what, by, aggregates, total=not by)
    return Grouped(Item(alias, relation), tuple(known))


_NUMBERS = ("INTEGER", "DOUBLE", "FLOAT", "DECIMAL", "INT")


def _refuse_other_types(call: Node, own: Node, kind: str, columns: dict[str, str]) -> None:
    """Refuse sums, averages and the like of what are no numbers, such as intervals or booleans."""
    name = call["function_name"].lower()
    if name not in ("sum", "avg", "mean") and not name.startswith(("var", "stddev")):
        return
    (of,) = types_of([text_of(own["arguments"][0]["expression"])], columns)
    if not any(word in of for word in _NUMBERS) or of.endswith("]") or of == "INTERVAL":
        raise QueryError(
            f"{call['function_name']}() of {of} is not supported; cast it to a number",
            call.get("query_location"),
        )
