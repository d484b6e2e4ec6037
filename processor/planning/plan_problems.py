"""Find why the parts of a plan do not fit: names, references, topics, steps, formats, files."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ikebana.codecs.change import DeclaredColumns, Needs
from ikebana.codecs.column_encodings import encoding
from ikebana.codecs.formats import FORMATS, IN_REGISTRY
from ikebana.codecs.output_messages import namespace_of
from ikebana.codecs.sql_type import TypeTextError
from ikebana.errors import ConfigError
from ikebana.processor.base.offsets import is_topic, progress_topic
from ikebana.processor.base.texts import suggestion
from ikebana.processor.linear.chain import ChainError, chain, result_of
from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.functions import FunctionError, function_named
from ikebana.processor.linear.json_text import BLOB, field_of
from ikebana.processor.linear.scope import (
    KEY,
    SHORT,
    VALUE,
    ExpressionError,
    frozen,
    is_ours,
)
from ikebana.processor.linear.steps import Negate, Sql, moves_time
from ikebana.processor.planning import outputs, starts
from ikebana.processor.planning.catalog import Catalog, catalog_of
from ikebana.processor.planning.graph import graph_of, node_of
from ikebana.processor.planning.input_rows import collections_of, encoding_of, rows_of
from ikebana.processor.planning.kind import Around, Way
from ikebana.processor.planning.kinds import keeps_key, kind_of
from ikebana.processor.planning.outputs import problems_of_types
from ikebana.processor.planning.plan import (
    ALL_READ,
    ERRORS,
    LINES,
    LOG_CLOCKS,
    METADATA_TYPES,
    PARQUET,
    SOURCE_CLOCKS,
    History,
    Input,
    Output,
    Plan,
    PlanProblem,
    Unread,
    functions_of,
    is_pattern,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def problems_of(plan: Plan, unread: Unread = ALL_READ) -> Iterator[PlanProblem]:
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


def _together_problems(plan: Plan, catalog: Catalog) -> Iterator[PlanProblem]:
    """Why steps of several operators cannot run as one pass, though each of them can.

    Such as names that differ in case alone: SQL does not see it.
    """
    graph = graph_of(plan)
    seen: set[PlanProblem] = set()
    for operator in plan.operators:
        node = graph.nodes[operator.name]
        before = node.before
        if not before and node.name in graph.passed_on:
            # Longer ways have all of its steps.
            continue
        read = node.sources if before else (node.name,)
        for way in (way for name in read for way in graph.ways(name)):
            steps = (*way.steps, *before)
            if len({name for name, _ in steps}) > 1:
                try:
                    chain(steps, frozen(catalog.relation(way.root).scope))
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


def _structure_problems(plan: Plan, unread: Unread) -> Iterator[PlanProblem]:
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
    yield from _reader_problems(plan)
    yield from _output_problems(plan, around)
    yield from _topic_problems(plan)


def _operator_problems(plan: Plan, around: Around) -> Iterator[PlanProblem]:
    for name in _diffs(plan):
        if name in {operator.name for operator in plan.operators}:
            yield f"operators.{name}", 'an input with mode "diffs" has this name'
    graph = graph_of(plan)
    for operator in plan.operators:
        yield from kind_of(operator).problems(operator, around)
        for part, function in functions_of(operator).items():
            try:
                function_named(function)
            except FunctionError as error:
                yield f"operators.{operator.name}.{part}", str(error)
        if operator.name in graph.behind(*node_of(operator).sources):
            yield f"operators.{operator.name}", "it reads its own results"


def _reader_problems(plan: Plan) -> Iterator[PlanProblem]:
    """The rows of an input have one reader, which has their state."""
    readers: dict[str, str] = {}
    for operator in plan.operators:
        if not kind_of(operator).reads_rows:
            continue
        (name,) = kind_of(operator).sources(operator)
        first = readers.setdefault(name, operator.name)
        if first != operator.name:
            yield (
                f"operators.{operator.name}.{kind_of(operator).section}",
                f"operator {first!r} already reads {name!r}; use it, outputs may share an "
                "operator",
            )


def _diffs(plan: Plan) -> list[str]:
    return [source.name for source in plan.inputs if source.is_collection]


def _time_axis_problems(plan: Plan, unread: Unread) -> Iterator[PlanProblem]:
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
        if node is None or unread.may_have("operators", at) or at in graph.behind(*node.sources):
            return False
        if node.input is not None and (node.input not in inputs or unread.hides_rows(node.input)):
            return False
        waiting += node.sources
    return True


def _name_problems(path: str, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a name (letters, digits, '.', '_', '-')"


def _output_problems(plan: Plan, around: Around) -> Iterator[PlanProblem]:
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


def _format_problems(plan: Plan, output: Output, catalog: Catalog) -> Iterator[PlanProblem]:
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
        if (name := outputs.what_revises(plan, way)) is not None:
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


def _topic_problems(plan: Plan) -> Iterator[PlanProblem]:
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
    internal = (plan.commits_topic, plan.exchange_topic)
    written = dict.fromkeys(internal, "pipeline")
    for topic in internal:
        if topic in read:
            yield "pipeline", f"topic {topic!r} is also read, at {read[topic]}"
    places = [(f"outputs.{o.name}.topic", o.topic) for o in plan.outputs]
    places.append(("errors.topic", plan.error_topic))
    for path, topic in [*((path, topic) for topic, path in read.items()), *places]:
        if not is_topic(topic):
            yield path, f"{topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-')"
    for source in plan.inputs:
        for topic, count in Counter(source.topics).items():
            if count > 1:
                yield f"inputs.{source.name}.topic", f"topic {topic!r} is listed {count} times"
    yield from _shared_problems(plan)
    for path, topic in places:
        if is_topic(topic) and not is_topic(progress_topic(topic)):
            yield path, f"{topic!r} is too long to have a topic '<topic>.progress' beside it"
        for used in (topic, progress_topic(topic)):
            if used in read:
                yield path, f"topic {used!r} is also read, at {read[used]}"
            elif used in written:
                yield path, f"topic {used!r} is also written, at {written[used]}"
            written[used] = path


def _shared_problems(plan: Plan) -> Iterator[PlanProblem]:
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


def _not_together(topic: str, first: Input, other: Input) -> Iterator[PlanProblem]:
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


def input_problems(source: Input, unread: Unread) -> Iterator[PlanProblem]:
    """All problems of an input, whatever reads it."""
    path = f"inputs.{source.name}"
    if not source.topics:
        yield f"{path}.topic", "at least one topic is needed"
    yield from _mode_problems(source)
    yield from _key_problems(source)
    yield from _option_problems(source)
    yield from _column_problems(source)
    yield from _metadata_problems(source)
    yield from _history_problems(source)
    if source.on_new_column == "add" and not (source.columns and source.traits.codec):
        yield f"{path}.on_new_column", "adds to declared columns: without any, all are read"
    if source.size is not None and source.size < 1:
        yield f"{path}.size", "must be at least 1"
    if isinstance(starts.place_of(source.start), starts.AtOffsets) and len(source.topics) > 1:
        yield f"{path}.start", "offsets are those of one topic: make an input of each topic"
    yield from _time_problems(source, unread)


def _mode_problems(source: Input) -> Iterator[PlanProblem]:
    """Problems of an input's mode and tables, which its format may not allow."""
    path, traits = f"inputs.{source.name}", source.traits
    plain = traits.kind == "rows"
    if source.mode == "diffs" and not (traits.old_images or traits.is_updates):
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
        if "table" in traits.options and "table" not in dict(source.options):
            yield (
                f"{path}.options.table",
                "is missing: the field with the names that tables choose",
            )


def _key_problems(source: Input) -> Iterator[PlanProblem]:
    """Problems of an input's key and schemas, which its format may not allow."""
    path, traits = f"inputs.{source.name}", source.traits
    if source.key and traits.key_from == "kafka":
        yield f"{path}.key", f"the key of {source.value_format} messages is the Kafka key"
    if source.schema is not None and not (traits.in_registry and traits.encoding == "avro"):
        yield f"{path}.schema", f"{source.value_format} values are not read by an Avro schema"
    if source.key_format in IN_REGISTRY and source.key_format != traits.encoding:
        problem = f"a key in {source.key_format} goes with values in it, not {source.value_format}"
        yield f"{path}.format.key", problem
    if not source.key and traits.key_from == "columns" and source.mode == "upsert":
        yield (
            f"{path}.key",
            f"is needed: messages of {source.value_format} do not say what their key is",
        )


def _option_problems(source: Input) -> Iterator[PlanProblem]:
    """Options that the format of an input does not have, and values that are not allowed."""
    path, options = f"inputs.{source.name}.options", source.traits.options
    are_all_known = True
    for name, value in source.options:
        problem = ""
        if name not in options:
            problem = f"is no option of {source.value_format}{suggestion(name, options)}"
        elif options[name].choices and value not in options[name].choices:
            problem = f'is "{value}"; set it to one of: {", ".join(options[name].choices)}'
        elif not value and not options[name].may_be_empty:
            problem = "must not be empty"
        if problem:
            are_all_known = False
            yield f"{path}.{name}", problem
    if source.options and are_all_known and not source.traits.in_registry:
        yield from _problems_together(source)


def _problems_together(source: Input) -> Iterator[PlanProblem]:
    """Options that exclude each other; the codec reports them."""
    declared = DeclaredColumns({column.name: column.type for column in source.columns})
    needs = Needs(
        key=source.key,
        options=dict(source.options),
        declared=declared,
        diffs=source.mode == "diffs",
    )
    assert source.traits.codec is not None, f"{source.value_format} has options without a codec"
    try:
        source.traits.codec(needs, source.key_format, None)
    except ConfigError as error:
        yield f"inputs.{source.name}.options", "; ".join(str(error).splitlines())


def _column_problems(source: Input) -> Iterator[PlanProblem]:
    """Problems of the declared columns of an input."""
    path = f"inputs.{source.name}"
    if source.columns and not source.traits.has_columns:
        yield f"{path}.columns", "bytes have no columns"
    declared = [column.name for column in source.columns]
    named = {"key": source.key, "unique": dict.fromkeys(c for key in source.unique for c in key)}
    for part, columns in named.items():
        for name in columns:
            if declared and name not in declared:
                yield f"{path}.{part}", f'there is no column "{name}"{suggestion(name, declared)}'
    for name, count in Counter(column.name for column in source.columns).items():
        if count > 1:
            yield f"{path}.columns.{name}", f"is declared {count} times"
    for column in source.columns:
        if is_ours(column.name):
            yield (
                f"{path}.columns.{column.name}",
                f"no column can be named so; leave it out: a field of it is "
                f"{field_of(VALUE, column.name)}",
            )
        try:
            column_type(column.type)
        except ExpressionError as error:
            yield f"{path}.columns.{column.name}", str(error)
        if column.encoding is not None and source.traits.is_updates:
            problem = "updates have their values as they were written; leave it out"
            yield f"{path}.columns.{column.name}.encoding", problem
        elif column.encoding is not None:
            try:
                encoding(encoding_of(source, column) or "")
            except TypeTextError:
                continue  # the type is told
            except ValueError as error:
                yield f"{path}.columns.{column.name}.encoding", str(error)


def _metadata_problems(source: Input) -> Iterator[PlanProblem]:
    """Problems of the metadata columns of an input."""
    path = f"inputs.{source.name}.metadata"
    if not source.metadata:
        return
    if source.traits.is_updates:
        yield path, f"updates of {source.value_format} are no longer the messages that set rows"
    elif source.mode == "diffs":
        yield path, "an old image does not say which message had set it: read the input as upserts"
    elif not source.traits.has_columns:
        yield path, "bytes have no columns"
    declared = {column.name.lower() for column in source.columns}
    counts = Counter(name.lower() for name, _ in source.metadata)
    for name, kind in source.metadata:
        if name.lower() in declared or counts[name.lower()] > 1:
            yield f"{path}.{name}", "is a column already; give it another name"
        elif is_ours(name) or name.lower() in SHORT:
            yield f"{path}.{name}", "no column of metadata can be named so"
        if kind not in METADATA_TYPES:
            listed = ", ".join(METADATA_TYPES)
            yield f"{path}.{name}", f'"{kind}" is none of {listed}'


def _time_problems(source: Input, unread: Unread) -> Iterator[PlanProblem]:
    """Problems of an input's times."""
    path = f"inputs.{source.name}"
    if source.traits.is_updates:
        if source.mode != "diffs":
            yield f"{path}.mode", f'{source.value_format} has updates: it must be "diffs"'
        if source.start != "earliest":
            yield f"{path}.start", "updates make a collection only from the earliest on"
        if source.traits.kind == "updates" and len(source.topics) != 1:
            yield f"{path}.topic", "a diff topic has its own progress: one input for each"
        if source.event_time is not None:
            yield f"{path}.event_time", f"updates of {source.value_format} have times already"
        return
    event = source.event_time
    if event is None:
        return
    if (event.of is None) == (event.clock is None):
        yield f"{path}.event_time", 'needs one of "of" and "clock"'
    if event.clock in SOURCE_CLOCKS and not source.traits.source_clocks:
        have = " or ".join(name for name, its in FORMATS.items() if its.source_clocks)
        yield f"{path}.event_time.clock", f'"{event.clock}" is a clock of {have}'
    transactions = event.transactions
    if (transactions is None) == (event.clock == "transaction"):
        problem = "is needed with" if transactions is None else "is only for"
        yield f"{path}.event_time.transactions", f"{problem} clock: transaction"
    elif transactions is not None:
        if source.start != "earliest":
            yield f"{path}.start", "transactions are whole only from the earliest on"
        try:
            collections_of(source.topics, transactions)
        except ConfigError as error:
            yield f"{path}.event_time.transactions", str(error).splitlines()[0]
    for part in ("lateness", "idle", "ahead"):
        if (getattr(event, part + "_ms") or 0) < 0:
            yield f"{path}.event_time.{part}", "must be 0 seconds or more"
    if event.of is not None:
        result = result_of((Sql(valid_from=event.of),), rows_of(source, unread))
        for each in result.problems:
            yield f"{path}.event_time.of", each.problem


# Parts of the names of properties that are secrets.
_SECRETS = ("secret", "token", "password", "credential", "authorization")
# A password in a URL.
_WITH_PASSWORD = re.compile("://[^/@]*:[^/@]*@")


def _history_problems(source: Input) -> Iterator[PlanProblem]:
    """All problems of the history of an input."""
    history, path = source.history, f"inputs.{source.name}.history"
    if history is None:
        return
    if source.traits.is_updates:
        yield path, f"a topic of {source.value_format} has all that there was by itself"
    elif source.event_time is not None:
        yield path, "rows of files have no place among event times: leave `event_time` out"
    elif not source.traits.has_columns:
        yield path, "rows have columns, and bytes have none"
    yield from _source_problems(history, path)
    for file in history.files:
        name = file.rpartition("/")[2]
        is_file = "." in name and not is_pattern(name)
        if is_file and not name.endswith((*PARQUET, *LINES)):
            kinds = ", ".join((*PARQUET, *LINES[::3]))
            yield f"{path}.files", f"{file!r} is no file of {kinds}, nor a folder of such"
    if source.key and history.key:
        yield f"{path}.key", "is the key of the input, which has one"
    elif source.mode == "upsert" and not source.key and not history.key:
        yield f"{path}.key", "is needed: a row of a file has no Kafka key"
    if history.bare and len(history.key) != 1:
        yield f"{path}.key", "one column alone can be the key by itself"
    if "sequence" in dict(source.options) and not source.key:
        yield path, "rows with a sequence need the key of the input, by its columns"


def _source_problems(history: History, path: str) -> Iterator[PlanProblem]:
    """Problems of where the rows come from."""
    named = [name for name in ("files", "iceberg", "delta") if getattr(history, name)]
    if len(named) != 1:
        places = ", ".join(named) or "none"
        yield path, f"has to have one of files, iceberg and delta; it has {places}"
    if history.files and history.version is not None:
        yield f"{path}.version", "is of a table, and files have none"
    if history.iceberg and "." not in history.iceberg:
        yield f"{path}.iceberg", f"{history.iceberg!r} has no namespace, as in shop.orders"
    if history.catalog and not history.iceberg:
        yield f"{path}.catalog", "is of an Iceberg table"
    for name, value in history.catalog:
        if any(part in name.lower() for part in _SECRETS) or _WITH_PASSWORD.search(value):
            yield (
                f"{path}.catalog",
                f"{name} has a secret, and the checkpoint would keep it: give it to the process, "
                "as a variable of PyIceberg or of the file system",
            )
