"""Take over a pipeline: the steps of the driver before its query may start.

Their order keeps the output exact when two instances run on one checkpoint.  First the driver
takes its transactional id, which is the lease: from then on an older driver can publish
nothing.  Then everything is read, and a start that does not fit is refused before anything is
written.  Then the new incarnation is committed in the driver's partition and in each shard's,
which fences the shards' tasks of older instances.  An older instance that finds a greater
incarnation stops for good.

A start may go on if checkpoint, commit records and outputs share one history: `lease_refusal`
decides before any shard is fenced, `judge` after everything has been read.  `ikebana preflight`
uses both, and fences nobody.

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
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged
from ikebana.processor.checkpoint.commits import (
    NEWER_GOES_ON,
    CommitRecord,
    Lease,
    first_commit,
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
    """All that a start has read: `outputs` by name, `commits` by the number of their shard."""

    plan: Plan
    metadata: CheckpointMetadata
    logged: Logged
    outputs: Mapping[str, OutputState]
    commits: Mapping[int, CommitRecord | None]


@dataclass(frozen=True, slots=True)
class Continuation:
    """From where a start continues.

    `published` is the last batch with published progress, and `ends` has the offsets in it, by
    topic.  `new` are the outputs that have never had progress, so the times before their first one
    are empty.  `waiting` is the number of updates held for later times, by the commit records.
    """

    published: int
    new: frozenset[str]
    waiting: int
    ends: Offsets


def judge(history: StartHistory) -> Continuation | Refusal:
    """Decide whether checkpoint, commit records and outputs share one history."""
    for refusal in _refusals(history):
        return refusal
    outputs = [(output.name, history.outputs[output.name]) for output in history.plan.published]
    return Continuation(
        # All outputs of a batch are published at once; one may have lost its records since.
        published=max(-1 if shown.last is None else shown.last.batch for _, shown in outputs),
        # If the beginning of the progress topic is gone, the output has had progress.
        new=frozenset(n for n, shown in outputs if shown.last is None and not shown.begins),
        waiting=sum(commit.waiting for commit in history.commits.values() if commit is not None),
        ends={
            output.topic: last.ends
            for output in history.plan.published
            if (last := history.outputs[output.name].last) is not None
        },
    )


def _refusals(history: StartHistory) -> Iterator[Refusal]:
    for output in history.plan.published:
        yield from _of_output(history, output, history.outputs[output.name])
    for shard, commit in history.commits.items():
        # A shard that an earlier rescaling removed and the last one made again has not run yet.
        if commit is None or (commit.retired and commit.epoch < history.metadata.epoch):
            yield from _of_no_record(history, shard)
        else:
            yield from _of_record(history, shard, commit)


def lease_refusal(
    plan: Plan,
    metadata: CheckpointMetadata,
    before: Lease | None,
    existing: Mapping[str, TopicInfo],
) -> Refusal | None:
    """Refuse a pipeline that belongs to another checkpoint, or to a rescaled one of this id."""
    if before is None:
        return None
    if before.checkpoint != metadata.id:
        return Refusal(
            Reason.PIPELINE_OF_ANOTHER_CHECKPOINT,
            f"pipeline {plan.name!r} belongs to another checkpoint ({before.checkpoint}), not "
            f'to {metadata.id}, according to topic "{plan.commits_topic}"',
            "Set run.checkpoint to the location of that checkpoint. If it was deleted, make it "
            "again with `ikebana recover`, or start with a new pipeline name and new output "
            "topics.",
        )
    if before.epoch > metadata.epoch:
        return Refusal(
            Reason.RESCALED_SINCE,
            f"checkpoint {metadata.id} was rescaled or recovered {before.epoch} times when "
            f"pipeline {plan.name!r} last ran, but the one at run.checkpoint only "
            f"{metadata.epoch} times",
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
    exchange = [plan.exchange_topic] if progress.has_exchanges(plan) else []
    return [*(output.topic for output in plan.published), *exchange]


def _of_output(history: StartHistory, output: Output, shown: OutputState) -> Iterator[Refusal]:
    """Refuse an output of another checkpoint, or with a topic that would lose updates."""
    last, metadata, logged = shown.last, history.metadata, history.logged
    if last is not None and last.checkpoint != metadata.id:
        yield Refusal(
            Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
            f'output topic "{output.topic}" belongs to another checkpoint '
            f"({last.checkpoint}, pipeline {last.pipeline!r}), not to {metadata.id}",
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
    metadata = history.metadata
    # After a rescaling no batch is in the log: the metadata have the last one.
    last = history.logged.offset or metadata.start
    if not last.transition.is_behind(metadata.edits) or output.name == ERRORS:
        return False
    return output.name not in {each["name"] for each in metadata.before["outputs"]}


def _of_no_record(history: StartHistory, shard: int) -> Iterator[Refusal]:
    committed = history.logged.committed
    if committed >= history.metadata.first_batch:
        yield Refusal(
            Reason.NO_COMMIT_RECORD,
            f"checkpoint {history.metadata.id} has committed batch {committed}, but shard {shard} "
            f'has no commit record in "{history.plan.commits_topic}": these are not the topics '
            "that it was made with",
            "The topic was deleted, or these are other brokers, such as one with temporary "
            "data that was started again (`ikebana broker --data DIR` keeps them). Use the "
            "brokers that have the topic, or start with a new checkpoint and new output topics.",
        )


def _of_record(history: StartHistory, shard: int, commit: CommitRecord) -> Iterator[Refusal]:
    """Refuse a commit record that does not fit the logs of the checkpoint."""
    metadata, logged = history.metadata, history.logged
    if commit.checkpoint != metadata.id or commit.epoch > metadata.epoch:
        yield Refusal(
            Reason.COMMIT_OF_ANOTHER_CHECKPOINT,
            f'the commit records in "{history.plan.commits_topic}" are those of checkpoint '
            f"{commit.checkpoint} after {commit.epoch} rescalings or recoveries, but "
            f"run.checkpoint has {metadata.id} after {metadata.epoch}",
            _RESCALED,
        )
    if commit.batch > logged.batch:
        yield _rolled_back(f"the commit record of shard {shard}", commit.batch, history)
    if commit.batch < logged.committed:
        yield Refusal(
            Reason.COMMIT_RECORD_BEHIND,
            f"checkpoint {metadata.id} has committed batch {logged.committed}, but the "
            f'commit record of shard {shard} in "{history.plan.commits_topic}" is of batch '
            f"{commit.batch}",
            "The topic has lost records, or the checkpoint has run on other brokers. Use those, "
            "or start with a new checkpoint and new output topics.",
        )
    if (
        commit.batch == logged.batch
        and commit.epoch == metadata.epoch
        and logged.offset is not None
        and commit.offset != logged.offset.digest()
    ):
        yield Refusal(
            Reason.OTHER_OFFSET,
            f"shard {shard} has committed batch {logged.batch} to Kafka with another offset than "
            f"checkpoint {metadata.id} logs: the checkpoint was rolled back or replaced",
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
    """The commit record that makes a shard ours, and the digest of its last committed offset."""

    commit: CommitRecord
    offset: str


def claim(first: CommitRecord, earlier: CommitRecord | None, incarnation: int) -> Claim | Refusal:
    """Make the commit record by which an instance claims a shard after its `earlier` one.

    `first` is the commit record of the shard before any batch since the checkpoint was made or
    last rescaled; it is `retired` if the checkpoint has fewer shards now.
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

    def fence(self, shard: int) -> Callable[[CommitRecord], None]:
        """Fence a shard's task, and abort its open transaction.

        Return the function that commits a commit record of the shard.  It raises FencedError if
        another instance has fenced the shard since.
        """
        ...

    def last_commit(self, shard: int) -> CommitRecord | None:
        """Read a shard's last commit record."""
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
    the pipeline has had.  `logged` is the end of the checkpoint's logs, read after the commit
    records.
    """

    existing: Mapping[str, TopicInfo]
    lease: Lease | None
    shards: int
    logged: Logged
    continuation: Continuation


def history(
    plan: Plan,
    metadata: CheckpointMetadata,
    brokers: Brokers,
    look: Callable[[], Logged],
    *,
    fences: bool = False,
) -> PipelineHistory:
    """Read the topics of a pipeline, and judge whether they fit its checkpoint.

    With `fences`, each shard is fenced before its commit record is read.  `look` reads the logs.

    Raises: IkebanaError, for a refusal.
    """
    existing = brokers.topics(_topics(plan))
    shards = existing[plan.commits_topic].partitions - 1 if _ran(plan, existing) else 0
    lease = brokers.last_lease() if _ran(plan, existing) else None
    _refuse(lease_refusal(plan, metadata, lease, existing))
    commits: dict[int, CommitRecord | None] = dict.fromkeys(range(metadata.shards))
    for shard in range(min(metadata.shards, shards)):
        if fences:
            # Aborts the open transaction of an older instance, beyond which nothing can be read.
            brokers.fence(shard)
        commits[shard] = brokers.last_commit(shard)
    outputs = {output.name: brokers.shown(output, existing) for output in plan.published}
    # A batch is logged before it is committed anywhere.  So the log is read last: no commit record
    # of an instance that still runs can be beyond it.
    logged = look()
    continuation = judge(StartHistory(plan, metadata, logged, outputs, commits))
    if isinstance(continuation, Refusal):
        raise continuation.error()
    return PipelineHistory(existing, lease, shards, logged, continuation)


@dataclass(frozen=True, slots=True)
class TakeoverState:
    """The state of the pipeline when an instance may start; for `adopted` see `last_digest`.

    `lease` is the record that it has committed as the only instance, `manifests` has the manifest
    of each shard, and `reports` are theirs on the last batch that any of them has committed.
    `logged` is the end of the checkpoint's logs, read after the commit records.
    """

    lease: Lease
    adopted: str | None
    continuation: Continuation
    manifests: tuple[Manifest, ...]
    reports: ShardReports
    logged: Logged


def take_over(
    plan: Plan,
    metadata: CheckpointMetadata,
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
    before = history(plan, metadata, brokers, look, fences=True)
    brokers.make_topics(before.existing)
    accepted()
    ids = {name: topic.id for name, topic in brokers.topics(lasting_topics(plan)).items()}
    incarnation = before.lease.incarnation + 1 if before.lease else 1
    lease = Lease(metadata.id, metadata.epoch, incarnation, holder, ids)
    brokers.commit_lease(lease)
    # Before a rescaling the checkpoint may have had more shards.  An older instance has to find
    # in their commit records too that it has been replaced.
    firsts = [
        replace(first_commit(metadata, plan, shard), retired=shard >= metadata.shards)
        for shard in range(max(metadata.shards, before.shards))
    ]
    claims = [_claimed(brokers, first, incarnation) for first in firsts]
    reports = reports_of([claimed.commit for claimed in claims])
    claims = claims[: metadata.shards]
    manifests = tuple(claimed.commit.manifest for claimed in claims)
    adopts = last_digest([claimed.offset for claimed in claims])
    return TakeoverState(lease, adopts, before.continuation, manifests, reports, before.logged)


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


def _claimed(brokers: Brokers, first: CommitRecord, incarnation: int) -> Claim:
    """Commit the incarnation to a shard's commit record.

    The commit record is read again, because until its incarnation is replaced, a task of an older
    instance may fence this one, and commit one more batch.
    """
    while True:
        write = brokers.fence(first.shard)
        claimed = claim(first, brokers.last_commit(first.shard), incarnation)
        if isinstance(claimed, Refusal):
            raise claimed.error()
        try:
            write(claimed.commit)
        except FencedError:
            continue
        return claimed


def _topics(plan: Plan) -> list[str]:
    shown = [topic for o in plan.published for topic in (o.topic, o.progress_topic)]
    return [plan.commits_topic, plan.exchange_topic, *shown]


def _ran(plan: Plan, existing: Mapping[str, TopicInfo]) -> bool:
    """Whether an instance of the pipeline has left anything to read."""
    return plan.commits_topic in existing and existing[plan.commits_topic].partitions > 0


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refusal.error()
