"""Recursions made of operators: operators that depend on variables go into a loop.

A variable is a collection that is defined by a query that reads it.  Operators over a variable are
made as over any other collection.  `looped` then moves all operators that depend on variables into
the loop of one reduction.  Operators that depend on none stay outside and are sources of the loop:
they run in parallel, and other views share them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ikebana.processor.base.texts import counted
from ikebana.processor.linear.json_text import BLOB, quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.aggregates import OF, ROW
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.loops import source_name, unfit, variable_name
from ikebana.processor.planning.plan import Concat, Linear, Loop, LoopVariable, Operator, Reduce
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.making import Making, key_of, struct

ROUNDS = 1000
"""How many rounds a recursion may take by default."""


class Recursive(NamedTuple):
    """A variable, and the collection that is its value in the next round."""

    variable: Table
    result: Table


class Limits(NamedTuple):
    """How many rounds a recursion may take, and whether anything in it may read keys."""

    rounds: int = ROUNDS
    reads_keys: bool = False


def looped(
    making: Making,
    recursions: Sequence[Recursive],
    limits: Limits,
    divided: Mapping[str, str] | None = None,
) -> list[Table]:
    """The fixed points of variables: their collections when a round changes nothing.

    `divided` names a column of each source, such that rows with different values in it never meet.

    Raises: MakingError.
    """
    variables = {each.variable.name for each in recursions}
    operators = making.extract(variables)
    for operator in operators.values():
        if (problem := unfit(operator)) is not None:
            raise MakingError(problem)
    read = [name for each in operators.values() for name in kind_of(each).sources(each)]
    read += [each.result.name for each in recursions]
    sources = [name for name in dict.fromkeys(read) if name not in {*operators, *variables}]
    named = {name: source_name(at) for at, name in enumerate(sources)}
    named |= {each.variable.name: variable_name(at) for at, each in enumerate(recursions)}
    named |= {name: f"o{at}" for at, name in enumerate(operators)}
    body = tuple(_renamed(operator, named) for operator in operators.values())
    tables = [making.relation(name) for name in sources]
    shown = [each.result.name for each in recursions]
    columns = [_columns(table, operators.values(), shown) for table in tables]
    loop = Loop(
        tuple(columns),
        tuple(
            LoopVariable(tuple(v.types.items()), named[result.name]) for v, result in recursions
        ),
        body,
        limits.rounds,
    )
    by = divided or {}
    rows = [
        _tagged(making, table, at, of, by.get(table.name), reads_keys=limits.reads_keys)
        for at, (table, of) in enumerate(zip(tables, columns, strict=True))
    ]
    together = rows[0] if len(rows) == 1 else making.together("recursive.rows", *rows)
    output = making.loop(together, "recursive", loop, total=divided is None)
    return [_result(making, output, at, each) for at, each in enumerate(recursions)]


def _renamed(operator: Operator, named: Mapping[str, str]) -> Operator:
    copy = kind_of(operator).with_sources(operator, lambda name: named[name])
    # Declared keys matter to planners only: a loop needs none.
    more = {"unique": ()} if isinstance(operator, Linear | Concat) else {}
    renamed: Operator = msgspec.structs.replace(copy, name=named[operator.name], **more)
    return renamed


def _columns(
    table: Table, body: Iterable[Operator], shown: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The columns of a source that a loop may read: those that its SQL mentions."""
    whole = {name for each in body if isinstance(each, Concat) for name in each.sources}
    if table.name in {*whole, *shown}:
        return tuple(table.types.items())
    readers = [each for each in body if table.name in kind_of(each).sources(each)]
    text = msgspec.json.encode(readers).decode().lower()
    named = [name for name in table.types if not name.isalnum() or name.lower() in text]
    # Rows count even if none of their columns is read, so one column stays.
    return tuple((name, table.types[name]) for name in named or list(table.types)[:1])


def _tagged(
    making: Making,
    table: Table,
    number: int,
    columns: Sequence[tuple[str, str]],
    by: str | None,
    *,
    reads_keys: bool,
) -> Table:
    """The rows of a source with the source's number, keyed by the dividing column if any."""
    if reads_keys and table.key == BLOB:
        raise MakingError(
            f'a recursion reads keys, and those of "{table.name}" are bytes: read a view that '
            "selects decode(key)"
        )
    key = table.key_name if reads_keys else "NULL"
    row = struct((name, quoted(name)) for name, _ in columns)
    select = (OF, str(number)), ("key", key), (ROW, row)
    step = Sql(select=select, key=None if by is None else quoted(by))
    return making.linear(table, "recursive.of", step)


def _result(making: Making, loop: Table, number: int, of: Recursive) -> Table:
    """The rows of a variable; each is its own key."""
    types = of.variable.types
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
    row = (("r", f"{quoted(ROW)}::STRUCT({listed})"),)
    by = tuple((name, f"r.{quoted(name)}", kind) for name, kind in types.items())
    columns = tuple((name, sql) for name, sql, _ in by)
    steps = (
        Sql(where=(f"{quoted(OF)} = {number}",), select=row),
        Sql(select=columns, key=key_of(by)),
    )
    select = [(name, quoted(name)) for name in of.result.types]
    return making.linear(loop, "recursive.rows", *steps, facts=of.result.selected(select))


def is_linear(making: Making, variable: Table) -> bool:
    """Whether a recursive part has the same result over all rows as over each round's rows."""
    behind = making.behind({variable.name})
    for operator in behind.values():
        match operator:
            case Reduce():
                return False
            case DeltaJoin(inputs=inputs):
                read = [each.relation for each in inputs]
                if sum(name == variable.name or name in behind for name in read) > 1:
                    return False
    return True


def of_types(making: Making, source: Table, columns: Mapping[str, str], what: str) -> Table:
    """Rename and cast the columns of a collection to these names and types, in order.

    Raises: MakingError.
    """
    if len(source.types) != len(columns):
        raise MakingError(
            f"{what} has {counted(len(columns), 'column')}, and its query "
            f"{counted(len(source.types), 'column')}: {', '.join(source.types)}"
        )
    if list(source.types.items()) == list(columns.items()):
        return source
    return making.select(source, "recursive.columns", _cast(source.types, columns))


def _cast(types: Mapping[str, str], columns: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for (name, kind), (other, of_other) in zip(columns.items(), types.items(), strict=True):
        yield name, quoted(other) if kind == of_other else f"CAST({quoted(other)} AS {kind})"
