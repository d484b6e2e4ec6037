"""Read an input again beside its readers of before, for an edit that needs more of its rows.

The state of an upsert has of each row what decoding has kept.  If a new plan needs more, or reads
the topic otherwise, the upsert is filled once more from the topic's beginning.  This is done by
a plan between the old one and the new one: the old plan, which goes on, and beside it the input
as the new plan reads it, with the operators that keep its rows.  Nothing shows these.  The input
has positions of its own and catches up with those of the old plan.  When they are equal, the new
plan takes over: for it the operators are as they were.
"""

from collections.abc import Mapping
from dataclasses import replace

from ikebana.processor.planning import planner
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Input, KeptReading, Operator, Plan

Positions = Mapping[str, Mapping[int, int]]


def read_again(before: Plan, after: Plan) -> tuple[str, ...]:
    """List the inputs of `after` whose topics `before` has read for inputs of other names.

    Both plans have the names that the checkpoint knows.
    """
    known = {source.name for source in core(before).inputs}
    topics = set(core(before).topics)
    return tuple(
        source.name
        for source in after.inputs
        if source.name not in known and topics.intersection(source.topics)
    )


def why_not(before: Plan, source: Input) -> str | None:
    """Why an input cannot be read again beside the present plan; None if it can."""
    if source.traits.is_updates or source.mode != "upsert":
        return "nothing keeps what it has had"
    if before.is_dated or source.is_dated:
        return "its rows wait for their times, and are not read again"
    if source.start != "earliest":
        return "it has been read from the end of its topic on, and is not read again"
    return None


def beside(before: Plan, after: Plan) -> Plan | None:
    """Make the plan that reads inputs again for `after`, beside `before`.

    None if all that `after` needs is there.
    """
    names = read_again(before, after)
    if not names:
        return None
    base = core(before)
    found = ((name, planner.physical(after).readings[name]) for name in names)
    kept = [
        (name, KeptReading(each.columns, each.key_filters, each.pushed)) for name, each in found
    ]
    return replace(
        base,
        on_error=after.on_error,
        inputs=(*base.inputs, *(after.input(name) for name in names)),
        operators=(*base.operators, *(o for o in after.operators if _keeps_rows(o, names))),
        readings=(*base.readings, *kept),
        backfills=names,
    )


def core(plan: Plan) -> Plan:
    """The plan without the inputs that it reads again, and what they fill."""
    if not plan.backfills:
        return plan
    return replace(
        plan,
        inputs=tuple(each for each in plan.inputs if each.name not in plan.backfills),
        operators=tuple(o for o in plan.operators if not _keeps_rows(o, plan.backfills)),
        readings=tuple(each for each in plan.readings if each[0] not in plan.backfills),
        backfills=(),
    )


def has_caught_up(plan: Plan, positions: Positions) -> bool:
    """Whether all inputs that are read again have been read as far as the others are."""
    return all(
        positions.get(plan.position_key(source, topic), {}) == positions.get(topic, {})
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
    )


def left(plan: Plan, positions: Positions) -> int:
    """Count the offsets that are still to be read again."""
    return sum(
        max(0, end - positions.get(plan.position_key(source, topic), {}).get(partition, 0))
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
        for partition, end in positions.get(topic, {}).items()
    )


def _keeps_rows(operator: Operator, inputs: tuple[str, ...]) -> bool:
    kind = kind_of(operator)
    return kind.reads_rows and not set(kind.sources(operator)).isdisjoint(inputs)
