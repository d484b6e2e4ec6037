"""What shards and the driver commit beside a batch's updates: markers and the lease.

`kafka.markers` writes and reads them; here are the values, and what follows from several.
"""

from collections.abc import Sequence

import msgspec

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import FencedError
from ikebana.processor.checkpoint.checkpoint import Birth
from ikebana.processor.deciding.refusal import Reason, Refusal
from ikebana.processor.planning.plan import Plan
from ikebana.processor.rows.rows import Seen


class Lease(msgspec.Struct, frozen=True):
    """The instance that last took over the pipeline, and the topics that it found."""

    checkpoint: str
    epoch: int
    incarnation: int
    holder: str
    topic_ids: dict[str, str]


class FillProgress(msgspec.Struct, frozen=True):
    """How far a shard is with what an edit fills.

    It is `done` with so many of all `parts`, that is parts of the state and joins that are new,
    and is at the one called `name`.  This batch went through so many `keys` of the state.
    """

    done: int
    parts: int
    name: str
    keys: int = 0


class Marker(msgspec.Struct, frozen=True):
    """What a shard last committed.

    `offset` and `plan` name the logged offset and the plan of the batch; `counts` are
    update records by output, `times` counts by time as `formatting.pack_times` packs them,
    `counted` whatever else was counted, `took` seconds by phase.  `intervals` are those of
    the outputs, which may be behind that of the source.  `seen` is what the shard was told
    of inputs' times, `facts` how many facts of CDCv2 were new, by input, packed like
    `times`.  `hops_from` is where the batch began to read the shard's partition of the
    loopback topic.  `hydrated` are new joins that have got all that the shard had before them.
    `waiting` is how much waits for its time, as `batch.waiting` counts it.  `filling` says how
    far an edit of the plan is that fills what is new.
    `epoch` counts rescalings of the checkpoint, `retired` says that it has
    had fewer shards since.
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
    hops_from: int = 0
    seen: list[Seen] = []
    facts: dict[str, list[int]] = {}
    took: dict[str, float] = {}
    retired: bool = False
    hydrated: list[str] = []
    waiting: int = 0
    filling: FillProgress | None = None


def first_marker(birth: Birth, plan: Plan, shard: int) -> Marker:
    """What a shard of a checkpoint says that has not run since its birth or its rescaling."""
    return Marker(
        checkpoint=birth.id,
        epoch=birth.epoch,
        incarnation=0,
        shard=shard,
        batch=birth.first_batch - 1,
        lower=birth.start.lower,
        upper=birth.start.upper,
        offset=birth.start.digest(),
        plan=plan.fingerprint(),
        records=0,
        behind=0,
        counts={},
        manifest=birth.seeds.get(shard, Manifest(birth.id, shard)),
    )


def hydrated_in(found: Sequence[Marker], batch: int, shards: int) -> frozenset[str]:
    """The new joins that have all that was there before, as all shards say of a batch."""
    if len(found) < shards or any(marker.batch != batch for marker in found):
        return frozenset()
    return frozenset.intersection(*(frozenset(marker.hydrated) for marker in found))


def replaced(pipeline: str, own: int, newer: int) -> Refusal:
    """Why an instance stops that has found the incarnation of a newer one."""
    return Refusal(
        Reason.REPLACED,
        f"this instance (number {own}) of pipeline {pipeline!r} stops: instance {newer} has "
        "taken over its checkpoint",
        kind=FencedError,
    )
