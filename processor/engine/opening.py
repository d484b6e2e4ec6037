"""Open a pipeline for a run over Kafka: which plan runs, as the only instance, on which state.

`checkpoint.next_step` decides, and has the loop; the world here has a checkpoint and brokers.
Nothing here knows Spark.
"""

import os
import socket
from collections.abc import Callable, Collection
from typing import NamedTuple

from ikebana.errors import CheckpointError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import processes
from ikebana.processor.base.texts import counted, shown
from ikebana.processor.checkpoint.checkpoint import (
    Checkpoint,
    CheckpointFiles,
    CheckpointMetadata,
    Logged,
    metadata_of,
)
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.edit_description import EditDescription, Rescaled, with_last_edit
from ikebana.processor.checkpoint.next_step import Desired, Observed, StartStep, observed_of, start
from ikebana.processor.checkpoint.recorded_plan import edit_to, ineffective_hints
from ikebana.processor.checkpoint.rescale import former_layouts, rescaled
from ikebana.processor.kafka import client, own_topics, rights
from ikebana.processor.kafka.inputs import Inputs, refuse_lost
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import SourceOffset

_REPORTED_EVERY = 1_000_000


class Opened(NamedTuple):
    """The last step of a start, which says what runs, and the instance that runs it."""

    step: StartStep
    layout: CheckpointFiles
    takeover: Takeover


def opened(
    plan: Plan,
    settings: Settings,
    on_step: Callable[[str], None],
    on_edit: Callable[[EditDescription], None],
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
    desired = Desired(plan, settings.shards, tasks, settings.max_records_per_batch)
    world = KafkaWorld(desired, settings, on_step, on_edit, incarnation)
    return world.opened(start(world, desired))


def read_before(settings: Settings) -> Collection[str]:
    """List the topics that the checkpoint of a run has begun to read."""
    checkpoint = Checkpoint(settings.checkpoint)
    return _read_before(checkpoint, checkpoint.metadata()) or ()


def _read_before(
    checkpoint: Checkpoint, metadata: CheckpointMetadata | None
) -> Collection[str] | None:
    """List the topics that a checkpoint has begun to read; None without a checkpoint."""
    if metadata is None:
        return None
    return (checkpoint.layout(metadata).logged().offset or metadata.start).positions.keys()


class KafkaWorld:
    """The checkpoint and the brokers of a pipeline, for one start; see `next_step.World`.

    `on_step` gets lines for people.
    """

    _observed: Observed
    _takeover: Takeover

    def __init__(
        self,
        desired: Desired,
        settings: Settings,
        on_step: Callable[[str], None],
        on_edit: Callable[[EditDescription], None],
        incarnation: int = 0,
    ) -> None:
        self._desired, self._settings = desired, settings
        self._on_step, self._on_edit = on_step, on_edit
        self._incarnation = incarnation
        self._announced = False
        self._checkpoint = Checkpoint(settings.checkpoint)
        self._metadata = self._checkpoint.metadata()
        """The metadata, as this start has read or written them."""
        on_step("looking at the input topics")
        kafka, plan, metadata = settings.reading_kafka, desired.plan, self._metadata
        client.reach(kafka)
        shards = settings.shards if metadata is None else max(metadata.shards, settings.shards)
        rights.require_rights(plan, settings, shards)
        begin = Inputs(plan, kafka).start(_read_before(self._checkpoint, metadata))
        self._newborn = metadata_of(
            settings.checkpoint, plan, settings.shards, begin, tasks=desired.tasks or 0
        )

    def look(self) -> Observed:
        """Read the checkpoint; one that does not exist begins with the topics as they are.

        Raises: CheckpointError, if an older instance has changed the plan since this start began.
        """
        metadata = self._checkpoint.metadata()
        if metadata != self._metadata:
            raise _changed(self._checkpoint)
        self._observed = (
            Observed(self._newborn, Logged(None, -1, -1))
            if metadata is None
            else observed_of(self._checkpoint, metadata)
        )
        return self._observed

    def hold(self, step: StartStep) -> Observed:
        """Take over the outputs with the plan of a step, and write it into the metadata.

        Raises:
            AccessError: the brokers do not let us do what a pipeline has to do.
            CheckpointError: checkpoint, commit records and output topics do not belong together.
            FencedError: an even newer instance came in between.
        """
        self._reading = self._demand(step)
        self._on_step("taking over the outputs")
        layout = self._checkpoint.layout(step.metadata)

        def look() -> Logged:
            logged = layout.logged()
            if not step.fits(logged):
                raise _UnfitError
            return logged

        try:
            self._takeover = take_over(
                step.plan,
                self._settings,
                step.metadata,
                look,
                accepted=lambda: self._accept(step),
                holder=f"{socket.gethostname()}:{os.getpid()}",
                incarnation=self._incarnation,
            )
        except _UnfitError:
            return self.look()
        self._incarnation = self._takeover.incarnation
        state = self._takeover.state
        records = _last_records(layout, step.metadata, state.logged)
        self._observed = self._observed._replace(
            logged=state.logged, committed=state.reports.batch, records=records
        )
        return self._observed

    def take(self, step: StartStep) -> None:
        """Drop the last batch, or rewrite the state for another number of shards or tasks."""
        if step.action == "drop":
            self._drop(step)
        else:
            self._announce(step)
            self._rescale(step)

    def opened(self, step: StartStep) -> Opened:
        """Finish the start with its last step: say what runs, and remove what nobody can use."""
        self._announce(step)
        if step.finishes:
            rights.require_rights(step.plan, self._settings, step.metadata.shards)
            self._on_step("finishing pending rows under the previous plan")
        else:
            # Nobody can use older layouts any more.
            for layout in former_layouts(self._checkpoint, step.metadata):
                layout.remove()
        if step.action == "read again":
            names = " and ".join(f'"{shown(name)}"' for name in step.plan.backfills)
            self._on_step(f"reading {names} again from the beginning, beside the plan of before")
        return Opened(step, self._checkpoint.layout(step.metadata), self._takeover)

    def _announce(self, step: StartStep) -> None:
        """Describe the difference to the last run, if there is one, once."""
        if self._announced:
            return
        self._announced = True
        for hint in ineffective_hints(self._observed.metadata, self._desired.plan):
            self._on_step(f"going on as joins were laid out, with {hint} as it was")
        changes = step.following.metadata != self._observed.metadata
        if changes or self._observed.metadata.shards != self._desired.shards:
            self._on_edit(self._edit())
        for line in self._reading:
            self._on_step(line)

    def _edit(self) -> EditDescription:
        """The difference to the last run."""
        return describe(self._settings.checkpoint, self._observed, self._desired)

    def _demand(self, step: StartStep) -> list[str]:
        """Check that the plan can read what the state does not have; say which outputs it reads.

        Raises: IkebanaError, if it may not read them, or the beginning of a topic is gone.
        """
        metadata, settings, following = self._observed.metadata, self._settings, step.following
        if following.backfills:
            refuse_lost(self._observed, following.plan, settings.reading_kafka)
        if following.metadata == metadata:
            return []
        plan = self._desired.plan
        edit = edit_to(metadata, plan)
        if edit is None or not edit.read_back:
            return []
        rights.require_rights(plan, settings, metadata.shards, edit.read_back)
        return [
            f'what output "{shown(output)}" has had is '
            + own_topics.contents_words(
                own_topics.contents(settings.kafka, [topic], plan.error_topic)
            )
            for topic, output in edit.read_back.items()
        ]

    def _accept(self, step: StartStep) -> None:
        """Write the metadata of the run, after the take-over has accepted it.

        Raises: CheckpointError, if an older instance has changed the plan since it was read.
        """
        # An older instance is fenced only now, and the step was decided by what was read before.
        before, metadata = self._observed.metadata, step.metadata
        if self.look().metadata != before:
            raise _changed(self._checkpoint)
        if metadata != self._metadata:
            if metadata.edits > before.edits:
                metadata = with_last_edit(metadata, self._edit())
            self._checkpoint.write(metadata)
            self._metadata = metadata
        self._checkpoint.layout(metadata).forget_nothing()

    def _drop(self, step: StartStep) -> None:
        """Drop a logged batch that no shard has committed, and that should not run any more.

        It belongs to the plan of before, or has more records than the settings now allow.
        """
        batch, words = self._observed.logged.batch, "of the plan of before"
        if not step.finishes:
            words = (
                f"of {self._observed.records:,} records, which is more than "
                "source.max_records_per_batch now"
            )
        self._on_step(f"dropping batch {batch} {words}: no shard has written it")
        processes.fault_point("before_dropped", batch)
        self._takeover.confirm(step.plan)
        self._checkpoint.layout(step.metadata).drop(batch)
        processes.fault_point("after_dropped", batch)

    def _rescale(self, step: StartStep) -> None:
        """Rewrite the state for the new number of shards or tasks."""
        ran, shards, tasks = step.metadata, self._desired.shards, self._desired.tasks or 0
        words = Rescaled(ran.shards, shards).words()
        if ran.shards == shards:
            each = counted(tasks, "task") if tasks else "a task each"
            words = f"the state is rewritten for {counted(shards, 'shard')} with {each}"
        self._on_step(words)
        written = 0

        def count(entries: int) -> None:
            nonlocal written
            written += entries
            if written % _REPORTED_EVERY == 0:
                self._on_step(f"{words}: {written:,} entries")

        manifests = self._takeover.state.manifests
        reborn = rescaled(self._checkpoint, ran, manifests, shards, count, tasks=tasks)
        processes.fault_point("before_rescaled", ran.epoch)
        self._takeover.confirm(step.plan)
        self._checkpoint.write(reborn)
        self._metadata = reborn
        processes.fault_point("after_rescaled", ran.epoch)


class _UnfitError(Exception):
    """The step does not fit the log any more."""


def _changed(checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(
        f'the plan of checkpoint "{checkpoint.location}" was changed by another instance of the '
        "pipeline while this one started",
        hint="Start again if this is the plan that should run.",
    )


def _last_records(layout: CheckpointFiles, metadata: CheckpointMetadata, logged: Logged) -> int:
    """Count the records of a logged batch that is not committed; 0 without one."""
    if logged.offset is None or logged.batch == logged.committed:
        return 0
    number = logged.batch - layout.first_batch
    before: SourceOffset = layout.offset(number - 1) if number else metadata.start
    return logged.offset.records_since(before)
