"""Take over a pipeline: the steps of the driver before its query may start.

Their order keeps the output exact when two instances run on one checkpoint.  First the driver
takes its transactional id, which is the lease: from then on an older driver can publish
nothing.  Then everything is read, and a start that does not fit is refused before anything is
written.  Then the new incarnation is committed in the driver's partition and in each shard's,
which fences the shards' tasks of older instances.  An older instance that finds a greater
incarnation stops for good.

A start may go on if checkpoint, markers and outputs share one history: `lease_refusal` decides
before any shard is fenced, `judge` after everything has been read.  `ikebana preflight` uses both,
and fences nobody.

The protocol `Brokers` has the operations of these steps; `kafka.takeover` implements it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from ikebana.arrangements.manifest import Manifest
from ikebana.codecs.diff import ProgressRecord
from ikebana.errors import FencedError
from ikebana.processor.base.offsets import Offsets, TopicInfo
from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.commits import (
    NEWER_GOES_ON,
    Lease,
    Marker,
    first_marker,
    replaced_refusal,
    reports_of,
)
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import ERRORS, Output, Plan
from ikebana.processor.topics.input_times import ShardReports

_RESCALED = (
    "The checkpoint was rescaled: set run.checkpoint to the folder that `ikebana rescale` wrote. "
    "Or it was lost and recovered: to the folder where `ikebana recover` has created it again."
)
_RESTORE = (
    "Restore the newest files of the checkpoint. If they are lost, move this one away, and make "
    "it again with `ikebana recover`. Or start with a new checkpoint and new output topics."
)


@dataclass(frozen=True, slots=True)
class OutputState:
    """The state of an output's topics on the brokers.

    `last` is the last progress record, `begins` the first offset that the progress topic still
    has.  `topic` is None if the topic does not exist; `policy` is its cleanup.policy.
    """

    last: ProgressRecord | None = None
    begins: int = 0
    topic: TopicInfo | None = None
    policy: str = "delete"


@dataclass(frozen=True, slots=True)
class StartHistory:
    """All that a start has read: `outputs` by name, `markers` by the number of their shard."""

    plan: Plan
    birth: Birth
    logged: Logged
    outputs: Mapping[str, OutputState]
    markers: Mapping[int, Marker | None]


@dataclass(frozen=True, slots=True)
class GoOn:
    """The start may go on.

    `published` is the last batch with published progress, and `ends` has the offsets in it, by
    topic.  `new` are the outputs that have never had progress, so the times before their first one
    are empty.  `waiting` is the number of updates held for later times, by the markers.
    """

    published: int
    new: frozenset[str]
    waiting: int
    ends: Offsets


def judge(history: StartHistory) -> GoOn | Refusal:
    """Decide whether checkpoint, markers and outputs share one history."""
    for refusal in _refusals(history):
        return refusal
    outputs = [(output.name, history.outputs[output.name]) for output in history.plan.published]
    return GoOn(
        # All outputs of a batch are published at once; one may have lost its records since.
        published=max(-1 if shown.last is None else shown.last.batch for _, shown in outputs),
        # If the beginning of the progress topic is gone, the output has had progress.
        new=frozenset(n for n, shown in outputs if shown.last is None and not shown.begins),
        waiting=sum(marker.waiting for marker in history.markers.values() if marker is not None),
        ends={
            output.topic: last.ends
            for output in history.plan.published
            if (last := history.outputs[output.name].last) is not None
        },
    )


def _refusals(history: StartHistory) -> Iterator[Refusal]:
    for output in history.plan.published:
        yield from _of_output(history, output, history.outputs[output.name])
    for shard, marker in history.markers.items():
        # A shard that an earlier rescaling removed and the last one made again has not run yet.
        if marker is None or (marker.retired and marker.epoch < history.birth.epoch):
            yield from _of_no_marker(history, shard)
        else:
            yield from _of_marker(history, shard, marker)


def lease_refusal(
    plan: Plan, birth: Birth, before: Lease | None, existing: Mapping[str, TopicInfo]
) -> Refusal | None:
    """Refuse a pipeline that belongs to another checkpoint, or to a rescaled one of this id."""
    if before is None:
        return None
    if before.checkpoint != birth.id:
        return Refusal(
            Reason.PIPELINE_OF_ANOTHER_CHECKPOINT,
            f"pipeline {plan.name!r} belongs to another checkpoint ({before.checkpoint}), not "
            f'to {birth.id}, according to topic "{plan.markers_topic}"',
            "Set run.checkpoint to the location of that checkpoint. If it was deleted, make it "
            "again with `ikebana recover`, or start with a new pipeline name and new output "
            "topics.",
        )
    if before.epoch > birth.epoch:
        return Refusal(
            Reason.RESCALED_SINCE,
            f"checkpoint {birth.id} was rescaled or recovered {before.epoch} times when pipeline "
            f"{plan.name!r} last ran, but the one at run.checkpoint only {birth.epoch} times",
            _RESCALED,
        )
    for topic in lasting_topics(plan):
        topic_id = before.topic_ids.get(topic)
        if topic_id is None or (topic in existing and existing[topic].id == topic_id):
            continue
        deleted = topic not in existing
        gone = "was deleted" if deleted else "was deleted and created again"
        return Refusal(
            Reason.TOPIC_DELETED if deleted else Reason.TOPIC_CREATED_AGAIN,
            f'output topic "{topic}" {gone} since the checkpoint last ran',
            "Its updates cannot be written again: start with a new checkpoint and new output "
            "topics.",
        )
    return None


def lasting_topics(plan: Plan) -> list[str]:
    """List the topics that have to stay the same as long as the checkpoint is used."""
    exchange = [plan.loopback_topic] if progress.has_hops(plan) else []
    return [*(output.topic for output in plan.published), *exchange]


def _of_output(history: StartHistory, output: Output, shown: OutputState) -> Iterator[Refusal]:
    """Refuse an output of another checkpoint, or with a topic that would lose updates."""
    last, birth, logged = shown.last, history.birth, history.logged
    if last is not None and last.checkpoint != birth.id:
        yield Refusal(
            Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
            f'output topic "{output.topic}" belongs to another checkpoint '
            f"({last.checkpoint}, pipeline {last.pipeline!r}), not to {birth.id}",
            "Set run.checkpoint to the location of that checkpoint, or name new output topics "
            "(if it was deleted, only `ikebana recover` can continue its topics).",
        )
    if last is not None and last.batch > logged.batch:
        yield _rolled_back(f'the progress of "{output.topic}"', last.batch, history)
    if last is not None and _is_new(history, output):
        yield Refusal(
            Reason.TOPIC_OF_AN_OLDER_OUTPUT,
            f'output {output.name!r} is new, but its topic "{output.topic}" has updates of an '
            "older output of this checkpoint",
            "Name a new topic for the output.",
        )
    if shown.topic is None:
        return
    if "compact" in shown.policy and not output.traits.latest:
        yield Refusal(
            Reason.COMPACTED,
            f'output topic "{output.topic}" is compacted: it would lose updates',
            "Set its cleanup.policy to delete, or name another topic for the output.",
        )
    # Readers of these formats rely on a key's staying in one partition.
    by_key = output.traits.single_value
    if by_key and last is not None and len(last.ends) != shown.topic.partitions:
        yield Refusal(
            Reason.OTHER_PARTITIONS,
            f'output topic "{output.topic}" had {len(last.ends)} partitions and has '
            f"{shown.topic.partitions}: a key's messages would be in two of them, in no order",
            "Start with a new checkpoint and a new topic.",
        )


def _is_new(history: StartHistory, output: Output) -> bool:
    """Whether an output was added by an edit without a logged batch."""
    birth = history.birth
    # After a rescaling no batch is in the log: the metadata have the last one.
    last = history.logged.offset or birth.start
    if not last.transition.is_behind(birth.edits) or output.name == ERRORS:
        return False
    return output.name not in {each["name"] for each in birth.before["outputs"]}


def _of_no_marker(history: StartHistory, shard: int) -> Iterator[Refusal]:
    committed = history.logged.committed
    if committed >= history.birth.first_batch:
        yield Refusal(
            Reason.NO_MARKER,
            f"checkpoint {history.birth.id} has committed batch {committed}, but shard {shard} "
            f'has no commit record in "{history.plan.markers_topic}": these are not the topics '
            "that it was made with",
            "The topic was deleted, or these are other brokers, such as one with temporary "
            "data that was started again (`ikebana broker --data DIR` keeps them). Use the "
            "brokers that have the topic, or start with a new checkpoint and new output topics.",
        )


def _of_marker(history: StartHistory, shard: int, marker: Marker) -> Iterator[Refusal]:
    """Refuse a marker that does not fit the logs of the checkpoint."""
    birth, logged = history.birth, history.logged
    if marker.checkpoint != birth.id or marker.epoch > birth.epoch:
        yield Refusal(
            Reason.MARKER_OF_ANOTHER_CHECKPOINT,
            f'the commit records in "{history.plan.markers_topic}" are those of checkpoint '
            f"{marker.checkpoint} after {marker.epoch} rescalings or recoveries, but "
            f"run.checkpoint has {birth.id} after {birth.epoch}",
            _RESCALED,
        )
    if marker.batch > logged.batch:
        yield _rolled_back(f"the commit record of shard {shard}", marker.batch, history)
    if marker.batch < logged.committed:
        yield Refusal(
            Reason.MARKER_BEHIND,
            f"checkpoint {birth.id} has committed batch {logged.committed}, but the commit record "
            f'of shard {shard} in "{history.plan.markers_topic}" is of batch {marker.batch}',
            "The topic has lost records, or the checkpoint has run on other brokers. Use those, "
            "or start with a new checkpoint and new output topics.",
        )
    if (
        marker.batch == logged.batch
        and marker.epoch == birth.epoch
        and logged.offset is not None
        and marker.offset != logged.offset.digest()
    ):
        yield Refusal(
            Reason.OTHER_OFFSET,
            f"shard {shard} has committed batch {logged.batch} to Kafka with another offset than "
            f"checkpoint {birth.id} logs: the checkpoint was rolled back or replaced",
            _RESTORE,
        )


def _rolled_back(what: str, batch: int, history: StartHistory) -> Refusal:
    return Refusal(
        Reason.ROLLED_BACK,
        f"{what} is of batch {batch}, but the checkpoint's log ends at batch "
        f"{history.logged.batch}: the checkpoint was rolled back, or is an old copy",
        _RESTORE,
    )


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


def last_digest(offsets: Sequence[str]) -> str | None:
    """Find the digest of the batch that all shards have committed last; None if they differ.

    `offsets` has the digest of each shard that the checkpoint has now.
    """
    return offsets[0] if len(set(offsets)) == 1 else None


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

    def fence(self, shard: int) -> Callable[[Marker], None]:
        """Fence a shard's task, and abort its open transaction.

        Return the function that commits a marker of the shard.  It raises FencedError if another
        instance has fenced the shard since.
        """
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
    """The state of the pipeline when an instance may start; for `adopted` see `last_digest`.

    `lease` is the record that it has committed as the only instance, `manifests` has the manifest
    of each shard, and `reports` are theirs on the last batch that any of them has committed.
    `logged` is the end of the checkpoint's logs, read after the markers.
    """

    lease: Lease
    adopted: str | None
    go_on: GoOn
    manifests: tuple[Manifest, ...]
    reports: ShardReports
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
    claims = [_claimed(brokers, first, incarnation) for first in firsts]
    reports = reports_of([claimed.marker for claimed in claims])
    claims = claims[: birth.shards]
    manifests = tuple(claimed.marker.manifest for claimed in claims)
    adopts = last_digest([claimed.offset for claimed in claims])
    return TakeoverState(lease, adopts, before.go_on, manifests, reports, before.logged)


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
        raise replaced_refusal(plan.name, former, last.incarnation).error()


def _claimed(brokers: Brokers, first: Marker, incarnation: int) -> Claim:
    """Commit the incarnation to a shard's marker.

    The marker is read again, because until its incarnation is replaced, a task of an older
    instance may fence this one, and commit one more batch.
    """
    while True:
        commit = brokers.fence(first.shard)
        claimed = claim(first, brokers.last_marker(first.shard), incarnation)
        if isinstance(claimed, Refusal):
            raise claimed.error()
        try:
            commit(claimed.marker)
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
