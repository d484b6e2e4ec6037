"""Decide what a shard's task does with a batch: adopt a committed one, compute it, or stop."""

from dataclasses import dataclass

from ikebana.arrangements.manifest import Manifest
from ikebana.processor.base.rows import Tick
from ikebana.processor.checkpoint.commits import Marker, replaced
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.planning.plan import Plan

_ROLLED_BACK = (
    "The checkpoint was rolled back or replaced: restore its newest files, or start with a new "
    "checkpoint and new output topics."
)


@dataclass(frozen=True, slots=True)
class Holder:
    """The instance of a pipeline that runs the task, and the shard."""

    plan: Plan
    epoch: int
    incarnation: int
    shard: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """The batch is committed already; its marker has the results."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Compute:
    """The batch has to be computed from this state."""

    manifest: Manifest


def verdict(
    holder: Holder, tick: Tick, last: Marker | None, state: Manifest
) -> Adopt | Compute | Refusal:
    """Decide what to do with the batch of `tick`, by the shard's `last` marker.

    `last` must be read after all other instances were fenced.  `state` is the manifest in
    Spark's state row.
    """
    shard = holder.shard
    if last is None:
        return Refusal(
            Reason.NO_MARKER,
            f'topic "{holder.plan.markers_topic}" has lost the commit record of shard {shard}',
            "Make the topic compacted, without a retention, and writable by nobody else, and "
            "start with a new checkpoint and new output topics.",
        )
    if last.incarnation != holder.incarnation:
        return replaced(holder.plan.name, holder.incarnation, last.incarnation)
    if last.batch == tick.batch:
        if (last.offset, last.plan) == (tick.offset, tick.plan):
            return Adopt(last)
        return Refusal(
            Reason.OTHER_OFFSET,
            f"shard {shard} of pipeline {holder.plan.name!r} has committed batch {tick.batch} to "
            "Kafka with another offset or plan than the checkpoint logs",
            _ROLLED_BACK,
        )
    # Records of a batch that all shards adopt were not read, so it cannot be computed.
    if last.batch != tick.batch - 1 or tick.adopted:
        return Refusal(
            Reason.OTHER_BATCH,
            f"shard {shard} of pipeline {holder.plan.name!r} committed batch {last.batch} last, "
            f"and has to run batch {tick.batch}",
            _ROLLED_BACK,
        )
    # Manifests from before a rescaling belong to other shards.
    if last.epoch == holder.epoch and last.manifest != state:
        return Refusal(
            Reason.OTHER_STATE,
            f"shard {shard} of checkpoint {last.checkpoint} is at version {state.version}, but "
            f"its commit record of batch {last.batch} names version {last.manifest.version}",
            _ROLLED_BACK,
        )
    return Compute(state)


def goes_on(holder: Holder, tick: Tick, last: Marker | None, state: Manifest) -> Compute | None:
    """Decide whether a task can compute its batch without reading the shard's last marker.

    `last` is the marker that was last when the process fenced the shard's other writers, or that
    it has committed since, with a producer that is still open.  Unless that producer has been
    fenced, nobody has committed a later marker; if it has been fenced, it cannot commit the batch.
    In all other cases, also if the batch was committed already, the task has to fence, read the
    marker, and ask for a `verdict`.
    """
    if last is None:
        return None
    decision = verdict(holder, tick, last, state)
    return decision if isinstance(decision, Compute) else None
