"""Open a pipeline for a run: which plan runs, with how many shards, as the only instance.

A start may have another plan than the checkpoint, another number of shards, or both.  Its steps,
each of which a later start continues if an earlier one ended in it:

1. take over, so that no older instance changes the checkpoint any more;
2. if the plan or the number of shards changes while work is unfinished, drop a logged batch that
   no shard has committed, and run the old plan, which reads nothing new, until the rest is
   finished; the next start continues from there;
3. if the number of shards or of their tasks changes, rewrite the state in a layout of its own,
   name that layout in the metadata, and take over again;
4. if the plan needs more columns of an input than the state has, read the input again beside the
   old plan, which goes on (`planning.backfill`); the next start continues when all is read;
5. go on with the new plan.

Nothing here knows Spark.
"""

import os
import socket
from collections.abc import Callable, Collection
from typing import NamedTuple

from ikebana.errors import CheckpointError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import faults
from ikebana.processor.base.counting import counted
from ikebana.processor.base.generations import shown
from ikebana.processor.base.transition import Stage
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint, newborn
from ikebana.processor.checkpoint.edit_plan import EditPlan, Rescaled
from ikebana.processor.checkpoint.evolution import (
    begun,
    edit_to,
    hints_kept,
    plan_as_run,
    step_to,
)
from ikebana.processor.checkpoint.finishing import finishing, is_void
from ikebana.processor.checkpoint.last_edit import recorded
from ikebana.processor.checkpoint.layout import CheckpointFiles
from ikebana.processor.checkpoint.planned_edit import planned
from ikebana.processor.checkpoint.rescale import former_layouts, rescaled_in_place
from ikebana.processor.kafka import client, own_reading, rights
from ikebana.processor.kafka.inputs import Inputs, refuse_lost
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import again
from ikebana.processor.topics.source_offset import SourceOffset

_TOLD_EVERY = 1_000_000


class Opened(NamedTuple):
    """What runs now.

    With `finishes`, it is the old plan, which reads nothing new and ends when all work is
    finished.  With `backfills`, it is the old plan, too, and inputs are read again beside it.
    """

    plan: Plan
    birth: Birth
    layout: CheckpointFiles
    takeover: Takeover
    finishes: bool
    backfills: bool

    @property
    def precedes(self) -> bool:
        """Whether another start has to follow, which goes on with the plan."""
        return self.finishes or self.backfills


def opened(
    plan: Plan,
    settings: Settings,
    on_step: Callable[[str], None],
    on_edit: Callable[[EditPlan], None],
    *,
    incarnation: int = 0,
    tasks: int = 0,
) -> Opened:
    """Take over a pipeline, and prepare its checkpoint for a run of the plan.

    `on_edit` gets the changes, if the plan or the number of shards changes.  `incarnation` is the
    one that this run had before it was restarted, else 0.  `tasks` is the number of tasks of a
    new layout; with 0, there is a task for each shard.

    Raises:
        IkebanaError: checkpoint, topics and plan do not belong together.
    """
    checkpoint = Checkpoint(settings.checkpoint)
    birth = checkpoint.birth()
    on_step("looking at the input topics")
    kafka = settings.reading_kafka
    client.reach(kafka)
    shards = settings.shards if birth is None else max(birth.shards, settings.shards)
    rights.demand(plan, settings, shards)
    start = Inputs(plan, kafka).start(_read_before(checkpoint, birth))
    opening = _Opening(plan, settings, checkpoint, start, on_step, incarnation, tasks)
    to_run, takeover = opening.take()
    if opening.drop(to_run, takeover):
        to_run, takeover = opening.take()
    if (edit := opening.edit()) is not None:
        on_edit(edit)
    for line in opening.reading:
        on_step(line)
    if opening.is_ready_to_rescale():
        opening.rescale(takeover)
        to_run, takeover = opening.take()
    if to_run.finishes:
        rights.demand(to_run.plan, settings, to_run.birth.shards)
        on_step("finishing what is on its way under the plan of before")
    else:
        opening.clean()
    if to_run.backfills:
        again = " and ".join(f'"{shown(name)}"' for name in to_run.plan.backfills)
        on_step(f"reading {again} again from the beginning, beside the plan of before")
    layout = checkpoint.layout(to_run.birth)
    return Opened(to_run.plan, to_run.birth, layout, takeover, to_run.finishes, to_run.backfills)


def read_before(settings: Settings) -> Collection[str]:
    """List the topics that the checkpoint of a run has begun to read."""
    checkpoint = Checkpoint(settings.checkpoint)
    return _read_before(checkpoint, checkpoint.birth()) or ()


def _read_before(checkpoint: Checkpoint, birth: Birth | None) -> Collection[str] | None:
    """List the topics that a checkpoint has begun to read; None without a checkpoint."""
    if birth is None:
        return None
    return (checkpoint.layout(birth).logged().offset or birth.start).positions.keys()


class _ToRun(NamedTuple):
    """A plan to run, and the metadata with it; see `Opened`."""

    plan: Plan
    birth: Birth
    finishes: bool = False
    backfills: bool = False


class _Opening:
    """The steps of opening a pipeline, and their results so far."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        checkpoint: Checkpoint,
        start: SourceOffset,
        on_step: Callable[[str], None],
        incarnation: int,
        tasks: int,
    ) -> None:
        self._incarnation = incarnation
        self._tasks = tasks
        self._plan = plan
        self._settings = settings
        self._checkpoint = checkpoint
        self._start = start
        self._on_step = on_step
        self._look(checkpoint.birth())
        for hint in hints_kept(self._present, plan):
            on_step(f"going on as joins were laid out, with {hint} as it was")

    def take(self) -> tuple[_ToRun, Takeover]:
        """Become the one instance of the pipeline, with the plan that has to run now."""
        self._on_step("taking over the outputs")
        to_run = self._to_run()
        try:
            return to_run, self._take(to_run)
        except CheckpointError:
            # Until it was fenced, an older instance may have gone on with the old plan.
            again = self._to_run()
            if to_run.finishes or not again.finishes:
                raise
            return again, self._take(again)

    def edit(self) -> EditPlan | None:
        """The difference to the last run; None if there is none."""
        ran = self._ran
        if ran is None or (self._new.birth == ran and ran.shards == self._settings.shards):
            return None
        logged = self._checkpoint.layout(ran).logged()
        shards, location = self._settings.shards, self._settings.checkpoint
        return planned(location, ran, self._plan, shards, logged=logged)

    def drop(self, to_run: _ToRun, takeover: Takeover) -> bool:
        """Drop a logged batch that no shard has committed, and that should not run any more.

        It belongs to the old plan, or has more records than the settings now allow.
        Returns: whether a batch was dropped.
        Raises:
            FencedError: a newer instance has taken over meanwhile.
        """
        layout = self._checkpoint.layout(self._present)
        logged, most = takeover.logged, self._settings.max_records_per_batch
        if logged.offset is None or not is_void(logged, takeover.committed):
            return False
        if to_run.finishes:
            words = "of the plan of before"
        elif (size := logged.offset.records_since(self._before(layout, logged.batch))) > most:
            words = f"of {size:,} records, which is more than source.max_records_per_batch now"
        else:
            return False
        self._on_step(f"dropping batch {logged.batch} {words}: no shard has written it")
        faults.point("before_dropped", logged.batch)
        takeover.confirm(self._new.plan)
        layout.drop(logged.batch)
        faults.point("after_dropped", logged.batch)
        self._look(self._checkpoint.birth())
        return True

    def is_ready_to_rescale(self) -> bool:
        """Whether the layout in shards or tasks changes, and no work is unfinished."""
        return self._rescales and not self._is_on_its_way()

    def rescale(self, takeover: Takeover) -> None:
        """Rewrite the state for the new number of shards or tasks, and go on with that.

        Raises:
            FencedError: a newer instance has taken over meanwhile.
        """
        ran, shards = self._ran, self._settings.shards
        assert ran is not None, "a new checkpoint has no other number of shards"
        words = Rescaled(ran.shards, shards).words()
        if ran.shards == shards:
            tasks = counted(self._tasks, "task") if self._tasks else "a task each"
            words = f"the state is rewritten for {counted(shards, 'shard')} with {tasks}"
        self._on_step(words)
        written = 0

        def count(entries: int) -> None:
            nonlocal written
            written += entries
            if written % _TOLD_EVERY == 0:
                self._on_step(f"{words}: {written:,} entries")

        reborn = rescaled_in_place(
            self._checkpoint, ran, takeover.manifests, shards, count, tasks=self._tasks
        )
        faults.point("before_rescaled", ran.epoch)
        takeover.confirm(self._new.plan)
        self._checkpoint.write(reborn)
        faults.point("after_rescaled", ran.epoch)
        self._look(reborn)

    def clean(self) -> None:
        """Remove old layouts, which nobody can use any more."""
        for layout in former_layouts(self._checkpoint, self._new.birth):
            layout.remove()

    def _look(self, birth: Birth | None) -> None:
        """Compare the plan with the metadata; drop an edit if no batch of it has run.

        Raises: CheckpointError, if what changes is not allowed.
        """
        self._birth, self._ran = birth, self._run_before(birth)
        settings = self._settings
        self._present = self._ran or newborn(
            settings.checkpoint, self._plan, settings.shards, self._start, tasks=self._tasks
        )
        logged = self._checkpoint.layout(self._present).logged()
        step = step_to(self._present, self._plan, logged.offset)
        self._new = _ToRun(step.plan, step.birth, backfills=step.backfills)
        if step.backfills:
            kafka = settings.reading_kafka
            last = logged.offset or self._present.start
            first = again.first_offsets(self._present.begins, last)
            # A backfill that is under way continues where it is.
            refuse_lost(
                step.plan, kafka, again.begun(again.begins(step.plan, first), last.positions)
            )
        self.reading = self._read_back() if step.birth != self._present else []
        # Without owners of shards, those of one task would run one after the other; and executors
        # without a task would do nothing.
        shards = self._present.shards
        spreads = self._present.state_partitions < (min(self._tasks, shards) or shards)
        self._rescales = self._present.shards != settings.shards or spreads
        last = logged.offset or self._present.start
        rebuilds = last.transition.stage is Stage.REBUILD
        if rebuilds and (step.birth != self._present or self._rescales):
            raise CheckpointError(
                f'the state of checkpoint "{settings.checkpoint}" is being made anew, for the '
                "pipeline and the number of shards with which it was recovered",
                hint="Go on with these until a batch of it is written. Or remove the checkpoint, "
                "and recover with the new ones.",
            )

    def _before(self, layout: CheckpointFiles, batch: int) -> SourceOffset:
        """The offset that is in the log before a batch."""
        number = batch - layout.first_batch
        return layout.offset(number - 1) if number else self._present.start

    def _read_back(self) -> list[str]:
        """Check that the edit can retract the contents of outputs; say which topics it reads.

        Raises: IkebanaError, if it may not read them, or the beginning of a topic is gone.
        """
        edit, settings = edit_to(self._present, self._plan), self._settings
        if edit is None or not edit.read_back:
            return []
        rights.demand(self._plan, settings, self._present.shards, edit.read_back)
        return [
            f'what output "{shown(output)}" has had is '
            + own_reading.words(own_reading.look(settings.kafka, [topic], self._plan.error_topic))
            for topic, output in edit.read_back.items()
        ]

    def _run_before(self, birth: Birth | None) -> Birth | None:
        return birth and begun(birth, self._checkpoint.layout(birth).logged().offset)

    def _to_run(self) -> _ToRun:
        """The new plan, or the old one as long as it has unfinished work or another layout."""
        ran = self._ran
        if ran is None or not (self._rescales or self._is_on_its_way()):
            return self._new
        return _ToRun(plan_as_run(ran, self._new.plan), ran, finishes=True)

    def _is_on_its_way(self) -> bool:
        ran = self._ran
        if ran is None:
            return False
        logged = self._checkpoint.layout(ran).logged()
        return finishing(ran, self._new.plan, logged, rescales=self._rescales) is not None

    def _take(self, to_run: _ToRun) -> Takeover:
        takeover = take_over(
            to_run.plan,
            self._settings,
            to_run.birth,
            look=self._checkpoint.layout(to_run.birth).logged,
            accepted=lambda: self._accept(to_run.birth),
            holder=f"{socket.gethostname()}:{os.getpid()}",
            finishes=to_run.finishes,
            incarnation=self._incarnation,
        )
        self._incarnation = takeover.incarnation
        return takeover

    def _accept(self, birth: Birth) -> None:
        """Write the metadata of the run, after the take-over has accepted it.

        Raises: CheckpointError, if an older instance has changed the plan since it was read.
        """
        # An older instance is fenced only now, and the edit was computed from what was read
        # before.
        checkpoint, at_start = self._checkpoint, self._birth
        if checkpoint.birth() != at_start or self._run_before(at_start) != self._ran:
            raise CheckpointError(
                f'the plan of checkpoint "{checkpoint.location}" was changed by another instance '
                "of the pipeline while this one started",
                hint="Start again if this is the plan that should run.",
            )
        if birth != at_start:
            if birth.edits > self._present.edits and (edit := self.edit()) is not None:
                birth = recorded(birth, edit)
            checkpoint.write(birth)
            self._birth = birth
        checkpoint.layout(birth).forget_nothing()
