"""Explain which steps run in the decoding of an input, and why the others do not.

The pushed steps are read from the physical plan.  The reasons for the others are derived here
again, from the steps, and tests check that both agree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from ikebana.processor.base.texts import counted, printable
from ikebana.processor.explain import operators
from ikebana.processor.explain.words import listed, named_lines, one_line
from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.functions import name_of
from ikebana.processor.linear.query import compiled
from ikebana.processor.linear.scope import KEY, ExpressionError, Scope, frozen
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.linear.syntax import condition_texts
from ikebana.processor.planning import planner, starts
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.input_rows import scope_of_input
from ikebana.processor.planning.plan import EventTime, Input, Plan, Reading
from ikebana.processor.planning.planner import Branch, Physical
from ikebana.processor.topics.input_codec import decoding_needs

_UPDATES = {
    True: "updates with their own times, as far as progress has closed them",
    False: "facts with their own times, each kept once until progress has closed its time",
}
_KEY_RULE = (
    "Before an upsert only conditions over the key may drop rows: a key passes always or never"
)


class Condition(NamedTuple):
    """A condition of a branch: one of those that AND connects."""

    operator: str
    text: str
    drops: bool
    """Whether it reads only the key, and no step before it changes rows."""


def roots_of(plan: Plan, source: Input) -> tuple[str, ...]:
    """Return the roots that decode an input or upsert it."""
    graph = graph_of(plan)
    return tuple(
        root
        for root in graph.roots
        if not graph.nodes[root].kind.is_keyed and graph.input_of(root) == source
    )


def branches_of(plan: Plan, source: Input, physical: Physical) -> tuple[Branch, ...]:
    """Return all branches that begin at an input."""
    return tuple(b for root in roots_of(plan, source) for b in physical.branches[root])


def decoding_lines(plan: Plan, source: Input, physical: Physical) -> Iterator[str]:
    """Describe the result of decoding, line by line."""
    reading = physical.readings[source.name]
    begin = f"the {source.start}" if source.start in starts.WORDS else starts.words(source.start)
    yield f"key as {source.key_format}, value as {source.value_format}, from {begin}"
    if source.history is not None:
        files = ", ".join(map(printable, source.history.names))
        yield f"a new checkpoint reads the rows of {files} before"
    if source.traits.is_updates:
        yield _UPDATES[source.traits.kind == "updates"]
        return
    if source.event_time is not None:
        yield f"event time: {event_time_line(source.event_time)}"
    yield f"columns: {_columns(plan, source, physical)}"
    if reading.key_filters:
        yield f"keys: only with {_filters(reading)}, {_when_known(source)}"
    if reading.pushed:
        yield "before the upsert:"
        yield from (f"  {line}" for line in named_lines(reading.pushed))
    if source.tables is not None:
        yield f"tables: only those that match {printable(source.tables)}"
    yield f"old images: {_old_images(source, reading)}"


def event_time_line(event: EventTime) -> str:
    """Describe the source of event times, and the delay of the frontier."""
    of = one_line(event.of) if event.of is not None else f"clock {event.clock}"
    if event.transactions is not None:
        return f"{of}, transactions told in {event.transactions}"
    late = f"up to {event.lateness_ms / 1000:g} s late"
    idle = "never idle" if event.idle_ms is None else f"idle after {event.idle_ms / 1000:g} s"
    return f"{of}, {late}, {idle}"


def pushed(plan: Plan, source: Input, physical: Physical) -> Iterator[str]:
    """Describe the steps that run in the decoding of an input, in one or two sentences each."""
    reading = physical.readings[source.name]
    branches = branches_of(plan, source, physical)
    if reading.columns is not None:
        yield (
            f"Input {source.name}, columns decoded: {_columns(plan, source, physical)}. "
            "No step reads any other, and rows that are equal in these cancel in any case."
        )
    if reading.key_filters:
        why = (
            "Without an upsert any condition may drop rows; those over the key can do so first."
            if source.is_collection
            else f"{_KEY_RULE}."
        )
        yield (
            f"Input {source.name}: only keys with {_filters(reading)} are let in, "
            f"{_when_known(source)}. {why}"
        )
    for name, step in reading.pushed:
        assert isinstance(step, Sql)
        done = [f"where {one_line(condition)}" for condition in step.where]
        if step.where:
            yield (
                f"{_called(plan, name)}: {listed(done)} runs before the upsert. Nothing else "
                "reads the upsert and messages carry whole rows, so a row that fails can become a "
                "tombstone, which takes the old value away."
            )
        if step.select is not None:
            yield (
                f"Operator {name}: its select runs before the upsert. Nothing else reads the "
                f"upsert, so the state keeps {counted(len(step.select), 'column')} instead of "
                "whole rows."
            )
    if source.is_collection and physical.fused and any(b.steps for b in branches):
        passes = counted(sum(1 for branch in branches if branch.steps), "pass")
        why = "Nothing is" if source.mode == "append" else "Old images tell what is"
        yield (
            f"Input {source.name}: all steps, {passes}, run in the tasks that decode. {why} "
            "retracted, so no state is needed before them."
        )


def not_pushed(plan: Plan, source: Input, physical: Physical) -> Iterator[str]:
    """Explain why steps do not run in the decoding of an input, in one or two sentences each."""
    reading = physical.readings[source.name]
    branches = branches_of(plan, source, physical)
    if source.traits.is_updates:
        yield f"Input {source.name}: updates are taken whole; their steps come behind."
        return
    if not branches:
        yield f"Input {source.name}: nothing is pushed, since no output shows it."
        return
    if reading.columns is None and source.traits.has_columns:
        yield f"Input {source.name}: all columns are decoded. {_whole(plan, source, physical)}."
    written = branches_of(plan, source, planner.physical(plan, optimized=False))
    yield from _late_conditions(plan, source, reading, written)
    if source.mode == "upsert":
        yield from _late_steps(plan, source, reading, branches)


def conditions(branch: Branch, source: Input) -> Iterator[Condition]:
    """Yield all conditions of a branch."""
    scope = scope_of_input(source)
    key_columns = {KEY, *source.key}
    first = True
    for name, step in branch.steps:
        if isinstance(step, Negate):
            continue
        first = first and isinstance(step, Sql) and step.flat_map is None
        if isinstance(step, Sql):
            for text in (part for condition in step.where for part in condition_texts(condition)):
                read = _read(text, scope) if first else frozenset()
                yield Condition(name, text, drops=bool(read) and read <= key_columns)
            first = first and Sql(where=step.where) == step


def _read(condition: str, scope: Scope) -> frozenset[str]:
    try:
        return parse(condition, scope, condition=True).columns
    except ExpressionError:
        return frozenset()


def _columns(plan: Plan, source: Input, physical: Physical) -> str:
    columns = physical.readings[source.name].columns
    if not source.traits.has_columns:
        return "none, bytes are taken as they are"
    if columns is None:
        return f"all. {_whole(plan, source, physical)}"
    names = f": {', '.join(map(printable, columns))}" if columns else ""
    more = [name for name in source.key if name not in columns]
    if more:
        names += f" (and the key's: {', '.join(map(printable, more))})"
    if source.columns:
        declared = {column.name for column in source.columns}
        number = len(declared & set(columns))
        return f"{number or 'none'} of the declared {len(declared)}{names}"
    return f"only {len(columns)}{names}" if columns else f"none{names}"


def _whole(plan: Plan, source: Input, physical: Physical) -> str:
    """Explain why all columns of an input are decoded."""
    branches = branches_of(plan, source, physical)
    if not source.traits.has_columns:
        return "Bytes have no columns"
    for machine in plan.machines:
        if machine.input == source.name:
            return f"Machine {machine.name} is given whole events"
    if not branches:
        return "No output shows the input"
    reading = physical.readings[source.name]
    scope = scope_of_input(source)
    # If steps are pushed, the reason is a column that they or later steps read.
    readers = []
    for branch in branches:
        whole = replace(branch, steps=(*reading.pushed, *branch.steps))
        if planner.columns_of(plan, whole, scope) is None:
            steps, behind = (
                (reading.pushed, branch.steps) if reading.pushed else (branch.steps, ())
            )
            readers.append((branch, _reason(steps, behind, scope)))
    reasons = list(dict.fromkeys(reason for _, reason in readers if reason is not None))
    shown = dict.fromkeys(
        o for branch, reason in readers if reason is None for o in branch.outputs
    )
    if shown:
        reasons.append(
            f"output {listed(shown)} {'shows' if len(shown) == 1 else 'show'} whole rows"
        )
    # For aggregates the reason is in their arguments.
    fed = operators.boxes_of_feeds(plan)
    functions = dict.fromkeys(
        name
        for branch, reason in readers
        if not reason
        for name in (*branch.inlets, *branch.exchanges)
        if name not in fed and name not in map(planner.inlet_of, branch.outputs)
    )
    if functions:
        reasons.append(f"the function of {listed(functions)} is given whole rows")
    joins = dict.fromkeys(
        join
        for branch, reason in readers
        if not reason
        for join in operators.of_branch(plan, branch)
    )
    if joins:
        reasons.append(f"whole rows are arranged for {listed(joins)}")
    text = listed(reasons)
    return text[0].upper() + text[1:]


def _reason(steps: Sequence[Named], behind: Sequence[Named], scope: Scope) -> str | None:
    """Explain what reads the whole value in a pass; None if the value passes unchanged."""
    plain = list(takewhile(lambda named: not isinstance(named[1], Call | Arrange), steps))
    if plain:
        first = tuple(step for _, step in plain if not isinstance(step, Call | Arrange))
        query = compiled(first, frozen(scope))
        if query.reads_value:
            names = listed(dict.fromkeys(name for name, _ in plain))
            return f"operator {names} reads value as a whole"
        assert not query.makes_value, "a pass that makes values of fields reads only these"
    for name, step in (*steps[len(plain) :], *behind):
        if isinstance(step, Call):
            return (
                f"operator {name} gives whole rows to a Python function, "
                f"{printable(name_of(step.function))}"
            )
        if isinstance(step, Sql) and step.select is not None:
            return f"whole rows are kept for operator {name}, which is behind the upsert"
    return None


def _filters(reading: Reading) -> str:
    each = [" AND ".join(map(one_line, conditions)) for conditions in reading.key_filters]
    unique = list(dict.fromkeys(each))
    return unique[0] if len(unique) == 1 else listed((f"({text})" for text in unique), "or")


def _when_known(source: Input) -> str:
    by_header = source.traits.in_registry and dict(source.options).get("framing") == "headers"
    of_kafka = source.traits.key_from in ("kafka", "either") and not source.key
    if of_kafka and not by_header:
        return "told by the Kafka key before the value is parsed"
    return "told once the value is parsed, since the key is in it"


def _old_images(source: Input, reading: Reading) -> str:
    if source.traits.kind == "rows":
        return "none, the messages have none"
    if not decoding_needs(source, reading).before:
        return "not read, the state tells what is retracted (drift is false)"
    if source.mode == "diffs":
        return "read, they are what is retracted (mode is diffs)"
    return "read, only to count where they differ from the state (drift is true)"


def _late_conditions(
    plan: Plan, source: Input, reading: Reading, branches: Sequence[Branch]
) -> Iterator[str]:
    """Explain which conditions drop no row in decoding."""
    by_branch = [(branch, list(conditions(branch, source))) for branch in branches]
    unwilling = [
        name
        for branch, each in by_branch
        if not any(condition.drops for condition in each)
        for name in branch.outputs
    ]
    early = {
        part
        for _, step in reading.pushed
        if isinstance(step, Sql)
        for condition in step.where
        for part in condition_texts(condition)
    }
    of_keys: dict[str, list[str]] = {}
    of_values: dict[str, list[str]] = {}
    for operator, text, drops in dict.fromkeys(c for _, each in by_branch for c in each):
        words = f"where {one_line(text)}"
        if drops and unwilling:
            of_keys.setdefault(operator, []).append(words)
        elif not drops and source.mode == "upsert" and text not in early:
            of_values.setdefault(operator, []).append(words)
    for operator, texts in of_keys.items():
        yield (
            f"{_called(plan, operator)}: {_drop_none(texts)} in decoding, though the key "
            f"alone decides: output {listed(unwilling)} wants other keys as well."
        )
    for operator, texts in of_values.items():
        yield (
            f"{_called(plan, operator)}: {_drop_none(texts)} before the upsert. {_KEY_RULE}; "
            "where anything else drops a row, the old value is left standing."
        )


def _drop_none(conditions: Sequence[str]) -> str:
    return f"{listed(conditions)} {'drops' if len(conditions) == 1 else 'drop'} no row"


def _called(plan: Plan, name: str) -> str:
    """Name the owner of steps: an operator of the plan, or an arrangement for joins."""
    title = operators.arranges(plan).get(name)
    return f"Operator {printable(name)}" if title is None else f"Arrangement {title}"


def _late_steps(
    plan: Plan, source: Input, reading: Reading, branches: Sequence[Branch]
) -> Iterator[str]:
    """Explain which steps run after the upsert; making an arrangement needs no reason."""
    arranges = operators.arranges(plan)
    names = [name for branch in branches for name, _ in branch.steps if name not in arranges]
    names = list(dict.fromkeys(names))
    if not names:
        return
    subject = f"Operator {names[0]} runs" if len(names) == 1 else f"Operators {listed(names)} run"
    if len(branches) > 1:
        yield (
            f"{subject} behind the upsert: {len(branches)} branches read it, and what one of "
            "them drops or leaves out, another may want."
        )
    elif source.traits.kind != "rows":
        yield (
            f"{subject} behind the upsert: messages of {source.value_format} need not carry "
            "whole rows, and what one leaves out is taken from the state, which has to have "
            "the rows as they came."
        )
    else:
        (branch,) = branches
        name, step = branch.steps[0]
        after = f", and the steps after that with it ({listed(names)})" if len(names) > 1 else ""
        yield f"Operator {name} runs behind the upsert{after}: {_hindrance(step)}."


def _hindrance(step: AnyStep) -> str:
    """Explain why a step cannot make the values that an upsert keeps."""
    match step:
        case Arrange():
            return "it arranges rows by other keys"
        case Negate():
            return "negate turns diffs around, and before an upsert there are none"
        case Call():
            return "what a Python function makes of a row need not be one row of the same key"
        case Sql() if step.flat_map is not None:
            return "flat_map makes several rows of one, and an upsert keeps one a key"
        case Sql() if step.key is not None:
            return "it makes other keys, and the upsert needs those that the messages have"
        case Sql() if step.valid_from is not None or step.valid_until is not None:
            return "it moves updates in time, and an upsert takes messages at their own times"
        case _:
            return "it multiplies diffs, and before an upsert there are none"
