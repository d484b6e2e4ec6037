"""Commit records of shards and the driver's lease, committed together with a batch's updates.

A shard's last commit record decides what its task does with a batch: adopt a committed one,
compute it, or stop.  This module has the values and functions over several of them;
`kafka.transactions` writes and reads them.
"""

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import FencedError
from ikebana.processor.base.rows import Noted, Tick, TimesReport
from ikebana.processor.base.sharding import Hot
from ikebana.processor.base.transition import (
    NO_TRANSITION,
    NOTHING_REPLAYED,
    Replayed,
    Transition,
)
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.input_times import ShardReports

NEWER_GOES_ON = "Do not restart this instance: the newer one goes on."
"""The remedy for an instance that another one has replaced."""


class Lease(msgspec.Struct, frozen=True):
    """The instance that last took over the pipeline, and the ids of the topics that it found."""

    checkpoint: str
    epoch: int
    incarnation: int
    holder: str
    topic_ids: dict[str, str]


class FillProgress(msgspec.Struct, frozen=True):
    """The progress of a shard in an edit of the plan that fills fresh operators.

    The shard has finished `done` of `parts` parts, which are parts of the state and new joins, and
    is at the part `name`.  Its last batch went through `keys` keys of the state.
    """

    done: int
    parts: int
    name: str
    keys: int = 0


class CommitRecord(msgspec.Struct, frozen=True):
    """The record by which a shard commits a batch.

    * `epoch`: the number of rescalings of the checkpoint; `retired`: it has fewer shards now.
    * `incarnation`: the number of the instance that ran the batch.
    * `offset`, `plan`: the digests of the logged offset and of the plan.
    * `records`, `behind`: the numbers of records in the batch, and left for later batches.
    * `counts`: the numbers of update records by output; `times`: the numbers of updates by
      output and time, as `diff.pack_times` packs them; `counted`: all other counts.
    * `manifest`: the state of the shard after the batch.
    * `intervals`: the intervals of the outputs, which may lag behind that of the source.
    * `exchanges_from`: the offset at which the batch began to read its exchange partition.
    * `seen`: the reports on inputs' times that the shard received.
    * `facts`: the numbers of new facts of CDCv2 by input, packed like `times`.
    * `took`: seconds by lap of the task.
    * `transition`, `replayed`: the transition that the batch belongs to, and what the shard
      reports of it.
    * `waiting`: the number of updates held for later times, as `parts.waiting` counts them.
    * `noted`: some of the records that were late, have drifted or made errors.
    * `size`: the number of bytes of the packed rows that the shard got, its tick included.
    * `hot`: how much the shard got of each input, and its most frequent keys, by their hashes.
    * `filling`: the progress in an edit of the plan, if one is being filled.
    """

    checkpoint: str
    epoch: int
    incarnation: int
    shard: int
    batch: int
    lower: int
    upper: int
    offset: str
    plan: str
    records: int
    behind: int
    counts: dict[str, int]
    manifest: Manifest
    counted: dict[str, int] = {}
    times: dict[str, list[int]] = {}
    intervals: dict[str, tuple[int, int]] = {}
    exchanges_from: int = 0
    seen: list[TimesReport] = []
    facts: dict[str, list[int]] = {}
    took: dict[str, float] = {}
    retired: bool = False
    transition: Transition = NO_TRANSITION
    replayed: Replayed = NOTHING_REPLAYED
    waiting: int = 0
    filling: FillProgress | None = None
    noted: list[Noted] = []
    size: int = 0
    hot: list[Hot] = []


def first_commit(metadata: CheckpointMetadata, plan: Plan, shard: int) -> CommitRecord:
    """Make a shard's commit record before any batch of a new or rescaled checkpoint."""
    return CommitRecord(
        checkpoint=metadata.id,
        epoch=metadata.epoch,
        incarnation=0,
        shard=shard,
        batch=metadata.first_batch - 1,
        lower=metadata.start.lower,
        upper=metadata.start.upper,
        offset=metadata.start.digest(),
        plan=plan.fingerprint(),
        records=0,
        behind=0,
        counts={},
        manifest=metadata.seeds.get(shard, Manifest(metadata.id, shard)),
    )


def reports_of(commits: Collection[CommitRecord]) -> ShardReports:
    """What the shards with these commit records report of their last batch.

    Retired shards belong to it if the checkpoint was rescaled right after it.  A transition has no
    progress as long as a shard has not committed the batch.
    """
    batch = max(commit.batch for commit in commits)
    of_batch = [commit for commit in commits if commit.batch == batch]
    present = [commit for commit in commits if not commit.retired]
    return ShardReports(
        batch,
        seen=[seen for commit in of_batch for seen in commit.seen],
        facts=[commit.facts for commit in of_batch],
        replayed=Replayed.by_all([commit.replayed for commit in present])
        if all(commit.batch == batch for commit in present)
        else NOTHING_REPLAYED,
        size=sum(commit.size for commit in of_batch),
    )


def replaced_refusal(pipeline: str, incarnation: int, newer: int) -> Refusal:
    """Refuse to go on after a newer instance has taken over."""
    return Refusal(
        Reason.REPLACED,
        f"this instance (number {incarnation}) of pipeline {pipeline!r} stops: instance {newer} "
        "has taken over its checkpoint",
        NEWER_GOES_ON,
        FencedError,
    )


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
    """The batch is committed already; its commit record has the results."""

    commit: CommitRecord


@dataclass(frozen=True, slots=True)
class Compute:
    """The batch has to be computed from this state."""

    manifest: Manifest


def verdict(
    holder: Holder, tick: Tick, last: CommitRecord | None, state: Manifest
) -> Adopt | Compute | Refusal:
    """Decide what to do with the batch of `tick`, by the shard's `last` commit record.

    `last` must be read after all other instances were fenced.  `state` is the manifest in
    Spark's state row.
    """
    shard = holder.shard
    if last is None:
        return Refusal(
            Reason.NO_COMMIT_RECORD,
            f'topic "{holder.plan.commits_topic}" has lost the commit record of shard {shard}',
            "Make the topic compacted, without a retention, and writable by nobody else, and "
            "start with a new checkpoint and new output topics.",
        )
    if last.incarnation != holder.incarnation:
        return replaced_refusal(holder.plan.name, holder.incarnation, last.incarnation)
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


def computable(
    holder: Holder, tick: Tick, last: CommitRecord | None, state: Manifest
) -> Compute | None:
    """Decide whether a task can compute its batch without reading the shard's last commit record.

    `last` is the commit record that was last when the process fenced the shard's other writers, or
    that it has committed since, with a producer that is still open.  Unless that producer has been
    fenced, nobody has committed a later commit record; if it has been fenced, it cannot commit the
    batch.  In all other cases, also if the batch was committed already, the task has to fence,
    read the commit record, and ask for a `verdict`.
    """
    if last is None:
        return None
    decision = verdict(holder, tick, last, state)
    return decision if isinstance(decision, Compute) else None
