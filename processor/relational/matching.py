"""Semi-joins, anti-joins and outer joins, made of delta joins and sums.

A delta join gives the rows that match.  Rows of the left that do not are what is left of it
without those that meet a *key* of the right, each of which is there once: so every lookup is
one into an arrangement of keys, and the counts of the right do not matter.  Where conditions
other than equalities decide what matches, the matching rows of the left are made distinct and
take the place of the keys.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.syntax import Node, shown
from ikebana.processor.linear.trees import column, columns, renamed, text_of
from ikebana.processor.relational.making import Making, Relation, struct
from ikebana.processor.relational.rows import distinct


@dataclass(frozen=True, slots=True)
class Side:
    """An input of a join under its alias, by which conditions name it."""

    alias: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions over the aliases of a left and a right, told apart by what they read."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    equalities: tuple[tuple[Node, Node], ...]
    """Pairs (expression over the left, expression over the right)."""
    others: tuple[Node, ...]

    @property
    def all(self) -> tuple[Node, ...]:
        """All of them."""
        equalities = tuple(equal(one, other) for one, other in self.equalities)
        return (*self.left, *self.right, *equalities, *self.others)

    def turned(self) -> "Conditions":
        """The same, for whom the right is the left."""
        equalities = tuple((other, one) for one, other in self.equalities)
        return Conditions(self.right, self.left, equalities, self.others)


def equal(one: Node, other: Node) -> Node:
    """The equality of two expressions."""
    return {
        "class": "COMPARISON",
        "type": "COMPARE_EQUAL",
        "alias": "",
        "query_location": one.get("query_location", 0),
        "query_location_length": 0,
        "left": one,
        "right": other,
    }


def told_apart(conditions: Iterable[Node], lefts: set[str], rights: set[str]) -> Conditions:
    """Tell conditions apart by the aliases that they read: some of the left, or of the right."""
    left, right, others = [], [], []
    equalities: list[tuple[Node, Node]] = []
    for condition in conditions:
        read = aliases_of(condition)
        if read <= lefts:
            left.append(condition)
        elif read <= rights:
            right.append(condition)
        elif (pair := _pair(condition, lefts, rights)) is not None:
            equalities.append(pair)
        else:
            others.append(condition)
    return Conditions(tuple(left), tuple(right), tuple(equalities), tuple(others))


def aliases_of(node: object) -> set[str]:
    """The aliases that an expression reads."""
    return {names[0] for names in columns(node)}


def _pair(condition: Node, lefts: set[str], rights: set[str]) -> tuple[Node, Node] | None:
    if condition.get("type") != "COMPARE_EQUAL":
        return None
    one, other = condition["left"], condition["right"]
    of_one, of_other = aliases_of(one), aliases_of(other)
    if not of_one or not of_other:
        return None
    if of_one <= lefts and of_other <= rights:
        return one, other
    if of_one <= rights and of_other <= lefts:
        return other, one
    return None


def of_one(making: Making, side: Side, what: str, conditions: Sequence[Node]) -> Relation:
    """What of one input meets conditions over it alone."""
    own = [text_of(without(side.alias, condition)) for condition in conditions]
    return making.where(side.relation, what, *own)


def without(alias: str, node: Node) -> Node:
    """An expression over one input, without its alias."""
    names = {(names[0], names[1]): (names[1],) for names in columns(node) if names[0] == alias}
    made: Node = renamed(node, names)
    return made


def met(making: Making, left: Side, right: Side, on: Conditions, what: str) -> Relation:
    """The rows of the left for which there is a row of the right: a semi-join."""
    select = [(name, f"{shown(left.alias)}.{quoted(name)}") for name in left.relation.types]
    if on.others:
        matches = making.join(
            f"{what}.matches",
            ((left.alias, left.relation), (right.alias, right.relation)),
            map(text_of, on.all),
            select,
            cartesian=not on.equalities,
        )
        rows = distinct(making, matches, f"{what}.rows")
        both = (left.alias, left.relation), (right.alias, rows)
        one, other = (
            struct((name, f"{shown(side.alias)}.{quoted(name)}") for name in left.relation.types)
            for side in (left, right)
        )
        return making.join(what, both, [f"{one} = {other}"], select)
    conditions, keys = keys_of(making, right, on, what)
    wanted = [*map(text_of, on.left), *map(text_of, conditions)]
    both = (left.alias, left.relation), (right.alias, keys)
    return making.join(what, both, wanted, select, cartesian=not on.equalities)


def keys_of(
    making: Making, right: Side, on: Conditions, what: str
) -> tuple[list[Node], Relation]:
    """The distinct keys of the right, and the equalities of the left with them.

    Without equalities it is one row if the right has any.
    """
    there = of_one(making, right, f"{what}.right", on.right)
    keys = [(f"k{at}", own) for at, (_, own) in enumerate(on.equalities)]
    select = [(name, text_of(without(right.alias, own))) for name, own in keys] or [("k0", "true")]
    selected = making.select(there, f"{what}.keys", select)
    if keys:
        # Null is equal to nothing.
        nonnull = [f"{quoted(name)} IS NOT NULL" for name, _ in keys]
        selected = making.where(selected, f"{what}.keys", *nonnull)
    conditions = [
        equal(own, column(right.alias, f"k{at}")) for at, (own, _) in enumerate(on.equalities)
    ]
    return conditions, distinct(making, selected, f"{what}.keys")


def unmet(making: Making, left: Side, right: Side, on: Conditions, what: str) -> Relation:
    """The rows of the left for which there is no row of the right: an anti-join."""
    matched = met(making, left, right, on, f"{what}.met")
    own = [(name, quoted(name)) for name in left.relation.types]
    rows = making.select(left.relation, f"{what}.rows", own)
    return making.together(what, rows, making.negated(matched, f"{what}.met.negated"))
