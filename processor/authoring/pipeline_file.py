"""The schema of the pipeline file, and the plan and the settings that it becomes.

Each section is a model with the file's own keys; an unknown key is refused, and so is a
value of another type, with our own messages.  Numbers may also be written as text, since
a substituted variable is text.  `Plan` and `Settings` check ranges, and whether the parts
fit together.

A file of settings over a pipeline file says where and how this copy of the pipeline runs.  Its
values win key by key, so a platform can set brokers, credentials, checkpoint and Spark without a
change of the pipeline file.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from ikebana.codecs.change import Column
from ikebana.codecs.formats import FORMATS, Format, KeyFormat, OutputFormat
from ikebana.codecs.sql_type import TypeTextError, parsed
from ikebana.errors import PlanError
from ikebana.processor.authoring import operator_kinds
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.authoring.operator_kinds import OperatorSection
from ikebana.processor.authoring.pipeline_yaml import Document
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.authoring.values import (
    ExpressionText,
    Scalars,
    Seconds,
    Section,
    Text,
    WholeNumber,
    as_column,
    as_columns,
    as_finite_seconds,
    as_flag,
    as_formats,
    as_names,
    as_schema,
    as_seconds_or_never,
    as_start,
    as_topics,
    as_unique,
    choice,
)
from ikebana.processor.linear import sql_functions
from ikebana.processor.linear.sql_functions import SqlFunction
from ikebana.processor.linear.syntax import with_long_names
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import (
    ALL_READ,
    EventClock,
    EventTime,
    History,
    Input,
    InputMode,
    Metadata,
    OnChange,
    OnError,
    OnNewColumn,
    Operator,
    Output,
    Plan,
    Subjects,
    TimeDomain,
    Unread,
)
from ikebana.processor.relational.sections import Derived, translate


class SourceSection(Section):
    """`source`."""

    max_records_per_batch: WholeNumber = Settings.max_records_per_batch
    kafka: Scalars = {}


class SinkSection(Section):
    """`sink`."""

    kafka: Scalars = {}
    topics: Scalars = {}
    replication_factor: WholeNumber = Settings.replication_factor


class RunSection(Section):
    """`run`."""

    checkpoint: Text = ""
    shards: WholeNumber = Settings.shards
    trigger_interval: Seconds = Settings.trigger_interval_s
    heartbeat: Seconds = Settings.heartbeat_s
    local_directory: Text | None = Settings.local_directory
    master: Text = Settings.master
    driver_memory: Text = Settings.driver_memory
    retained_batches: WholeNumber = Settings.retained_batches
    max_batch: Seconds = Settings.max_batch_s
    restarts: WholeNumber = Settings.restarts
    max_executors: WholeNumber = Settings.max_executors


class SettingsSections(Section):
    """The sections of settings."""

    kafka: Scalars = {}
    source: SourceSection = SourceSection()
    sink: SinkSection = SinkSection()
    registry: Scalars = {}
    run: RunSection = RunSection()
    spark: Scalars = {}
    deliver: dict[str, DeliverSection] = {}

    def settings(self, *, bootstrap_servers: str | None, checkpoint: str | None) -> Settings:
        """The settings of these sections; arguments win.  Raises: SettingsError."""
        brokers = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        return Settings(
            checkpoint=self.run.checkpoint if checkpoint is None else checkpoint,
            kafka={**self.kafka, **brokers},
            source_kafka=self.source.kafka,
            sink_kafka=self.sink.kafka,
            registry=self.registry,
            shards=self.run.shards,
            max_records_per_batch=self.source.max_records_per_batch,
            trigger_interval_s=self.run.trigger_interval,
            heartbeat_s=self.run.heartbeat,
            local_directory=self.run.local_directory,
            master=self.run.master,
            driver_memory=self.run.driver_memory,
            spark=self.spark,
            retained_batches=self.run.retained_batches,
            max_batch_s=self.run.max_batch,
            restarts=self.run.restarts,
            max_executors=self.run.max_executors,
            topic_settings=self.sink.topics,
            replication_factor=self.sink.replication_factor,
            deliver=self.deliver,
        )


class FormatsSection(Section):
    """`inputs.<name>.format`, written in full."""

    key: Annotated[KeyFormat, choice(KeyFormat)] = "json"
    value: Annotated[Format, choice(Format)] = "json"


class ColumnSection(Section):
    """`inputs.<name>.columns.<name>`, written in full."""

    type: Text
    encoding: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_type(cls, value: object) -> object:
        return as_column(value)


class EventTimeSection(Section):
    """`inputs.<name>.event_time`."""

    of: ExpressionText | None = None
    clock: Annotated[EventClock | None, choice(EventClock)] = None
    lateness: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    idle: Annotated[float | None, BeforeValidator(as_seconds_or_never)] = 60.0
    ahead: Annotated[float | None, BeforeValidator(as_seconds_or_never)] = 86_400.0
    transactions: Text | None = None

    def event_time(self) -> EventTime:
        """The event time that this section describes."""
        idle, ahead = (None if s is None else round(s * 1000) for s in (self.idle, self.ahead))
        lateness = round(self.lateness * 1000)
        return EventTime(self.of, self.clock, lateness, idle, ahead, self.transactions)


class HistorySection(Section):
    """`inputs.<name>.history`."""

    files: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    bare_key: Annotated[bool, BeforeValidator(as_flag)] = False
    iceberg: Text = ""
    delta: Text = ""
    version: WholeNumber | None = None
    catalog: Scalars = {}

    def history(self) -> History:
        """What this section describes."""
        return History(
            self.files,
            self.key,
            self.bare_key,
            self.iceberg,
            self.delta,
            self.version,
            tuple(self.catalog.items()),
        )


class InputSection(Section):
    """`inputs.<name>`."""

    topic: Annotated[tuple[str, ...], BeforeValidator(as_topics)]
    format: Annotated[FormatsSection, BeforeValidator(as_formats)] = FormatsSection()
    start: Annotated[str, BeforeValidator(as_start)] = "earliest"
    mode: Annotated[InputMode | None, choice(InputMode)] = None
    columns: Annotated[dict[str, ColumnSection], BeforeValidator(as_columns)] = {}
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    tables: Text | None = None
    drift: Annotated[bool, BeforeValidator(as_flag)] = True
    avro_schema: Annotated[str | None, BeforeValidator(as_schema)] = Field(None, alias="schema")
    options: Scalars = {}
    event_time: EventTimeSection | None = None
    unique: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(as_unique)] = ()
    size: WholeNumber | None = None
    metadata: dict[str, Annotated[Metadata, choice(Metadata)]] = {}
    on_new_column: Annotated[OnNewColumn, choice(OnNewColumn)] = "tell"
    history: HistorySection | None = None

    def input(self, name: str) -> Input:
        """The input that this section describes."""
        return Input(
            name,
            self.topic,
            self.format.value,
            self.format.key,
            self.start,
            self.mode or ("diffs" if FORMATS[self.format.value].is_updates else "upsert"),
            tuple(Column(n, c.type, c.encoding) for n, c in self.columns.items()),
            self.key,
            self.tables,
            self.drift,
            self.avro_schema,
            tuple(self.options.items()),
            None if self.event_time is None else self.event_time.event_time(),
            self.unique,
            self.size,
            tuple(self.metadata.items()),
            self.on_new_column,
            None if self.history is None else self.history.history(),
        )


OnNull = Literal["null", "call"]
# Keys of inputs that have expressions, beside those of operators.
_OF_INPUTS = ("event_time",)


class FunctionSection(Section):
    """`functions.<name>`."""

    python: Text = ""
    aggregate: Text = ""
    parameters: dict[str, Text] = {}
    returns: Text
    on_null: Annotated[OnNull, choice(OnNull)] = "null"


def with_functions(document: Mapping[str, object]) -> Mapping[str, object]:
    """Replace function names in expressions by long names, which include their definition."""
    sections = document.get("functions")
    if not isinstance(sections, dict) or not sections:
        return document
    functions: dict[str, SqlFunction] = {}
    for name, value in sections.items():
        try:
            section = FunctionSection.model_validate(value)
        except ValueError:
            # The schema says what is wrong.
            continue
        function = sql_function(name, section)
        if sql_functions.function_of(function.long_name) == function:
            functions[name.lower()] = function

    def within(value: object) -> object:
        if isinstance(value, str):
            return with_long_names(value, functions)
        if isinstance(value, list):
            return [within(each) for each in value]
        if isinstance(value, dict):
            return {key: within(each) for key, each in value.items()}
        return value

    result = dict(document)
    if "operators" in result:
        result["operators"] = within(result["operators"])
    inputs = result.get("inputs")
    if isinstance(inputs, dict):
        result["inputs"] = {
            name: {key: within(each) if key in _OF_INPUTS else each for key, each in of.items()}
            if isinstance(of, dict)
            else of
            for name, of in inputs.items()
        }
    return result


def sql_function(name: str, section: FunctionSection) -> SqlFunction:
    """The function that a section describes."""
    kinds = tuple(map(_in_full, section.parameters.values()))
    return SqlFunction(
        name,
        section.python or section.aggregate,
        kinds,
        _in_full(section.returns),
        section.on_null == "call",
        bool(section.aggregate),
    )


def _in_full(kind: str) -> str:
    try:
        return str(parsed(kind))
    except TypeTextError:
        return kind


def function_problems(functions: Mapping[str, FunctionSection]) -> Iterator[tuple[str, str]]:
    """The problems of functions, with their paths."""
    for name, section in functions.items():
        path = f"functions.{name}"
        if problem := sql_functions.problem_of_name(name):
            yield path, problem
        for parameter, kind in section.parameters.items():
            if problem := sql_functions.problem_of_type(kind):
                yield f"{path}.parameters.{parameter}", problem
        if problem := sql_functions.problem_of_type(section.returns):
            yield f"{path}.returns", problem
        if bool(section.python) == bool(section.aggregate):
            yield path, "has either python, a function, or aggregate, a class"
        elif section.python and (problem := sql_functions.problem_of_function(section.python)):
            yield f"{path}.python", problem
        elif section.aggregate:
            of = sql_function(name, section)
            if problem := sql_functions.problem_of_aggregate(of):
                yield f"{path}.aggregate", problem


class OutputSection(Section):
    """`outputs.<name>`."""

    source: Text = Field(alias="from")
    topic: Text
    format: Annotated[OutputFormat, choice(OutputFormat)] = "diff"
    partitions: WholeNumber | None = None
    tombstones: Annotated[bool, BeforeValidator(as_flag)] = True
    on_change: Annotated[OnChange, choice(OnChange)] = "difference"
    subjects: Annotated[Subjects, choice(Subjects)] = "topic"
    record: Text | None = None

    def output(self, name: str) -> Output:
        """The output that this section describes."""
        return Output(
            name,
            self.source,
            self.topic,
            self.format,
            self.partitions,
            self.tombstones,
            self.on_change,
            self.subjects,
            self.record,
        )


class ErrorsSection(Section):
    """`errors`."""

    topic: Text = ""
    policy: Annotated[OnError, choice(OnError)] = "record"


class PlanSections(Section):
    """The sections of the plan: what is computed."""

    pipeline: Text
    functions: dict[str, FunctionSection] = {}
    inputs: dict[str, InputSection]
    operators: dict[str, OperatorSection] = {}
    outputs: dict[str, OutputSection]
    errors: ErrorsSection = ErrorsSection()
    time: Annotated[TimeDomain, choice(TimeDomain)] = "ingest"
    pushdown: Annotated[bool, BeforeValidator(as_flag)] = True

    @model_validator(mode="before")
    @classmethod
    def _with_functions(cls, value: object) -> object:
        return with_functions(value) if isinstance(value, dict) else value

    def plan(self, unread: Unread = ALL_READ) -> Plan:
        """The plan of these sections; the parts in `unread` could not be parsed.

        Raises: PlanError.
        """
        problems = list(function_problems(self.functions))
        operators: list[Operator | Derived] = []
        lost: set[str] = set()
        for name, section in self.operators.items():
            if unread.may_have("operators", name):
                # A key that it lacks may be the one that was not parsed, so that is no problem.
                operators += operator_kinds.readable_operators(section, name, unread)
                continue
            try:
                operators += operator_kinds.operators(section, name)
            except PlanError as error:
                lost.add(f"operators.{name}")
                problems += error.problems
        inputs = [source.input(name) for name, source in self.inputs.items()]
        result = translate(inputs, operators, unread)
        of_operators = result.operators
        problems += result.problems
        lost |= {f"operators.{name}" for name in result.lost}
        if not (problems or lost or unread.paths):
            return checked(self._plan_with(of_operators))
        # Imported here, since checking steps needs DuckDB, which is slow to import.
        from ikebana.processor.planning.plan_problems import problems_of

        problems += problems_of(self._plan_with(of_operators), Unread(unread.paths | lost))
        raise PlanError(self.pipeline, problems)

    def _plan_with(self, operators: tuple[Operator, ...]) -> Plan:
        return Plan(
            name=self.pipeline,
            inputs=tuple(i.input(name) for name, i in self.inputs.items()),
            operators=operators,
            outputs=tuple(o.output(name) for name, o in self.outputs.items()),
            error_topic=self.errors.topic,
            time=self.time,
            on_error=self.errors.policy,
            pushdown=self.pushdown,
        )


class PipelineFile(SettingsSections, PlanSections):
    """The whole file."""


SETTINGS_VARIABLE = "IKEBANA_SETTINGS"

Placed = Mapping[str, tuple[str, int]]
"""Paths that another file sets, with its name and the line in it."""


def with_overlay(document: Document, over: Document, source: str) -> tuple[Document, Placed]:
    """The document with the settings of `over`, a file called `source`, on top of it."""
    placed = {path: (source, line) for path, line in over.lines.items()}
    if over.value is None:
        return document, {}
    if not isinstance(over.value, dict):
        problem = (source, "is not a mapping of settings")
        return document._replace(problems=[*document.problems, problem]), {}
    keys = SettingsSections.keys()
    problems = [
        (path, f"does not belong in a file of settings; these do: {', '.join(keys)}")
        for path in over.value
        if path not in keys
    ]
    return (
        Document(
            _merged(document.value, {k: v for k, v in over.value.items() if k in keys}),
            document.lines,
            [*document.problems, *problems, *over.problems],
            document.unread | over.unread,
        ),
        placed,
    )


def _merged(below: object, above: object) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        merged = {key: _merged(below.get(key), value) for key, value in above.items()}
        return {**below, **merged}
    return below if above is None else above
