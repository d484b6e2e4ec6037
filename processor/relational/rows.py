"""Collections as multisets of rows: distinct and first rows, unions, differences, intersections.

A row is what a value has in its columns; keys do not count, and nulls are equal.  Each of these
but the first rows is a reduction by the whole row, whose counts say how often it is in the result.

The first rows of each group in an order are what row_number() and LIMIT ask for.  A reduction
keeps the first of what `{order..., row}` comes to; its list is taken apart into rows again.  Rows
that are equal in the order stand in that of their columns, so that the result does not depend on
how they came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.processor.linear.json_text import BLOB, INSTANTS, WHOLE, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.unique_keys import Facts, Keys
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.making import Making, struct

SetOperation = Literal["union", "except", "intersect"]
# In reductions by the whole row: what is counted of each side.
_COUNT = "n"


def distinct(
    making: Making, source: Table, what: str = "distinct", *, signed: bool = False
) -> Table:
    """Each row once, as often as it may be there; the row is its own key.

    A count below zero is of rows that have been retracted more often than inserted: they are not
    there, unless counts are `signed`.
    """
    count = source.free_column(_COUNT)
    once = Sql(where=(f"{quoted(count)} {'<>' if signed else '>'} 0",))
    return making.reduce(source, what, _by_row(source), [(count, "count(*)")], once)


def all_of(making: Making, sources: Sequence[Table]) -> Table:
    """The rows of several collections: each as often as it is in all of them."""
    return making.together("union", *alike(making, sources))


def set_operation(
    making: Making, operation: SetOperation, sources: Sequence[Table], *, every: bool
) -> Table:
    """What SQL calls UNION, EXCEPT and INTERSECT; with `every`, ALL of it."""
    if operation == "union":
        union = all_of(making, sources)
        return union if every else distinct(making, union)
    first, *others = sources
    for other in others:
        first = _of_two(making, operation, first, other, every=every)
    return first


def alike(making: Making, sources: Sequence[Table]) -> list[Table]:
    """The sources with the columns of the first, in place of theirs."""
    first = sources[0]
    types = dict(first.types)
    tables = [first]
    for each in sources[1:]:
        if len(each.types) != len(types):
            raise MakingError(
                f"{len(each.types)} columns cannot stand beside {len(types)}: {_listed(each)} "
                f"and {_listed(first)}"
            )
        pairs = zip(types.items(), each.types.items(), strict=True)
        for (name, kind), (other, of_other) in pairs:
            if kind != of_other:
                raise MakingError(
                    f'"{other}" is {of_other} and "{name}" is {kind}; cast one of them'
                )
        if list(each.types) != list(types):
            columns = zip(types, map(quoted, each.types), strict=True)
            each = making.select(each, "alike", columns)
        tables.append(each)
    return tables


def _of_two(
    making: Making, operation: SetOperation, left: Table, right: Table, *, every: bool
) -> Table:
    """Both sides together, each row marked by its side; its counts decide how often it remains."""
    left, right = alike(making, (left, right))
    side = left.free_column("side")
    marked = [
        making.select(
            each, f"{operation}.{name}", [*((c, quoted(c)) for c in left.types), (side, mark)]
        )
        for each, name, mark in ((left, "left", "true"), (right, "right", "NULL::BOOLEAN"))
    ]
    both = making.together(f"{operation}.both", *marked)
    lefts, rows = left.free_column("lefts"), left.free_column("rows")
    counts = [(lefts, f"count({quoted(side)})"), (rows, "count(*)")]
    in_left = f"greatest({quoted(lefts)}, 0)"
    in_right = f"greatest({quoted(rows)} - {quoted(lefts)}, 0)"
    match operation, every:
        case "except", True:
            step = Sql(diff=f"greatest({in_left} - {in_right}, 0)")
        case "except", False:
            step = Sql(where=(f"{in_left} > 0", f"{in_right} = 0"))
        case _, True:
            step = Sql(diff=f"least({in_left}, {in_right})")
        case _:
            step = Sql(where=(f"{in_left} > 0", f"{in_right} > 0"))
    result = making.reduce(both, operation, _by_row(left), counts, step)
    # Its rows are rows of the left.
    facts = left.selected((name, quoted(name)) for name in left.types)
    return making.vouched(result, result.facts.each(Keys.together, facts))


def _by_row(source: Table) -> list[tuple[str, str, str]]:
    return [(name, quoted(name), kind) for name, kind in source.types.items()]


def _listed(source: Table) -> str:
    return ", ".join(source.types)


# No timestamp has so many microseconds.
_INFINITE = 2**63 - 1
_DIGITS = "0123456789ABCDEF"


@dataclass(frozen=True, slots=True)
class Order:
    """A column by which rows are ordered."""

    column: str
    descending: bool = False
    nulls_first: bool = False


def first_rows(
    making: Making,
    source: Table,
    partition: Sequence[str],
    orders: Sequence[Order],
    limit: int,
    what: str = "first",
    *,
    number: str | None = None,
) -> Table:
    """The first `limit` rows of each partition, by columns of the source.

    `number` is a column for the place of each among them, from 1 on.
    """
    parts, kinds, aggregate = ordering(source, orders)
    columns = [(name, quoted(name)) for name in source.types]
    pair = struct((*((f"o{at}", sql) for at, sql in enumerate(parts)), ("row", struct(columns))))
    by = [(name, quoted(name), source.types[name]) for name in partition]
    reduced = making.reduced(source, what, by, [("rows", f"{aggregate}({limit}, {pair})")])
    row = ", ".join(f"{quoted(name)} {kind}" for name, kind in source.types.items())
    listed = ", ".join(f"o{at} {kind}" for at, kind in enumerate(kinds))
    whole = f'STRUCT({listed}{", " if listed else ""}"row" STRUCT({row}))'
    listed_rows, at = '"rows"', '"row"'
    extra: tuple[tuple[str, str], ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    if number is not None:
        ranks = 'range(1, json_array_length("rows")::BIGINT + 1)'
        listed_rows, at = f'list_zip(CAST("rows" AS JSON[]), {ranks})', '"row"[1]'
        extra, shown = (("n", '"row"[2]'),), ((number, "n"),)
    steps = (
        Sql(flat_map=("row", listed_rows), select=(("r", f'({at}::{whole})."row"'), *extra)),
        Sql(select=(*((name, f"r.{quoted(name)}") for name in source.types), *shown)),
    )
    return making.linear(reduced, f"{what}.rows", *steps, facts=_facts(source, partition, limit))


def _facts(source: Table, partition: Sequence[str], limit: int) -> Facts:
    """What is known of the first rows: they are rows of the source, and have another key."""
    key, by = frozenset((KEY,)), frozenset(partition)

    def of(keys: Keys) -> Keys:
        keys = keys.with_dependencies([(key, by), (by, key)])
        if limit > 1:
            return keys
        return keys.with_unique(keys.minimal(partition), [KEY, *source.types])

    return source.selected((name, quoted(name)) for name in source.types).each(of)


def ordering(source: Table, orders: Sequence[Order]) -> tuple[list[str], list[str], str]:
    """SQL to order rows by, its types, and the aggregate that keeps the first."""
    parts, kinds, descending = in_one_direction(
        [
            Sorted(
                quoted(order.column),
                source.types[order.column],
                order.descending,
                order.nulls_first,
                order.column,
            )
            for order in orders
        ]
    )
    return parts, kinds, "top" if descending else "bottom"


class Sorted(NamedTuple):
    """SQL to order by, its type, and the way."""

    sql: str
    kind: str
    descending: bool
    nulls_first: bool
    name: str
    """What errors call it."""


def in_one_direction(orders: Sequence[Sorted]) -> tuple[list[str], list[str], bool]:
    """SQL to order by in one direction, its types, and whether this is descending.

    Orders of one direction are kept as they are.  In others, numbers, times and texts are turned
    around.  Of a struct, null comes last, and first if it is descending.
    """
    descending = bool(orders) and all(order.descending for order in orders)
    parts: list[str] = []
    kinds: list[str] = []
    for order in orders:
        sql, kind = order.sql, order.kind
        turned = order.descending != descending
        if order.nulls_first != descending:
            parts.append(f"({sql} IS NOT NULL)")
            kinds.append("BOOLEAN")
        if turned and kind in ("DOUBLE", "FLOAT"):
            # NaN is the greatest, and turned around is itself.
            parts.append(f"NOT isnan({sql})")
            kinds.append("BOOLEAN")
        if turned:
            sql, kind = _turned(order)
        parts.append(sql)
        kinds.append(kind)
    return parts, kinds, descending


def _turned(order: Sorted) -> tuple[str, str]:
    name, kind = order.sql, order.kind
    if kind in ("VARCHAR", BLOB, "UUID"):
        # In digits that are turned around; what goes on comes before what has ended.
        digits = f"hex({name}::VARCHAR)" if kind == "UUID" else f"hex({name})"
        return f"translate({digits}, '{_DIGITS}', '{_DIGITS[::-1]}') || 'G'", "VARCHAR"
    if kind in WHOLE or kind in ("HUGEINT", "UBIGINT"):
        return f"-({name}::HUGEINT)", "HUGEINT"
    if kind in ("DOUBLE", "FLOAT") or isinstance(type_of(kind), Decimal):
        return f"-{name}", kind
    if kind == "DATE":
        return f"DATE '1970-01-01' - {name}", "BIGINT"
    if kind in INSTANTS and kind != "TIMESTAMP_NS":
        # Of infinity there are no microseconds; it lies beyond all that have some.
        infinite = f"CASE WHEN {name} > 'epoch'::{kind} THEN -{_INFINITE} ELSE {_INFINITE} END"
        ends = f"CASE WHEN {name} IS NOT NULL THEN {infinite} END"
        return f"coalesce(-epoch_us({name}), {ends})", "BIGINT"
    if kind == "BOOLEAN":
        return f"NOT {name}", kind
    raise MakingError(
        f'"{order.name}" is {kind}, which is ordered in another direction than other columns; '
        "order all of them in one direction, or this one by a number"
    )
