"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Store
from ikebana.codecs import canonical
from ikebana.errors import RecordError
from ikebana.processor.batch.editing import Editing
from ikebana.processor.batch.flow import Flow
from ikebana.processor.batch.formatting import Formatted
from ikebana.processor.batch.held import IN, held_targets
from ikebana.processor.batch.moving import Operators
from ikebana.processor.checkpoint import parts
from ikebana.processor.planning import planner, progress, ways
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Physical
from ikebana.processor.rows.envelope import Records
from ikebana.processor.rows.noted import MOST, Noted, errors_noted, merged
from ikebana.processor.rows.rows import (
    Facts,
    KeyedUpdate,
    Seen,
    Truncate,
    Upserts,
)

# Rows as they reach a shard.
Rows = Sequence[Records]


@dataclass(frozen=True, slots=True)
class Emitted:
    """The results of a batch: updates by the name of the output, messages, and counts.

    `messages` are what the updates come to in outputs whose format is not `diff`; what a
    format cannot write is among the errors.  `hops` are updates by the name of the
    operator that gets them in the next micro-batch, in the shards of their keys.
    `seen` is what was learned of inputs' times, `facts` how many new facts by time the
    inputs in CDCv2 have given.  `counted` has, by kind: messages that said nothing of a
    relation ("heartbeat", ...), old images that were not what the state had ("drift"),
    records behind the frontier ("late"), facts that were known ("repeated"), and errors
    that the plan drops ("error dropped").  `hydrated` are the new joins that have got all
    that was there before them.  `waiting` is how many records, and updates of them, wait
    until their times are closed.  `noted` are the last records that were late, have drifted or
    made errors.  With an edit that fills, `filled` says how far that is: of how
    many parts of the state the shard is done, and how many keys the batch went through.
    """

    updates: dict[str, list[KeyedUpdate]]
    messages: dict[str, Formatted]
    hops: dict[str, list[KeyedUpdate]]
    counted: Counter[str]
    seen: list[Seen]
    facts: dict[str, dict[int, int]]
    hydrated: list[str]
    waiting: int = 0
    filled: tuple[int, int] | None = None
    noted: Sequence[Noted] = ()


def advance(
    plan: Plan,
    store: Store,
    rows: Rows,
    intervals: Mapping[str, Interval],
    physical: Physical | None = None,
    *,
    early: bool = False,
    hydrating: Mapping[str, Time] | None = None,
    hydrates: bool = False,
    released: Iterable[str] = (),
    editing: Editing | None = None,
    owns: Callable[[bytes], bool] = lambda _: True,
) -> Emitted:
    """Advance every operator of `plan` through its interval.

    New joins in `hydrating` are to get what was there before these times, and with `hydrates`
    get a portion of it now; parts of the store in `released` are deleted, as much as fits into
    a batch.  With `editing`, the plan has taken the place of another at that time, and
    what outputs and fresh operators get of it is on its way; while it fills, it is the edit
    that takes a portion with `hydrates`.

    `owns` says whether the shard is that of a key, by default the only one.

    With `early`, inputs in `mode: diffs` may give updates of times that are not closed yet;
    those with event time always may.  What the keywords say, most batches leave at its default.

    Raises: RecordError, if the plan says that an error is to stop the pipeline.
    """
    physical = planner.physical(plan) if physical is None else physical
    held = held_targets(plan, physical, early=early)
    if editing is not None:
        # What comes from the edit's time on waits until they have been filled.
        held |= {(IN, name) for name in editing.edit.standing}
        intervals = editing.intervals(intervals)
    flow = Flow(plan, store, intervals, physical, held, editing)
    operators = Operators(
        plan, flow, hydrating or {}, hydrates=hydrates, editing=editing, owns=owns
    )
    flow.take(rows)
    if editing is not None and editing.fills:
        operators.fill(editing, takes=hydrates)
    _move(plan, operators, rows)
    emitted = _emitted(plan, flow, operators)
    parts.release(store, released)
    return emitted


def _emitted(plan: Plan, flow: Flow, operators: Operators) -> Emitted:
    """Release what is due, and write it in the outputs' formats; errors last, as all make some."""
    flow.release()
    messages = flow.formatted()
    flow.release_errors()
    noted = _settle_errors(plan, flow.emitted, flow.counted)
    return Emitted(
        flow.emitted,
        messages,
        flow.hops,
        +flow.counted,
        flow.seen,
        operators.new_facts,
        operators.hydrated,
        flow.waiting(),
        operators.filled,
        merged([*flow.noted, *noted]),
    )


def _move(plan: Plan, operators: Operators, rows: Rows) -> None:
    """Move all operators through their intervals, each after those that it reads."""
    for source in plan.inputs:
        if source.is_collection and not ways.comes_out_of_decoding(source):
            operators.learn(source, [row for row in rows if isinstance(row, Facts)])
    upserts = [row for row in rows if isinstance(row, Upserts | Truncate)]
    for name in progress.order(plan):
        operators.move(name, upserts)
    operators.settle()


def _settle_errors(
    plan: Plan, emitted: dict[str, list[KeyedUpdate]], counted: Counter[str]
) -> list[Noted]:
    """Do with errors what the plan says, and note the last new ones."""
    errors = emitted[ERRORS]
    new = [update for update in errors if update.diff > 0]
    if plan.on_error == "fail" and new:
        first = canonical.decode(new[0].value)
        where = "" if first["topic"] is None else "{topic}[{partition}]@{offset}: ".format(**first)
        raise RecordError(
            f"{where}{first['reason']}",
            hint="errors.policy is fail. Nothing of this batch was committed: with record "
            "the record goes to the error topic, and the pipeline goes on.",
        )
    if plan.on_error == "drop":
        counted["error dropped"] += len(new)
        errors.clear()
    return [errors_noted(len(new), [_told(each) for each in new[-MOST:]])] if new else []


def _told(error: KeyedUpdate) -> tuple[tuple[str, int, int] | None, str]:
    """Return the place and the reason of an error record."""
    record = canonical.decode(error.value)
    topic, partition, offset = (record[part] for part in ("topic", "partition", "offset"))
    return None if topic is None else (topic, partition, offset), record["reason"]
