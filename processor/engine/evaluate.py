"""The in-process shell: a plan on literal records, in milliseconds, without a JVM.

It runs the same decoding and the same kernels as the Spark shell.  Use it in tests, to
learn, and to try a pipeline before it meets a topic.

`ikebana.testing`, which mints batches as a run does, has its shards from here too.  A batch of a
shard is an `Attempt` that changes nothing until it is committed, as on Spark.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ikebana.arrangements.store import MemoryStore, Overlay
from ikebana.arrangements.update import Interval, Update, consolidate
from ikebana.codecs import canonical, diff
from ikebana.codecs.diff import pack_times
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.output_messages import OutputMessage
from ikebana.errors import ConfigError
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate, Records, Tick, Updates, add, unpack
from ikebana.processor.base.sharding import PartitionRange, exchange_chunks, owner_of, shard_of
from ikebana.processor.base.transition import Replayed
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine import dataflow
from ikebana.processor.engine.dataflow import Beside
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import ERRORS, SOURCE_CLOCKS, Input, Output, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.topics import input_times
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.topics.input_times import Coverage, ShardReports
from ikebana.processor.topics.intake import UpdateIntake, intake_of
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding
from ikebana.processor.topics.source_transactions import SourceDating

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas

LiteralRecord = tuple[Any, Any] | tuple[Any, Any, int] | tuple[Any, Any, int, int] | bytes
"""(key, value[, time]); of an input of updates (key, value, time, diff); a message of CDCv2."""

_LARGEST = 1 << 63


class HasPlan(Protocol):
    """An object with a plan, such as a `Pipeline`."""

    def plan(self) -> Plan:
        """The plan."""
        ...


def plan_of(pipeline: Plan | HasPlan) -> Plan:
    """A plan itself, or the plan of a pipeline.  Raises: PlanError, with every problem."""
    return checked(pipeline) if isinstance(pipeline, Plan) else pipeline.plan()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch of one shard that is computed but not committed: its results, its state changes."""

    emitted: dataflow.Emitted
    changes: Mapping[bytes, bytes | None]

    def commit(self, store: MemoryStore) -> None:
        """Apply the changes to the shard's store."""
        for key, value in self.changes.items():
            if value is None:
                store.delete(key)
            else:
                store.put(key, value)


def attempt(
    plan: Plan,
    physical: Physical,
    store: MemoryStore,
    rows: dataflow.RecordLists,
    intervals: Mapping[str, Interval],
    beside: Beside,
) -> Attempt:
    """Compute a batch of one shard; see `dataflow.advance`."""
    overlay = Overlay(store)
    emitted = dataflow.advance(plan, overlay, rows, intervals, physical, beside)
    return Attempt(emitted, overlay.changes)


class OutputsWritten:
    """What has been written to the outputs of a plan so far.

    `updates` has the updates of each output as bytes, in order of arrival; `messages` those of
    its topic, in its format.  `times` has the number of updates at each time, for formats that
    publish it with their progress.  `counted` adds up the counts of `dataflow.Emitted`.
    """

    def __init__(self, plan: Plan) -> None:
        self.updates: dict[str, list[KeyedUpdate]] = {}
        self.messages: dict[str, list[OutputMessage]] = {}
        self.times: dict[str, Counter[int]] = {}
        self.counted: Counter[str] = Counter()
        self.expect(plan)

    def expect(self, plan: Plan) -> None:
        """Make a place for each output of a plan."""
        for output in plan.published:
            self.updates.setdefault(output.name, [])
            self.messages.setdefault(output.name, [])
            self.times.setdefault(output.name, Counter())

    def rename(self, names: Mapping[str, str], plan: Plan) -> None:
        """Rename outputs: `names` has by topic the name that its output had so far."""
        were = {each.name: names[each.topic] for each in plan.published if each.topic in names}
        self.updates = {name: self.updates[was] for name, was in were.items()}
        self.messages = {name: self.messages[was] for name, was in were.items()}
        self.times = {name: self.times[was] for name, was in were.items()}
        self.expect(plan)

    def take(
        self,
        plan: Plan,
        emitted: Sequence[dataflow.Emitted],
        closed: Mapping[str, Interval],
    ) -> dict[str, list[OutputMessage]]:
        """Take the results of all shards in a batch that closed these times of outputs.

        Returns the new messages, by output.
        """
        new: dict[str, list[OutputMessage]] = {}
        for output in plan.published:
            name, counts = output.name, Counter[int]()
            messages: list[OutputMessage] = []
            for each in emitted:
                self.updates[name] += each.updates[name]
                if (formatted := each.messages.get(name)) is None:
                    messages += [
                        OutputMessage(key, value, diff.headers(time, change))
                        for key, value, time, change in each.updates[name]
                    ]
                else:
                    messages += formatted.messages
                    counts.update(formatted.times)
            interval = closed.get(name)
            facts = output.traits.facts if any(name in each.messages for each in emitted) else None
            if facts is not None and interval is not None and interval.lower < interval.upper:
                progress = facts().encode_progress(interval.lower, interval.upper, counts)
                messages += [OutputMessage(None, value, []) for value in progress]
            self.times[name] += counts
            self.messages[name] += messages
            new[name] = messages
        for each in emitted:
            self.counted += each.counted
        return new


def reports_of(emitted: Sequence[dataflow.Emitted], batch: int = 0) -> ShardReports:
    """The reports of all shards on a batch."""
    return ShardReports(
        batch,
        seen=[report for each in emitted for report in each.seen],
        facts=[{name: pack_times(at) for name, at in each.facts.items()} for each in emitted],
        replayed=Replayed.by_all([each.replayed for each in emitted]),
    )


def consolidated(plan: Plan, output: Output, updates: Iterable[KeyedUpdate]) -> list[Update[Any]]:
    """The consolidated updates of an output, in order of time, with data as Python values."""
    if output.name == ERRORS:
        return [
            update._replace(data=canonical.decode(update.data))
            for update in consolidate(
                Update(value, time, change) for _, value, time, change in updates
            )
        ]
    types = catalog_of(plan).relation(output.source).scope.types
    return [
        Update(
            (_as_data(key, types.get(KEY, JSON)), _as_data(value, types.get(VALUE, JSON))),
            time,
            change,
        )
        for (key, value), time, change in consolidate(
            Update((key, value), time, change) for key, value, time, change in updates
        )
    ]


def _as_data(message: bytes | None, kind: str) -> Any:
    return message if message is None or kind == BLOB else canonical.decode(message)


def schema_lookup(schemas: "Schemas | Mapping[int, Any] | None") -> "Schemas | None":
    """An object that looks schemas up: such an object itself, or one for a mapping from ids."""
    return _SchemasById(schemas) if isinstance(schemas, Mapping) else schemas


class _SchemasById:
    """Schemas from a mapping by id."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        from ikebana.codecs.avro_schema import SchemaUnknown, self_contained

        try:
            schema = self._schemas[id]  # type: ignore[index]
        except KeyError:
            raise SchemaUnknown from None
        try:
            return self_contained(json.loads(schema) if isinstance(schema, str) else schema)
        except ValueError:
            raise SchemaUnknown("its schema is no Avro schema") from None


UpdatesByOutput = dict[str, list[Update[Any]]]
# Greater than every time that a record may have.
_END = 1 << 63
# The rows of each shard in a batch.
_Rows = list[list[Records]]


class Evaluation:
    """An evaluation of a pipeline in several steps, each of which closes times.

    `advance` takes records `(key, value, time)` by input, and returns the updates
    `((key, value), time, diff)` of each output; `finish` closes all remaining times.  With
    `optimized` false, no work is pushed into decoding.  `schemas` are Avro schemas by their
    ids, for inputs in Avro.

    >>> from ikebana import Pipeline
    >>> names = Pipeline("names")
    >>> _ = names.topic("names").upsert().to("diffs")
    >>> steps = Evaluation(names)
    >>> steps.advance({"names": [("frank", "mcsherry", 0)]}, upper=1)["diffs"]
    [Update(data=('frank', 'mcsherry'), time=0, diff=1)]
    >>> steps.advance({"names": [("frank", None, 4)]}, upper=5)["diffs"]
    [Update(data=('frank', 'mcsherry'), time=4, diff=-1)]

    Raises:
        PlanError: the parts of the plan do not fit; it lists every problem.
    """

    def __init__(
        self,
        pipeline: Plan | HasPlan,
        *,
        shards: int = 1,
        optimized: bool | None = None,
        schemas: "Schemas | Mapping[int, Any] | None" = None,
    ) -> None:
        self.plan = plan = plan_of(pipeline)
        self.stores = [MemoryStore() for _ in range(shards)]
        self.frontiers: dict[str, int] = {}
        self._written = OutputsWritten(plan)
        for source in plan.inputs:
            require_readable(source, schemas)
        self._physical = planner.physical(plan, optimized=optimized)
        lookup = schema_lookup(schemas)
        self._intakes = {
            source.name: intake_of(
                source, self._physical, lookup, named=plan.shares_topics(source)
            )
            for source in plan.inputs
        }
        self.greatest = 0
        """The greatest event time so far."""
        self._covered: dict[str, Coverage] = {}
        self._offset = 0

    def advance(
        self, inputs: Mapping[str, Iterable[LiteralRecord]], upper: int
    ) -> UpdatesByOutput:
        """Take records and close all times before `upper`; see `evaluate` for the shapes.

        Records at or beyond `upper` wait until a later call closes their times.

        Raises:
            ConfigError: an input does not exist, or a record has the wrong form.
        """
        sources = {source.name: source for source in self.plan.inputs}
        if strange := [name for name in inputs if name not in sources]:
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}": it has no input "{strange[0]}"',
                hint=f"There are {', '.join(sources)}.",
            )
        if isinstance(upper, bool) or not isinstance(upper, int):
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}" up to a {type(upper).__name__}',
                hint="upper is a time: a whole number.",
            )
        rows: _Rows = [[] for _ in self.stores]
        for name, records in inputs.items():
            for shard, row in self._rows(sources[name], records):
                rows[shard].append(row)
        before = {name: len(updates) for name, updates in self._written.updates.items()}
        graph = progress.edges(self.plan)
        # Facts are known before their times are closed.
        now = 0 if self._covered and any(rows) else upper
        while any(rows) or progress.is_behind(graph, self.frontiers, upper):
            rows = self._step(rows, progress.advance_frontiers(graph, self.frontiers, now))
            now = upper
        return {
            output.name: consolidated(
                self.plan, output, self._written.updates[output.name][before[output.name] :]
            )
            for output in self.plan.published
        }

    def finish(self) -> UpdatesByOutput:
        """Close the times of all updates and records that wait."""
        result: UpdatesByOutput = {output.name: [] for output in self.plan.published}
        while pending := self.pending():
            for name, updates in self.advance({}, max(pending) + 1).items():
                result[name] += updates
        return result

    def pending(self) -> list[int]:
        """List the times, in order, of updates and records that wait for the frontier.

        These are updates that are computed already, and records that are processed later:
        those of an upsert or a state machine, and facts of CDCv2.
        """
        return sorted(
            time
            for store in self.stores
            for times_of in (parts.held_times, parts.waiting_times)
            for time in times_of(store, self.plan)
        )

    @property
    def counted(self) -> Counter[str]:
        """The numbers of late, repeated and other records so far, by kind."""
        return self._written.counted

    @property
    def messages(self) -> dict[str, list[OutputMessage]]:
        """The messages of each output so far, in its own format."""
        return self._written.messages

    @property
    def covered(self) -> int | None:
        """The time before which the messages of CDCv2 are complete; None if there are none."""
        return min((each.frontier for each in self._covered.values()), default=None)

    def _to_the_end(self, inputs: Mapping[str, Iterable[LiteralRecord]]) -> UpdatesByOutput:
        """Take records and close all times, also the later times at which updates are due."""
        by_input = {name: _listed(name, records) for name, records in inputs.items()}
        if any(s.event_time is not None or s.traits.kind == "facts" for s in self.plan.inputs):
            # The times of waiting records are known only after a first step at time 0.
            last = 0
        else:
            last = 1 + max(map(_greatest_time, by_input.values()), default=-1)
        result = self.advance(by_input, last)
        rest = self.finish() if self.covered is None else self.advance({}, self.covered)
        for name, updates in rest.items():
            result[name] += updates
        return result

    def _step(self, rows: _Rows, frontiers: dict[str, int]) -> _Rows:
        """Run a micro-batch; return the rows for the next, since an exchange takes one more."""
        intervals = progress.intervals(self.frontiers, frontiers)
        attempts = [
            attempt(
                self.plan,
                self._physical,
                store,
                shard_rows,
                intervals,
                Beside(early=True, owns=owner_of(shard, len(self.stores))),
            )
            for shard, (store, shard_rows) in enumerate(zip(self.stores, rows, strict=True))
        ]
        for store, each in zip(self.stores, attempts, strict=True):
            each.commit(store)
        self.frontiers = frontiers
        emitted = [each.emitted for each in attempts]
        reports = reports_of(emitted)
        self.greatest = max([self.greatest, *(report.greatest or 0 for report in reports.seen)])
        self._covered = {
            name: input_times.coverage_after(name, before, reports)
            for name, before in self._covered.items()
        }
        closed = progress.output_intervals(self.plan, intervals) if intervals else {}
        self._written.take(self.plan, emitted, closed)
        after: _Rows = [[] for _ in self.stores]
        for result in emitted:
            for shard, row in exchange_chunks(result.exchanges, len(after)):
                after[shard].append(row)
        return after

    def _rows(
        self, source: Input, records: Iterable[LiteralRecord]
    ) -> Iterable[tuple[int, Records]]:
        """Decode records for their shards, as messages of one partition."""
        lower = min(self.frontiers.values(), default=0)
        each = self.plan.time == "offset"
        incoming = _as_messages(source, records, lower, self._offset + 1, each=each)
        self._offset += len(incoming)
        intake = self._intakes[source.name]
        if isinstance(intake, UpdateIntake) and source.traits.kind == "facts":
            literal = [message for message in incoming if message.headers is not None]
            if literal:
                yield from _updates(source, literal, len(self.stores))
            incoming = [message for message in incoming if message.headers is None]
            if incoming:
                self._covered.setdefault(source.name, Coverage())
        times = {message.offset: message.timestamp or 0 for message in incoming}
        place = (
            PartitionRange(source.topics[0], 0, 0, 0, lower, each=False, upper=_END)
            if source.is_dated
            else _LiteralPlace(times, source.topics[0])
        )
        where = source.topics[0], 0
        dating = None
        if source.event_time is not None and source.event_time.clock in SOURCE_CLOCKS:
            # A call has all records of its transactions, so these need not be counted.
            dating = SourceDating(source, None, where)
        decoding = Decoding(source, intake, place, len(self.stores), dating)
        for shard, chunk in [*decoding.add(incoming), *decoding.flush()]:
            row = unpack(chunk)
            assert not isinstance(row, Tick)
            yield shard, row


def evaluate(
    pipeline: Plan | HasPlan,
    inputs: Mapping[str, Iterable[LiteralRecord]],
    upper: int | None = None,
    *,
    shards: int = 1,
    schemas: "Schemas | Mapping[int, Any] | None" = None,
) -> UpdatesByOutput:
    """Run a pipeline on the records `(key, value, time)` or `(key, value)` of each input.

    Returns, by the name of each output, its updates `((key, value), time, diff)`, consolidated
    and in order of time; `errors` has the error records.

    * Keys and values are those of Kafka messages: JSON data, such as a Debezium envelope, or
      bytes.  A key of None is no key, a value of None a tombstone.
    * A record without a time has that of the record before it, or with `time: offset` the time
      after that; the first one has time 0.
    * Of several records with one key and time the last one counts, unless the input is in
      `mode: diffs` or `mode: append`.
    * For an input with event time, the time is the record's timestamp.
    * Records of an input of updates are `(key, value, time, diff)`; for CDCv2 they may also be
      the messages of a topic, as bytes, which then close times by their progress.
    * All times are closed, also those of updates that are due after the last record; or with
      `upper`, the times before it.
    * Messages in Avro need `schemas`: a mapping from ids, or an object that looks them up.
    * The updates do not depend on the number of `shards`.

    >>> from ikebana import Input, Output, Plan, Upsert
    >>> plan = Plan(
    ...     "names",
    ...     inputs=(Input("names", ("names",)),),
    ...     operators=(Upsert("current", "names"),),
    ...     outputs=(Output("diffs", "current", "diffs"),),
    ... )
    >>> found = evaluate(plan, {"names": [("frank", "mcsherry", 0), ("frank", "zappa", 1)]})
    >>> for update in found["diffs"]:
    ...     print(*update)
    ('frank', 'mcsherry') 0 1
    ('frank', 'mcsherry') 1 -1
    ('frank', 'zappa') 1 1

    Raises:
        ConfigError: an input does not exist, or a record has the wrong form.
        PlanError: the parts of the plan do not fit; it lists every problem.
    """
    evaluation = Evaluation(pipeline, shards=shards, schemas=schemas)
    return evaluation._to_the_end(inputs) if upper is None else evaluation.advance(inputs, upper)


class _LiteralPlace(PartitionRange):
    """A partition whose messages have the times of the literal records."""

    def __init__(self, by_offset: dict[int, int], topic: str) -> None:
        super().__init__(topic, 0, 0, 0, 0, each=True)
        object.__setattr__(self, "_by_offset", by_offset)

    def times(self, offsets: Sequence[int]) -> list[int]:
        return [self._by_offset[offset] for offset in offsets]  # type: ignore[attr-defined]


def _updates(
    source: Input, literal: Sequence[Message], shards: int
) -> Iterable[tuple[int, Updates]]:
    """Assign literal updates of CDCv2 to the shards of their keys."""
    rows = [Updates([], [], [], [], [], root=source.name) for _ in range(shards)]
    for message in literal:
        time, change = diff.read_headers(message.headers)
        key = None if message.key is None else canonical.canonical(message.key)
        value = canonical.canonical(message.value or b"null")
        at = shard_of(NO_KEY if key is None else key, shards)
        add(rows[at], KeyedUpdate(key, value, time, change))
    return [(at, row) for at, row in enumerate(rows) if row.keys]


def _as_messages(
    source: Input, records: Iterable[LiteralRecord], lower: int, first_offset: int, *, each: bool
) -> list[Message]:
    """Records as messages at consecutive offsets, each with its time as the timestamp.

    A record without a time has that of the record before it, or with `each` the time after it;
    the first one has `lower`.
    An update's diff is in its headers.  No time is before `lower`, unless the input has
    event time.  Raises: ConfigError.
    """
    fields = 4 if source.traits.is_updates else 3
    result: list[Message] = []
    time = lower
    for number, record in enumerate(_listed(source.name, records), 1):
        where = f'record {number} of input "{source.name}"'
        if isinstance(record, bytes) and source.traits.kind == "facts":
            result.append(Message(first_offset + number - 1, None, record))
            continue
        before = time + (each and number > 1)
        key, value, time, *rest = _fields(source, record, fields, before, where)
        _require_integer(time, "time", where)
        if source.event_time is None and time < lower:
            raise ConfigError(
                f"cannot evaluate {where}: time {time} lies before {lower}, which is closed",
                hint="Give records of earlier times before their time is closed.",
            )
        headers = None
        for change in rest:
            _require_integer(change, "diff", where)
            if change == 0:
                raise ConfigError(f"cannot evaluate {where}: its diff is 0")
            headers = diff.headers(time, change)
        raw_key = as_message(source, "key", key, where)
        raw_value = as_message(source, "value", value, where)
        if rest and raw_value is None:
            raw_value = b"null"
        result.append(Message(first_offset + number - 1, raw_key, raw_value, headers, time))
    return result


def _listed(name: str, records: Iterable[LiteralRecord]) -> list[LiteralRecord]:
    """The records of an input.  Raises: ConfigError, if there is nothing to iterate over."""
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise ConfigError(
            f'cannot evaluate input "{name}": its records are of type {type(records).__name__}',
            hint="Give a list of records.",
        )
    return list(records)


def _greatest_time(records: Iterable[Any]) -> int:
    """The greatest time of records, of those that have one; -1 if none has."""
    sized = (each for each in records if isinstance(each, tuple | list) and len(each) > 2)
    return max((each[2] for each in sized if isinstance(each[2], int)), default=-1)


def require_readable(source: Input, schemas: object) -> None:
    """Refuse an input whose schemas nobody has given.  Raises: ConfigError."""
    if schemas is None and needs_registry(source):
        raise ConfigError(
            f'cannot evaluate input "{source.name}": its messages are in Avro, and there are no '
            "schemas",
            hint="Give them by their ids: schemas={1: {...}}.",
        )


def as_message(
    source: Input, part: Literal["key", "value"], data: Any, where: str
) -> bytes | None:
    """A key or value as a topic holds it; data other than bytes are written as JSON."""
    if data is None or isinstance(data, bytes):
        return data
    traits = source.traits
    by_value = part == "value" or traits.keys_alike
    # Literal updates are JSON data, whatever encoding their topics have.
    of_value = "json" if traits.is_updates else traits.encoding
    if (of_value if by_value else source.key_format) != "json":
        raise ConfigError(
            f"cannot evaluate {where}: its {part} is of type {type(data).__name__}",
            hint="Give bytes: only JSON data are written for you.",
        )
    try:
        return canonical.encode(data)
    except (ArithmeticError, RecursionError, TypeError, ValueError, DecodeError) as error:
        problem = str(error) or type(error).__name__
        raise ConfigError(
            f"cannot evaluate {where}: its {part} cannot be written as JSON: {problem}",
            hint="Give what a message could hold, or its bytes.",
        ) from error


def _fields(
    source: Input, record: LiteralRecord, fields: int, before: int, where: str
) -> tuple[Any, ...]:
    shape = "(key, value, time, diff)" if fields == 4 else "(key, value) or (key, value, time)"
    if not isinstance(record, tuple | list):
        raise ConfigError(
            f"cannot evaluate {where}: it is of type {type(record).__name__}",
            hint=f"Records of {source.value_format} are {shape}.",
        )
    if fields == 3 and len(record) == 2:
        return (*record, before)
    if len(record) != fields:
        problem = "it has a diff" if len(record) == 4 else f"it has {len(record)} fields"
        raise ConfigError(
            f"cannot evaluate {where}: {problem}",
            hint=f"Records of {source.value_format} are {shape}."
            + (" Only updates have diffs: a diff input takes them." if len(record) == 4 else ""),
        )
    return tuple(record)


def _require_integer(number: object, what: str, where: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(
            f"cannot evaluate {where}: its {what} is of type {type(number).__name__}",
            hint=f"A {what} is a whole number.",
        )
    least = 0 if what == "time" else -_LARGEST
    if not least <= number < _LARGEST:
        raise ConfigError(
            f"cannot evaluate {where}: its {what} is {number}",
            hint="Times are whole numbers from 0 on, below 2^63."
            if what == "time"
            else "A diff has 64 bits.",
        )
