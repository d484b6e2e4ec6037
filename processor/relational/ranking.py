"""The first rows of each group in an order: what row_number() and LIMIT are asked for.

A reduction keeps the first of what `{order..., row}` comes to; its list is taken apart into rows
again.  Rows that are equal in the order stand in that of their columns, so that the result does
not depend on how they came.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.processor.linear.json_text import INSTANTS, WHOLE, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.unique_keys import Facts, Keys
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.making import Making, struct

# No timestamp has so many microseconds.
_INFINITE = 2**63 - 1


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
) -> Table:
    """The first `limit` rows of each partition, by columns of the source."""
    parts, kinds, aggregate = ordering(source, orders)
    own = [(name, quoted(name)) for name in source.types]
    pair = struct((*((f"o{at}", sql) for at, sql in enumerate(parts)), ("row", struct(own))))
    by = [(name, quoted(name), source.types[name]) for name in partition]
    reduced = making.reduced(source, what, by, [("rows", f"{aggregate}({limit}, {pair})")])
    row = ", ".join(f"{quoted(name)} {kind}" for name, kind in source.types.items())
    listed = ", ".join(f"o{at} {kind}" for at, kind in enumerate(kinds))
    whole = f'STRUCT({listed}{", " if listed else ""}"row" STRUCT({row}))'
    steps = (
        Sql(flat_map=("row", '"rows"'), select=(("r", f'("row"::{whole})."row"'),)),
        Sql(select=tuple((name, f"r.{quoted(name)}") for name in source.types)),
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
    """SQL by whose order rows stand, its types, and the aggregate that keeps the first.

    Orders of one direction are kept as they are.  In others, numbers and times are turned
    around.  Of a struct, null comes last, and first if it is descending.
    """
    descending = bool(orders) and all(order.descending for order in orders)
    parts: list[str] = []
    kinds: list[str] = []
    for order in orders:
        name, kind = quoted(order.column), source.types[order.column]
        turned = order.descending != descending
        if order.nulls_first != descending:
            parts.append(f"({name} IS NOT NULL)")
            kinds.append("BOOLEAN")
        if turned and kind in ("DOUBLE", "FLOAT"):
            # NaN is the greatest, and turned around is itself.
            parts.append(f"NOT isnan({name})")
            kinds.append("BOOLEAN")
        if turned:
            name, kind = _turned(order, name, kind)
        parts.append(name)
        kinds.append(kind)
    return parts, kinds, "top" if descending else "bottom"


def _turned(order: Order, name: str, kind: str) -> tuple[str, str]:
    if kind in WHOLE or kind == "HUGEINT":
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
        f'"{order.column}" is {kind}, which is ordered in another direction than other columns; '
        "order all of them in one direction, or this one by a number"
    )
