"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.errors import RecordError
from ikebana.processor.base import skew
from ikebana.processor.base.envelope import Records
from ikebana.processor.base.noted import MOST, Noted, errors_noted, merged
from ikebana.processor.base.rows import (
    Facts,
    KeyedUpdate,
    Seen,
    Truncate,
    Upserts,
)
from ikebana.processor.base.skew import Hot
from ikebana.processor.base.transition import FILLED, NOTHING_REPLAYED, Replayed
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine.beside import NOTHING_BESIDE, Beside
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.editing import Editing
from ikebana.processor.engine.flow import Flow
from ikebana.processor.engine.gathered import GatheredUpdates
from ikebana.processor.engine.held import IN, held_targets
from ikebana.processor.engine.moving import Operators
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.input_rows import comes_out_of_decoding
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.topics.formatting import Formatted

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
