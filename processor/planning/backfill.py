"""Backfill: read an input again, for an edit that needs more of its rows than the state has.

The state of an upsert has only what decoding kept of each row.  If a new plan needs more, or reads
the topic otherwise, the upsert is filled again from the beginning of reading.  A plan between the
old one and the new one does this: the old plan continues, and beside it the input is read as the
new plan reads it, with the operators that keep its rows.  No output shows these.  The input has
separate positions and catches up with those of the old plan.  When they are equal, the new plan
takes over, and finds these operators as unchanged parts.

Rows with event times count at the times at which they counted when they were first read, which
`topics.replays` finds; so their times must be computed as before.
"""

# Decision (an input is read again beside itself): Both steps are ordinary edits, so a death is
# one of an ordinary run, and outputs never wait for a topic. Portions within one edit would hold
# back everything. Price: the live part is read twice, and both states are kept.

from dataclasses import replace

import msgspec

from ikebana.processor.base.offsets import Offsets
from ikebana.processor.planning import planner
from ikebana.processor.planning.identity import normal_spelling
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import (
    EventTime,
    Input,
    OnError,
    Operator,
    Plan,
)


def read_again(before: Plan, after: Plan) -> tuple[str, ...]:
    """List the inputs of `after` that read topics which `before` reads under other input names.

    Both plans have the names of the checkpoint.
    """
    names = {source.name for source in plan_without_backfill(before).inputs}
    topics = set(plan_without_backfill(before).topics)
    return tuple(
        source.name
        for source in after.inputs
        if source.name not in names and topics.intersection(source.topics)
    )


def why_not(before: Plan, source: Input) -> str | None:
    """Why an input cannot be read again beside the present plan; None if it can."""
    if source.traits.is_updates or source.mode != "upsert":
        return "nothing keeps what it has had"
    if source.history is not None:
        return "its history is read once, by a new checkpoint"
    if source.transaction_topic is not None:
        return (
            "the times of its rows come from a topic of transactions, of which only what is open "
            "is kept, and are not read again"
        )
    if before.is_dated and origin_of(before, source) is None and _is_known(before, source):
        return (
            "its rows would get their event times otherwise than those that have been read, and "
            "are not read again"
        )
    return None


def origin_of(plan: Plan, source: Input) -> Input | None:
    """The input that has read the topics of `source` live, with the same times of rows."""
    dating = _dating(source)
    return next(
        (
            each
            for each in plan_without_backfill(plan).inputs
            if set(each.topics).issuperset(source.topics) and _dating(each) == dating
        ),
        None,
    )


def _is_known(plan: Plan, source: Input) -> bool:
    return not set(plan_without_backfill(plan).topics).isdisjoint(source.topics)


def _dating(source: Input) -> object:
    """Everything that decides the event times of an input's rows."""
    event, usual = source.event_time, EventTime()
    if event is None:
        return source.is_dated
    event = msgspec.structs.replace(event, lateness_ms=usual.lateness_ms, idle_ms=usual.idle_ms)
    if event.clock == "kafka":
        return event
    if event.of is None:
        return event, source.value_format
    columns = planner.dating_columns(source)
    declared = tuple(
        (column.name, column.type, column.encoding)
        for column in source.columns
        if columns is None or column.name in columns
    )
    event = msgspec.structs.replace(event, of=normal_spelling(event.of))
    return event, columns, declared, _reading(source)


def is_read_alike(plan: Plan, source: Input) -> bool:
    """Whether another input decodes the same keys as one that is read again."""
    return any(
        set(each.topics).issuperset(source.topics) and _reading(each) == _reading(source)
        for each in plan_without_backfill(plan).inputs
    )


def _reading(source: Input) -> object:
    """The settings of an input's codec, except columns."""
    key = (source.key_format, source.key)
    return key, source.value_format, source.tables, source.schema, source.options


def backfill_plan(before: Plan, after: Plan) -> Plan | None:
    """Make the plan that reads inputs again for `after`, beside `before`.

    None if all that `after` needs is there.
    """
    names = read_again(before, after)
    if not names:
        return None
    base = plan_without_backfill(before)
    readings = [(name, planner.physical(after).readings[name]) for name in names]
    return replace(
        base,
        on_error=on_errors_before(before.on_error, after.on_error),
        inputs=(*base.inputs, *(after.input(name) for name in names)),
        operators=(*base.operators, *(o for o in after.operators if _keeps_rows(o, names))),
        readings=(*base.readings, *readings),
        backfills=names,
    )


def on_errors_before(before: OnError, after: OnError) -> OnError:
    """How the plan between two others treats errors.

    Whether an error ends the run takes effect at once.  Whether errors are written does not: the
    edit retracts the error records of the old plan.
    """
    if before == "drop":
        return "drop"
    return "record" if after == "drop" else after


def plan_without_backfill(plan: Plan) -> Plan:
    """The plan without the inputs that it reads again, and the operators that they fill."""
    if not plan.backfills:
        return plan
    return replace(
        plan,
        inputs=tuple(each for each in plan.inputs if each.name not in plan.backfills),
        operators=tuple(o for o in plan.operators if not _keeps_rows(o, plan.backfills)),
        readings=tuple(each for each in plan.readings if each[0] not in plan.backfills),
        backfills=(),
    )


def has_caught_up(plan: Plan, positions: Offsets) -> bool:
    """Whether all inputs that are read again have been read as far as the others are."""
    return all(
        positions.get(plan.position_key(source, topic), {}) == positions.get(topic, {})
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
    )


def reads_again(plan: Plan, *names: str) -> frozenset[str]:
    """The operators that read inputs again, these or all."""
    inputs = names or plan.backfills
    return frozenset(o.name for o in plan.operators if _keeps_rows(o, inputs))


def _keeps_rows(operator: Operator, inputs: tuple[str, ...]) -> bool:
    kind = kind_of(operator)
    return kind.reads_rows and not set(kind.sources(operator)).isdisjoint(inputs)
