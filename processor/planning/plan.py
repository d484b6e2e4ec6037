"""A dataflow as immutable values: inputs, operators and outputs.

A plan says what is computed.  Where and how it runs (brokers, checkpoint, batch sizes) is in
`Settings`.  The state of a running pipeline is found by the names of operators, so keep a
name as long as you want its state.  Making a plan does not check that its parts fit;
`checking.checked` does, wherever a plan is read, built or run.

All parts of a plan are in this file, because together they are one value: a fingerprint and
the metadata of a checkpoint are made of all of them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import msgspec

from ikebana.codecs.change import Column
from ikebana.codecs.diff import Times
from ikebana.codecs.formats import (
    FORMATS,
    OUTPUT_FORMATS,
    Format,
    InputTraits,
    KeyFormat,
    OutputFormat,
    OutputTraits,
)
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.base.offsets import progress_topic
from ikebana.processor.base.texts import suggestion
from ikebana.processor.kernels.window_values import WindowFunction
from ikebana.processor.linear.functions import name_of, why_not_portable
from ikebana.processor.linear.settled import settle, settle_fields
from ikebana.processor.linear.steps import AnyStep, Call, Step
from ikebana.processor.planning import starts
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join

PlanProblem = tuple[str, str]
"""The path of a part of a plan, and what is wrong with it."""
# Where old values come from.  upsert: the state.  diffs: the old images in the messages.
# append: there are none, since every message is a new row.
InputMode = Literal["upsert", "diffs", "append"]
# record: on the error topic.  drop: counted only.  fail: the pipeline stops.
OnError = Literal["record", "drop", "fail"]
# ingest: each micro-batch has one time, milliseconds.  offset: each record has its own.
TimeDomain = Literal["ingest", "offset"]
# What happens with an output's topic when an edit changes the collection.  difference: it
# gets the difference.  new-topic: the output has to begin in another.  refuse: no such edit.
OnChange = Literal["difference", "new-topic", "refuse"]
# Under which subjects a registry has the schemas of an output.  topic: the topic's name with -key
# and -value.  record: the full name of the record.  topic-record: both.
Subjects = Literal["topic", "record", "topic-record"]
# What happens with undeclared columns that appear later.  tell: a notice says so.
# add: a run declares them.
OnNewColumn = Literal["tell", "add"]
# kafka: the record's timestamp.  source: when the source committed the change.  lsn: where
# in its log the source has the change.  transaction: where in the log its transaction begins.
EventClock = Literal["kafka", "source", "lsn", "transaction"]
# The metadata of a message in Kafka.
Metadata = Literal["timestamp", "partition", "offset", "headers", "topic"]
METADATA_TYPES: Mapping[Metadata, str] = {
    "timestamp": "TIMESTAMP",
    "partition": "INTEGER",
    "offset": "BIGINT",
    "headers": "MAP(VARCHAR, BLOB)",
    "topic": "VARCHAR",
}
# The clocks of a Debezium envelope, and those of them that are positions, not milliseconds.
SOURCE_CLOCKS = ("source", "lsn", "transaction")
LOG_CLOCKS = ("lsn", "transaction")
# Means the default mode of the format.
_DEFAULT_MODE = cast(InputMode, "")


class EventTime(msgspec.Struct, frozen=True):
    """Event time of an input: how its records get their times, and how its frontier moves.

    The time of a record is the SQL expression `of` over its row (milliseconds, a date or a
    timestamp), or comes from a `clock`.  The frontier is the least, over the partitions, of
    the greatest time seen, less `lateness_ms`.  A later record counts at the frontier.  A
    partition without records for `idle_ms` does not hold the frontier back (None: it always
    does).  A time more than `ahead_ms` ahead of the clock is an error and does not move the
    frontier (None: there is no such limit).

    With the clock `transaction`, the topic `transactions` has the number of changes of each
    transaction, and the frontier passes a transaction when all of them have been read.

    >>> EventTime(of="ordered", ahead_ms=5).latest(now_ms=100)
    105
    """

    of: str | None = None
    clock: EventClock | None = None
    lateness_ms: int = 0
    idle_ms: int | None = 60_000
    ahead_ms: int | None = 86_400_000
    transactions: str | None = None

    def latest(self, now_ms: int) -> int | None:
        """The latest time that is accepted at a wall-clock time; None if there is no limit."""
        if self.ahead_ms is None or self.clock in LOG_CLOCKS:
            return None
        return now_ms + self.ahead_ms

    @property
    def times(self) -> Times:
        """The kind of these times."""
        return "offset" if self.clock in LOG_CLOCKS else "clock"


# The names of a history's files end in one of these.
PARQUET = (".parquet",)
LINES = tuple(
    f".{name}{packed}" for name in ("jsonl", "ndjson", "json") for packed in ("", ".gz", ".zst")
)


def is_pattern(name: str) -> bool:
    """Whether the last part of a path is a pattern for several files."""
    return any(letter in name for letter in "*?[")


class History(msgspec.Struct, frozen=True):
    """Files of rows that an input reads before its topics, once: a new checkpoint does.

    `files` are paths, URIs or patterns of Parquet files and of lines of JSON.  Instead of them,
    `iceberg` names a table of a catalog, or `delta` is the folder of a table: its files are those
    of a `version`, or of the newest one.  `catalog` has the properties of PyIceberg's catalog.

    `key` has the columns of the key, where the input has none of its own; if it is `bare`, the
    key is the value of the only one, and else an object of them.
    """

    files: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    bare: bool = False
    iceberg: str = ""
    delta: str = ""
    version: int | None = None
    """The version of a Delta table, or the id of a snapshot of an Iceberg table."""
    catalog: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        settle(self)

    @property
    def names(self) -> tuple[str, ...]:
        """What it reads, in words."""
        at = "" if self.version is None else f" at {self.version}"
        if self.iceberg:
            return (f"Iceberg table {self.iceberg}{at}",)
        return (f"Delta table {self.delta}{at}",) if self.delta else self.files


@dataclass(frozen=True, slots=True)
class Input:
    """Kafka topics that a plan reads; several topics are read as one input.

    `columns` declares the types of columns; if there are any, expressions may name no
    others.  `key` are the key's columns, if these are not the Kafka key.  `tables` is a regular
    expression for the tables to read from the topics.  With `drift`, old images are compared
    with the state, and differences are counted.  `schema` is the reader schema of Avro
    values.  `event_time` is None if records have no times of their own.  `unique` (columns in
    which no two rows agree) and `size` (about how many rows there are) are hints for joins.
    `metadata` names columns that have what Kafka says of a message.  `history` are files that are
    read before the topics.

    >>> Input("orders", ("orders",)).mode, Input("names", ("names",), "diff").mode
    ('upsert', 'diffs')

    Raises:
        ConfigError: the format does not exist, or a field has a value of another type.
    """

    name: str
    topics: tuple[str, ...]
    value_format: Format = "json"
    key_format: KeyFormat = "json"
    start: str = starts.EARLIEST
    """Where reading begins; a time, or offsets by partition, becomes its text: see `starts`."""
    mode: InputMode = _DEFAULT_MODE
    """By default `diffs` for topics of updates, and `upsert` for all others."""
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    tables: str | None = None
    drift: bool = True
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    event_time: EventTime | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None
    metadata: tuple[tuple[str, Metadata], ...] = ()
    on_new_column: OnNewColumn = "tell"
    """What happens with columns that appear later: a notice says so, or a run declares them."""
    history: History | None = None

    def __post_init__(self) -> None:
        what = f'input "{self.name}"'
        settle_fields(what, self, object.__setattr__)
        if self.value_format not in FORMATS:
            meant = suggestion(self.value_format, FORMATS)
            raise ConfigError(f"{what} has the format {self.value_format!r}{meant}")
        try:
            object.__setattr__(self, "start", starts.text_of(self.start))
        except ValueError:
            raise ConfigError(
                f"{what} starts at {self.start!r}; set it to {starts.FORMS}"
            ) from None
        if self.mode == _DEFAULT_MODE:
            object.__setattr__(self, "mode", "diffs" if self.traits.is_updates else "upsert")

    @property
    def traits(self) -> InputTraits:
        """The properties of its format."""
        return FORMATS[self.value_format]

    @property
    def history_topic(self) -> str:
        """The name of its history among topics: no topic has a blank in its name."""
        return f"history {self.name}"

    @property
    def is_collection(self) -> bool:
        """Whether its messages are updates by themselves, so that no upsert operator is needed."""
        return self.mode != "upsert"

    @property
    def is_dated(self) -> bool:
        """Whether its records have their own times, which determine its frontier."""
        return self.event_time is not None or self.traits.is_updates

    @property
    def transaction_topic(self) -> str | None:
        """The topic with the sizes of its transactions, if it has the clock `transaction`."""
        return None if self.event_time is None else self.event_time.transactions

    @property
    def moves_frontier_later(self) -> bool:
        """Whether the records of a batch move the frontier of the next one."""
        return self.is_dated and self.traits.kind != "updates"


class Upsert(msgspec.Struct, frozen=True, tag="upsert"):
    """Keep the last value of each key of an input.

    Messages `(key, value)` to pairs `(key, value)`, at most one a key; a null value removes
    its key.
    """

    name: str
    input: str


class Linear(msgspec.Struct, frozen=True, tag="linear"):
    """Apply steps to each update of `source` by itself, without state.

    `unique` has sets of columns in which no two rows agree, beyond what follows from the steps.
    The author of the operator guarantees them; they are not checked.
    """

    name: str
    source: str
    steps: tuple[Step, ...]
    unique: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        settle(self)


class Concat(msgspec.Struct, frozen=True, tag="concat"):
    """Add the collections of several operators: counts of equal pairs add up.

    `unique` has sets of columns in which no two rows of the sum agree, as in the difference of two
    collections.  The author of the operator guarantees them; they are not checked.
    """

    name: str
    sources: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        settle(self)


class StateMachine(msgspec.Struct, frozen=True, tag="state_machine"):
    """Apply a state machine to the events of each key of an input, in order of time.

    `step(states, event, time)` returns the next states of a key, `view(states)` the values to
    show, and `migrate(state, version)` converts a state of another `version`.  They are
    functions, or their names as "module:function"; see `kernels.state_machine`.
    """

    name: str
    input: str
    step: Any
    view: Any = None
    version: int = 1
    migrate: Any = None


class LoopVariable(msgspec.Struct, frozen=True):
    """A recursive collection: its columns with types, and the collection of the body it equals."""

    columns: tuple[tuple[str, str], ...]
    source: str


class Loop(msgspec.Struct, frozen=True, tag="loop"):
    """Compute recursive collections over the rows of each key of `source`.

    The rows have the columns "of", the number of a collection, "key" and "row"; `columns` has the
    columns of each such collection with their types.  The `body` reads these by the names "s0",
    "s1" and so on, and `variables` by "x0", "x1" and so on.  Results are rows of variables, with
    "of" and "row".  If anything still changes after `rounds` rounds, that is an error.  `by` is
    the SQL of another key; see `kernels.loop`.
    """

    name: str
    source: str
    columns: tuple[tuple[tuple[str, str], ...], ...]
    variables: tuple[LoopVariable, ...]
    body: tuple["Operator", ...]
    rounds: int = 1000
    by: str | None = None


class Reduce(msgspec.Struct, frozen=True, tag="reduce"):
    """Reduce the pairs of each key of `source` by aggregates.

    `aggregates` are pairs (name, aggregate), such as ("delay", "avg(dep_delay)"), whose
    arguments are SQL over one row.  `by` is the SQL of another key.  With `total` all rows have
    one key, which has aggregates even if there are no rows.
    """

    name: str
    source: str
    aggregates: tuple[tuple[str, str], ...] = ()
    by: str | None = None
    total: bool = False

    def __post_init__(self) -> None:
        settle(self)

    @property
    def key(self) -> str | None:
        """The SQL of the key to reduce by; None: the one that rows have."""
        return TOTAL_KEY if self.total else self.by


class ReduceRows(msgspec.Struct, frozen=True, tag="reduce_rows"):
    """Reduce the pairs of each key of `source` by a function of the user.

    `function(key, rows)`, or its name as "module:function", returns the results of a key; see
    `kernels.reduce_rows`.  `by` is the SQL of another key.
    """

    name: str
    source: str
    function: Any
    by: str | None = None


def reduction(reduce: Reduce, function: Any) -> Reduce | ReduceRows:
    """A reduction as written: by a function, unless that is None.  Raises: PlanError, by both."""
    if function is None:
        return reduce
    if reduce.aggregates or reduce.total:
        problem = "a reduction has a function, or aggregates and perhaps a total, not both"
        raise PlanError(reduce.name, [(f"operators.{reduce.name}.function", problem)])
    return ReduceRows(reduce.name, reduce.source, function, reduce.by)


# The key of a reduction of all rows, as SQL and as JSON.
TOTAL_KEY = "0"


class WindowFunctions(msgspec.Struct, frozen=True, tag="window_functions"):
    """Add the values of window functions to each row of `source`, by the rows around it.

    `by` is the SQL of the partition key, `row` of the row to show, and `order` of the value to
    sort by, in reverse if `is_descending`.  Rows `(key, row)` become `(key, {row, w0, w1, ...})`,
    with the value of each function.  With `most`, the first function is a rank, and rows with a
    greater rank do not show.
    """

    name: str
    source: str
    row: str
    functions: tuple[WindowFunction, ...]
    by: str = TOTAL_KEY
    order: str | None = None
    is_descending: bool = False
    most: int = 0


Operator = (
    Upsert | Linear | Concat | StateMachine | Reduce | ReduceRows | Loop | WindowFunctions | Join
)


@dataclass(frozen=True, slots=True)
class Output:
    """A topic to which the updates of a collection are written.

    `source` names an operator, or an input of updates.
    """

    name: str
    source: str
    topic: str
    format: OutputFormat = "diff"
    partitions: int | None = None
    """The number of partitions if the topic is created; None: as many as its input has."""
    tombstones: bool = True
    """Whether, in `debezium-json`, a tombstone follows the delete of a key's last row."""
    on_change: OnChange = "difference"
    """What happens with the topic when an edit of the plan changes its collection."""
    subjects: Subjects = "topic"
    """Under which subjects a registry has the schemas of the messages."""
    record: str | None = None
    """The namespace of the records in Avro; None: derived from the topic's name."""

    @property
    def traits(self) -> OutputTraits:
        """The properties of its format."""
        return OUTPUT_FORMATS[self.format]

    @property
    def progress_topic(self) -> str:
        """The topic of its progress records, which publish its frontier."""
        return progress_topic(self.topic)


class Reading(msgspec.Struct, frozen=True):
    """The work that is pushed into the decoding of an input.

    `columns` are the columns to decode, None for all.  A row is dropped if it passes none of
    `key_filters`, each of which has the conditions of one branch; an empty tuple drops none.
    `pushed` are the steps that are applied to rows before an upsert.
    """

    columns: tuple[str, ...] | None = None
    key_filters: tuple[tuple[str, ...], ...] = ()
    pushed: tuple[tuple[str, AnyStep], ...] = ()


@dataclass(frozen=True)
class Plan:
    """Inputs, operators and outputs, as an immutable value.

    A `Pipeline`, a pipeline file and a checkpoint return checked plans.
    A plan made by hand is checked by `evaluate` and by every run, which raise a `PlanError`
    with every problem.  Most methods only choose some of its parts, by their kind.

    >>> from ikebana import Input, Output, Plan, Upsert, evaluate
    >>> plan = Plan(
    ...     "names",
    ...     inputs=(Input("names", ("names",)),),
    ...     operators=(Upsert("current", "names"),),
    ...     outputs=(Output("diffs", "current", "current-names"),),
    ... )
    >>> evaluate(plan, {"names": [(1, "zappa", 0)]})["diffs"]
    [Update(data=(1, 'zappa'), time=0, diff=1)]

    Raises:
        PlanError: a part has a mutable value, such as a set.
    """

    name: str
    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]
    error_topic: str = ""
    """The topic of error records; `<name>.errors` when empty."""
    time: TimeDomain = "ingest"
    on_error: OnError = "record"
    pushdown: bool = True
    """Whether the planner pushes work into decoding; this does not change the outputs."""
    readings: tuple[tuple[str, Reading], ...] = ()
    """How rows of inputs are decoded, by input, if a checkpoint's state has rows of another form
    than the planner would choose."""
    backfills: tuple[str, ...] = ()
    """The inputs that are read again from their beginnings for an edit, beside the others that
    read their topics (`planning.backfill`)."""

    def __post_init__(self) -> None:
        if not self.error_topic:
            object.__setattr__(self, "error_topic", self.name + ".errors")
        settle_fields(f'plan "{self.name}"', self, object.__setattr__)
        if problems := list(_unhashable(self)):
            raise PlanError(self.name, problems)

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __hash__(self) -> int:
        # Every batch looks up by its plan what has been computed of it.
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        # Texts have other hashes in another process.
        return {name: value for name, value in vars(self).items() if name != "_hash"}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of each input in turn; the position of a topic is the rank of its records."""
        return tuple(topic for source in self.inputs for topic in source.topics)

    def readers(self, topic: str) -> tuple[Input, ...]:
        """The inputs that read a topic live; all of them have the same position."""
        return tuple(
            source
            for source in self.inputs
            if topic in source.topics and source.name not in self.backfills
        )

    def shares_topics(self, source: Input) -> bool:
        """Whether another input reads a topic of this one as well."""
        return any(len(self.readers(topic)) > 1 for topic in source.topics)

    def position_key(self, source: Input, topic: str) -> str:
        """The key of an input's position in a topic, in logged offsets.

        It is the topic, except for inputs that are read again.
        """
        return f"{topic}@{source.name}" if source.name in self.backfills else topic

    @property
    def published(self) -> tuple[Output, ...]:
        """All outputs that have a progress topic: the declared ones, then the errors."""
        return (*self.outputs, Output(ERRORS, "", self.error_topic, partitions=1))

    @property
    def is_dated(self) -> bool:
        """Whether any input has its own times, which then are the times of batches."""
        return any(source.is_dated for source in self.inputs)

    @property
    def times(self) -> Times | None:
        """The kind of its outputs' times; None if they come from topics of updates."""
        if not self.is_dated:
            return "clock" if self.time == "ingest" else "offset"
        events = (source.event_time for source in self.inputs)
        return next((event.times for event in events if event is not None), None)

    @property
    def transaction_topics(self) -> tuple[str, ...]:
        """The distinct transaction topics of the inputs."""
        named = (source.transaction_topic for source in self.inputs)
        return tuple(dict.fromkeys(topic for topic in named if topic is not None))

    @property
    def commits_topic(self) -> str:
        """The topic of the shards' commit records."""
        return self.name + ".commits"

    @property
    def exchange_topic(self) -> str:
        """The topic through which updates move between shards, if the plan has exchanges."""
        return self.name + ".exchange"

    @property
    def machines(self) -> tuple[StateMachine, ...]:
        """The state machines."""
        return tuple(o for o in self.operators if isinstance(o, StateMachine))

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        """The reductions by aggregates, in the order of the plan."""
        return tuple(o for o in self.operators if isinstance(o, Reduce))

    @property
    def joins(self) -> tuple[Join, ...]:
        """The joins, in the order of the plan."""
        return tuple(o for o in self.operators if isinstance(o, DeltaJoin | AsOfJoin))

    @property
    def upserts(self) -> tuple[Upsert, ...]:
        """The operators that keep state by key."""
        return tuple(o for o in self.operators if isinstance(o, Upsert))

    def input(self, name: str) -> Input:
        """The input of that name."""
        return next(i for i in self.inputs if i.name == name)

    def portable(self) -> "Plan":
        """The plan with functions replaced by their names, by which other processes import them.

        Raises:
            PlanError: a function cannot be imported by a name.
        """
        problems: list[tuple[str, str]] = []

        def named(function: Any, path: str) -> Any:
            if problem := why_not_portable(function):
                problems.append((path, problem))
            return name_of(function)

        operators: list[Operator] = []
        for operator in self.operators:
            path = f"operators.{operator.name}"
            changed: dict[str, Any] = {
                each: named(function, f"{path}.{each}")
                for each, function in functions_of(operator).items()
            }
            if steps := getattr(operator, "steps", ()):
                changed["steps"] = tuple(
                    msgspec.structs.replace(s, function=named(s.function, f"{path}.{s.kind}"))
                    if isinstance(s, Call)
                    else s
                    for s in steps
                )
            operators.append(msgspec.structs.replace(operator, **changed))
        if problems:
            raise PlanError(self.name, problems)
        return replace(self, operators=tuple(operators))

    def fingerprint(self) -> str:
        """A hash of the plan for offsets and commit records, so that other plans are refused.

        It leaves out `lateness` and `idle`, which only decide how far the next batches go.
        """
        return fingerprint(self)


def _unhashable(plan: Plan) -> Iterator[tuple[str, str]]:
    """The parts that have a mutable value."""
    for kind in ("inputs", "operators", "outputs"):
        for part in getattr(plan, kind):
            try:
                hash(part)
            except TypeError as error:
                yield f"{kind}.{getattr(part, 'name', part)}", f"is no value: {error}"


ERRORS = "errors"
# The fields with functions of the user.
_FUNCTIONS: Mapping[type, tuple[str, ...]] = {
    StateMachine: ("step", "view", "migrate"),
    ReduceRows: ("function",),
}


def functions_of(operator: Operator) -> Mapping[str, Any]:
    """The functions of the user, by field."""
    named = ((each, getattr(operator, each)) for each in _FUNCTIONS.get(type(operator), ()))
    return {each: function for each, function in named if function is not None}


def fingerprint(plan: object) -> str:
    """Hash a plan, without what may change between two runs of its batches."""
    plain = msgspec.to_builtins(plan, enc_hook=_function_name)
    for source in plain["inputs"]:
        if not source["metadata"]:
            # The default is left out, as in plans from before the field existed.
            del source["metadata"]
        if (event := source["event_time"]) is not None:
            # These only decide how far the next batches go.
            del event["lateness_ms"], event["idle_ms"]
        # It adds columns, which are hashed themselves.
        del source["on_new_column"]
        # Offsets have the position of reading in it.
        del source["history"]
    for operator in plain["operators"]:
        # It is a claim about the rows, and does not change them.
        operator.pop("unique", None)
    for output in plain["outputs"]:
        # It affects messages only, not the collection.
        del output["tombstones"]
        # It only limits later edits.
        del output["on_change"]
        # These are only names in schemas.
        del output["subjects"], output["record"]
    # A batch that failed on an error may be run again and record it; a committed batch had none.
    # Whether errors are written at all is hashed: it changes the batch.
    if plain["on_error"] != "drop":
        plain["on_error"] = "record"
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


def _function_name(value: Any) -> str:
    """The name of a step's function, the only value of a plan that is not data."""
    if not callable(value):
        raise TypeError(f"a plan holds a {type(value).__name__}")
    return name_of(value)


# Settings of an input that decide the scope of its rows.
_OF_ROWS = ("columns", "format", "mode", "key", "schema", "tables", "options")


class Unread(NamedTuple):
    """The parts of a plan's file that could not be read: their paths, as keys joined by dots.

    They are left out of the plan, or have their defaults in it.  Problems that only follow from
    that are not reported.
    """

    paths: frozenset[str] = frozenset()

    def any_of(self, kind: str) -> bool:
        """Whether anything of a section such as `operators` was not read."""
        return self._within(kind)

    def may_have(self, kind: str, name: str) -> bool:
        """Whether a part of that name may exist and was not read completely."""
        return kind in self.paths or self._within(f"{kind}.{name}")

    def hides_rows(self, name: str) -> bool:
        """Whether the scope of an input's rows is unknown."""
        within = f"inputs.{name}"
        parts = (f"{within}.{part}" for part in _OF_ROWS)
        return not self.paths.isdisjoint({"inputs", within, *parts})

    def columns(self, name: str) -> set[str]:
        """The declared columns of an input with types that could not be read."""
        start = f"inputs.{name}.columns."
        names = {path.removeprefix(start) for path in self.paths if path.startswith(start)}
        return names | {column.partition(".")[0] for column in names}

    def keys(self, section: str) -> set[str]:
        """The keys of a section that were not read, completely or in part."""
        start = section + "."
        names = (path.removeprefix(start) for path in self.paths if path.startswith(start))
        return {path.partition(".")[0] for path in names}

    def _within(self, section: str) -> bool:
        return any(path == section or path.startswith(section + ".") for path in self.paths)


ALL_READ = Unread()
