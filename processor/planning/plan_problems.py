"""Why the parts of a plan do not fit: names, references, topics, steps, formats."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ikebana.arrangements.errors import ConfigError
from ikebana.codecs.encodings import encoding
from ikebana.processor.ground.spelling import instead
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.linear.functions import FunctionError, found
from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.judging import judged
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope
from ikebana.processor.linear.steps import Sql, moves_time
from ikebana.processor.planning import planner, ways
from ikebana.processor.planning.aggregates import AggregateError, arranged
from ikebana.processor.planning.compiling import compiled_scopes, compiling_problems
from ikebana.processor.planning.input_options import EMPTY_VALUES, full_encoding
from ikebana.processor.planning.judging import Judge, kind_of, rows_of
from ikebana.processor.planning.plan import (
    ERRORS,
    LOG_CLOCKS,
    PLAIN_FORMATS,
    SOURCE_CLOCKS,
    UPDATE_FORMATS,
    Concat,
    Input,
    Linear,
    Operator,
    Output,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
)
from ikebana.processor.planning.transaction_topics import collections_of
from ikebana.processor.planning.unread import ALL_READ, Unread

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
Problem = tuple[str, str]


def problems_of(plan: Plan, unread: Unread = ALL_READ) -> Iterator[Problem]:
    """Every reason why the parts of a plan do not fit, with the path of the part.

    What is not told is what only follows from another problem, or from what is `unread`.
    """
    found = list(_structure_problems(plan, unread))
    yield from found
    sound = [] if found or unread.paths else list(compiling_problems(plan))
    if found or unread.paths or sound:
        judge = Judge(plan, unread)
        yield from judge.problems or sound
        scopes = judge.scopes
    else:
        scopes = functools.partial(compiled_scopes, plan)
    yield from _time_axis_problems(plan, unread)
    for output in plan.outputs:
        if is_whole(plan, output.source, unread):
            yield from _format_problems(plan, output, scopes(output.source))
    for reduction in plan.reductions:
        if reduction.function is not None and is_whole(plan, reduction.name, unread):
            yield from _function_problems(reduction, scopes(reduction.source))


def _structure_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """What is wrong with names, references, topics and settings, whatever the SQL is."""
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
        yield from _input_problems(source, unread)
    yield from _operator_problems(plan, unread)
    yield from _output_problems(plan, unread)
    yield from _topic_problems(plan)


def _diffs(plan: Plan) -> list[str]:
    return [source.name for source in plan.inputs if source.is_collection]


def _input_problems(source: Input, unread: Unread) -> Iterator[Problem]:
    path = f"inputs.{source.name}"
    plain = source.value_format in PLAIN_FORMATS
    if not source.topics:
        yield f"{path}.topic", "at least one topic is needed"
    if source.mode == "diffs" and (plain or source.value_format == "debezium-flat-json"):
        yield (
            f"{path}.mode",
            f'"diffs" needs messages with old images; {source.value_format} has none'
            + ('; with "append" each is a row of its own' if plain else ""),
        )
    if source.mode == "append" and not plain:
        yield f"{path}.mode", f'"append" is for rows that stay; {source.value_format} has changes'
    if source.tables is not None:
        if plain:
            yield f"{path}.tables", f"{source.value_format} messages name no table"
        try:
            re.compile(source.tables)
        except re.error as error:
            yield f"{path}.tables", f"is not a regular expression: {error}"
    if source.key and source.value_format in ("json", "bytes"):
        yield f"{path}.key", f"the key of {source.value_format} messages is the Kafka key"
    if source.schema is not None and source.value_format not in ("avro", "debezium-avro"):
        yield f"{path}.schema", f"{source.value_format} values are not read by an Avro schema"
    if source.key_format == "avro" and source.value_format not in ("avro", "debezium-avro"):
        problem = f"a key in Avro goes with values in Avro, not {source.value_format}"
        yield f"{path}.format.key", problem
    if not source.key and source.value_format == "dms" and source.mode == "upsert":
        yield f"{path}.key", "is needed: messages of dms do not say what their key is"
    empty = dict(source.options).get("empty_value", EMPTY_VALUES[0])
    if empty not in EMPTY_VALUES and not plain:
        problem = f'is "{empty}"; set it to one of: {", ".join(EMPTY_VALUES)}'
        yield f"{path}.options.empty_value", problem
    if source.columns and source.value_format == "bytes":
        yield f"{path}.columns", "bytes have no columns"
    for name, count in Counter(column.name for column in source.columns).items():
        if count > 1:
            yield f"{path}.columns.{name}", f"is declared {count} times"
    for column in source.columns:
        if column.name in (KEY, VALUE) or column.name.startswith("__"):
            yield (
                f"{path}.columns.{column.name}",
                f"the name is taken; a field of it is value->>'{column.name}'",
            )
        try:
            from ikebana.processor.linear.expressions import type_named

            type_named(column.type)
        except ExpressionError as error:
            yield f"{path}.columns.{column.name}", str(error)
        if column.encoding is not None:
            try:
                encoding(full_encoding(column.type, column.encoding))
            except ExpressionError:
                continue  # the type is told
            except ValueError as error:
                yield f"{path}.columns.{column.name}.encoding", str(error)
    if source.size is not None and source.size < 1:
        yield f"{path}.size", "must be at least 1"
    yield from _time_problems(source, unread)


def _time_problems(source: Input, unread: Unread) -> Iterator[Problem]:
    """What an input's own times cannot be."""
    path = f"inputs.{source.name}"
    if source.value_format in UPDATE_FORMATS:
        if source.mode != "diffs":
            yield f"{path}.mode", f'{source.value_format} has updates: it must be "diffs"'
        if source.start != "earliest":
            yield f"{path}.start", "updates make a collection only from the earliest on"
        if source.value_format == "diff" and len(source.topics) != 1:
            yield f"{path}.topic", "a diff topic has its own progress: one input for each"
        if source.event_time is not None:
            yield f"{path}.event_time", f"updates of {source.value_format} have times already"
        return
    event = source.event_time
    if event is None:
        return
    if (event.of is None) == (event.clock is None):
        yield f"{path}.event_time", 'needs one of "of" and "clock"'
    if event.clock in SOURCE_CLOCKS and source.value_format != "debezium-json":
        yield f"{path}.event_time.clock", f'"{event.clock}" is a clock of debezium-json'
    told = event.transactions
    if (told is None) == (event.clock == "transaction"):
        problem = "is needed with" if told is None else "is only for"
        yield f"{path}.event_time.transactions", f"{problem} clock: transaction"
    elif told is not None:
        if source.start != "earliest":
            yield f"{path}.start", "transactions are whole only from the earliest on"
        try:
            collections_of(source.topics, told)
        except ConfigError as error:
            yield f"{path}.event_time.transactions", str(error).splitlines()[0]
    for part in ("lateness", "idle", "ahead"):
        if (getattr(event, part + "_ms") or 0) < 0:
            yield f"{path}.event_time.{part}", "must be 0 seconds or more"
    if event.of is not None:
        made = judged((Sql(valid_from=event.of),), rows_of(source, unread))
        for each in made.problems:
            yield f"{path}.event_time.of", each.problem


def _operator_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    inputs = {i.name: i for i in plan.inputs}
    operators = {o.name: o for o in plan.operators}
    diffs = _diffs(plan)
    for name in diffs:
        if name in operators:
            yield f"operators.{name}", 'an input with mode "diffs" has this name'
    upserted: dict[str, str] = {}
    for operator in plan.operators:
        path = f"operators.{operator.name}"
        match operator:
            case Upsert():
                if operator.input not in inputs:
                    yield from _missing_input(f"{path}.upsert", operator.input, plan, unread)
                elif unread.hides_rows(operator.input):
                    pass
                elif inputs[operator.input].is_collection:
                    yield f"{path}.upsert", f"input {operator.input!r} gives updates by itself"
                if operator.input in upserted:
                    yield (
                        f"{path}.upsert",
                        f"operator {upserted[operator.input]!r} already upserts "
                        f"{operator.input!r}; use it, outputs may share an operator",
                    )
                upserted[operator.input] = operator.name
            case Linear():
                yield from _source_problem(plan, unread, f"{path}.linear", operator.source)
            case Concat():
                if not operator.sources:
                    yield f"{path}.concat", "at least one operator is needed"
                for source in operator.sources:
                    yield from _source_problem(plan, unread, f"{path}.concat", source)
            case StateMachine():
                yield from _machine_problems(operator, plan, unread, upserted)
                upserted[operator.input] = operator.name
            case Reduce():
                yield from _source_problem(plan, unread, f"{path}.reduce", operator.source)
                yield from _aggregate_problems(operator)
            case DeltaJoin() | AsOfJoin():
                for each in operator.inputs:
                    place = f"{path}.{kind_of(operator)}.{each.alias}"
                    yield from _source_problem(plan, unread, place, each.relation)
        if _reaches(plan, operator, operator.name):
            yield path, "it reads what it makes"


def _machine_problems(
    operator: StateMachine, plan: Plan, unread: Unread, read: Mapping[str, str]
) -> Iterator[Problem]:
    path = f"operators.{operator.name}"
    source = {each.name: each for each in plan.inputs}.get(operator.input)
    if source is None:
        yield from _missing_input(f"{path}.state_machine", operator.input, plan, unread)
    elif unread.hides_rows(source.name):
        pass
    elif source.value_format not in ("json", "avro"):
        yield (
            f"{path}.state_machine",
            f"reads events in json or avro; {operator.input!r} is in {source.value_format}",
        )
    elif source.is_collection:
        yield (
            f"{path}.state_machine",
            f"reads events; {operator.input!r} is a collection, by its mode",
        )
    if operator.input in read:
        yield (
            f"{path}.state_machine",
            f"operator {read[operator.input]!r} already reads {operator.input!r}",
        )
    for part in ("step", "view", "migrate"):
        function = getattr(operator, part)
        if function is not None:
            try:
                found(function)
            except FunctionError as error:
                yield f"{path}.{part}", str(error)
    if operator.version < 1:
        yield f"{path}.version", "must be at least 1"


def _aggregate_problems(operator: Reduce) -> Iterator[Problem]:
    path = f"operators.{operator.name}.aggregates"
    if operator.function is not None:
        if operator.aggregates:
            yield path, "a reduction has aggregates or a function, not both"
        try:
            found(operator.function)
        except FunctionError as error:
            yield f"operators.{operator.name}.function", str(error)
        return
    if not operator.aggregates:
        yield path, "at least one is needed, or a function"
    for name, count in Counter(name for name, _ in operator.aggregates).items():
        if count > 1:
            yield f"{path}.{name}", f"the name is used {count} times"
    try:
        arranged(operator)
    except AggregateError as error:
        for name, problem in error.problems:
            yield f"{path}.{name}", problem


def _missing_input(path: str, name: str, plan: Plan, unread: Unread) -> Iterator[Problem]:
    if not unread.may_have("inputs", name):
        names = [each.name for each in plan.inputs]
        yield path, f"there is no input {name!r}{instead(name, names)}"


def _source_problem(plan: Plan, unread: Unread, path: str, source: str) -> Iterator[Problem]:
    known = [*(o.name for o in plan.operators), *_diffs(plan)]
    if source in known or unread.may_have("operators", source):
        return
    is_input = any(i.name == source for i in plan.inputs)
    if unread.hides_rows(source) or (not is_input and unread.may_have("inputs", source)):
        # It may be a collection.
        return
    if is_input:
        yield (
            path,
            f"{source!r} is an input of upserts, which are no collection: make an operator "
            f"with upsert: {source}, and read that",
        )
    else:
        yield path, f"there is no operator {source!r}{instead(source, known)}"


def _reaches(plan: Plan, operator: Operator, name: str) -> bool:
    operators = {o.name: o for o in plan.operators}
    seen: set[str] = set()
    waiting = list(_sources(operator))
    while waiting:
        at = waiting.pop()
        if at == name:
            return True
        if at in operators and at not in seen:
            seen.add(at)
            waiting += _sources(operators[at])
    return False


def _sources(operator: Operator) -> tuple[str, ...]:
    match operator:
        case Linear():
            return (operator.source,)
        case Concat():
            return operator.sources
        case Reduce() | DeltaJoin() | AsOfJoin():
            return ways.sources_of(operator)
        case _:
            return ()


def _output_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    for output in plan.outputs:
        path = f"outputs.{output.name}"
        if output.name == ERRORS:
            yield path, "the name is taken by the error topic"
        yield from _source_problem(plan, unread, f"{path}.from", output.source)
        if output.partitions is not None and output.partitions < 1:
            yield f"{path}.partitions", "must be at least 1"
        if not output.tombstones and output.format != "debezium-json":
            yield f"{path}.tombstones", f"{output.format} has none of its own to leave out"


def _time_axis_problems(plan: Plan, unread: Unread) -> Iterator[Problem]:
    """Times that do not go together."""
    inputs = [each for each in plan.inputs if not unread.may_have("inputs", each.name)]
    if any(each.is_dated for each in inputs) and plan.time == "offset":
        yield "time", "offset does not go with inputs that have times of their own"
    clocks = {i.event_time.clock in LOG_CLOCKS for i in inputs if i.event_time is not None}
    if len(clocks) > 1:
        yield "inputs", "times in milliseconds and positions in a log are not of one axis"
    if len(plan.transaction_topics) > 1:
        yield "inputs", "positions in the logs of several sources are not of one axis"
    steps = (step for o in plan.operators if isinstance(o, Linear) for step in o.steps)
    if any(map(moves_time, steps)) and (plan.time == "offset" or True in clocks):
        yield "time", "validity in time needs times in milliseconds, not offsets"


def is_whole(plan: Plan, name: str, unread: Unread) -> bool:
    """Whether all that a collection comes of is there, and was read."""
    operators = {o.name: o for o in plan.operators}
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        operator = operators.get(at)
        if operator is None:
            if at not in _diffs(plan) or unread.hides_rows(at):
                return False
            continue
        if unread.may_have("operators", at) or _reaches(plan, operator, at):
            return False
        if isinstance(operator, Upsert | StateMachine):
            known = any(source.name == operator.input for source in plan.inputs)
            if not known or unread.hides_rows(operator.input):
                return False
        waiting += _sources(operator)
    return True


def _function_problems(reduction: Reduce, scopes: Sequence[Scope]) -> Iterator[Problem]:
    """What a reduction's function cannot be given of data that have one of these scopes."""
    for part, setting, remedy in (
        (KEY, "by", "make a key in JSON of it here"),
        (VALUE, "reduce", "make values in JSON of them by a select before"),
    ):
        made_here = part == KEY and reduction.by is not None
        if not made_here and any(scope.types[part] == BLOB for scope in scopes):
            yield (
                f"operators.{reduction.name}.{setting}",
                f"a function is not given a {part} in bytes; {remedy}",
            )


def _format_problems(plan: Plan, output: Output, scopes: Sequence[Scope]) -> Iterator[Problem]:
    if output.format == "diff":
        return
    path = f"outputs.{output.name}.format"
    found = list(ways.paths(plan, output.source))
    if any(scope.types[part] == BLOB for scope in scopes for part in (KEY, VALUE)):
        yield path, f"{output.format} needs keys and values that are JSON, not bytes"
    if not all(map(ways.keeps_key, found)):
        yield (
            path,
            f"{output.format} needs the key of the input to stay: where a step makes other "
            "keys, equal data may lie in different shards. Reduce it by its new key, or write a "
            "diff topic",
        )
    if output.format in planner.SINGLE_VALUE_FORMATS and (why := _why_several(plan, found)):
        reason, remedy = why
        yield (
            path,
            f"{output.format} needs at most one value a key, and {reason}: {remedy}, or write a "
            "diff topic",
        )


def _why_several(plan: Plan, found: Sequence[ways.Path]) -> tuple[str, str] | None:
    """Why keys of a collection have several values, and what to do; None if nothing says so."""
    if len(found) > 1:
        return "this is several collections together", "reduce it by the key"
    (way,) = found
    if (name := planner.why_negative(plan, way)) is not None:
        if any(join.name == name for join in plan.joins):
            return f"retractions of {name!r} meet another right than they came with", (
                "set its retract: locked"
            )
        return f"{name!r} changes diffs", "reduce it by the key"
    for source in plan.inputs:
        if source.name == way.root and source.mode == "append":
            return f"rows of {source.name!r} stay", "read it by an upsert, or reduce it by the key"
    return None


def _topic_problems(plan: Plan) -> Iterator[Problem]:
    read = {topic: f"inputs.{i.name}.topic" for i in plan.inputs for topic in i.topics}
    told = {
        source.transaction_topic: f"inputs.{source.name}.event_time.transactions"
        for source in reversed(plan.inputs)
        if source.transaction_topic is not None
    }
    for topic, path in told.items():
        if topic in read:
            yield path, f"topic {topic!r} is also read, at {read[topic]}"
        read.setdefault(topic, path)
    own = (plan.markers_topic, plan.loopback_topic)
    written = dict.fromkeys(own, "pipeline")
    for topic in own:
        if topic in read:
            yield "pipeline", f"topic {topic!r} is also read, at {read[topic]}"
    places = [(f"outputs.{o.name}.topic", o.topic) for o in plan.outputs]
    places.append(("errors.topic", plan.error_topic))
    for path, topic in [*((path, topic) for topic, path in read.items()), *places]:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            yield path, f"{topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-')"
    listed: dict[str, str] = {}
    for i in plan.inputs:
        for topic in i.topics:
            if topic in listed:
                yield f"inputs.{i.name}.topic", f"topic {topic!r} is also read, at {listed[topic]}"
            listed[topic] = f"inputs.{i.name}.topic"
    for path, topic in places:
        if _TOPIC.fullmatch(topic) and not _TOPIC.fullmatch(topic + ".progress"):
            yield path, f"{topic!r} is too long to have a topic '<topic>.progress' beside it"
        for used in (topic, topic + ".progress"):
            if used in read:
                yield path, f"topic {used!r} is also read, at {read[used]}"
            elif used in written:
                yield path, f"topic {used!r} is also written, at {written[used]}"
            written[used] = path


def _name_problems(path: str, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a name (letters, digits, '.', '_', '-')"
