"""Semi-joins, anti-joins and outer joins, made of delta joins and sums.

A delta join gives the rows that match.  The rows of the left without a match are the left minus a
semi-join of the left with the distinct *keys* of the right.  As keys are distinct, each lookup
goes into an arrangement of keys, and the counts of the right do not matter.  Where conditions
other than equalities decide what matches, the distinct matching rows of the left take the place
of keys.

In a delta join with `left` and `full`, some inputs need no match.  Those that must match form one
delta join.  The others follow in order, each by an outer join with the result so far, which has
only the columns that are still read.
"""

# Decision (outer inputs stand behind the join): If they were paths of one join, each change would
# go three ways for every outer input, to spare one arrangement that mostly replaces the first
# input's.

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ikebana.processor.base.texts import suggestion
from ikebana.processor.linear.json_text import BLOB, compares_as_data, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    conjuncts,
    equality_sides,
    renamed,
    shown,
    text_of,
    tree,
)
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.relations import (
    NOTHING_KNOWN,
    Keys,
    KnownKeys,
    derivation_of_tree,
    equalities,
    left_joined,
)
from ikebana.processor.relational.making import (
    Listed,
    Making,
    MakingError,
    Table,
    compared_texts,
    name_like,
    struct,
    unused_name,
)
from ikebana.processor.relational.rows import distinct

Outer = Literal["left", "right", "full"]


QualifiedColumn = tuple[str, str, str]
"""A column that a query may name: its qualifier, its name, and the field of the collection."""


@dataclass(frozen=True, slots=True)
class Item:
    """An input of a join under a unique alias, by which conditions name it.

    In a query it has the names of its columns.  A join of items is one item with the columns of
    all of them under their old qualifiers.  `hidden` are columns of queries around this one and
    values of subqueries: `*` leaves them out, and a name means one of them only if no other column
    has the name.
    """

    alias: str
    relation: Table
    columns: tuple[QualifiedColumn, ...] = ()
    hidden: tuple[QualifiedColumn, ...] = ()

    def among(
        self, qualifier: str | None, *, hidden: bool
    ) -> list[tuple[str, str, "ColumnOfItem"]]:
        """The columns with a qualifier (None: all), as (qualifier, name, place)."""
        return [
            (of, name, (self, (of, name, field)))
            for of, name, field in (self.hidden if hidden else self.columns)
            if qualifier is None or of.lower() == qualifier.lower()
        ]


ColumnOfItem = tuple[Item, QualifiedColumn]
"""A column, and the item that has it."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a join, sorted by the sides that they read."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    equalities: tuple[tuple[Node, Node], ...]
    """Pairs (expression over the left, expression over the right)."""
    others: tuple[Node, ...]

    @property
    def all(self) -> tuple[Node, ...]:
        """All of them."""
        equalities = tuple(equality(one, other) for one, other in self.equalities)
        return (*self.left, *self.right, *equalities, *self.others)

    def turned(self) -> "Conditions":
        """The same conditions with left and right exchanged."""
        equalities = tuple((other, one) for one, other in self.equalities)
        return Conditions(self.right, self.left, equalities, self.others)


def equality(one: Node, other: Node) -> Node:
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


def null_safe(pairs: Sequence[tuple[Node, Node]]) -> tuple[tuple[Node, Node], ...]:
    """One equality of structs in place of several equalities, so that null equals null."""
    if not pairs:
        return ()
    one, other = (
        struct((f"k{at}", text_of(each[side])) for at, each in enumerate(pairs)) for side in (0, 1)
    )
    return ((tree(one), tree(other)),)


def by_side(conditions: Iterable[Node], lefts: set[str], rights: set[str]) -> Conditions:
    """Sort conditions by the aliases that they read: of the left, the right, or both."""
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
    """The aliases that an expression reads; a name alone is a parameter of a lambda."""
    return {names[0] for names in columns(node) if len(names) > 1}


def qualified(text: str, relations: Mapping[str, Table], part: str) -> Node:
    """Parse an expression in which each column is qualified by an input's alias.

    Raises: MakingError, as a problem of `part`.
    """
    node = tree(text)
    meant: dict[tuple[str, str], tuple[str, str]] = {}
    for names in columns(node):
        if len(names) < 2 or names[0] not in relations:
            listed = " or ".join(relations)
            raise MakingError(
                f'"{".".join(names)}" is of no input; write {listed} before it', part
            )
        relation = relations[names[0]]
        column = relation.column(names[1])
        if column is None:
            raise MakingError(
                f'input "{names[0]}": there is no column "{names[1]}"'
                f"{suggestion(names[1], relation.types)}",
                part,
            )
        meant[names[0], names[1]] = (names[0], column)
    result: Node = renamed(node, meant)
    return result


def _pair(condition: Node, lefts: set[str], rights: set[str]) -> tuple[Node, Node] | None:
    if (sides := equality_sides(condition)) is None:
        return None
    one, other = sides
    of_one, of_other = aliases_of(one), aliases_of(other)
    if not of_one or not of_other:
        return None
    if of_one <= lefts and of_other <= rights:
        return one, other
    if of_one <= rights and of_other <= lefts:
        return other, one
    return None


def without_alias(alias: str, node: Node) -> Node:
    """An expression over one input, with this alias removed from its columns."""
    names = {(names[0], names[1]): (names[1],) for names in columns(node) if names[0] == alias}
    result: Node = renamed(node, names)
    return result


def semi_join(
    making: Making,
    left: Item,
    right: Item,
    on: Conditions,
    what: str,
    select: Listed | None = None,
) -> Table:
    """A semi-join: the rows of the left that match a row of the right.

    `select` are expressions over the left, by default its columns.
    """
    listed = [(name, text_of(node)) for name, node in select or own_columns(left)]
    if on.others:
        return _met_by_rows(making, left, right, on, what, listed)
    conditions, keys = keys_of(making, [left], right, on, what)
    where = [*map(text_of, on.left), *map(text_of, conditions)]
    both = (left.alias, left.relation), (right.alias, keys)
    return making.join(what, both, where, listed, cartesian=not on.equalities)


def own_columns(side: Item) -> Listed:
    """All columns of a side, each under its own name."""
    return [(name, column(side.alias, name)) for name in side.relation.types]


def identity_of(side: Item) -> Listed:
    """What tells the rows of a side apart: its columns, and the texts of intervals.

    Intervals may be equal in SQL and differ as data.
    """
    kinds = side.relation.types
    return [(name, _as_data(node, kinds[name])) for name, node in own_columns(side)]


def _as_data(node: Node, kind: str) -> Node:
    return node if compares_as_data(kind) else tree(f"CAST({text_of(node)} AS VARCHAR)")


def _met_by_rows(
    making: Making,
    left: Item,
    right: Item,
    on: Conditions,
    what: str,
    listed: list[tuple[str, str]],
) -> Table:
    """A semi-join by conditions that are no equalities: with the distinct matching left rows.

    Rows are identified by their columns, and by their key too if a condition reads it.
    """
    listed_left = identity_of(left)
    key = left.relation.key_name
    if any(names[:2] == (left.alias, key) for names in columns(on.all)):
        listed_left.append((left.relation.free_column("of_key"), column(left.alias, key)))
    matches = making.join(
        f"{what}.matches",
        ((left.alias, left.relation), (right.alias, right.relation)),
        map(text_of, on.all),
        [(name, text_of(node)) for name, node in listed_left],
        cartesian=not on.equalities,
    )
    # A row of the left with a negative count has matches with negative counts, so signs stay.
    rows = distinct(making, matches, f"{what}.rows", signed=True)
    both = (left.alias, left.relation), (right.alias, rows)
    one = struct((name, text_of(node)) for name, node in listed_left)
    other = struct((name, f"{shown(right.alias)}.{quoted(name)}") for name, _ in listed_left)
    return making.join(what, both, [f"{one} = {other}"], listed)


def of_compared_type(
    pairs: Sequence[tuple[Node, Node]], lefts: Iterable[Item], right: Item
) -> tuple[tuple[Node, Node], ...]:
    """Equalities with the right sides cast to the types in which SQL compares the sides.

    Distinct values of the right may be equal in that type, as the texts 1 and 01 as numbers.
    """
    tables = {item.alias: item.relation for item in (*lefts, right)}
    texts = [compared_texts(pair, tables) for pair in pairs]
    return tuple(
        (one, other if text is None else tree(text[1]))
        for (one, other), text in zip(pairs, texts, strict=True)
    )


def keys_of(
    making: Making, lefts: Iterable[Item], right: Item, on: Conditions, what: str
) -> tuple[list[Node], Table]:
    """The equalities of the left with distinct keys of the right, and these keys.

    Without equalities the keys are one row if the right has a row, and else empty.
    """
    pairs = of_compared_type(on.equalities, lefts, right)
    used: set[str] = set()
    names = [unused_name(name_like(node, "k"), used) for _, node in pairs]
    keys = [text_of(without_alias(right.alias, node)) for _, node in pairs]
    # Null equals nothing, so keys with a null never match.
    nonnull = [f"({key}) IS NOT NULL" for key in keys]
    conditions = [text_of(without_alias(right.alias, condition)) for condition in on.right]
    select = tuple(zip(names, keys, strict=True)) or (("k", "true"),)
    step = Sql(where=(*conditions, *nonnull), select=select)
    selected = making.linear(right.relation, f"{what}.keys", step)
    equalities = [
        equality(node, column(right.alias, name))
        for (node, _), name in zip(on.equalities, names, strict=True)
    ]
    return equalities, distinct(making, selected, f"{what}.keys.once")


def anti_join(making: Making, left: Item, right: Item, on: Conditions, what: str) -> Table:
    """An anti-join: the rows of the left that match no row of the right."""
    rows, less = anti_join_parts(making, left, right, on, what, own_columns(left))
    # A subset of the rows has the unique columns of all of them.
    return making.together(what, rows, less, facts=rows.facts)


def anti_join_parts(
    making: Making, left: Item, right: Item, on: Conditions, what: str, select: Listed
) -> list[Table]:
    """Two collections with an anti-join as their sum: all rows, and the negated matches."""
    matched = semi_join(making, left, right, on, f"{what}.met", select)
    listed = [(name, text_of(without_alias(left.alias, node))) for name, node in select]
    is_all = select == own_columns(left) and making.is_whole(left.relation)
    if making.may_lack_keys(left.relation.name) or left.relation.key == BLOB:
        # A join writes keys as JSON, and a missing key as null; both parts must agree to cancel.
        step = Sql(select=tuple(listed), key=left.relation.key_name)
        rows = making.linear(left.relation, f"{what}.rows", step)
    else:
        rows = left.relation if is_all else making.select(left.relation, f"{what}.rows", listed)
    return [rows, making.negated(matched, f"{what}.less")]


def outer_join(
    making: Making,
    left: Item,
    right: Item,
    on: Conditions,
    select: Sequence[tuple[str, Node]],
    kind: Outer,
) -> Table:
    """LEFT, RIGHT and FULL JOIN of SQL; `select` is over the aliases of both sides.

    Conditions over one side alone decide what matches; they remove no row of an outer side.
    The key of a matching row is the key of its left row, as in a delta join.
    """
    matched = making.join(
        f"{kind}.met",
        ((left.alias, left.relation), (right.alias, right.relation)),
        map(text_of, on.all),
        ((name, text_of(node)) for name, node in select),
        cartesian=not on.equalities,
    )
    parts = [matched]
    if kind in ("left", "full"):
        parts += _alone(making, left, right, on, select, f"{kind}.left")
    if kind in ("right", "full"):
        parts += _alone(making, right, left, on.turned(), select, f"{kind}.right")
    types = matched.types
    for each in parts[1:]:
        if each.types != types:
            raise MakingError(
                "a column of the result has another type where a side has no match: cast it, as "
                "in CAST(… AS BIGINT)"
            )
    return making.together(kind, *parts, facts=_facts(left, right, on, select, kind))


def _facts(
    left: Item,
    right: Item,
    on: Conditions,
    select: Sequence[tuple[str, Node]],
    kind: Outer,
) -> KnownKeys:
    """The facts of an outer join: each row of the outer side without a match is there once."""
    if kind == "full":
        return NOTHING_KNOWN
    outer, other = (left, right) if kind == "left" else (right, left)
    types = {
        f"{side.alias}.{name}": side.relation.type_of(name)
        for side in (left, right)
        for name in (*side.relation.types, KEY)
    }
    pairs = equalities([equality(*pair) for pair in on.equalities], types)
    origins = {name: derivation_of_tree(node, 2, names=types) for name, node in select}
    if kind == "left":
        # A row of the right without a match has its own key.
        origins[KEY] = derivation_of_tree(column(left.alias, KEY), 2, names=types)

    def of(outer_keys: Keys, other_keys: Keys) -> Keys:
        sides = outer_keys.prefixed(outer.alias), other_keys.prefixed(other.alias)
        return left_joined(*sides, pairs, types).selected(origins)

    return outer.relation.facts.each(of, other.relation.facts)


def outer_of(
    making: Making, left: Item, right: Item, matched: Item, select: Listed, kind: Outer
) -> Table:
    """Complete `matched`, the matching rows of an outer join, with the rows without a match.

    `select` are columns of both sides, by their names in `matched`; rows are identified by them.
    """
    parts = [matched.relation]
    for side, other, kinds in ((left, right, ("left", "full")), (right, left, ("right", "full"))):
        if kind in kinds:
            of_side = [(name, node) for name, node in select if aliases_of(node) == {side.alias}]
            types = matched.relation.types
            pairs = [
                (_as_data(node, types[name]), _as_data(column(matched.alias, name), types[name]))
                for name, node in of_side
            ]
            on = Conditions((), (), null_safe(pairs), ())
            columns = [(name, _with_nulls(node, other)) for name, node in select]
            parts += anti_join_parts(making, side, matched, on, f"{kind}.rest", columns)
    return making.together(kind, *parts)


def _alone(
    making: Making,
    side: Item,
    other: Item,
    on: Conditions,
    select: Sequence[tuple[str, Node]],
    what: str,
) -> list[Table]:
    """Collections with the unmatched rows of a side as their sum, nulls for the other side."""
    columns = [(name, _with_nulls(node, other)) for name, node in select]
    return anti_join_parts(making, side, other, on, what, columns)


def _with_nulls(node: Node, other: Item) -> Node:
    """An expression with nulls in place of all columns of a side."""

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF" or node["column_names"][0] != other.alias:
            return None
        _, name, *rest = node["column_names"]
        null = f"CAST(NULL AS {other.relation.type_of(name)})"
        return tree("".join([f"({null})", *(f".{quoted(each)}" for each in rest)]))

    result: Node = changed(node, change)
    return result


InputColumn = tuple[str, str]
"""An alias, and a column of its input."""


@dataclass(frozen=True, slots=True)
class OuterInput:
    """An input that needs no match (`left`); with `full` its unmatched rows stay as well."""

    alias: str
    kind: Outer
    on: tuple[str, ...]
    """The conditions that join it with inputs before it."""


ByAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Conditions by the aliases of inputs."""


def outer_inputs(join: DeltaJoin, left: ByAlias, full: ByAlias) -> tuple[OuterInput, ...]:
    """The inputs under `left` and `full`, in the order of the join.  Raises: MakingError."""
    for part, is_set in (("orders", join.orders), ("strategy", join.strategy != "auto")):
        if is_set:
            raise MakingError(
                "cannot be told beside left and full; make a delta_join of the other inputs", part
            )
    aliases = [each.alias for each in join.inputs]
    inputs: dict[str, OuterInput] = {}
    kinds: tuple[tuple[Outer, ByAlias], ...] = (("left", left), ("full", full))
    for kind, conditions in kinds:
        for alias, on in conditions:
            part = f"{kind}.{alias}"
            if alias not in aliases:
                listed = ", ".join(aliases)
                raise MakingError(f'there is no input "{alias}"; there are {listed}', part)
            if alias in inputs:
                raise MakingError("is under left already", part)
            inputs[alias] = OuterInput(alias, kind, on)
    if len(inputs) == len(aliases):
        raise MakingError("one input at least must stand in neither left nor full")
    return tuple(inputs[alias] for alias in aliases if alias in inputs)


def outer_delta(
    making: Making, sides: Sequence[Item], join: DeltaJoin, outer: Sequence[OuterInput]
) -> Table:
    """A delta join with outer inputs; its conditions are over the others.  Raises: MakingError."""
    parts = _read(sides, join, outer)
    by_alias = {side.alias: side for side in sides}
    rights = [by_alias[each.alias] for each in outer]
    inner = [side for side in sides if side not in rights]
    select = parts.select
    if parts.key is not None:
        used = {name.lower() for name, _ in select}
        select = [*select, (unused_name("of_key", used), parts.key)]
    alias = unused_name("joined", {each.lower() for each in by_alias})
    joined, names = _matching(making, inner, parts, alias, cartesian=join.cartesian)
    for at, (each, right) in enumerate(zip(outer, rights, strict=True)):
        on = by_side(renamed(parts.on[at], names), {joined.alias}, {right.alias})
        columns = parts.names_behind([*names, *_columns(right)], at + 1)
        listed = select if each is outer[-1] else _listed(columns)
        listed = [(name, renamed(node, names)) for name, node in listed]
        joined = Item(alias, outer_join(making, joined, right, on, listed, each.kind))
        names = {of: (alias, name) for of, name in columns.items()}
    if parts.key is None:
        return joined.relation
    fields = tuple((name, quoted(name)) for name, _ in parts.select)
    step = Sql(select=fields, key=quoted(select[-1][0]))
    return making.linear(joined.relation, "keyed", step)


class _Parts(NamedTuple):
    """The parsed expressions of a join."""

    where: list[Node]
    on: list[list[Node]]
    """The conditions of each outer input."""
    select: Listed
    key: Node | None

    def names_behind(self, there: Iterable[InputColumn], behind: int) -> dict[InputColumn, str]:
        """The columns that are still read after `behind` outer inputs, with unique names."""
        later = [self.on[behind:], [node for _, node in self.select], [self.key or {}]]
        read = {names[:2] for names in columns(later)}
        used: set[str] = set()
        return {of: unused_name("_".join(of), used) for of in there if of in read}


def _listed(columns: Mapping[InputColumn, str]) -> Listed:
    """A select list of columns of inputs, each with its new name."""
    listed = [(name, column(*of)) for of, name in columns.items()]
    # Rows count even if none of their columns is read, so there is one column.
    return listed or [("there", tree("true"))]


def _read(sides: Sequence[Item], join: DeltaJoin, outer: Sequence[OuterInput]) -> _Parts:
    every = {side.alias: side.relation for side in sides}
    where = _conditions(join.where, every, "where")
    read = aliases_of(where)
    for each in outer:
        if each.alias in read:
            raise MakingError(
                f'"{each.alias}" is an input of {each.kind}, whose conditions stand there; one '
                "over the results stands in a linear operator",
                "where",
            )
    on = []
    later = {each.alias for each in outer}
    for each in outer:
        later.discard(each.alias)
        part = f"{each.kind}.{each.alias}"
        on.append(_conditions(each.on, every, part))
        for alias in sorted(later & aliases_of(on[-1])):
            raise MakingError(
                f'"{alias}" is joined later; let it stand before "{each.alias}" under delta_join',
                part,
            )
    select = [(name, qualified(text, every, "select")) for name, text in join.select]
    key = None if join.key is None else qualified(join.key, every, "key")
    return _Parts(where, on, select, key)


def _conditions(texts: Iterable[str], relations: Mapping[str, Table], part: str) -> list[Node]:
    return [each for text in texts for each in conjuncts(qualified(text, relations, part))]


def _matching(
    making: Making, inner: Sequence[Item], parts: _Parts, alias: str, *, cartesian: bool
) -> tuple[Item, Mapping[InputColumn, InputColumn]]:
    """The join of the inputs that must match, and its columns for those of the inputs."""
    there = [each for side in inner for each in _columns(side)]
    if len(inner) == 1:
        (side,) = inner
        conditions = [text_of(without_alias(side.alias, node)) for node in parts.where]
        relation = making.where(side.relation, "where", *conditions)
        return Item(side.alias, relation), {each: each for each in there}
    columns = parts.names_behind(there, 0)
    relation = making.join(
        "matching",
        [(side.alias, side.relation) for side in inner],
        map(text_of, parts.where),
        [(name, text_of(node)) for name, node in _listed(columns)],
        cartesian=cartesian,
    )
    return Item(alias, relation), {of: (alias, name) for of, name in columns.items()}


def _columns(side: Item) -> list[InputColumn]:
    return [(side.alias, name) for name in (*side.relation.types, side.relation.key_name)]
