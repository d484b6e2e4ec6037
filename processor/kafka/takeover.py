"""Taking over a pipeline: the driver's steps before its query may start.

The order is what makes two instances on one checkpoint exact.  First the driver's
transactional id, which is the lease: an older driver can publish nothing after this.
Then everything is looked at and, if it does not fit together, refused by name before
anything is written.  Then the new incarnation is committed, in the driver's partition
and in each shard's, fencing the shard's tasks of older instances.  An older instance
that finds a greater incarnation stops for good.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from ikebana.arrangements.errors import CheckpointError, FencedError
from ikebana.arrangements.manifest import Manifest
from ikebana.codecs.progress import ProgressRecord
from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.evolution import names_of
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.kafka import client, markers, own_topics, rights, topics
from ikebana.processor.kafka.markers import Lease, Marker
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.transactions import Transactions, commit_marker
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import ERRORS, Output, Plan


class Takeover(NamedTuple):
    """What the driver holds when it may start."""

    lease: Transactions
    incarnation: int
    adopted: str | None
    """The offset's digest of the batch that every shard has committed last, if it is one."""
    published: int
    """The last batch whose progress is published."""
    new: frozenset[str]
    """The outputs that have never had progress: nothing has been before their first time."""
    waiting: int
    """How much waits for its time, by the markers."""


def take_over(
    plan: Plan,
    settings: Settings,
    birth: Birth,
    look: Callable[[], Logged],
    accepted: Callable[[], None],
    holder: str,
) -> Takeover:
    """Become the one instance of the pipeline.

    `look` reads the checkpoint's logs, which is only right once the lease is held and
    the markers are read; `accepted` is called when everything fits, missing topics are made,
    and before anything is written.

    Raises:
        AccessError: the brokers do not let us do what a pipeline has to do.
        CheckpointError: checkpoint, markers and output topics do not belong together.
        FencedError: an even newer instance came in between.
    """
    sink = {**settings.kafka, **settings.sink_kafka}
    admin = client.admin(settings.kafka)
    reader = Reader(settings.kafka)
    lease = Transactions(sink, markers.driver_id(birth.id), settings.max_batch_s)
    topic = plan.markers_topic
    existing = topics.describe(
        admin,
        [
            topic,
            plan.loopback_topic,
            *(t for o in plan.published for t in (o.topic, o.progress_topic)),
        ],
    )
    known: dict[int, Marker | None] = dict.fromkeys(range(birth.shards))
    before: Lease | None = None
    if topic in existing:
        before = markers.last_lease(reader, topic) if existing[topic].partitions else None
        check_lease(plan, birth, before, existing)
        for shard in range(min(birth.shards, existing[topic].partitions - 1)):
            # Ends what a task of an older instance left open, so that it can be read past.
            _fence(sink, birth, shard, settings)
            known[shard] = markers.last_marker(reader, topic, shard)
    last = last_of_outputs(plan, reader, existing)
    new = {
        output.name
        for output in plan.published
        if last[output.name] is None
        # Else there may have been some, which is gone.
        and (
            output.progress_topic not in existing
            or reader.watermarks(output.progress_topic, 0)[0] == 0
        )
    }
    # A batch is logged before it is committed anywhere, so the log is read last: an older
    # instance that still runs cannot have put a marker beyond it.
    logged = look()
    progress = check_outputs(plan, birth, logged, last, admin, existing)
    check_markers(birth, logged, known, plan)
    if own_topics.create(plan, settings, birth.shards, admin, existing):
        # What we may do with a topic the brokers tell once it is there.
        rights.demand(plan, settings, birth.shards)
    accepted()
    found = topics.describe(admin, _told(plan))
    incarnation = before.incarnation + 1 if before else 1
    ids = {name: described.id for name, described in found.items()}
    with lease.transaction() as producer:
        markers.produce_lease(
            producer, topic, Lease(birth.id, birth.epoch, incarnation, holder, ids)
        )
    # Before it was rescaled the checkpoint may have had more shards: an instance of then
    # finds in their markers too that it has been replaced.
    before_rescaling = existing[topic].partitions - 1 if topic in existing else 0
    taken = [
        _claimed(
            reader,
            functools.partial(_fence, sink, birth, shard, settings),
            topic,
            replace(_first_marker(birth, plan, shard), retired=shard >= birth.shards),
            incarnation,
        )
        for shard in range(max(birth.shards, before_rescaling))
    ]
    reader.close()
    own = set(taken[: birth.shards])
    adopted = own.pop() if len(own) == 1 else None
    waiting = sum(marker.waiting for marker in known.values() if marker is not None)
    return Takeover(lease, incarnation, adopted, progress, frozenset(new), waiting)


def _claimed(
    reader: Reader,
    fence: Callable[[], Transactions],
    topic: str,
    first: Marker,
    incarnation: int,
) -> str:
    """Commit the incarnation to a shard's marker; return the digest of its batch's offset.

    The marker is read again: until its incarnation is replaced, a task of an older
    instance may fence us, and commit one more batch.
    """
    while True:
        fenced = fence()
        marker = markers.last_marker(reader, topic, first.shard) or first
        if marker.incarnation > incarnation:
            raise FencedError(f"instance {marker.incarnation} has taken over meanwhile")
        if marker.epoch != first.epoch:
            if marker.batch != first.batch and not marker.retired:
                raise CheckpointError(
                    f"shard {first.shard} has committed batch {marker.batch}, the checkpoint "
                    f"was rescaled after batch {first.batch}",
                    hint="The old checkpoint has run since: stop it, and rescale it again.",
                )
            same = marker.batch == first.batch
            # What the last batch saw of inputs' times is still to be learned.
            marker = replace(first, seen=marker.seen, facts=marker.facts) if same else first
        claimed = replace(marker, incarnation=incarnation, retired=first.retired)
        try:
            commit_marker(fenced, topic, claimed)
        except FencedError:
            continue
        return marker.offset


def _fence(sink: Mapping[str, str], birth: Birth, shard: int, settings: Settings) -> Transactions:
    return Transactions(dict(sink), markers.task_id(birth.id, shard), settings.max_batch_s)


def _first_marker(birth: Birth, plan: Plan, shard: int) -> Marker:
    """What a shard of a new checkpoint has committed: nothing."""
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


def last_of_outputs(
    plan: Plan, reader: Reader, existing: Mapping[str, topics.Topic]
) -> dict[str, ProgressRecord | None]:
    """The last progress of each output, by the output's name."""
    return {
        output.name: last_progress(reader, output.progress_topic)
        if output.progress_topic in existing
        else None
        for output in plan.published
    }


def check_outputs(
    plan: Plan,
    birth: Birth,
    logged: Logged,
    progress: Mapping[str, ProgressRecord | None],
    admin: AdminClient,
    existing: Mapping[str, topics.Topic],
) -> int:
    """Refuse outputs that are not this checkpoint's; return the last published batch."""
    published = []
    for output in plan.published:
        last = progress[output.name]
        if last is not None and last.checkpoint != birth.id:
            raise CheckpointError(
                f'output topic "{output.topic}" belongs to another checkpoint '
                f"({last.checkpoint}, pipeline {last.pipeline!r}), not to {birth.id}",
                hint="If that checkpoint was deleted, its topics cannot be gone on with: "
                "write to new ones.",
            )
        if last is not None and last.batch > logged.batch:
            raise _rolled_back(f'the progress of "{output.topic}"', last.batch, logged)
        if last is not None and _is_new(plan, output, logged):
            raise CheckpointError(
                f'output {output.name!r} is of a new join, but "{output.topic}" has what an '
                "older output of this checkpoint wrote",
                hint="Write to a new topic.",
            )
        if output.topic in existing:
            policy = topics.settings_of(admin, output.topic).get("cleanup.policy", "delete")
            compacted = output.format == "upsert"
            if "compact" in policy and not compacted:
                raise CheckpointError(
                    f'output topic "{output.topic}" is compacted: it would lose updates',
                    hint="Set its cleanup.policy to delete, or write to another topic.",
                )
            _check_partitions(output, last, existing[output.topic])
        published.append(-1 if last is None else last.batch)
    # All outputs of a batch are published at once; one may have lost its records since.
    return max(published)


def _is_new(plan: Plan, output: Output, logged: Logged) -> bool:
    """Whether an output shows a join that no batch has run yet."""
    # Errors are those of all operators.
    if logged.offset is None or not logged.offset.frontiers or output.name == ERRORS:
        return False
    joins = {join.name for join in plan.joins} - logged.offset.frontiers.keys()
    return not joins.isdisjoint(progress.producers(plan)[output.name])


def _check_partitions(output: Output, last: ProgressRecord | None, topic: topics.Topic) -> None:
    """Refuse a changed number of partitions where readers rely on a key's staying in one."""
    if output.format not in ("upsert", "debezium-json") or last is None:
        return
    if len(last.ends) != topic.partitions:
        raise CheckpointError(
            f'output topic "{output.topic}" had {len(last.ends)} partitions and has '
            f"{topic.partitions}: a key's messages would lie in two of them, in no order",
            hint="Write to a new topic under a new checkpoint.",
        )


def check_lease(
    plan: Plan, birth: Birth, before: Lease | None, existing: Mapping[str, topics.Topic]
) -> None:
    """Refuse a pipeline that another checkpoint, or a newer form of this one, has taken."""
    if before is None:
        return
    if before.checkpoint != birth.id:
        raise CheckpointError(
            f"pipeline {plan.name!r} belongs to another checkpoint ({before.checkpoint}), not "
            f'to {birth.id}: topic "{plan.markers_topic}" says so',
            hint="If that checkpoint was deleted, start under a new pipeline name and with "
            "new output topics.",
        )
    if before.epoch > birth.epoch:
        raise CheckpointError(
            f"this checkpoint was rescaled {birth.epoch} times, the one that last ran "
            f"{before.epoch} times",
            hint="The checkpoint was rescaled: use the new one.",
        )
    for topic in _told(plan):
        known = before.topic_ids.get(topic)
        if known is None:
            continue
        if topic not in existing or existing[topic].id != known:
            gone = "was deleted" if topic not in existing else "was deleted and made anew"
            raise CheckpointError(
                f'output topic "{topic}" {gone} since the checkpoint last ran',
                hint="The updates in it cannot be made again: start with a new checkpoint "
                "and new output topics.",
            )


def _told(plan: Plan) -> list[str]:
    """The topics that have to stay the same as long as the checkpoint lives."""
    own = [plan.loopback_topic] if progress.has_hops(plan) else []
    return [*(output.topic for output in plan.published), *own]


def check_markers(
    birth: Birth, logged: Logged, known: Mapping[int, Marker | None], plan: Plan
) -> None:
    """Refuse markers that are not of what the checkpoint has logged."""
    other = logged.offset is not None and logged.offset.plan not in names_of(birth, plan)
    if other and logged.batch > logged.committed:
        raise CheckpointError(
            f"batch {logged.batch} is unfinished, and is one of another plan",
            hint="Run the old pipeline file once more, with --once, then change it.",
        )
    if other:
        _check_level(logged)
    for shard, marker in known.items():
        if marker is None or (marker.retired and marker.epoch < birth.epoch):
            if logged.committed >= birth.first_batch:
                raise CheckpointError(
                    f"the checkpoint has committed batch {logged.committed}, but shard {shard} "
                    f'has no marker in "{plan.markers_topic}": these are not the topics that '
                    "it was made with",
                    hint="The topic was deleted, or this is another cluster, such as a broker "
                    "with temporary data that was started anew (ikebana broker --data DIR keeps "
                    "them). Start that one again, or start with a new checkpoint and new output "
                    "topics.",
                )
            continue
        if marker.checkpoint != birth.id or marker.epoch > birth.epoch:
            raise CheckpointError(
                f"the markers are those of checkpoint {marker.checkpoint} after "
                f"{marker.epoch} rescalings, this one is {birth.id} after {birth.epoch}",
                hint="The checkpoint was rescaled: use the new one.",
            )
        if marker.batch > logged.batch:
            raise _rolled_back(f"the marker of shard {shard}", marker.batch, logged)
        if marker.batch < logged.committed:
            raise CheckpointError(
                f"the checkpoint has committed batch {logged.committed}, the marker of shard "
                f"{shard} says {marker.batch}",
                hint="The markers topic lost records, or the checkpoint ran elsewhere.",
            )
        if (
            marker.batch == logged.batch
            and marker.epoch == birth.epoch
            and logged.offset is not None
            and marker.offset != logged.offset.digest()
        ):
            raise CheckpointError(
                f"batch {logged.batch} was committed to Kafka with another offset than the "
                "checkpoint logs: it was rolled back or replaced",
                hint="Use the checkpoint as it was left.",
            )


def _check_level(logged: Logged) -> None:
    """Refuse another plan as long as something is on its way between two operators."""
    offset = logged.offset
    assert offset is not None, "nothing is logged"
    if not progress.is_level(offset.frontiers) or offset.hydrating:
        raise CheckpointError(
            f"after batch {logged.batch} updates are still on their way between operators of "
            "another plan",
            hint="Run the old pipeline file once more, with --once, then change it.",
        )


def _rolled_back(what: str, batch: int, logged: Logged) -> CheckpointError:
    return CheckpointError(
        f"{what} is of batch {batch}, but the checkpoint's log ends at batch {logged.batch}: "
        "the checkpoint was rolled back, or is an old copy",
        hint="Use the checkpoint as it was left, or start with a new one and new output topics.",
    )
