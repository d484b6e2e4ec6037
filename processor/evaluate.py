"""The in-process shell: a plan on literal records, in milliseconds, without a JVM.

It runs the same decoding and the same kernels as the Spark shell.  Use it in tests, to
learn, and to try a pipeline before it meets a topic.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ikebana.arrangements.errors import ConfigError
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical
from ikebana.processor.batch import dataflow, hops, parts
from ikebana.processor.batch.envelope import Records, Tick, unpack
from ikebana.processor.batch.rows import KeyedUpdate, Updates, add
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning import planner, progress, ways
from ikebana.processor.planning.plan import (
    ERRORS,
    SOURCE_CLOCKS,
    UPDATE_FORMATS,
    Input,
    Output,
    Plan,
)
from ikebana.processor.reading.decoding import Decoding, Place
from ikebana.processor.reading.intake import Message
from ikebana.processor.reading.source_dating import SourceDating
from ikebana.processor.reading.update_intake import intake_of

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas

Record = tuple[Any, Any, int] | tuple[Any, Any, int, int]


class Evaluation:
    """A plan between two micro-batches: give it records, take the updates.

    `counted` is what `dataflow.Emitted` counts, of all batches so far.  With `optimized`
    false, nothing is pushed into decoding.
    """

    def __init__(
        self, plan: Plan, *, optimized: bool | None = None, schemas: "Schemas | None" = None
    ) -> None:
        self.plan = plan
        self.store = MemoryStore()
        self.frontiers: dict[str, int] = {}
        self.counted: Counter[str] = Counter()
        self._physical = planner.physical(plan, optimized=optimized)
        self._intakes = {
            source.name: intake_of(source, self._physical, schemas) for source in plan.inputs
        }
        self.greatest = 0
        """The greatest event time so far."""
        self._offset = 0

    def advance(
        self, inputs: Mapping[str, Iterable[Record]], upper: int
    ) -> dict[str, list[Update[Any]]]:
        """Feed records and close all times before `upper`; see `evaluate`.

        Records at or beyond `upper` wait until a later call closes their time.
        """
        known = {source.name: source for source in self.plan.inputs}
        if strange := [name for name in inputs if name not in known]:
            raise ConfigError(
                f'cannot evaluate plan "{self.plan.name}": it has no input "{strange[0]}"',
                hint=f"There are {', '.join(known)}.",
            )
        rows: list[Records] = []
        for name, records in inputs.items():
            rows += self._rows(known[name], list(records))
        outputs = self.plan.published
        found: dict[str, list[KeyedUpdate]] = {output.name: [] for output in outputs}
        graph = progress.edges(self.plan)
        while rows or progress.behind(graph, self.frontiers, upper):
            emitted = self._step(rows, progress.advance_frontiers(graph, self.frontiers, upper))
            for name, updates in emitted.updates.items():
                found[name] += updates
            self.counted += emitted.counted
            for seen in emitted.seen:
                self.greatest = max(self.greatest, seen.greatest or 0)
            rows = [row for _, row in hops.chunks(emitted.hops, 1)]
        return {
            output.name: self._read(output, found[output.name]) for output in self.plan.published
        }

    def pending(self) -> list[int]:
        """The times of updates that are made, and wait for the frontier to pass them.

        Of an upsert's records that wait nothing has been made yet.
        """
        return sorted(parts.held_times(self.store, self.plan))

    def _step(self, rows: list[Records], frontiers: dict[str, int]) -> dataflow.Emitted:
        """One micro-batch; an operator behind a hop needs one more for each hop."""
        emitted = dataflow.advance(
            self.plan,
            self.store,
            rows,
            progress.intervals(self.frontiers, frontiers),
            self._physical,
            early=True,
        )
        self.frontiers = frontiers
        return emitted

    def _rows(self, source: Input, records: list[Record]) -> Iterable[Records]:
        """The records as they reach a shard, all of them in one partition."""
        lower = min(self.frontiers.values(), default=0)
        if source.value_format in UPDATE_FORMATS:
            yield _updates(source, records, lower)
            return
        times: dict[int, int] = {}
        messages: list[Message] = []
        for key, value, time, *_ in records:
            dated = source.event_time is not None
            assert dated or time >= lower, f"time {time} is not beyond the lower {lower}"
            self._offset += 1
            times[self._offset] = time
            raw_key = _as_message(source, "key", key)
            raw_value = _as_message(source, "value", value)
            messages.append(Message(self._offset, raw_key, raw_value, None, time))
        order = self.plan.inputs.index(source)
        place = (
            _LiteralPlace(times, source.topics[0], order)
            if source.event_time is None
            else Place(source.topics[0], 0, order, 0, lower, each=False)
        )
        where = source.topics[0], 0
        dating = None
        if source.event_time is not None and source.event_time.clock in SOURCE_CLOCKS:
            # All records of a call are there: no transaction is in the middle.
            dating = SourceDating(source, None, where)
        decoding = Decoding(source, self._intakes[source.name], place, 1, dating)
        for _, chunk in [*decoding.add(messages), *decoding.flush()]:
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
    plan: Plan, inputs: Mapping[str, Iterable[Record]], upper: int | None = None
) -> dict[str, list[Update[Any]]]:
    """Run `plan` on the records `(key, value, time)` of each input.

    Keys and values are those of Kafka messages: JSON data, such as a Debezium envelope,
    or bytes as they are; None is no key, and a value of None a tombstone.  Of several
    records with one key and time the last one counts, unless old images tell what is
    gone (`mode: diffs`).  The updates' data are pairs (key, value), consolidated and in
    order of time, by the name of the output; `errors` holds what could not be used.  All
    times are closed, also those of updates that are due later than any record, or those
    before `upper` if it is given.  Of an input with event time, the time is the record's
    timestamp; records of one of updates are (key, value, time, diff).

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
    """
    records = {name: list(given) for name, given in inputs.items()}
    dated = {source.name for source in plan.inputs if source.event_time is not None}
    last = max(
        (record[2] for name, given in records.items() for record in given if name not in dated),
        default=0,
    )
    evaluation = Evaluation(plan)
    if dated and upper is None:
        # First only their times are learned; everything waits.
        evaluation.advance(records, 0)
        records, last = {}, max(last, evaluation.greatest)
    found = evaluation.advance(records, last + 1 if upper is None else upper)
    if upper is None and (pending := evaluation.pending()):
        for name, updates in evaluation.advance({}, max(pending) + 1).items():
            found[name] += updates
    return found


_RAW = ("bytes", "avro", "debezium-avro")


class _LiteralPlace(Place):
    """A partition whose messages have the times that their records say."""

    def __init__(self, by_offset: dict[int, int], topic: str, order: int) -> None:
        super().__init__(topic, 0, order, 0, 0, each=True)
        object.__setattr__(self, "_by_offset", by_offset)

    def times(self, offsets: Sequence[int]) -> list[int]:
        return [self._by_offset[offset] for offset in offsets]  # type: ignore[attr-defined]


def _updates(source: Input, records: Sequence[Record], lower: int) -> Updates:
    """Literal updates as they are: (key, value, time, diff)."""
    row = Updates([], [], [], [], [], root=source.name)
    for record in records:
        if len(record) != 4:
            raise ConfigError(
                f'cannot evaluate input "{source.name}": {source.value_format} records are '
                "(key, value, time, diff)"
            )
        key, value, time, diff = record
        assert time >= lower, f"time {time} is not beyond the lower {lower}"
        raw_value = _as_message(source, "value", value) or b"null"
        add(row, KeyedUpdate(_as_message(source, "key", key), raw_value, time, diff))
    return row


def _as_message(source: Input, part: Literal["key", "value"], data: Any) -> bytes | None:
    """What a topic would hold; data that is no message is JSON."""
    if data is None or isinstance(data, bytes):
        return data
    # Debezium's Avro has both in Avro, whatever the key's format is said to be.
    by_value = part == "value" or source.value_format == "debezium-avro"
    if (source.value_format if by_value else source.key_format) in _RAW:
        raise ConfigError(
            f'cannot evaluate input "{source.name}": a {part} is of type {type(data).__name__}',
            hint="Give bytes: only JSON data are written for you.",
        )
    try:
        return canonical.encode(data)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'cannot evaluate input "{source.name}": a {part} cannot be written as JSON: {error}',
            hint="Give what a message could hold, or its bytes.",
        ) from error


def _as_data(message: bytes | None, kind: str) -> Any:
    return message if message is None or kind == BLOB else canonical.decode(message)
