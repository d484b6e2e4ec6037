"""The parts of a plan that a checkpoint depends on, and those that may change freely.

Two plans compute the same from the same state if they differ only in these:

* how SQL is spelt: equal syntax trees are one expression;
* `lateness` and `idle` of event time: they say how far the next batches may go, and a
  frontier never goes back;
* hints, by which joins are laid out: `size` and `unique`;
* declared columns that nothing reads and that are not decoded.  An exception is a column called
  `key` or `value` that is no longer declared: then its name means the whole key or value.

A checkpoint continues with the operators and inputs *as it has them*: recorded errors name
expressions as they were spelt then, and arrangements follow from the hints of then.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from ikebana.codecs.sql_type import parsed
from ikebana.errors import PlanError
from ikebana.processor.linear.scope import SHORT, ExpressionError
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import planner
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import EventTime, Input, Operator, Plan

# The columns that decoding keeps of each input, None for whole rows.
Decoded = Mapping[str, Collection[str] | None]


def with_old_parts(old: Plan, new: Plan, decoded: Decoded) -> Plan:
    """The new plan, with equivalent inputs and operators taken from the old one.

    `decoded` has the columns that the old plan decodes, which may be more than it needs.
    """
    inputs = {source.name: source for source in old.inputs}
    operators = {operator.name: operator for operator in old.operators}
    whole = replace_parts(
        new,
        tuple(_input_as_it_was(inputs.get(i.name), i, decoded, new) for i in new.inputs),
        tuple(
            was if (was := operators.get(each.name)) and is_same(was, each) else each
            for each in new.operators
        ),
    )
    return new if whole is None else whole


def replace_parts(
    plan: Plan, inputs: tuple[Input, ...], operators: tuple[Operator, ...]
) -> Plan | None:
    """The plan with other inputs and operators, if these fit."""
    if (inputs, operators) == (plan.inputs, plan.operators):
        return plan
    try:
        return checked(replace(plan, inputs=inputs, operators=operators))
    except PlanError:
        return None


def is_same(one: Operator, other: Operator) -> bool:
    """Whether two operators are equal up to the spelling of SQL."""
    return one == other or _spelt(one) == _spelt(other)


def ineffective_hints(old: Plan, new: Plan) -> list[str]:
    """The hints of a new plan without effect, since old hints have laid out the joins.

    The names are paths of the pipeline file.
    """
    if not new.joins:
        return []
    old_inputs = {source.name: source for source in old.inputs}
    return [
        f"inputs.{source.name}.{hint}"
        for source in new.inputs
        if source.name in old_inputs
        for hint in ("size", "unique")
        if getattr(source, hint) != getattr(old_inputs[source.name], hint)
    ]


def _input_as_it_was(was: Input | None, now: Input, decoded: Decoded, new: Plan) -> Input:
    """The old input, with those settings of the new one that may change.

    A history that was read may be left out.
    """
    if was is not None and now.history is None:
        now = replace(now, history=was.history)
    if was is None or was == now:
        return now
    event_time = was.event_time
    if event_time is not None and now.event_time is not None:
        event_time = msgspec.structs.replace(
            event_time, lateness_ms=now.event_time.lateness_ms, idle_ms=now.event_time.idle_ms
        )
    as_it_was = replace(
        was,
        event_time=event_time,
        start=now.start,
        metadata=was.metadata,
        on_new_column=now.on_new_column,
    )
    if _bare(was) != _bare(now) or not _unread(was, now, decoded, new):
        return now
    return as_it_was


def without_free_settings(source: Input) -> Input:
    """An input without the settings that may always change: start, lateness and hints."""
    event, usual = source.event_time, EventTime()
    if event is not None:
        event = msgspec.structs.replace(
            event, lateness_ms=usual.lateness_ms, idle_ms=usual.idle_ms
        )
    return replace(
        source,
        start="earliest",
        event_time=event,
        unique=(),
        size=None,
        on_new_column="tell",
    )


def _bare(source: Input) -> Input:
    """The settings of an input that may never change."""
    event = source.event_time
    if event is not None and event.of is not None:
        event = msgspec.structs.replace(event, of=normal_spelling(event.of))
    return without_free_settings(replace(source, columns=(), metadata=(), event_time=event))


def _unread(was: Input, now: Input, decoded: Decoded, new: Plan) -> bool:
    """Whether all columns with changed declarations are neither read nor decoded.

    Without a column `key`, that name is still read: as the whole key.
    """
    declared: list[dict[str, object]] = [
        {
            **{column.name: (parsed(column.type), column.encoding) for column in source.columns},
            **dict(source.metadata),
        }
        for source in (was, now)
    ]
    changed = {
        name
        for name in declared[0].keys() | declared[1].keys()
        if declared[0].get(name) != declared[1].get(name)
    }
    if not changed:
        return True
    if any(name.lower() in SHORT for name in declared[0].keys() - declared[1].keys()):
        return False
    read = (decoded[was.name], planner.physical(new).readings[was.name].columns)
    return changed.isdisjoint(was.key) and all(
        columns is not None and changed.isdisjoint(columns) for columns in read
    )


def _spelt(operator: Operator) -> Any:
    kind = kind_of(operator)
    if kind.sql:
        return _with_spelt(operator, kind.sql)
    if steps := kind.steps(operator):
        spelt_steps = [_with_spelt(s, _STEP_SQL) if isinstance(s, Sql) else s for _, s in steps]
        return msgspec.structs.replace(operator, steps=tuple(spelt_steps))
    return operator


# The SQL fields of a step: expressions, lists of them, and mappings of names to them.
_STEP_SQL = ("where", "select", "key", "flat_map", "diff", "valid_from", "valid_until")
_PAIRS = ("select", "aggregates")


def _with_spelt(part: Any, fields: tuple[str, ...]) -> Any:
    changed: Mapping[str, Any] = {name: _spelt_value(name, getattr(part, name)) for name in fields}
    return msgspec.structs.replace(part, **changed)


def _spelt_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return normal_spelling(value)
    if name == "flat_map":
        return value[0], normal_spelling(value[1])
    if name in _PAIRS:
        return tuple((column, normal_spelling(text)) for column, text in value)
    return tuple(map(normal_spelling, value))


def normal_spelling(text: str) -> str:
    """An expression in a normal spelling; a text that is not an expression is unchanged.

    >>> [normal_spelling(each) for each in ("(orders  >= 2) -- enough", "orders::Numeric(5)")]
    ['(orders >= 2)', 'CAST(orders AS DECIMAL(5, 0))']
    """
    # DuckDB takes a while to import, and memory: only where there is SQL.
    from ikebana.processor.linear.syntax import select_of, sql_of, with_full_types

    try:
        return sql_of(with_full_types(select_of(text)))
    except (ExpressionError, RecursionError):
        return text
