"""The steps of a linear operator as values of a plan, and functions that make them.

Each is a `join_function` with its own logic: see `processor.linear.functions`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.settled import settle

# The kinds of Python steps, functions of data = (key, value).
CallKind = Literal["map", "filter", "flat_map", "explode", "join_function"]


class Sql(msgspec.Struct, frozen=True, tag="sql"):
    """One SELECT over each datum by itself.

    The parts apply in this order:

    * `flat_map`, a pair (name, expression): replace the datum by one for each element of a list,
      which becomes a column of that name;
    * `where`: keep data for which all conditions are true; null counts as false;
    * `valid_from`, `valid_until`: keep a datum from the one (included) until the other
      (excluded); a bound that is null is never satisfied;
    * `diff`: multiply the diff;
    * `select`: replace the value by an object of (name, expression) pairs;
    * `key`: replace the key.

    Expressions are over the columns before the step, and that of `flat_map`.
    """

    where: tuple[str, ...] = ()
    select: tuple[tuple[str, str], ...] | None = None
    key: str | None = None
    flat_map: tuple[str, str] | None = None
    diff: str | None = None
    valid_from: str | None = None
    valid_until: str | None = None

    def __post_init__(self) -> None:
        settle(self)


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A step by a Python function of data = (key, value), or by its name "module:function".

    `moves_time` says whether a `join_function` may return times.  If so, its updates may be due
    later, and a hold after the step keeps them until then.
    """

    kind: CallKind
    function: Any
    moves_time: bool = False


class Negate(msgspec.Struct, frozen=True, tag="negate"):
    """Negate every diff."""


class Arrange(msgspec.Struct, frozen=True, tag="arrange"):
    """Put each datum whole under another key, as arrangements store it (`base.rows`).

    The key is the value of the expression in `keys`, or an object of several.  A datum for which
    one of them is null is dropped, unless `nulls`.  Without `keys` all data have the same key.
    """

    keys: tuple[str, ...]
    nulls: bool = False

    def __post_init__(self) -> None:
        settle(self)


Step = Sql | Call | Negate
# The steps of users, and the one that the planner appends.
AnyStep = Step | Arrange

StepFunction = Callable[..., Any] | str


def where(*conditions: str) -> Sql:
    """Keep the data for which all SQL conditions are true; null counts as false.

    >>> where("quantity > 9", "product = 'tea'").where
    ('quantity > 9', "product = 'tea'")
    """
    return Sql(where=conditions)


def select(columns: Mapping[str, str] | None = None, **named: str) -> Sql:
    """Replace the value by an object of these SQL expressions, by name.

    >>> select(amount="quantity * price").select
    (('amount', 'quantity * price'),)
    """
    return Sql(select=tuple({**(columns or {}), **named}.items()))


def project(*columns: str) -> Sql:
    """Keep only these columns of the value.

    >>> project("product").select
    (('product', '"product"'),)
    """
    return Sql(select=tuple((name, quoted(name)) for name in columns))


def rekey(expression: str) -> Sql:
    """Replace the key by a SQL expression; `{'a': a, 'b': b}` is a key of two columns.

    >>> rekey("customer").key
    'customer'
    """
    return Sql(key=expression)


def unnest(name: str, expression: str) -> Sql:
    """Replace each datum by one for each element of a list, as a column of that name.

    >>> unnest("line", "lines").flat_map
    ('line', 'lines')
    """
    return Sql(flat_map=(name, expression))


def valid_between(lower: str | None, upper: str | None) -> Sql:
    """Keep data from `lower` (included) until `upper` (excluded), both SQL; None is no bound.

    >>> valid_between("begins", None).valid_from
    'begins'
    """
    return Sql(valid_from=lower, valid_until=upper)


def map_(function: StepFunction) -> Call:
    """Replace each datum by `function(data)`; data are pairs (key, value).

    >>> map_("shop:renamed").function
    'shop:renamed'
    """
    return Call("map", function)


def filter_(function: StepFunction) -> Call:
    """Keep the data for which `function(data)` is true.

    >>> filter_("shop:is_large").kind
    'filter'
    """
    return Call("filter", function)


def flat_map(function: StepFunction) -> Call:
    """Replace each datum by all that `function(data)` yields.

    >>> flat_map("shop:lines").kind
    'flat_map'
    """
    return Call("flat_map", function)


def explode(function: StepFunction) -> Call:
    """Replace each datum by the `(data, diff)` that `function(data)` yields.

    The diffs multiply that of the update; they may be zero or negative.

    >>> explode("shop:weighted").kind
    'explode'
    """
    return Call("explode", function)


def join_function(function: StepFunction, *, moves_time: bool = True) -> Call:
    """Replace each datum by the `(data, time, diff)` that `function(data)` yields.

    The result has the later of this time and the update's own (None is the latter), and the
    product of both diffs.  All other steps are cases of this one.  Set `moves_time=False` if all
    times are None.

    Source of the method: `join_function` of differential dataflow's `dogsdogsdogs`.

    >>> join_function("shop:due").moves_time
    True
    """
    return Call("join_function", function, moves_time)


def negate() -> Negate:
    """Negate every diff.

    >>> negate()
    Negate()
    """
    return Negate()


def moves_time(step: AnyStep) -> bool:
    """Whether results of a step may have later times than its input."""
    match step:
        case Sql():
            return step.valid_from is not None or step.valid_until is not None
        case Call():
            return step.moves_time
        case _:
            return False
