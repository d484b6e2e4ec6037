"""Find why the parts of a plan do not fit: names, references, topics, steps, formats."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ikebana.codecs.shape import namespace_of
from ikebana.processor.linear.chain import ChainError, chain
from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Negate, moves_time
from ikebana.processor.planning import promises
from ikebana.processor.planning.catalog import Catalog, catalog_of
from ikebana.processor.planning.graph import graph_of, node_of
from ikebana.processor.planning.input_problems import input_problems
from ikebana.processor.planning.operators.kind import Around, Problem, Way
from ikebana.processor.planning.operators.linear import keeps_key
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import (
    ERRORS,
    LOG_CLOCKS,
    Input,
    Output,
    Partitioned,
    Plan,
    Reduce,
)
from ikebana.processor.planning.unread import ALL_READ, Unread
from ikebana.processor.planning.written_types import problems_of_types

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def problems_of(plan: Plan, unread: Unread = ALL_READ) -> Iterator[Problem]:
    """All problems of a plan, as (path of the part, problem).

    A problem that only follows from another one, or from `unread` parts, is left out.
    """
    structural = list(_structure_problems(plan, unread))
    yield from structural
    catalog = catalog_of(plan)
    if unread.paths:
        catalog = Catalog(plan.inputs, plan.operators, unread)
    of_operators = catalog.problems()
    if not structural and not unread.paths:
        of_operators = of_operators or list(_together_problems(plan, catalog))
    yield from of_operators
    yield from _time_axis_problems(plan, unread)
    for output in plan.outputs:
        if is_whole(plan, output.source, unread):
            yield from _format_problems(plan, output, catalog)
    for reduction in plan.reductions:
        if reduction.function is not None and is_whole(plan, reduction.name, unread):
            yield from _function_problems(reduction, catalog.relation(reduction.source).scopes)


def _together_problems(plan: Plan, catalog: Catalog) -> Iterator[Problem]:
    """Why steps of several operators cannot run as one pass, though each of them can.

    Such as names that differ in case alone: SQL does not see it.
    """
    graph = graph_of(plan)
    seen: set[Problem] = set()
    for operator in plan.operators:
        ways = graph.ways(operator.name)
        if isinstance(operator, Partitioned):
            step = kind_of(operator).before(operator)
            assert step is not None, operator.name
            before = (operator.name, step)
            ways = tuple(Way(w.root, (*w.steps, before)) for w in graph.ways(operator.source))
        elif operator.name in graph.passed_on:
            # Longer ways have all of its steps.
            continue
        for way in ways:
            if len({name for name, _ in way.steps}) > 1:
                try:
                    chain(way.steps, frozen(catalog.relation(way.root).scope))
                except ChainError as error:
                    problem = (_place(plan, error), error.problem)
                    if problem not in seen:
                        seen.add(problem)
                        yield problem
                    break


def _place(plan: Plan, error: ChainError) -> str:
    owner = next(each for each in plan.operators if each.name == error.operator)
    kind = kind_of(owner)
    if not kind.is_linear:
        return f"operators.{owner.name}"
    within = "" if len(kind.steps(owner)) == 1 else f".steps.{error.index}"
    return f"operators.{owner.name}{within}.{error.part}"


def _structure_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """Problems of names, references, topics and settings, apart from SQL."""
    yield from _name_problems("pipeline", plan.name)
    for kind, parts in (
        ("inputs", plan.inputs),
        ("operators", plan.operators),
        ("outputs", plan.outputs),
    ):
        # Inputs may be collections by themselves.
        shown = kind == "operators" and (_diffs(plan) or unread.any_of("inputs"))
        needed = not unread.any_of(kind) and not shown
        if not parts and needed:
            yield kind, "at least one is needed"
        counted = Counter(part.name for part in parts)
        for name, count in counted.items():
            yield from _name_problems(f"{kind}.{name}", name)
            if count > 1:
                yield f"{kind}.{name}", f"the name is used {count} times"
    for source in plan.inputs:
        yield from input_problems(source, unread)
    around = Around(plan.inputs, plan.operators, unread)
    yield from _operator_problems(plan, around)
    yield from _output_problems(plan, around)
    yield from _topic_problems(plan)


def _operator_problems(plan: Plan, around: Around) -> Iterator[Problem]:
    for name in _diffs(plan):
        if name in {operator.name for operator in plan.operators}:
            yield f"operators.{name}", 'an input with mode "diffs" has this name'
    graph = graph_of(plan)
    for operator in plan.operators:
        yield from kind_of(operator).problems(operator, around)
        if operator.name in graph.behind(node_of(operator)):
            yield f"operators.{operator.name}", "it reads its own results"


def _diffs(plan: Plan) -> list[str]:
    return [source.name for source in plan.inputs if source.is_collection]


def _time_axis_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """Inputs with times that cannot be combined."""
    inputs = [each for each in plan.inputs if not unread.may_have("inputs", each.name)]
    if any(each.is_dated for each in inputs) and plan.time == "offset":
        yield "time", "offset does not go with inputs that have times of their own"
    clocks = {i.event_time.clock in LOG_CLOCKS for i in inputs if i.event_time is not None}
    if len(clocks) > 1:
        yield "inputs", "times in milliseconds and positions in a log are not of one axis"
    if len(plan.transaction_topics) > 1:
        yield "inputs", "positions in the logs of several sources are not of one axis"
    steps = (step for o in plan.operators for _, step in kind_of(o).steps(o))
    if any(map(moves_time, steps)) and (plan.time == "offset" or True in clocks):
        yield "time", "validity in time needs times in milliseconds, not offsets"


def is_whole(plan: Plan, name: str, unread: Unread) -> bool:
    """Whether all that a collection is derived from exists, and could be read."""
    graph = graph_of(plan)
    inputs = {source.name for source in plan.inputs}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        node = graph.nodes.get(at)
        if node is None or unread.may_have("operators", at) or at in graph.behind(node):
            return False
        if node.input is not None and (node.input not in inputs or unread.hides_rows(node.input)):
            return False
        waiting += node.sources
    return True


def _function_problems(reduction: Reduce, scopes: Sequence[Scope]) -> Iterator[Problem]:
    """Problems of data that a reduction's function cannot take, in one of these scopes."""
    for part, word, setting, remedy in (
        (KEY, "key", "by", "make a key in JSON of it here"),
        (VALUE, "value", "reduce", "make values in JSON of them by a select before"),
    ):
        made_here = part == KEY and reduction.key is not None
        if not made_here and any(scope.types[part] == BLOB for scope in scopes):
            yield (
                f"operators.{reduction.name}.{setting}",
                f"a function is not given a {word} in bytes; {remedy}",
            )


def _name_problems(path: str, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a name (letters, digits, '.', '_', '-')"


def _output_problems(plan: Plan, around: Around) -> Iterator[Problem]:
    """Problems of the outputs, apart from their collections."""
    for output in plan.outputs:
        path = f"outputs.{output.name}"
        if output.name == ERRORS:
            yield path, "the name is taken by the error topic"
        yield from around.missing_collection(f"{path}.from", output.source)
        if output.partitions is not None and output.partitions < 1:
            yield f"{path}.partitions", "must be at least 1"
        if not output.tombstones and not output.traits.tombstones:
            yield f"{path}.tombstones", f"{output.format} has none of its own to leave out"
        if not output.traits.in_registry:
            for name, default in (("subjects", "topic"), ("record", None)):
                if getattr(output, name) != default:
                    yield f"{path}.{name}", f"{output.format} has no schemas in a registry"
        elif output.record is not None and namespace_of(output.record) != output.record:
            yield (
                f"{path}.record",
                f"{output.record!r} is no namespace of Avro, such as shop.orders",
            )


def _format_problems(plan: Plan, output: Output, catalog: Catalog) -> Iterator[Problem]:
    """Why an output's format cannot write its collection."""
    scopes = catalog.relation(output.source).scopes
    if output.traits.as_updates:
        return
    if output.traits.in_registry:
        yield from problems_of_types(plan, output, catalog)
    path = f"outputs.{output.name}.format"
    if any(scope.types[part] == BLOB for scope in scopes for part in (KEY, VALUE)):
        yield path, f"{output.format} needs keys and values that are JSON, not bytes"
    ways = graph_of(plan).ways(output.source)
    if output.traits.single_value and (why := _why_several(plan, ways)):
        reason, remedy = why
        yield (
            path,
            f"{output.format} needs at most one value a key, and {reason}: {remedy}, or write a "
            "diff topic",
        )


def _why_several(plan: Plan, ways: Sequence[Way]) -> tuple[str, str] | None:
    """Why keys may have several values, or none, with a remedy; None if only data show it."""
    appended = {source.name for source in plan.inputs if source.mode == "append"}
    for way in ways:
        if (name := promises.what_revises(plan, way)) is not None:
            return f"retractions of {name!r} meet another right than they came with", (
                "set its retract: locked"
            )
        if way.root in appended and keeps_key(way.steps):
            return f"rows of {way.root!r} stay", "read it by an upsert, or reduce it by the key"
    if len(ways) == 1:
        for name, step in ways[0].steps:
            if isinstance(step, Negate):
                return f"{name!r} changes diffs", "reduce it by the key"
    return None


def _topic_problems(plan: Plan) -> Iterator[Problem]:
    """Topics that are none, or that several parts of a plan have."""
    read = {topic: f"inputs.{i.name}.topic" for i in plan.inputs for topic in i.topics}
    transaction_topics = {
        source.transaction_topic: f"inputs.{source.name}.event_time.transactions"
        for source in reversed(plan.inputs)
        if source.transaction_topic is not None
    }
    for topic, path in transaction_topics.items():
        if topic in read:
            yield path, f"topic {topic!r} is also read, at {read[topic]}"
        read.setdefault(topic, path)
    internal = (plan.markers_topic, plan.loopback_topic)
    written = dict.fromkeys(internal, "pipeline")
    for topic in internal:
        if topic in read:
            yield "pipeline", f"topic {topic!r} is also read, at {read[topic]}"
    places = [(f"outputs.{o.name}.topic", o.topic) for o in plan.outputs]
    places.append(("errors.topic", plan.error_topic))
    for path, topic in [*((path, topic) for topic, path in read.items()), *places]:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            yield path, f"{topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-')"
    for source in plan.inputs:
        for topic, count in Counter(source.topics).items():
            if count > 1:
                yield f"inputs.{source.name}.topic", f"topic {topic!r} is listed {count} times"
    yield from _shared_problems(plan)
    for path, topic in places:
        if _TOPIC.fullmatch(topic) and not _TOPIC.fullmatch(topic + ".progress"):
            yield path, f"{topic!r} is too long to have a topic '<topic>.progress' beside it"
        for used in (topic, topic + ".progress"):
            if used in read:
                yield path, f"topic {used!r} is also read, at {read[used]}"
            elif used in written:
                yield path, f"topic {used!r} is also written, at {written[used]}"
            written[used] = path


def _shared_problems(plan: Plan) -> Iterator[Problem]:
    """Why several inputs cannot read one topic.

    A topic has one position for all of them.  So they begin at one place, and are read at the
    same pace: as records come, or as far as the times of others are closed.
    """
    seen: set[tuple[str, str]] = set()
    for topic in dict.fromkeys(plan.topics):
        first, *others = plan.readers(topic)
        for other in others:
            for path, problem in _not_together(topic, first, other):
                if (path, first.name) not in seen:
                    seen.add((path, first.name))
                    yield path, problem


def _not_together(topic: str, first: Input, other: Input) -> Iterator[Problem]:
    """The settings in which two inputs that read a topic disagree."""
    path = f"inputs.{other.name}"
    read = f"topic {topic!r} is also read, at inputs.{first.name}.topic"
    if first.traits.is_updates or other.traits.is_updates:
        updates = next(each for each in (first, other) if each.traits.is_updates)
        yield (
            f"{path}.topic",
            f"{read}, and updates of {updates.value_format} have progress of their own, for one "
            "input alone; any number of operators may read that one",
        )
        return
    if first.start != other.start:
        yield (
            f"{path}.start",
            f'is "{other.start}", and {read}, from the "{first.start}" on: both have one position '
            f"there; set both to the same",
        )
    if first.is_dated != other.is_dated:
        has, lacks = (first, other) if first.is_dated else (other, first)
        yield (
            f"{path}.event_time",
            f"{read}, and inputs.{has.name} has event_time where inputs.{lacks.name} has none: "
            "records that say their times are read as they come, others when theirs is closed; "
            "give it to both or to neither",
        )
