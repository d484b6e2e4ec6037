"""Collections as multisets of rows: distinct rows, and unions, differences and intersections.

A row is what a value has in its columns; keys do not count, and nulls are equal.  Each of these
is a reduction by the whole row, whose counts say how often the row is in the result.
"""

from collections.abc import Sequence
from typing import Literal

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.unique_keys import Keys
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.making import Making

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
        found = all_of(making, sources)
        return found if every else distinct(making, found)
    first, *others = sources
    for other in others:
        first = _of_two(making, operation, first, other, every=every)
    return first


def alike(making: Making, sources: Sequence[Table]) -> list[Table]:
    """The sources with the columns of the first, in place of theirs."""
    first = sources[0]
    wanted = dict(first.types)
    found = [first]
    for each in sources[1:]:
        if len(each.types) != len(wanted):
            raise MakingError(
                f"{len(each.types)} columns cannot stand beside {len(wanted)}: {_listed(each)} "
                f"and {_listed(first)}"
            )
        pairs = zip(wanted.items(), each.types.items(), strict=True)
        for (name, kind), (other, of_other) in pairs:
            if kind != of_other:
                raise MakingError(
                    f'"{other}" is {of_other} and "{name}" is {kind}; cast one of them'
                )
        if list(each.types) != list(wanted):
            columns = zip(wanted, map(quoted, each.types), strict=True)
            each = making.select(each, "alike", columns)
        found.append(each)
    return found


def _of_two(
    making: Making, operation: SetOperation, left: Table, right: Table, *, every: bool
) -> Table:
    """Both sides together, each row marked by its side; the counts say what is left of it."""
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
    found = making.reduce(both, operation, _by_row(left), counts, step)
    # Its rows are rows of the left.
    own = left.selected((name, quoted(name)) for name in left.types)
    return making.vouched(found, found.facts.each(Keys.together, own))


def _by_row(source: Table) -> list[tuple[str, str, str]]:
    return [(name, quoted(name), kind) for name, kind in source.types.items()]


def _listed(source: Table) -> str:
    return ", ".join(source.types)
