"""The shards of a plan in this process, and the updates of its outputs.

Both in-process shells use this: `evaluate`, where records bring their times, and
`ikebana.testing`, which mints batches as a run does.  A batch of a shard is an `Attempt` that
changes nothing until it is committed, as on Spark.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import MemoryStore, Overlay
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical, diff
from ikebana.codecs.progress import pack_times
from ikebana.codecs.upsert_out import OutputMessage
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine import dataflow
from ikebana.processor.engine.dataflow import Beside
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import ERRORS, Output, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.topics.formatting import progress_messages
from ikebana.processor.topics.input_times import Learned

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


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
    rows: dataflow.Rows,
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
            is_formatted = any(name in each.messages for each in emitted)
            if is_formatted and interval is not None and interval.lower < interval.upper:
                progress = progress_messages(output, interval.lower, interval.upper, counts)
                messages += [OutputMessage(None, value, []) for value in progress]
            self.times[name] += counts
            self.messages[name] += messages
            new[name] = messages
        for each in emitted:
            self.counted += each.counted
        return new


def learned_from(emitted: Sequence[dataflow.Emitted]) -> Learned:
    """The reports of all shards on a batch, about inputs with times of their own."""
    return Learned(
        [report for each in emitted for report in each.seen],
        [{name: pack_times(at) for name, at in each.facts.items()} for each in emitted],
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


def found_schemas(schemas: "Schemas | Mapping[int, Any] | None") -> "Schemas | None":
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
