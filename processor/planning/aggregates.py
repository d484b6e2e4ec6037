"""Parse the aggregates of a reduction, and make the linear step of their arguments.

`avg(dep_delay)` is the aggregate `avg` of a SQL expression over one row.  A select before
the reduction evaluates all arguments; it is a linear step like any other, so it is fused
and pushed down.  The kernel gets kinds of aggregates and names of fields.  Two arguments, as of
`corr(y, x)`, are one field with a pair of doubles.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ikebana.codecs.sql_type import Array, Decimal, Enum, List, Map, SqlType, Struct, type_of
from ikebana.processor.base.texts import hint
from ikebana.processor.kernels.aggregate_kinds import KINDS, user_kind
from ikebana.processor.kernels.order import SortOrder
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.user_calls import field_of
from ikebana.processor.linear.functions import FunctionError
from ikebana.processor.linear.json_text import BLOB, INSTANTS, JSON, WHOLE, compares_as_data
from ikebana.processor.linear.scope import ExpressionError, Scope
from ikebana.processor.linear.sql_functions import function_of, short_name
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import text_of, tree
from ikebana.processor.planning.plan import Reduce

_CALL = re.compile(r"\s*([a-z_][a-z_0-9]*)\s*\((.*)\)\s*", re.DOTALL | re.IGNORECASE)
_USER_CALL = re.compile(r'\s*"((?:[^"]|"")+)"\s*\((.*)\)\s*', re.DOTALL)
_TOP = re.compile(r"\s*([0-9]+)\s*,(.*)", re.DOTALL)
_DISTINCT = re.compile(r"\s*distinct\b(.*)", re.DOTALL | re.IGNORECASE)


class AggregateError(Exception):
    """Texts that are not aggregates; `problems` are pairs (name, reason)."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__("; ".join(problem for _, problem in problems))
        self.problems = problems


class ArrangedReduction(NamedTuple):
    """A reduction as it runs: the step for its arguments, and aggregates over its fields.

    `problems` are those of other aggregates, as pairs (name, reason).
    """

    step: Sql
    aggregates: tuple[Aggregate, ...]
    problems: tuple[tuple[str, str], ...]


@lru_cache(maxsize=64)
def split_reduction(reduction: Reduce) -> ArrangedReduction:
    """Split a reduction into step and aggregates."""
    arguments: dict[str, str] = {}
    aggregates = []
    problems: list[tuple[str, str]] = []
    for name, text in reduction.aggregates:
        try:
            aggregate = parsed_aggregate(name, text)
        except AggregateError as error:
            problems += error.problems
            continue
        if aggregate.field:
            # Aggregates with the same argument share a field.
            field = arguments.setdefault(aggregate.field, f"a{len(arguments)}")
            aggregate = msgspec.structs.replace(aggregate, field=field)
        aggregates.append(aggregate)
    select = tuple((field, text) for text, field in arguments.items())
    step = Sql(select=select, key=reduction.key)
    return ArrangedReduction(step, tuple(aggregates), tuple(problems))


def in_order_of_types(
    aggregates: Sequence[Aggregate], befores: Sequence[Scope]
) -> tuple[Aggregate, ...]:
    """Complete aggregates by the orders of their arguments' types.

    `befores` are the scopes after the arguments' step, one for each path from a root.
    Raises: AggregateError, with all aggregates with arguments that cannot be ordered or compared.
    """
    result = []
    problems: list[tuple[str, str]] = []
    for aggregate in aggregates:
        kinds = [before.types.get(aggregate.field, JSON) for before in befores]
        try:
            result.append(_in_order(aggregate, kinds))
        except AggregateError as error:
            problems += error.problems
    if problems:
        raise AggregateError(*problems)
    return tuple(result)


def _in_order(aggregate: Aggregate, kinds: Sequence[str]) -> Aggregate:
    traits = aggregate.traits
    if traits.takes == "number" and not all(map(_may_be_number, kinds)):
        raise AggregateError(
            (
                aggregate.name,
                f"{aggregate.kind} takes numbers, and its argument is of "
                f"{' and '.join(sorted({*kinds}))}: cast it, as in {aggregate.kind}(x::BIGINT)",
            )
        )
    if traits.takes == "number" and "FLOAT" in kinds:
        aggregate = msgspec.structs.replace(aggregate, is_single=True)
    if traits.keeps is None and not aggregate.is_of_set:
        return aggregate
    if aggregate.is_of_set and not all(map(compares_as_data, kinds)):
        raise AggregateError(
            (
                aggregate.name,
                "is of INTERVAL, of which SQL takes some that differ as data for equal, as "
                "1 month and 30 days: take epoch_us(…) of it, or its text",
            )
        )
    sorts_as_json = all(_sorts_as_json(kind) or kind in _DOUBLES for kind in kinds)
    needs_no_order = traits.is_of_distinct or traits.keeps is None
    if needs_no_order or all(map(_sorts_as_json, kinds)):
        return aggregate
    if sorts_as_json and not all(map(_is_number, kinds)):
        # Beside JSON or texts, doubles are data like these.
        return aggregate
    try:
        orders = {kind: order_of(kind) for kind in kinds}
    except NoOrderError as error:
        raise AggregateError((aggregate.name, str(error))) from None
    if "double" in orders.values() and all(map(_is_number, kinds)):
        return msgspec.structs.replace(aggregate, order="double")
    if len(set(orders.values())) > 1:
        listed = " and ".join(sorted(orders))
        raise AggregateError(
            (
                aggregate.name,
                f"is of {listed}, depending on where data come from, which have no order "
                "together: cast them to one type",
            )
        )
    return msgspec.structs.replace(aggregate, order=orders[kinds[0]])


# Most aggregates have JSON values, which need no type to be ordered.
_JSON_SORTED = {JSON, "VARCHAR", "BOOLEAN", "HUGEINT", "TIME", *WHOLE}
_DOUBLES = ("DOUBLE", "FLOAT")


def _sorts_as_json(kind: str) -> bool:
    return kind in _JSON_SORTED or isinstance(type_of(kind), Decimal)


def _is_number(kind: str) -> bool:
    numbers = (*_DOUBLES, "HUGEINT", "UHUGEINT", "UBIGINT", *WHOLE)
    return kind in numbers or isinstance(type_of(kind), Decimal)


def _may_be_number(kind: str) -> bool:
    return kind in (JSON, "VARIANT", '"NULL"') or _is_number(kind)


def parsed_aggregate(name: str, text: str) -> Aggregate:
    """Parse the text of an aggregate, with SQL as its field.  Raises: AggregateError."""
    if (user_call := _USER_CALL.fullmatch(text)) is not None:
        return _user_defined(name, user_call[1].replace('""', '"'), user_call[2].strip())
    call = _CALL.fullmatch(text)
    kind = call[1].lower() if call else ""
    if call is None or kind not in KINDS:
        raise AggregateError((name, _none_of(text, call[1] if call else text)))
    traits, argument = KINDS[kind], call[2].strip()
    limit = 0
    if traits.is_limited:
        top = _TOP.fullmatch(argument)
        if top is None or int(top[1]) < 1:
            raise AggregateError((name, f'"{text}" must say how many, as in {kind}(3, amount)'))
        limit, argument = int(top[1]), top[2].strip()
    argument, is_distinct = _once(argument)
    if traits.is_of_rows and argument == "*" and not is_distinct:
        return Aggregate(name, kind)
    if not argument:
        rows = f"; {kind}(*) is of all rows" if traits.is_of_rows else ""
        raise AggregateError((name, f'"{text}" has no argument{rows}'))
    if traits.is_of_pairs:
        argument = _pair(name, kind, argument)
    return Aggregate(name, kind, argument, limit, is_distinct=is_distinct)


def _once(argument: str) -> tuple[str, bool]:
    """An argument without DISTINCT, and whether it had DISTINCT."""
    distinct = _DISTINCT.fullmatch(argument)
    return (argument, False) if distinct is None else (distinct[1].strip(), True)


def _user_defined(name: str, long_name: str, arguments: str) -> Aggregate:
    """A call of a user-defined aggregate; its one field is null if an argument is null."""
    try:
        kind, of = user_kind(long_name), function_of(long_name)
    except FunctionError as error:
        raise AggregateError((name, str(error))) from None
    if kind is None or of is None:
        called = short_name(long_name)
        raise AggregateError((name, f"{called}() is no aggregate, as a class of Python may be"))
    arguments, is_distinct = _once(arguments)
    texts = _texts(name, "f", arguments)
    if len(texts) != len(of.parameters):
        many = len(of.parameters)
        problem = f"{of.name}() has {many} argument{'s' * (many > 1)}, not {len(texts)}"
        raise AggregateError((name, problem))
    values = [f"({text})::{kind}" for text, kind in zip(texts, of.parameters, strict=True)]
    argument = values[0]
    if len(values) > 1:
        whole = ", ".join(f"{field_of(at)} := {value}" for at, value in enumerate(values))
        there = " AND ".join(f"({text}) IS NOT NULL" for text in texts)
        argument = f"CASE WHEN {there} THEN struct_pack({whole}) END"
    return Aggregate(name, long_name, argument, is_distinct=is_distinct)


def _texts(name: str, kind: str, arguments: str) -> list[str]:
    """The arguments of a call."""
    try:
        call = tree(f"{kind}({arguments})")
        return [text_of(each["expression"]) for each in call["arguments"]]
    except ExpressionError as error:
        raise AggregateError((name, str(error))) from None


def _pair(name: str, kind: str, arguments: str) -> str:
    """SQL of a pair of doubles; null where either argument is null."""
    texts = _texts(name, kind, arguments)
    if len(texts) != 2:
        raise AggregateError((name, f"{kind}() has two arguments, as in {kind}(y, x)"))
    y, x = texts
    pair = f"struct_pack(y := ({y})::DOUBLE, x := ({x})::DOUBLE)"
    return f"CASE WHEN ({y}) IS NOT NULL AND ({x}) IS NOT NULL THEN {pair} END"


def _none_of(text: str, named: str) -> str:
    kinds = ", ".join(kind + "(…)" for kind in KINDS)
    return f'"{text}" is none of {kinds}{hint(named, KINDS, "{}(…)")}'


class NoOrderError(Exception):
    """The values of a type cannot be ordered as SQL orders them."""


def order_of(kind: str) -> SortOrder:
    """The order of a type's values; "" if SQL orders them as JSON.

    >>> order_of("BIGINT"), order_of("DATE[]")
    ('', ('list', 'instant'))

    Raises: NoOrderError.
    """
    return _order(type_of(kind))


def _order(kind: SqlType) -> SortOrder:
    name = str(kind)
    if name in ("DOUBLE", "FLOAT"):
        return "double"
    if name in INSTANTS:
        return "instant"
    if name == "TIME WITH TIME ZONE":
        return "time"
    if name == BLOB:
        return "bytes"
    if name == "INTERVAL":
        return "interval"
    match kind:
        case Enum(values):
            return ("enum", values)
        case List(of) | Array(of):
            return ("list", _order(of))
        case Struct(fields):
            return ("row", tuple((part, _order(of)) for part, of in fields))
        case Map():
            raise NoOrderError(
                f"is of type {name}: SQL orders maps by the order in which their entries stand, "
                "which JSON does not keep; take map_entries(…) of it, or a value of it"
            )
    return ""
