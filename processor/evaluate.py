"""The in-process shell: a plan on literal records, in milliseconds, without a JVM.

It runs the same decoding and the same kernels as the Spark shell.  Use it in tests, to
learn, and to try a pipeline before it meets a topic.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ikebana.arrangements.errors import ConfigError
from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical, cdcv2, diff
from ikebana.codecs.progress import add_times
from ikebana.codecs.upsert_out import Message as OutputMessage
from ikebana.processor.batch import dataflow, hops
from ikebana.processor.batch.formatting import progress_messages
from ikebana.processor.checkpoint import parts
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.literals import Record as Record
from ikebana.processor.literals import greatest_time, listed, messages, require_readable
from ikebana.processor.planning import planner, progress, ways
from ikebana.processor.planning.plan import ERRORS, SOURCE_CLOCKS, Input, Output, Plan
from ikebana.processor.reading.decoding import Decoding
from ikebana.processor.reading.intake import Message
from ikebana.processor.reading.source_dating import SourceDating
from ikebana.processor.reading.update_intake import UpdateIntake, intake_of
from ikebana.processor.rows.envelope import Records, Tick, unpack
from ikebana.processor.rows.placing import Place
from ikebana.processor.rows.rows import KeyedUpdate, Updates, add
from ikebana.processor.timing.cdcv2_coverage import Coverage, advanced

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas

Found = dict[str, list[Update[Any]]]
# Beyond every time that a record may have.
_END = 1 << 63


class Evaluation:
    """A plan between two micro-batches: give it records, take the updates.

    `counted` is what `dataflow.Emitted` counts, of all batches so far; `messages` are those
    of each output so far, in its format.  With `optimized` false, nothing is pushed into
    decoding.  `schemas` are Avro schemas by their ids, for inputs in Avro.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        optimized: bool | None = None,
        schemas: "Schemas | Mapping[int, Any] | None" = None,
    ) -> None:
        self.plan = plan
        self.store = MemoryStore()
        self.frontiers: dict[str, int] = {}
        self.counted: Counter[str] = Counter()
        self.messages: dict[str, list[OutputMessage]] = {o.name: [] for o in plan.published}
        for source in plan.inputs:
            require_readable(source, schemas)
        self._physical = planner.physical(plan, optimized=optimized)
        found = _schemas(schemas)
        self._intakes = {
            source.name: intake_of(source, self._physical, found) for source in plan.inputs
        }
        self.greatest = 0
        """The greatest event time so far."""
        self._covered: dict[str, Coverage] = {}
        self._offset = 0

    def advance(self, inputs: Mapping[str, Iterable[Record]], upper: int) -> Found:
        """Feed records and close all times before `upper`; see `evaluate`.

        Records at or beyond `upper` wait until a later call closes their time.

        Raises:
            ConfigError: there is no such input, or a record is none.
        """
        known = {source.name: source for source in self.plan.inputs}
        if strange := [name for name in inputs if name not in known]:
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}": it has no input "{strange[0]}"',
                hint=f"There are {', '.join(known)}.",
            )
        if isinstance(upper, bool) or not isinstance(upper, int):
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}" up to a {type(upper).__name__}',
                hint="upper is a time: a whole number.",
            )
        rows: list[Records] = []
        for name, records in inputs.items():
            rows += self._rows(known[name], records)
        found: dict[str, list[KeyedUpdate]] = {o.name: [] for o in self.plan.published}
        graph = progress.edges(self.plan)
        # Facts are known before their times are closed.
        now = 0 if self._covered and rows else upper
        while rows or progress.behind(graph, self.frontiers, upper):
            to = progress.advance_frontiers(graph, self.frontiers, now)
            emitted, now = self._step(rows, to), upper
            for name, updates in emitted.updates.items():
                found[name] += updates
            rows = [row for _, row in hops.chunks(emitted.hops, 1)]
        return {
            output.name: self._read(output, found[output.name]) for output in self.plan.published
        }

    def finish(self) -> Found:
        """Close all times for which something waits, and those that follow of it."""
        found: Found = {output.name: [] for output in self.plan.published}
        while pending := self.pending():
            for name, updates in self.advance({}, max(pending) + 1).items():
                found[name] += updates
        return found

    def pending(self) -> list[int]:
        """The times of what waits for the frontier to pass them, in order.

        These are updates that are made already, and records of which nothing has been made
        yet: those of an upsert or a state machine, and facts of CDCv2.
        """
        held = parts.held_times(self.store, self.plan)
        return sorted([*held, *parts.waiting_times(self.store, self.plan)])

    @property
    def covered(self) -> int | None:
        """Before which time the messages of CDCv2 so far are complete; None without any."""
        return min((each.frontier for each in self._covered.values()), default=None)

    def _step(self, rows: list[Records], frontiers: dict[str, int]) -> dataflow.Emitted:
        """One micro-batch; an operator behind a hop needs one more for each hop."""
        intervals = progress.intervals(self.frontiers, frontiers)
        emitted = dataflow.advance(
            self.plan, self.store, rows, intervals, self._physical, early=True
        )
        self.frontiers = frontiers
        self.counted += emitted.counted
        for seen in emitted.seen:
            self.greatest = max(self.greatest, seen.greatest or 0)
        self._cover(emitted)
        closed = progress.output_intervals(self.plan, intervals) if intervals else {}
        for output in self.plan.published:
            self._write(output, emitted, closed.get(output.name))
        return emitted

    def _cover(self, emitted: dataflow.Emitted) -> None:
        """Learn how far messages of CDCv2 are complete."""
        for name, coverage in self._covered.items():
            statements = []
            for seen in emitted.seen:
                for lower, upper, packed in seen.statements if seen.input == name else ():
                    counts: dict[int, int] = {}
                    add_times(counts, packed)
                    statements.append(cdcv2.Progress(lower, upper, counts))
            facts = emitted.facts.get(name, {})
            self._covered[name] = advanced(coverage, statements, facts)

    def _write(self, output: Output, emitted: dataflow.Emitted, closed: Interval | None) -> None:
        """Keep what a batch writes to the topic of an output."""
        written = self.messages[output.name]
        if (formatted := emitted.messages.get(output.name)) is None:
            written += [
                OutputMessage(key, value, diff.headers(time, change))
                for key, value, time, change in emitted.updates[output.name]
            ]
            return
        written += formatted.messages
        if closed is not None and closed.lower < closed.upper:
            of = progress_messages(output, closed.lower, closed.upper, formatted.times)
            written += [OutputMessage(None, value, []) for value in of]

    def _rows(self, source: Input, records: Iterable[Record]) -> Iterable[Records]:
        """The records as they reach a shard, all of them in one partition."""
        lower = min(self.frontiers.values(), default=0)
        given = messages(source, records, lower, self._offset + 1)
        self._offset += len(given)
        intake = self._intakes[source.name]
        if isinstance(intake, UpdateIntake) and source.value_format != "diff":
            literal = [message for message in given if message.headers is not None]
            if literal:
                yield _updates(source, intake, literal)
            given = [message for message in given if message.headers is None]
            if given:
                self._covered.setdefault(source.name, Coverage())
        order = self.plan.topics.index(source.topics[0])
        times = {message.offset: message.timestamp or 0 for message in given}
        place = (
            Place(source.topics[0], 0, order, 0, lower, each=False, upper=_END)
            if source.is_dated
            else _LiteralPlace(times, source.topics[0], order)
        )
        where = source.topics[0], 0
        dating = None
        if source.event_time is not None and source.event_time.clock in SOURCE_CLOCKS:
            # All records of a call are there: no transaction is in the middle.
            dating = SourceDating(source, None, where)
        decoding = Decoding(source, intake, place, 1, dating)
        for _, chunk in [*decoding.add(given), *decoding.flush()]:
            row = unpack(chunk)
            assert not isinstance(row, Tick)
            yield row

    def _read(self, output: Output, emitted: list[KeyedUpdate]) -> list[Update[Any]]:
        """The consolidated updates with data as Python values again."""
        if output.name == ERRORS:
            return [
                update._replace(data=canonical.decode(update.data))
                for update in consolidate(
                    Update(value, time, diff) for _, value, time, diff in emitted
                )
            ]
        types = ways.scope_of_output(self.plan, output).types
        return [
            Update(
                (_as_data(key, types.get(KEY, JSON)), _as_data(value, types.get(VALUE, JSON))),
                time,
                diff,
            )
            for (key, value), time, diff in consolidate(
                Update((key, value), time, diff) for key, value, time, diff in emitted
            )
        ]


def evaluate(
    plan: Plan,
    inputs: Mapping[str, Iterable[Record]],
    upper: int | None = None,
    *,
    schemas: "Schemas | Mapping[int, Any] | None" = None,
) -> Found:
    """Run `plan` on the records `(key, value, time)` of each input.

    Keys and values are those of Kafka messages: JSON data, such as a Debezium envelope,
    or bytes as they are; None is no key, and a value of None a tombstone.  Of several
    records with one key and time the last one counts, unless old images tell what is
    gone (`mode: diffs`).  The updates' data are pairs (key, value), consolidated and in
    order of time, by the name of the output; `errors` holds what could not be used.  All
    times are closed, also those of updates that are due later than any record, or those
    before `upper` if it is given.  Of an input with event time, the time is the record's
    timestamp; records of one of updates are (key, value, time, diff), or of CDCv2 the
    messages of a topic, as bytes: then the times that these have closed are.

    Messages in Avro need their `schemas`: a mapping from ids, or whatever finds them.

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
        ConfigError: there is no such input, or a record is none; it is named.
    """
    evaluation = Evaluation(plan, schemas=schemas)
    if upper is not None:
        return evaluation.advance(inputs, upper)
    given = {name: listed(name, records) for name, records in inputs.items()}
    if any(
        source.event_time is not None or "cdcv2" in source.value_format for source in plan.inputs
    ):
        # First everything waits: what times there are is known only then.
        last = 0
    else:
        last = 1 + max(map(greatest_time, given.values()), default=-1)
    found = evaluation.advance(given, last)
    covered = evaluation.covered
    rest = evaluation.finish() if covered is None else evaluation.advance({}, covered)
    for name, updates in rest.items():
        found[name] += updates
    return found


class _LiteralPlace(Place):
    """A partition whose messages have the times that their records say."""

    def __init__(self, by_offset: dict[int, int], topic: str, order: int) -> None:
        super().__init__(topic, 0, order, 0, 0, each=True)
        object.__setattr__(self, "_by_offset", by_offset)

    def times(self, offsets: Sequence[int]) -> list[int]:
        return [self._by_offset[offset] for offset in offsets]  # type: ignore[attr-defined]


class _Given:
    """Schemas that are given by their ids."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        from ikebana.codecs.avro import SchemaUnknown, self_contained

        try:
            schema = self._schemas[id]  # type: ignore[index]
        except KeyError:
            raise SchemaUnknown from None
        try:
            return self_contained(json.loads(schema) if isinstance(schema, str) else schema)
        except ValueError:
            raise SchemaUnknown("its schema is no Avro schema") from None


def _schemas(given: "Schemas | Mapping[int, Any] | None") -> "Schemas | None":
    return _Given(given) if isinstance(given, Mapping) else given


def _updates(source: Input, intake: UpdateIntake, given: Sequence[Message]) -> Updates:
    """Literal updates of CDCv2 as they are."""
    row = Updates([], [], [], [], [], root=source.name)
    for message in given:
        time, change = diff.read_headers(message.headers)
        key = None if message.key is None else canonical.canonical(message.key)
        value = canonical.canonical(message.value or b"null")
        add(row, KeyedUpdate(key, value, time, change))
    return row


def _as_data(message: bytes | None, kind: str) -> Any:
    return message if message is None or kind == BLOB else canonical.decode(message)
