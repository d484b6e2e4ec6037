"""Decide the next step of a start, from the checkpoint as observed and the run as desired.

`next_step` is the one decision of runs, of `ikebana plan` and `ikebana preflight`, and of
`ikebana.testing`.  It is pure.  Of these lines the first that applies decides:

| the checkpoint | step |
|---|---|
| has a plan that cannot become the desired one, or none that can be made any more | a refusal |
| is being rebuilt, for another plan or another number of shards | a refusal |
| has unfinished work of another plan or layout, in a batch that no shard has committed | drop |
| has any other unfinished work of another plan or layout | finish |
| ends with a batch that no shard has committed, and that has too many records | drop |
| has another number of shards, or of their tasks | rescale |
| does not have all columns of an input that the plan needs | read again |
| has another plan | edit |
| is new, or has this plan | go on |

Until the last steps the plan that has run holds the pipeline.  Work is unfinished if a batch is
logged and not committed, if updates are between operators, or if an edit still fills: all of that
belongs to the plan that has run.  A start that finishes it reads nothing new.  After any death the
next start observes where the last one was, and continues.

A batch that no shard has committed has no effect anywhere, so it need not be finished.  The plan
may be changed for the very reason that this batch fails every time: its function never returns,
its join explodes, or its records are gone.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ikebana.errors import CheckpointError
from ikebana.processor.base.transition import Phase
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata, Logged
from ikebana.processor.checkpoint.edit_description import Finishing
from ikebana.processor.checkpoint.recorded_plan import (
    ImpossibleEditError,
    NextPlan,
    plan_as_run,
    step_to,
    without_unlogged_edit,
)
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import is_settled

Action = Literal["go on", "edit", "read again", "finish", "drop", "rescale"]


class Observed(NamedTuple):
    """The state of a checkpoint.

    `metadata` are its metadata, without an edit of which no batch is logged.  `committed` is the
    last batch that any shard has committed, None until older instances are fenced.  `records` is
    the size of an unfinished batch, as far as it was asked for.
    """

    metadata: CheckpointMetadata
    logged: Logged
    committed: int | None = None
    records: int = 0

    @property
    def has_void_batch(self) -> bool:
        """Whether the last batch in the log has no effect: no shard has committed it."""
        logged = self.logged
        is_open = logged.offset is not None and logged.committed < logged.batch
        return is_open and self.committed is not None and self.committed < logged.batch


class Desired(NamedTuple):
    """A run as its settings have it.

    `tasks` is the number of Spark's tasks, 0 for one a shard, and None if that is unknown.
    `max_records` is the most records of a batch.
    """

    plan: Plan
    shards: int
    tasks: int | None = None
    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class StartStep:
    """A step of a start.

    `plan` holds the pipeline meanwhile, and `metadata` are the metadata with it.  `following` is
    the plan that runs when work is finished and the state is rewritten.  `pending` is unfinished
    work.
    """

    action: Action
    plan: Plan
    metadata: CheckpointMetadata
    following: NextPlan
    pending: Finishing | None = None

    @property
    def finishes(self) -> bool:
        """Whether the plan that has run holds the pipeline, and reads nothing new."""
        return self.action in ("finish", "rescale") or self.pending is not None

    def fits(self, logged: Logged) -> bool:
        """Whether its plan may hold the pipeline: it finishes unfinished work, or there is none.

        Until it was fenced, an older instance may have gone on with the plan of before.
        """
        return self.finishes or finishing(self.plan, logged) is None

    @property
    def precedes(self) -> bool:
        """Whether another start has to follow the run, which goes on with the plan."""
        return self.action in ("finish", "read again")


def next_step(observed: Observed, desired: Desired) -> StartStep | Refusal:
    """Decide the next step; see the module's description."""
    metadata, logged, plan = observed.metadata, observed.logged, desired.plan
    try:
        following = step_to(metadata, plan, logged.offset)
        rescales = _rescales(metadata, desired)
        last = logged.offset or metadata.start
        is_rebuilt = last.transition.phase is Phase.REBUILD
        if is_rebuilt and (following.metadata != metadata or rescales):
            return _is_rebuilt(metadata)
        pending = finishing(None if rescales else following.plan, logged)
        if pending is not None or rescales:
            action: Action = "rescale"
            if pending is not None:
                action = "drop" if observed.has_void_batch else "finish"
            return StartStep(
                action, plan_as_run(metadata, following.plan), metadata, following, pending
            )
    except ImpossibleEditError as error:
        hint, problems = error.hint, tuple(error.problems)
        return Refusal(Reason.IMPOSSIBLE_EDIT, error.message, hint, problems=problems)
    except CheckpointError as error:
        return Refusal(Reason.UNREADABLE_PLAN, error.message, error.hint)
    most = desired.max_records
    if observed.has_void_batch and most is not None and observed.records > most:
        action = "drop"
    elif following.backfills:
        action = "read again"
    else:
        action = "go on" if following.metadata == metadata else "edit"
    return StartStep(action, following.plan, following.metadata, following)


def finishing(plan: Plan | None, logged: Logged) -> Finishing | None:
    """The work that has to be finished before a plan may run; None if there is none.

    `plan` has the names of its parts in the checkpoint.  Its own work need not be finished.
    Without a plan, the state is to be rewritten: all work has to be finished before.
    """
    offset = logged.offset
    if offset is None or (plan is not None and offset.plan == plan.fingerprint()):
        return None
    rest = Finishing(
        logged.batch,
        unfinished=logged.batch > logged.committed,
        between_operators=not is_settled(offset),
    )
    return rest if rest.unfinished or rest.between_operators else None


def _rescales(metadata: CheckpointMetadata, desired: Desired) -> bool:
    """Whether the layout in shards or tasks changes."""
    if metadata.shards != desired.shards:
        return True
    if desired.tasks is None:
        return False
    # Without owners of shards, those of one task would run one after the other; and executors
    # without a task would do nothing.
    return metadata.state_partitions < (min(desired.tasks, metadata.shards) or metadata.shards)


def _is_rebuilt(metadata: CheckpointMetadata) -> Refusal:
    return Refusal(
        Reason.REBUILD_UNDER_WAY,
        f"the state of checkpoint {metadata.id} is being built again, for the pipeline and the "
        "number of shards with which it was recovered",
        "Go on with these until a batch of it is written. Or remove the checkpoint, and recover "
        "with the new ones.",
    )


def observed_at(checkpoint: Checkpoint) -> Observed | None:
    """Read the state of a checkpoint; None without one.

    Raises: CheckpointError, if it cannot be read, or the location has something else.
    """
    metadata = checkpoint.metadata()
    return None if metadata is None else observed_of(checkpoint, metadata)


def observed_of(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> Observed:
    """Read the state of a checkpoint with these metadata."""
    logged = checkpoint.layout(metadata).logged()
    return Observed(without_unlogged_edit(metadata, logged.offset), logged)


class World(Protocol):
    """The place where a pipeline runs: brokers and a checkpoint, or memory."""

    def look(self) -> Observed:
        """Read the state of the checkpoint; nothing is changed, and nobody is fenced."""
        ...

    def hold(self, step: StartStep) -> Observed:
        """Become the one instance of the pipeline, with the plan of a step; look again.

        If the step does not fit the log any more, only look.

        Raises: IkebanaError, if the step does not fit the topics of the pipeline.
        """
        ...

    def take(self, step: StartStep) -> None:
        """Drop the last batch, or rewrite the state for the other number of shards.

        Raises: FencedError, if a newer instance has taken over meanwhile.
        """
        ...


def start(world: World, desired: Desired) -> StartStep:
    """Take steps until a plan can run, and return the last one.

    Raises: IkebanaError, for a refusal.
    """
    step = _accepted(world.look(), desired)
    while True:
        held = step
        step = _accepted(world.hold(held), desired)
        if step.action in ("drop", "rescale"):
            world.take(step)
            step = _accepted(world.look(), desired)
        elif (step.plan, step.metadata) == (held.plan, held.metadata):
            return step


def _accepted(observed: Observed, desired: Desired) -> StartStep:
    step = next_step(observed, desired)
    if isinstance(step, Refusal):
        raise step.error()
    return step
