"""Delta joins with `left` and `full`: inputs that need no match.

The inputs that must match form one delta join.  The others follow in order, each by an outer join
with the result so far, which has only the columns that are still read.
"""

# Decision (outer inputs stand behind the join): If they were paths of one join, each change would
# go three ways for every outer input, to spare one arrangement that mostly replaces the first
# input's.

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    column,
    columns,
    conjuncts,
    renamed,
    text_of,
    tree,
)
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.relational.making import Making, MakingError, Table
from ikebana.processor.relational.matching import (
    Outer,
    Side,
    aliases_of,
    outer_join,
    over,
    told_apart,
    without,
)
from ikebana.processor.relational.sql_whole import free

Listed = list[tuple[str, Node]]
Column = tuple[str, str]
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
    for part, is_told in (("orders", join.orders), ("strategy", join.strategy != "auto")):
        if is_told:
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


@dataclass(frozen=True, slots=True)
class _SoFar:
    """The result so far: a side, and which of its columns has each column of an input."""

    side: Side
    names: Mapping[Column, Column]

    def of(self, node: Node) -> Node:
        """Rewrite an expression over inputs as one over the result so far."""
        result: Node = renamed(node, self.names)
        return result

    def listed(self, columns: Mapping[Column, str]) -> Listed:
        """A select list of columns of inputs, each with its new name."""
        listed = [(name, self.of(column(*of))) for of, name in columns.items()]
        # Rows count even if none of their columns is read, so there is one column.
        return listed or [("there", tree("true"))]


def outer_delta(
    making: Making, sides: Sequence[Side], join: DeltaJoin, outer: Sequence[OuterInput]
) -> Table:
    """A delta join with outer inputs; its conditions are over the others.  Raises: MakingError."""
    parts = _read(sides, join, outer)
    by_alias = {side.alias: side for side in sides}
    rights = [by_alias[each.alias] for each in outer]
    inner = [side for side in sides if side not in rights]
    so_far = _matching(making, inner, parts, cartesian=join.cartesian)
    select = parts.select
    if parts.key is not None:
        used = {name.lower() for name, _ in select}
        select = [*select, (free("of_key", used), parts.key)]
    for at, (each, right) in enumerate(zip(outer, rights, strict=True)):
        there = [*so_far.names, *_columns(right)]
        columns = parts.names_behind(there, at + 1)
        is_last = each is outer[-1]
        listed = [(name, so_far.of(node)) for name, node in select]
        on = told_apart(map(so_far.of, parts.on[at]), {so_far.side.alias}, {right.alias})
        listed = listed if is_last else so_far.listed(columns)
        relation = outer_join(making, so_far.side, right, on, listed, each.kind)
        so_far = parts.so_far(relation, columns)
    if parts.key is None:
        return so_far.side.relation
    fields = tuple((name, quoted(name)) for name, _ in parts.select)
    step = Sql(select=fields, key=quoted(select[-1][0]))
    return making.linear(so_far.side.relation, "keyed", step)


class _Parts(NamedTuple):
    """The parsed expressions of a join."""

    where: list[Node]
    on: list[list[Node]]
    """The conditions of each outer input."""
    select: Listed
    key: Node | None
    alias: str
    """The alias of the result so far."""

    def so_far(self, relation: Table, columns: Mapping[Column, str]) -> _SoFar:
        """The result so far, with columns of inputs under the names in `columns`."""
        names = {of: (self.alias, name) for of, name in columns.items()}
        return _SoFar(Side(self.alias, relation), names)

    def names_behind(self, there: Iterable[Column], behind: int) -> dict[Column, str]:
        """The columns that are still read after `behind` outer inputs, with unique names."""
        later = [self.on[behind:], [node for _, node in self.select], [self.key or {}]]
        read = {names[:2] for names in columns(later)}
        used: set[str] = set()
        return {of: free("_".join(of), used) for of in there if of in read}


def _read(sides: Sequence[Side], join: DeltaJoin, outer: Sequence[OuterInput]) -> _Parts:
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
    select = [(name, over(text, every, "select")) for name, text in join.select]
    key = None if join.key is None else over(join.key, every, "key")
    return _Parts(where, on, select, key, free("joined", {alias.lower() for alias in every}))


def _conditions(texts: Iterable[str], relations: Mapping[str, Table], part: str) -> list[Node]:
    return [each for text in texts for each in conjuncts(over(text, relations, part))]


def _matching(making: Making, inner: Sequence[Side], parts: _Parts, *, cartesian: bool) -> _SoFar:
    """The join of the inputs that must match."""
    there = [each for side in inner for each in _columns(side)]
    if len(inner) == 1:
        (side,) = inner
        conditions = [text_of(without(side.alias, node)) for node in parts.where]
        relation = making.where(side.relation, "where", *conditions)
        return _SoFar(Side(side.alias, relation), {each: each for each in there})
    columns = parts.names_behind(there, 0)
    listed = _SoFar(inner[0], {}).listed(columns)
    relation = making.join(
        "matching",
        [(side.alias, side.relation) for side in inner],
        map(text_of, parts.where),
        [(name, text_of(node)) for name, node in listed],
        cartesian=cartesian,
    )
    return parts.so_far(relation, columns)


def _columns(side: Side) -> list[Column]:
    return [(side.alias, name) for name in (*side.relation.types, side.relation.key_name)]
