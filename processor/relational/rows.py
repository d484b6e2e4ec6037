"""Collections as multisets of rows: distinct and first rows, unions, differences, intersections.

A row is the tuple of a value's columns; its key does not count, and nulls are equal.  All of these
except the first rows are reductions by the whole row, with counts that decide how often the row is
in the result.

The first rows of each group in an order serve row_number() and LIMIT.  A reduction keeps the first
of the structs `{order..., row}`, and its list is unnested into rows again.  Ties of the order are
broken by all columns of the row, so the result does not depend on the order of arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ikebana.codecs.sql_type import Decimal, Enum, type_of
from ikebana.processor.linear.json_text import BLOB, INSTANTS, WHOLE, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.relations import Keys, KnownKeys
from ikebana.processor.relational.making import Making, MakingError, Table, struct

SetOperation = Literal["union", "except", "intersect"]
# The name of the count in reductions by the whole row.
_COUNT = "n"


def distinct(
    making: Making, source: Table, what: str = "distinct", *, signed: bool = False
) -> Table:
    """Each row once, however often it occurs; the row is its own key.

    A count below zero belongs to a row that was retracted more often than inserted.  It is left
    out, unless counts are `signed`.
    """
    count = source.free_column(_COUNT)
    once = Sql(where=(f"{quoted(count)} {'<>' if signed else '>'} 0",))
    return making.reduce(source, what, _by_row(source), [(count, "count(*)")], once)


def union_all(making: Making, sources: Sequence[Table]) -> Table:
    """UNION ALL: each row as often as it is in all of the collections together."""
    return making.together("union", *with_columns_of_first(making, sources))


def set_operation(
    making: Making, operation: SetOperation, sources: Sequence[Table], *, every: bool
) -> Table:
    """UNION, EXCEPT and INTERSECT of SQL; with `every`, their ALL variants."""
    if operation == "union":
        union = union_all(making, sources)
        return union if every else distinct(making, union)
    first, *others = sources
    for other in others:
        first = _of_two(making, operation, first, other, every=every)
    return first


def with_columns_of_first(making: Making, sources: Sequence[Table]) -> list[Table]:
    """The sources with columns renamed to those of the first.  Raises: MakingError."""
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
    """EXCEPT or INTERSECT: counts each row per side, and keeps it as often as the counts say."""
    left, right = with_columns_of_first(making, (left, right))
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
    written: str = field(default="", compare=False)
    """The expression in the query, for errors."""


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

    `number` names a column for the rank of each row in its partition, from 1.
    """
    parts, kinds, aggregate = ordering(source, orders)
    columns = [(name, quoted(name)) for name in source.types]
    pair = struct((*((f"o{at}", sql) for at, sql in enumerate(parts)), ("row", struct(columns))))
    by = [(name, quoted(name), source.types[name]) for name in dict.fromkeys(partition)]
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


def _facts(source: Table, partition: Sequence[str], limit: int) -> KnownKeys:
    """The facts of first rows: they are rows of the source, with the partition as key."""
    key, by = frozenset((KEY,)), frozenset(partition)

    def of(keys: Keys) -> Keys:
        keys = keys.with_dependencies([(key, by), (by, key)])
        if limit > 1:
            return keys
        return keys.with_unique(keys.minimal(partition), [KEY, *source.types])

    return source.selected((name, quoted(name)) for name in source.types).each(of)


def ordering(source: Table, orders: Sequence[Order]) -> tuple[list[str], list[str], str]:
    """SQL of the order of rows, its types, and the aggregate that keeps the first rows."""
    parts, kinds, descending = in_one_direction(
        [
            Sorted(
                quoted(order.column),
                source.types[order.column],
                order.descending,
                order.nulls_first,
                order.written or order.column,
            )
            for order in orders
        ]
    )
    return parts, kinds, "top" if descending else "bottom"


class Sorted(NamedTuple):
    """An expression to order by: SQL, type and direction."""

    sql: str
    kind: str
    descending: bool
    nulls_first: bool
    name: str
    """Its name in errors."""


def in_one_direction(orders: Sequence[Sorted]) -> tuple[list[str], list[str], bool]:
    """SQL to order by in one direction, its types, and whether this is descending.

    If all have one direction, they stay as they are.  Otherwise the expressions of the other
    direction are inverted: numbers and times are negated, and texts get inverted digits.  In a
    struct, nulls come last, and first in a descending order.
    """
    descending = bool(orders) and all(order.descending for order in orders)
    parts: list[str] = []
    kinds: list[str] = []
    for order in orders:
        if order.kind == "INTERVAL":
            # Equal lengths may differ as data, as 1 month and 30 days do.
            order = order._replace(sql=_length(order.sql), kind="HUGEINT")
        sql, kind = order.sql, order.kind
        turned = order.descending != descending
        if order.nulls_first != descending:
            parts.append(f"({sql} IS NOT NULL)")
            kinds.append("BOOLEAN")
        if turned and kind in ("DOUBLE", "FLOAT"):
            # NaN is the greatest number, and -NaN is NaN; so a flag orders it.
            parts.append(f"NOT isnan({sql})")
            kinds.append("BOOLEAN")
        if turned:
            sql, kind = _turned(order)
        parts.append(sql)
        kinds.append(kind)
    return parts, kinds, descending


def _length(sql: str) -> str:
    """The microseconds of an interval as SQL compares intervals, with months of 30 days.

    `epoch_us` is the same, but fails where they need more than 64 bits.
    """
    year, month, day, hour, minute, micros = (
        f"date_part('{part}', {sql})"
        for part in ("year", "month", "day", "hour", "minute", "microsecond")
    )
    days = f"(({year} * 12 + {month}) * 30 + {day})::HUGEINT"
    return f"({days} * 86400000000 + ({hour} * 60 + {minute}) * 60000000 + {micros})"


def _turned(order: Sorted) -> tuple[str, str]:
    name, kind = order.sql, order.kind
    if kind in ("VARCHAR", BLOB, "UUID"):
        # Hex digits are inverted; 'G' at the end lets a longer text come before its prefix.
        digits = f"hex({name}::VARCHAR)" if kind == "UUID" else f"hex({name})"
        return f"translate({digits}, '{_DIGITS}', '{_DIGITS[::-1]}') || 'G'", "VARCHAR"
    if kind in WHOLE or kind in ("HUGEINT", "UBIGINT"):
        # The least HUGEINT has no negative.
        return f"-1 - {name}::HUGEINT", "HUGEINT"
    if kind in ("DOUBLE", "FLOAT") or isinstance(type_of(kind), Decimal):
        return f"-{name}", kind
    if kind == "DATE":
        return f"DATE '1970-01-01' - {name}", "BIGINT"
    if kind == "TIME":
        return f"-epoch_us({name})", "BIGINT"
    if kind == "TIME WITH TIME ZONE":
        # It sorts by instant, then from east to west.
        east = f"date_part('timezone', {name})"
        return f"{east} - (epoch_us({name}) - {east} * 1000000)::HUGEINT * 1000000", "HUGEINT"
    if isinstance(type_of(kind), Enum):
        return f"-enum_code({name})::INTEGER", "INTEGER"
    if kind in INSTANTS:
        unit = "ns" if kind == "TIMESTAMP_NS" else "us"
        # Infinity has no microseconds, and lies beyond all times that have.
        infinite = f"CASE WHEN {name} > 'epoch'::{kind} THEN -{_INFINITE} ELSE {_INFINITE} END"
        ends = f"CASE WHEN {name} IS NOT NULL THEN {infinite} END"
        return f"coalesce(-epoch_{unit}({name}), {ends})", "BIGINT"
    if kind == "BOOLEAN":
        return f"NOT {name}", kind
    raise MakingError(
        f'"{order.name}" is {kind}, which is ordered in another direction than other columns; '
        "order all of them in one direction, or this one by a number"
    )
