"""Take over a pipeline: the steps of the driver before its query may start.


Their order keeps the output exact when two instances run on one checkpoint.  First the driver
takes its transactional id, which is the lease: from then on an older driver can publish
nothing.  Then everything is read, and a start that does not fit is refused before anything is
written.  Then the new incarnation is committed in the driver's partition and in each shard's,
which fences the shards' tasks of older instances.  An older instance that finds a greater
incarnation stops for good.


The protocol `Brokers` has the operations of these steps; `kafka.takeover` implements it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import FencedError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.commits import (
    NEWER_GOES_ON,
    Lease,
    Marker,
    first_marker,
    replaced,
)
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.checkpoint.starting import (
    GoOn,
    OutputState,
    StartHistory,
    judge,
    lasting_topics,
    lease_refusal,
)
from ikebana.processor.planning.plan import Output, Plan


@dataclass(frozen=True, slots=True)
class Claim:
    """The marker that makes a shard ours, and the digest of the last offset that it committed."""

    marker: Marker
    offset: str


def claim(first: Marker, earlier: Marker | None, incarnation: int) -> Claim | Refusal:
    """Make the marker by which an instance claims a shard; `earlier` is the shard's last one.

    `first` is the marker of the shard before any batch since the checkpoint was made or last
    rescaled; it is `retired` if the checkpoint has fewer shards now.
    """
    last = earlier or first
    if last.incarnation > incarnation:
        return Refusal(
            Reason.REPLACED,
            f"instance {last.incarnation} has taken over shard {first.shard} of checkpoint "
            f"{first.checkpoint} meanwhile",
            NEWER_GOES_ON,
            FencedError,
        )
    if last.epoch != first.epoch:
        same = last.batch == first.batch
        if not same and not last.retired:
            return Refusal(
                Reason.RAN_AFTER_RESCALING,
                f"cannot take over shard {first.shard} of checkpoint {first.checkpoint}: it has "
                f"committed batch {last.batch}, and the checkpoint was rescaled after batch "
                f"{first.batch}",
                "The checkpoint from before the rescaling has run since. Stop it, and rescale "
                "it again.",
            )
        # The next batch still needs the last one's reports on inputs' times.
        last = replace(first, seen=last.seen, facts=last.facts) if same else first
    return Claim(replace(last, incarnation=incarnation, retired=first.retired), last.offset)


def adopted(offsets: Sequence[str]) -> str | None:
    """Find the digest of the batch that all shards have committed last; None if they differ.

    `offsets` has the digest of each shard that the checkpoint has now.
    """
    return offsets[0] if len(set(offsets)) == 1 else None


class Claimant(Protocol):
    """An instance that has fenced a shard, until it is fenced itself."""

    def commit(self, marker: Marker) -> None:
        """Commit a marker of the shard.  Raises: FencedError, if another instance fenced it."""
        ...


class Brokers(Protocol):
    """The operations of a take-over on the brokers of a pipeline."""

    def hold_lease(self) -> None:
        """Fence every older driver."""
        ...

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        """Describe the topics of these names that exist."""
        ...

    def last_lease(self) -> Lease | None:
        """Read the last committed lease."""
        ...

    def fence(self, shard: int) -> Claimant:
        """Fence a shard's task, and abort its open transaction."""
        ...

    def last_marker(self, shard: int) -> Marker | None:
        """Read a shard's last committed marker."""
        ...

    def shown(self, output: Output, existing: Mapping[str, TopicInfo]) -> OutputState:
        """Read the state of an output's topics."""
        ...

    def make_topics(self, existing: Mapping[str, TopicInfo]) -> None:
        """Create the topics and partitions that are missing."""
        ...

    def commit_lease(self, lease: Lease) -> None:
        """Commit a lease.  Raises: FencedError, if a newer driver has fenced this one."""
        ...


@dataclass(frozen=True, slots=True)
class PipelineHistory:
    """What a start has read of the topics of a pipeline, which fits its checkpoint.

    `existing` are the topics that exist, `lease` is the last lease, `shards` the most shards that
    the pipeline has had.  `logged` is the end of the checkpoint's logs, read after the markers.
    """

    existing: Mapping[str, TopicInfo]
    lease: Lease | None
    shards: int
    logged: Logged
    go_on: GoOn


def history(
    plan: Plan,
    birth: Birth,
    brokers: Brokers,
    look: Callable[[], Logged],
    *,
    fences: bool = False,
) -> PipelineHistory:
    """Read the topics of a pipeline, and judge whether they fit its checkpoint.

    With `fences`, each shard is fenced before its marker is read.  `look` reads the logs.

    Raises: IkebanaError, for a refusal.
    """
    existing = brokers.topics(_topics(plan))
    shards = existing[plan.markers_topic].partitions - 1 if _ran(plan, existing) else 0
    lease = brokers.last_lease() if _ran(plan, existing) else None
    _refuse(lease_refusal(plan, birth, lease, existing))
    markers: dict[int, Marker | None] = dict.fromkeys(range(birth.shards))
    for shard in range(min(birth.shards, shards)):
        if fences:
            # Aborts the open transaction of an older instance, beyond which nothing can be read.
            brokers.fence(shard)
        markers[shard] = brokers.last_marker(shard)
    outputs = {output.name: brokers.shown(output, existing) for output in plan.published}
    # A batch is logged before it is committed anywhere.  So the log is read last: no marker of
    # an instance that still runs can be beyond it.
    logged = look()
    go_on = judge(StartHistory(plan, birth, logged, outputs, markers))
    if isinstance(go_on, Refusal):
        raise go_on.error()
    return PipelineHistory(existing, lease, shards, logged, go_on)


@dataclass(frozen=True, slots=True)
class TakeoverState:
    """The state of the pipeline when an instance may start; for `adopted` see `adopted`.

    `lease` is the record that it has committed as the only instance, `manifests` has the manifest
    of each shard, and `committed` is the last batch that any of them has committed.  `logged` is
    the end of the checkpoint's logs, read after the markers.
    """

    lease: Lease
    adopted: str | None
    go_on: GoOn
    manifests: tuple[Manifest, ...]
    committed: int
    logged: Logged


def take_over(
    plan: Plan,
    birth: Birth,
    brokers: Brokers,
    look: Callable[[], Logged],
    accepted: Callable[[], None],
    holder: str,
    former: int = 0,
) -> TakeoverState:
    """Become the one instance of the pipeline; see `kafka.takeover.take_over`."""
    if former:
        _stop_if_replaced(plan, brokers, holder, former)
    brokers.hold_lease()
    before = history(plan, birth, brokers, look, fences=True)
    brokers.make_topics(before.existing)
    accepted()
    ids = {name: topic.id for name, topic in brokers.topics(lasting_topics(plan)).items()}
    incarnation = before.lease.incarnation + 1 if before.lease else 1
    lease = Lease(birth.id, birth.epoch, incarnation, holder, ids)
    brokers.commit_lease(lease)
    # Before a rescaling the checkpoint may have had more shards.  An older instance has to find
    # in their markers too that it has been replaced.
    firsts = [
        replace(first_marker(birth, plan, shard), retired=shard >= birth.shards)
        for shard in range(max(birth.shards, before.shards))
    ]
    claims = [_claimed(brokers, first, incarnation) for first in firsts][: birth.shards]
    manifests = tuple(claimed.marker.manifest for claimed in claims)
    committed = max(claimed.marker.batch for claimed in claims)
    offsets = [claimed.offset for claimed in claims]
    adopts = adopted(offsets)
    return TakeoverState(lease, adopts, before.go_on, manifests, committed, before.logged)


def _stop_if_replaced(plan: Plan, brokers: Brokers, holder: str, former: int) -> None:
    """Stop before anything is fenced, if another instance has taken over since.

    A restarted run may have been stopped, or without brokers, for any time.  `former` is its
    incarnation before that.
    """
    if not _ran(plan, brokers.topics(_topics(plan))):
        return
    last = brokers.last_lease()
    # A failed start of this run itself may have left a greater incarnation.
    if last is not None and last.incarnation > former and last.holder != holder:
        raise replaced(plan.name, former, last.incarnation).error()


def _claimed(brokers: Brokers, first: Marker, incarnation: int) -> Claim:
    """Commit the incarnation to a shard's marker.

    The marker is read again, because until its incarnation is replaced, a task of an older
    instance may fence this one, and commit one more batch.
    """
    while True:
        claimant = brokers.fence(first.shard)
        claimed = claim(first, brokers.last_marker(first.shard), incarnation)
        if isinstance(claimed, Refusal):
            raise claimed.error()
        try:
            claimant.commit(claimed.marker)
        except FencedError:
            continue
        return claimed


def _topics(plan: Plan) -> list[str]:
    shown = [topic for o in plan.published for topic in (o.topic, o.progress_topic)]
    return [plan.markers_topic, plan.loopback_topic, *shown]


def _ran(plan: Plan, existing: Mapping[str, TopicInfo]) -> bool:
    """Whether an instance of the pipeline has left anything to read."""
    return plan.markers_topic in existing and existing[plan.markers_topic].partitions > 0


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refusal.error()
