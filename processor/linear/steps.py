"""The steps of a linear operator as values of a plan, and functions that make them.

Each is `join_function` with a logic of its own: see `processor.linear.logic`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ikebana.processor.linear.settled import settle

# What a Python step does with data = (key, value).
Kind = Literal["map", "filter", "flat_map", "explode", "join_function"]


class Sql(msgspec.Struct, frozen=True, tag="sql"):
    """One SELECT over each datum by itself.

    In this order: `flat_map` makes one datum of each element of a list, which is then a
    column of that name; `where` keeps those for which all conditions are true (null is
    not); `select` makes the value an object of (name, expression) pairs, `key` the key;
    `diff` multiplies the diff; from `valid_from` (included) until `valid_until`
    (excluded) the datum counts, and a bound that is null is never satisfied.
    """

    where: tuple[str, ...] = ()
    select: tuple[tuple[str, str], ...] | None = None
    key: str | None = None
    flat_map: tuple[str, str] | None = None
    diff: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None

    def __post_init__(self) -> None:
        settle(self, "where")


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A Python function of data = (key, value), or its name as "module:function".

    `moves_time` says whether a `join_function` may give times; what may is followed by
    a hold.
    """

    kind: Kind
    function: Any
    moves_time: bool = False


class Negate(msgspec.Struct, frozen=True, tag="negate"):
    """Negate every diff."""


class Arrange(msgspec.Struct, frozen=True, tag="arrange"):
    """Each datum whole under another key, as arrangements have it (`rows.datum`).

    The key is what `keys` come to: one expression's value, or an object of several.  A datum
    of which one is null has no key, and is dropped unless `nulls`; without `keys` all have one.
    """

    keys: tuple[str, ...]
    nulls: bool = False


Step = Sql | Call | Negate
# What users write, and what the planner puts behind it.
AnyStep = Step | Arrange

Function = Callable[..., Any] | str


def where(*conditions: str) -> Sql:
    """Keep the data for which all SQL conditions are true."""
    return Sql(where=conditions)


def select(columns: Mapping[str, str] | None = None, **named: str) -> Sql:
    """Replace the value by an object of these SQL expressions, by name."""
    return Sql(select=tuple({**(columns or {}), **named}.items()))


def project(*columns: str) -> Sql:
    """Keep only these columns of the value."""
    return Sql(select=tuple((name, _quoted(name)) for name in columns))


def rekey(expression: str) -> Sql:
    """Replace the key by a SQL expression; `{'a': a, 'b': b}` is a key of two columns."""
    return Sql(key=expression)


def unnest(name: str, expression: str) -> Sql:
    """Replace each datum by one for each element of a list, as a column of that name."""
    return Sql(flat_map=(name, expression))


def valid_between(lower: str | None, upper: str | None) -> Sql:
    """Keep data from `lower` (included) until `upper` (excluded), SQL expressions."""
    return Sql(valid_from=lower, valid_until=upper)


def map_(function: Function) -> Call:
    """`function(data) -> data`, one for one."""
    return Call("map", function)


def filter_(function: Function) -> Call:
    """Keep the data for which `function(data)` is true."""
    return Call("filter", function)


def flat_map(function: Function) -> Call:
    """`function(data) -> [data, ...]`."""
    return Call("flat_map", function)


def explode(function: Function) -> Call:
    """`function(data) -> [(data, diff), ...]`; diffs may be zero or negative."""
    return Call("explode", function)


def join_function(function: Function, *, moves_time: bool = True) -> Call:
    """`function(data) -> [(data, time or None, diff), ...]`, the one that all others are."""
    return Call("join_function", function, moves_time)


def negate() -> Negate:
    """Negate every diff."""
    return Negate()


def moves_time(step: AnyStep) -> bool:
    """Whether an update may come out at a later time than it went in."""
    match step:
        case Sql():
            return step.valid_from is not None or step.valid_until is not None
        case Call():
            return step.moves_time
        case _:
            return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
