"""Window functions over a collection: its rows, each with the values of functions as columns.

Rows are partitioned and ordered by columns, as OVER (…) says.  Ties of the order are broken by all
columns of the row, as in `rows.first_rows`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ikebana.processor.kernels.window_values import WindowFunction
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.relations import Keys, KnownKeys
from ikebana.processor.relational.making import Making, Table, struct
from ikebana.processor.relational.rows import Order, ordering


@dataclass(frozen=True, slots=True)
class Over:
    """The window of OVER (…) without its frame: columns to partition by and to order by."""

    partition: tuple[str, ...] = ()
    orders: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A column with the values of a function; `sql` converts what the operator returns."""

    name: str
    function: WindowFunction
    sql: Callable[[str], str] = str


def with_functions(
    making: Making,
    source: Table,
    over: Over,
    results: Sequence[Result],
    *,
    most: int = 0,
    what: str = "over",
) -> Table:
    """The rows with a column for each result.

    With `most`, only rows are needed for which the first result, a rank, is at most that.
    """
    by = [(name, quoted(name), source.types[name]) for name in over.partition]
    order, is_descending = order_of_rows(source, over.orders)
    functions = tuple(each.function for each in results)
    table = making.windowed(
        source, what, by, functions, order, is_descending=is_descending, most=most
    )
    columns = [(name, f'"row".{quoted(name)}') for name in source.types]
    values = [(each.name, each.sql(f"w{at}")) for at, each in enumerate(results)]
    facts = _facts(source, over, results)
    return making.linear(table, f"{what}.rows", Sql(select=(*columns, *values)), facts=facts)


def order_of_rows(source: Table, orders: Sequence[Order]) -> tuple[str | None, bool]:
    """SQL of the order of rows, None without one; and whether it is descending."""
    parts, _, aggregate = ordering(source, orders)
    order = struct((f"o{at}", sql) for at, sql in enumerate(parts)) if parts else None
    return order, aggregate == "top"


def _facts(source: Table, over: Over, results: Sequence[Result]) -> KnownKeys:
    """The facts of the result: the rows are those of the source, with the partition as key."""
    key, by = frozenset((KEY,)), frozenset(over.partition)
    numbers = [each.name for each in results if each.function.kind == "row_number"]

    def of(keys: Keys) -> Keys:
        keys = keys.with_dependencies([(key, by), (by, key)])
        every = [KEY, *source.types, *(each.name for each in results)]
        for number in numbers:
            keys = keys.with_unique([*over.partition, number], every)
        return keys

    return source.selected((name, quoted(name)) for name in source.types).each(of)
