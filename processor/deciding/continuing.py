"""What a shard's task does of a batch: adopt what is committed, compute it, or stop."""

from dataclasses import dataclass

from ikebana.arrangements.manifest import Manifest
from ikebana.processor.deciding.commits import Marker, replaced
from ikebana.processor.deciding.refusal import Reason, Refusal
from ikebana.processor.planning.plan import Plan
from ikebana.processor.rows.envelope import Tick


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs the task: an instance of a pipeline, for one of its shards."""

    plan: Plan
    epoch: int
    incarnation: int
    shard: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """The batch is committed: its marker says what it came to."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Compute:
    """The batch is to be computed, from this state."""

    manifest: Manifest


def verdict(
    holder: Holder, tick: Tick, last: Marker | None, state: Manifest
) -> Adopt | Compute | Refusal:
    """What to do of the batch of `tick`, after the shard's `last` marker.

    `last` was read after everybody else was fenced; `state` is what Spark holds of the shard.
    """
    shard = holder.shard
    if last is None:
        return Refusal(
            Reason.NO_MARKER,
            f'the marker of shard {shard} is gone from topic "{holder.plan.markers_topic}"',
            "The topic must be compacted and without retention, and nobody else may write to it.",
        )
    if last.incarnation != holder.incarnation:
        return replaced(holder.plan.name, holder.incarnation, last.incarnation)
    if last.batch == tick.batch:
        if (last.offset, last.plan) == (tick.offset, tick.plan):
            return Adopt(last)
        return Refusal(
            Reason.OTHER_OFFSET,
            f"batch {tick.batch} was committed to Kafka with another offset or plan "
            f"than the checkpoint logs (shard {shard})",
            "The checkpoint was rolled back or replaced; use it as it was left.",
        )
    # What is adopted whole was not read, so it cannot be computed.
    if last.batch != tick.batch - 1 or tick.adopted:
        return Refusal(
            Reason.OTHER_BATCH,
            f"shard {shard} committed batch {last.batch} last, and is asked for batch "
            f"{tick.batch}",
            "The checkpoint was rolled back or replaced; use it as it was left.",
        )
    # The manifests of before a rescaling were of other shards.
    if last.epoch == holder.epoch and last.manifest != state:
        return Refusal(
            Reason.OTHER_STATE,
            f"shard {shard} of the checkpoint is at version {state.version}, its marker "
            f"of batch {last.batch} says {last.manifest.version}: the checkpoint's state was "
            "rolled back or replaced",
            "Use the checkpoint as it was left, or start with a new one and new output topics.",
        )
    return Compute(state)
