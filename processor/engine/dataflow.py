"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.codecs import canonical
from ikebana.errors import RecordError
from ikebana.processor.base import skew
from ikebana.processor.base.envelope import Records
from ikebana.processor.base.noted import MOST, Kind, Noted, NotedRecord, errors_noted, merged
from ikebana.processor.base.rows import (
    Facts,
    KeyedUpdate,
    Seen,
    Truncate,
    Upserts,
    updates_of,
)
from ikebana.processor.base.skew import Hot
from ikebana.processor.base.transition import FILLED, NOTHING_REPLAYED, Replayed
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine.beside import NOTHING_BESIDE, Beside
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.editing import Editing, remember
from ikebana.processor.engine.flow import Flow
from ikebana.processor.engine.gathered import MOST as MOST_GATHERED
from ikebana.processor.engine.gathered import GatheredUpdates
from ikebana.processor.engine.held import IN, held_targets
from ikebana.processor.engine.joined_batch import BatchJoins
from ikebana.processor.engine.joining import portions
from ikebana.processor.kernels import arrange, facts, locked, upsert
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.input_rows import comes_out_of_decoding
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.joins.stages import JoinStage
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import ERRORS, Input, Operator, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.topics.formatting import Formatted

Chunks = Sequence[Upserts | Truncate]


class Operators:
    """The operators of a plan in a micro-batch; their results go into its flow."""

    def __init__(
        self,
        plan: Plan,
        flow: Flow,
        beside: Beside,
        budget: Budget,
    ) -> None:
        self.new_facts: dict[str, dict[int, int]] = {}
        self.done: list[str] = []
        self.filled: tuple[int, int] | None = None
        self._plan = plan
        self._flow = flow
        self._operators = {operator.name: operator for operator in plan.operators}
        self._joined = joined(plan)
        self._editing = editing = Editing.of(beside.edit, beside.transition)
        self._is_filled = False
        self._owns = beside.owns
        filling = editing.edit.takers if editing is not None and editing.fills else ()
        kept_for = {} if editing is None else editing.kept_for
        self._joins = BatchJoins(
            plan,
            flow.intervals,
            beside.transition.begins,
            hydrates=beside.transition.takes and not self._fills,
            filling=filling,
            kept_for=kept_for,
            budget=budget,
        )
        self._gathered = {inlet: name for name, inlet in planner.gathered(plan).items()}

    def fill(self, editing: Editing) -> None:
        """Send a portion of the state through the old plan and the new one, if it takes one."""
        filling = self._flow.fill(editing)
        self.filled = filling.parts, filling.keys
        self._is_filled = filling.done

    @property
    def _fills(self) -> bool:
        return self._editing is not None and self._editing.fills

    def learn(self, source: Input, rows: Sequence[Facts]) -> None:
        """Keep the facts of an input until its frontier has passed them."""
        name = source.name
        interval = self._flow.intervals[name]
        of_input = [row for row in rows if row.input == name]
        result = facts.step(
            self._flow.part(facts.PART, name),
            [update for row in of_input for update in updates_of(row)],
            interval,
            since=min((row.since for row in of_input if row.since is not None), default=None),
        )
        self.new_facts[name] = result.counts
        self._flow.counted["repeated"] += result.repeated
        self._flow.flow(name, result.updates)

    def move(self, name: str, upserts: Chunks) -> None:
        """Advance an operator through its interval, after all operators that it waits for."""
        operator = self._operators.get(name)
        if operator is not None:
            view = _OfOperator(self, operator, upserts)
            kind_of(operator).step(operator, view, catalog_of(self._plan))
        elif name in self._joined.stages:
            self._stage(name)
        elif name in self._joined.arrangements:
            self._arrange(name)
        elif name in self._gathered:
            self._flow.emitted[self._gathered[name]] += self._flow.arrived(name)
        # Any other name is an input in `mode: diffs`: its updates flowed when they were taken.

    def settle(self) -> None:
        """Write the arrangements, without the history that no lookup needs any more."""
        self._joins.settle()
        editing = self._editing
        if editing is None or not editing.fills:
            return
        remember(self._flow.store, self._flow.of_moving)
        # Other shards first have to take the updates of earlier times that this one sent.
        if self._is_filled and not self._flow.sends_before(editing.time):
            self.done.append(FILLED)

    def looked_up(self, name: str, updates: Collection[KeyedUpdate]) -> None:
        """Keep the updates of an upsert for joins that look up its state."""
        if self._joins.looks_up(name):
            part = self._flow.part(upsert.PART, name)
            self._joins.keep_upsert(name, part, updates)

    def _arrange(self, name: str) -> None:
        arrived = self._flow.arrived(name)
        self._joins.arrange(name, self._flow.part(arrange.PART, name), arrived)
        if self._editing is not None and self._fills and name in self._editing.edit.takers:
            # A new join begins from its arrangements when all of them are filled.
            return
        for stage in self._joined.readers.get(name, ()):
            self._flow.arriving[stage.name] += arrived

    def _stage(self, name: str) -> None:
        stage = self._joined.stages[name]
        if self._editing is not None and self._fills and name in self._editing.edit.standing:
            begins = name in self._editing.edit.filled_joins.values()
            self._flow.wait(name, self._editing.time, begins=begins)
            return
        if self._joins.hydrates(stage):
            self._hydrate(stage)
        elif self._joins.is_hydrated(stage, self._flow.store):
            # It is reported until the exchange topic is read to the end, which may take batches.
            self.done.append(stage.join)
        part = self._flow.part(locked.PART, name)
        arrived = self._flow.arrived(name, self._joins.reach(stage))
        for (to, hop), rows, errors, _ in self._joins.run(stage, part, arrived):
            self._flow.emitted[ERRORS] += errors
            if to is not None and hop:
                self._flow.send(to, rows)
            else:
                self._flow.arriving[to or stage.join] += rows

    def _hydrate(self, stage: JoinStage) -> None:
        begun = self._joins.hydrate(stage, self._flow.store)
        self._flow.arriving[stage.name] += begun.near
        self._flow.send(stage.name, begun.far)
        self._flow.emitted[ERRORS] += begun.errors
        if begun.done:
            self.done.append(stage.join)


class _OfOperator:
    """The batch as one operator sees it."""

    def __init__(self, batch: Operators, operator: Operator, upserts: Chunks) -> None:
        self._batch, self._flow, self._plan = batch, batch._flow, batch._plan
        self._operator, self._upserts, self._name = operator, upserts, operator.name

    @property
    def interval(self) -> Interval:
        return self._flow.intervals[self._name]

    def part(self, kind: PartKind) -> Part:
        return self._flow.part(kind, self._name)

    def rows(self) -> list[Upserts | Truncate]:
        sources = kind_of(self._operator).sources(self._operator)
        return [chunk for chunk in self._upserts if chunk.input in sources]

    def arrived(self) -> Collection[KeyedUpdate]:
        return self._flow.arrived(self._name)

    def portions(self) -> Iterator[list[KeyedUpdate]]:
        return portions(self.arrived(), MOST_GATHERED)

    def owns(self, key: bytes) -> bool:
        return self._batch._owns(key)

    def emit(self, updates: Collection[KeyedUpdate], errors: Sequence[KeyedUpdate] = ()) -> None:
        self._flow.emitted[ERRORS] += errors
        self._batch.looked_up(self._name, updates)
        self._flow.flow(self._name, updates)

    def count(self, kind: Kind, count: int, places: Iterable[tuple[int, int, int]]) -> None:
        if not count or self._name in reads_again(self._plan):
            return
        (source,) = kind_of(self._operator).sources(self._operator)
        read = self._plan.input(source)
        topics = (*read.topics, read.history_topic)
        records = tuple(
            NotedRecord(topics[rank], partition, offset) for rank, partition, offset in places
        )
        self._flow.counted[kind] += count
        self._flow.noted.append(Noted(kind, source, count, records))


# Rows as they reach a shard.
Rows = Sequence[Records]


@dataclass(frozen=True, slots=True)
class Emitted:
    """The results of a batch: updates by the name of the output, messages, and counts.

    * `messages`: by output in a format other than `diff`, its encoded messages.  What a format
      cannot write is among the errors.
    * `hops`: updates by the operator that gets them in the next micro-batch, in the shards of
      their keys.
    * `seen`: what the batch learned about the times of inputs.
    * `facts`: by input in CDCv2, how many new facts there are at each time.
    * `counted`, by kind: messages without a row ("heartbeat", ...), old images that differ from
      the state ("drift"), records behind the frontier ("late"), records that are older than
      their row ("outdated"), facts that came before ("repeated"), and errors that the plan drops
      ("error dropped").
    * `replayed`: what the shard reports of the transition.
    * `waiting`: how many records, and updates of them, wait until their times are closed.
    * `noted`: the last records that were late, drifted or made errors.
    * `filled`, while an edit fills: how many parts of the state the shard has done, and how many
      keys this batch went through.
    * `hot`: the keys that took most of the batch.
    * `written_before`: by output that this batch closes, how many of its updates earlier batches
      wrote.
    """

    updates: Mapping[str, GatheredUpdates]
    messages: dict[str, Formatted]
    hops: Mapping[str, GatheredUpdates]
    counted: Counter[str]
    seen: list[Seen]
    facts: dict[str, dict[int, int]]
    waiting: int = 0
    filled: tuple[int, int] | None = None
    noted: Sequence[Noted] = ()
    replayed: Replayed = NOTHING_REPLAYED
    written_before: Mapping[str, int] = field(default_factory=dict)
    hot: Sequence[Hot] = ()


def advance(
    plan: Plan,
    store: Store,
    rows: Rows,
    intervals: Mapping[str, Interval],
    physical: Physical | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> Emitted:
    """Advance every operator of `plan` through its interval.

    Raises:
        RecordError: the plan says that an error is to stop the pipeline.
        TooMuchError: a batch cannot end in its time.
    """
    physical = planner.physical(plan) if physical is None else physical
    held = held_targets(plan, physical, early=beside.early)
    transition = beside.transition
    editing = Editing.of(beside.edit, transition)
    if editing is not None:
        # Updates from the edit's time on wait until these operators are filled.
        held |= {(IN, name) for name in editing.edit.standing}
        intervals = editing.intervals(intervals)
    budget = beside.budget or Budget()
    flow = Flow(plan, store, intervals, physical, held, beside, budget)
    operators = Operators(plan, flow, beside, budget)
    flow.take(rows)
    if editing is not None and editing.fills:
        operators.fill(editing)
    _move(plan, operators, rows)
    hot = [*skew.hot_keys(rows), *budget.hot()]
    emitted = _emitted(plan, flow, operators, hot, fills=transition.fills)
    parts.release(store, beside.released)
    return emitted


def _emitted(
    plan: Plan, flow: Flow, operators: Operators, hot: Sequence[Hot], *, fills: bool
) -> Emitted:
    """Release due updates and encode them; errors come last, since every step may add some."""
    flow.release()
    messages = flow.formatted()
    if plan.on_error == "drop":
        # No error waits: the only updates are retractions of errors in the topic.
        noted = _settle_errors(plan, flow.emitted, flow.counted)
        flow.release_errors()
    else:
        flow.release_errors()
        noted = _settle_errors(plan, flow.emitted, flow.counted)
    return Emitted(
        flow.emitted,
        messages,
        flow.hops,
        +flow.counted,
        flow.seen,
        operators.new_facts,
        flow.waiting(),
        operators.filled,
        merged([*flow.noted, *noted]),
        # While an edit fills, its outputs may get more.
        Replayed(operators.done, flow.large() if not fills or FILLED in operators.done else []),
        flow.written_before(),
        hot,
    )


def _move(plan: Plan, operators: Operators, rows: Rows) -> None:
    """Move all operators through their intervals, each after those that it reads."""
    for source in plan.inputs:
        if source.is_collection and not comes_out_of_decoding(source):
            operators.learn(source, [row for row in rows if isinstance(row, Facts)])
    upserts = [row for row in rows if isinstance(row, Upserts | Truncate)]
    for name in progress.order(plan):
        operators.move(name, upserts)
    operators.settle()


def _settle_errors(
    plan: Plan, emitted: Mapping[str, GatheredUpdates], counted: Counter[str]
) -> list[Noted]:
    """Do with errors what the plan says, and note the last new ones."""
    errors = emitted[ERRORS]
    # There may be millions of them, of which a part lies in a file.
    count, last = 0, deque[KeyedUpdate](maxlen=MOST)
    for update in errors:
        if update.diff > 0:
            if plan.on_error == "fail":
                _fail(update)
            count += 1
            last.append(update)
    if plan.on_error == "drop":
        counted["error dropped"] += count
        errors.clear()
    return [errors_noted(count, list(map(_noted_error, last)))] if count else []


def _fail(error: KeyedUpdate) -> NoReturn:
    """End the run with an error."""
    first = canonical.decode(error.value)
    where = "" if first["topic"] is None else "{topic}[{partition}]@{offset}: ".format(**first)
    raise RecordError(
        f"{where}{first['reason']}",
        hint="errors.policy is fail. Nothing of this batch was committed: with record "
        "the record goes to the error topic, and the pipeline goes on.",
    )


def _noted_error(error: KeyedUpdate) -> tuple[tuple[str, int, int] | None, str]:
    """Return the place and the reason of an error record."""
    record = canonical.decode(error.value)
    topic, partition, offset = (record[part] for part in ("topic", "partition", "offset"))
    return None if topic is None else (topic, partition, offset), record["reason"]
