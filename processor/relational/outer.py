"""Outer joins: the rows that match, and those of a side that do not, with nulls for the other."""

from collections.abc import Sequence
from typing import Literal

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import changed, column, text_of, tree
from ikebana.processor.planning.row_keys import equalities, made_of_tree
from ikebana.processor.planning.unique_keys import NOTHING_KNOWN, Facts, Keys, left_joined
from ikebana.processor.relational.known import MakingError, Relation
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.matching import (
    Conditions,
    Side,
    equal,
    unmet_parts,
)

Outer = Literal["left", "right", "full"]


def outer_join(
    making: Making,
    left: Side,
    right: Side,
    on: Conditions,
    select: Sequence[tuple[str, Node]],
    kind: Outer,
) -> Relation:
    """What SQL calls LEFT, RIGHT and FULL JOIN; `select` is over the aliases of both sides.

    Conditions over one side alone say what matches; they leave out no row of an outer side.
    The key of a row that matches is that of the left, as it is in a delta join.
    """
    matched = making.join(
        f"{kind}.met",
        ((left.alias, left.relation), (right.alias, right.relation)),
        map(text_of, on.all),
        ((name, text_of(node)) for name, node in select),
        cartesian=not on.equalities,
    )
    found = [matched]
    if kind in ("left", "full"):
        found += _alone(making, left, right, on, select, f"{kind}.left")
    if kind in ("right", "full"):
        found += _alone(making, right, left, on.turned(), select, f"{kind}.right")
    types = matched.types
    for each in found[1:]:
        if each.types != types:
            raise MakingError(
                "a column of the result has another type where a side has no match: cast it, as "
                "in CAST(… AS BIGINT)"
            )
    return making.together(kind, *found, facts=_facts(left, right, on, select, kind))


def _facts(
    left: Side, right: Side, on: Conditions, select: Sequence[tuple[str, Node]], kind: Outer
) -> Facts:
    """What is known of an outer join: a row without a match is there once, and meets no other."""
    if kind == "full":
        return NOTHING_KNOWN
    kept, other = (left, right) if kind == "left" else (right, left)
    types = {
        f"{side.alias}.{name}": side.relation.type_of(name)
        for side in (left, right)
        for name in (*side.relation.types, KEY)
    }
    pairs = equalities([equal(*pair) for pair in on.equalities], types)
    made = {name: made_of_tree(node, 2, names=types) for name, node in select}
    if kind == "left":
        # A row of the right without a match has its own key.
        made[KEY] = made_of_tree(column(left.alias, KEY), 2, names=types)

    def of(kept_keys: Keys, other_keys: Keys) -> Keys:
        sides = kept_keys.prefixed(kept.alias), other_keys.prefixed(other.alias)
        return left_joined(*sides, pairs, types).selected(made)

    return kept.relation.facts.each(of, other.relation.facts)


def _alone(
    making: Making,
    side: Side,
    other: Side,
    on: Conditions,
    select: Sequence[tuple[str, Node]],
    what: str,
) -> list[Relation]:
    """Collections whose sum are the rows of a side without a match, with nulls for the other."""
    columns = [(name, _with_nulls(node, other)) for name, node in select]
    return unmet_parts(making, side, other, on, what, columns)


def _with_nulls(node: Node, other: Side) -> Node:
    """An expression in which all columns of a side are null."""

    def change(found: Node) -> Node | None:
        if found["class"] != "COLUMN_REF" or found["column_names"][0] != other.alias:
            return None
        _, name, *rest = found["column_names"]
        null = f"CAST(NULL AS {other.relation.type_of(name)})"
        return tree("".join([f"({null})", *(f".{quoted(each)}" for each in rest)]))

    made: Node = changed(node, change)
    return made
