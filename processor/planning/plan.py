"""The dataflow as immutable values: inputs, operators, outputs.

A plan says what is computed and nothing of where: brokers, checkpoints and batch sizes
are `Settings`.  Names identify operators in the state of a running pipeline, so a name
is kept as long as its state is wanted.  A plan that exists is consistent: building one
that is not raises a `PlanError` that lists every problem.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from ikebana.arrangements.errors import PlanError
from ikebana.codecs.change import Column
from ikebana.codecs.progress import Promise
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin, Join
from ikebana.processor.linear.functions import name_of, why_not_portable
from ikebana.processor.linear.settled import settle, settle_fields, tuples
from ikebana.processor.linear.steps import Call, Step

KeyFormat = Literal["json", "bytes", "avro"]
Format = Literal[
    "json",
    "bytes",
    "avro",
    "debezium-json",
    "debezium-avro",
    "debezium-flat-json",
    "maxwell",
    "canal",
    "goldengate",
    "dms",
    "diff",
    "cdcv2-json",
    "cdcv2-avro",
]
OutputFormat = Literal["diff", "cdcv2-json", "cdcv2-avro", "debezium-json", "upsert"]
Start = Literal["earliest", "latest"]
# upsert: state tells what is retracted.  diffs: the old images in the messages do.
# append: nothing ever is, every message is a row of its own.
Mode = Literal["upsert", "diffs", "append"]
# record: on the error topic.  drop: counted only.  fail: the pipeline stops.
OnError = Literal["record", "drop", "fail"]
# ingest: each micro-batch has one time, milliseconds.  offset: each record has its own.
TimeDomain = Literal["ingest", "offset"]
# kafka: the record's timestamp.  source: when the source committed the change.  lsn: where
# in its log the source has the change.  transaction: where in the log its transaction begins.
Clock = Literal["kafka", "source", "lsn", "transaction"]
# Those of a Debezium envelope, and of them those that are positions and no milliseconds.
SOURCE_CLOCKS = ("source", "lsn", "transaction")
LOG_CLOCKS = ("lsn", "transaction")
PLAIN_FORMATS = ("json", "bytes", "avro")
# Updates with times of their own, as pipelines publish them.
UPDATE_FORMATS = ("diff", "cdcv2-json", "cdcv2-avro")
# Stands for the one that goes with the format.
_DEFAULT_MODE = cast(Mode, "")


class EventTime(msgspec.Struct, frozen=True):
    """Records have times of their own, and come about in their order.

    The time is `of` each row, SQL for milliseconds or a timestamp, or what a `clock` says.
    The frontier is the greatest time seen in every partition, less `lateness_ms`; what comes
    later than that is advanced to the frontier.  A partition that has been silent for
    `idle_ms` does not hold the frontier back; None: it always does.  A time that is
    more than `ahead_ms` beyond the clock is an error and moves nothing; None: no time is.

    With the clock `transaction`, `transactions` is the topic that tells how many changes a
    transaction has: the frontier passes it when all have been read, and not before.
    """

    of: str | None = None
    clock: Clock | None = None
    lateness_ms: int = 0
    idle_ms: int | None = 60_000
    ahead_ms: int | None = 86_400_000
    transactions: str | None = None

    def latest(self, now_ms: int) -> int | None:
        """The latest time that is not too far ahead of the clock; None if none is."""
        if self.ahead_ms is None or self.clock in LOG_CLOCKS:
            return None
        return now_ms + self.ahead_ms


@dataclass(frozen=True, slots=True)
class Input:
    """Topics of keyed upserts or of changes; several topics are one relation, as listed.

    `columns` declares the types of columns, and with `closed` that there are no others
    to be named.  `key` are the key's columns where the Kafka key does not tell;
    `tables` is a regular expression that chooses among the tables in the topics.  With
    `drift`, old images are compared with the state, and those that differ are counted.
    `schema` is the Avro schema that values are read by, whatever they were written by.
    `event_time` says which times records have by themselves.  No two rows are equal in all
    columns of one of `unique`, and there are about `size` rows: joins go by it.
    """

    name: str
    topics: tuple[str, ...]
    value_format: Format = "json"
    key_format: KeyFormat = "json"
    start: Start = "earliest"
    mode: Mode = _DEFAULT_MODE
    """Of updates `diffs`, else `upsert`, where nothing is said."""
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    tables: str | None = None
    drift: bool = True
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    event_time: EventTime | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    size: int | None = None

    def __post_init__(self) -> None:
        what, several = f'input "{self.name}"', ("topics", "columns", "key", "unique")
        settle_fields(what, self, self.__match_args__, several, object.__setattr__)
        if self.mode == _DEFAULT_MODE:
            mode = "diffs" if self.value_format in UPDATE_FORMATS else "upsert"
            object.__setattr__(self, "mode", mode)

    @property
    def is_collection(self) -> bool:
        """Whether its messages tell updates by themselves, so that it is a collection as it is."""
        return self.mode != "upsert"

    @property
    def is_dated(self) -> bool:
        """Whether its times are its own, so that its frontier is too."""
        return self.event_time is not None or self.value_format in UPDATE_FORMATS

    @property
    def transaction_topic(self) -> str | None:
        """The topic that tells of the transactions that its changes belong to."""
        return None if self.event_time is None else self.event_time.transactions

    @property
    def tells_later(self) -> bool:
        """Whether what a batch has read of it says how far the next one may go."""
        return self.is_dated and self.value_format != "diff"


class Upsert(msgspec.Struct, frozen=True, tag="upsert"):
    """The collection of (key, current value) that an input's upserts describe."""

    name: str
    input: str


class Linear(msgspec.Struct, frozen=True, tag="linear"):
    """What steps make of the updates of `source`, each by itself."""

    name: str
    source: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        settle(self)


class Concat(msgspec.Struct, frozen=True, tag="concat"):
    """The updates of several operators together."""

    name: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        settle(self, "sources")


class StateMachine(msgspec.Struct, frozen=True, tag="state_machine"):
    """What a machine shows of the events of `input`, key by key.

    `step`, `view` and `migrate` are functions, or their names as "module:function"; see
    `kernels.state_machine`.  `version` is that of the states.
    """

    name: str
    input: str
    step: Any
    view: Any = None
    version: int = 1
    migrate: Any = None


class Reduce(msgspec.Struct, frozen=True, tag="reduce"):
    """What the data of each key of `source` come to.

    `aggregates` are pairs (name, aggregate), such as ("delay", "avg(dep_delay)"); the
    argument is SQL over the datum.  In place of them `function` is a function of a key
    and its data, or its name as "module:function"; see `kernels.reduce_rows`.  `by` is
    SQL that makes another key.
    """

    name: str
    source: str
    aggregates: tuple[tuple[str, str], ...] = ()
    by: str | None = None
    function: Any = None

    def __post_init__(self) -> None:
        settle(self, "aggregates")


Operator = Upsert | Linear | Concat | StateMachine | Reduce | DeltaJoin | AsOfJoin


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that receives the updates of an operator's collection."""

    name: str
    source: str
    topic: str
    format: OutputFormat = "diff"
    partitions: int | None = None
    """How many partitions to make the topic with; None: as many as its input has."""
    tombstones: bool = True
    """Whether, in `debezium-json`, a tombstone follows the delete of a key's last row."""

    @property
    def progress_topic(self) -> str:
        """Where the frontier of this output is published."""
        return self.topic + ".progress"


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs, operators and outputs that fit together."""

    name: str
    inputs: tuple[Input, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]
    error_topic: str = ""
    """The topic of what could not be used; `<name>.errors` when empty."""
    time: TimeDomain = "ingest"
    on_error: OnError = "record"
    pushdown: bool = True
    """Whether the planner pushes anything into decoding; outputs are the same without."""

    def __post_init__(self) -> None:
        _settle(self)
        if problems := list(_unhashable(self)):
            raise PlanError(self.name, problems)
        # There, and not here, since it looks into the steps, for which it needs DuckDB.
        from ikebana.processor.planning.plan_problems import problems_of

        if problems := list(problems_of(self)):
            raise PlanError(self.name, problems)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that inputs read; where one stands first is its rank among records."""
        return tuple(topic for source in self.inputs for topic in source.topics)

    @property
    def published(self) -> tuple[Output, ...]:
        """Every output with a progress topic: the named ones, then the errors."""
        return (*self.outputs, Output(ERRORS, "", self.error_topic, partitions=1))

    @property
    def is_dated(self) -> bool:
        """Whether the batches' times are those that inputs have by themselves."""
        return any(source.is_dated for source in self.inputs)

    @property
    def transaction_topics(self) -> tuple[str, ...]:
        """The topics that tell of transactions, of which inputs may share one."""
        named = (source.transaction_topic for source in self.inputs)
        return tuple(dict.fromkeys(topic for topic in named if topic is not None))

    @property
    def markers_topic(self) -> str:
        """Where shards mark what they have committed; the pipeline's own, by its name."""
        return self.name + ".markers"

    @property
    def loopback_topic(self) -> str:
        """Where updates hop from shard to shard, if the plan has hops."""
        return self.name + ".loopback"

    @property
    def machines(self) -> tuple[StateMachine, ...]:
        """The state machines."""
        return tuple(o for o in self.operators if isinstance(o, StateMachine))

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        """The reductions, in the order of the plan."""
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

    def promise(self, output: Output) -> Promise:
        """What a reader of `output` may rely on."""
        from ikebana.processor.planning import planner

        return planner.promise(self, output)

    def portable(self) -> "Plan":
        """The plan with its functions by name, as other processes find them.

        Raises: PlanError, for functions that no other process can find.
        """
        problems: list[tuple[str, str]] = []

        def named(function: Any, path: str) -> Any:
            if function is not None and (problem := why_not_portable(function)):
                problems.append((path, problem))
            return None if function is None else name_of(function)

        operators: list[Operator] = []
        for operator in self.operators:
            path = f"operators.{operator.name}"
            changed: dict[str, Any] = {}
            if isinstance(operator, Linear):
                changed["steps"] = tuple(
                    msgspec.structs.replace(s, function=named(s.function, f"{path}.{s.kind}"))
                    if isinstance(s, Call)
                    else s
                    for s in operator.steps
                )
            elif isinstance(operator, StateMachine | Reduce):
                parts = ("function",) if isinstance(operator, Reduce) else _OF_MACHINES
                changed = {
                    each: named(getattr(operator, each), f"{path}.{each}") for each in parts
                }
            operators.append(msgspec.structs.replace(operator, **changed))
        if problems:
            raise PlanError(self.name, problems)
        return replace(self, operators=tuple(operators))

    def fingerprint(self) -> str:
        """Names the plan in offsets and markers: a replay under another plan is refused.

        What decides how far the next batches go is no part of it: a batch that is logged
        goes as far as it was logged.
        """
        return self._hashed(_UNDATED)

    def former_fingerprint(self) -> str:
        """What the fingerprint was in versions in which lateness and idle were a part of it."""
        return self._hashed({})

    def _hashed(self, of_event_time: Mapping[str, int]) -> str:
        plain = msgspec.to_builtins(self, enc_hook=_function_name)
        for part in (*plain["inputs"], *plain["operators"]):
            for name in _ADDED_LATER & part.keys():
                if part[name] in (None, ()):
                    del part[name]
            if "event_time" in part:
                part["event_time"].update(of_event_time)
        for output in plain["outputs"]:
            # It decides about messages alone.
            del output["tombstones"]
        # A batch that has failed on an error can be run again under another policy: where it
        # was committed it had none.
        plain["on_error"] = "record"
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Draft(Plan):
    """Parts of a plan that need not fit, as far as a file could be read: judged, never run."""

    def __post_init__(self) -> None:
        _settle(self)


def _settle(plan: Plan) -> None:
    if not plan.error_topic:
        object.__setattr__(plan, "error_topic", plan.name + ".errors")
    for kind in ("inputs", "operators", "outputs"):
        object.__setattr__(plan, kind, tuples(getattr(plan, kind)))


def _unhashable(plan: Plan) -> Iterator[tuple[str, str]]:
    """The parts that hold what is no value of a plan."""
    for kind in ("inputs", "operators", "outputs"):
        for part in getattr(plan, kind):
            try:
                hash(part)
            except TypeError as error:
                yield f"{kind}.{getattr(part, 'name', part)}", f"is no value: {error}"


ERRORS = "errors"
# The functions of a state machine.
_OF_MACHINES = ("step", "view", "migrate")
# Where they are not used, plans are known by what they were before there were these.
_ADDED_LATER = {"event_time", "function", "unique", "size"}
# Plans that differ in these alone are one: they stand as where nothing is said of them.
_UNDATED = {name: getattr(EventTime(), name) for name in ("lateness_ms", "idle_ms")}


def _function_name(value: Any) -> str:
    """A step's function, the only value of a plan that is no data."""
    if not callable(value):
        raise TypeError(f"a plan holds a {type(value).__name__}")
    return name_of(value)
