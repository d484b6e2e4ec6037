"""Whether a start may go on: checkpoint, markers and outputs are to be of one history.

`lease_refusal` is asked before any shard is fenced, `judge` once everything has been read.
A check before a start asks both of what it has read without fencing anybody.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ikebana.codecs.progress import ProgressRecord
from ikebana.processor.checkpoint.checkpoint import Birth, Logged
from ikebana.processor.checkpoint.finishing import finishing
from ikebana.processor.deciding.commits import Lease, Marker
from ikebana.processor.deciding.refusal import Reason, Refusal
from ikebana.processor.deciding.topic import Topic
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import ERRORS, Output, Plan


@dataclass(frozen=True, slots=True)
class Shown:
    """What the brokers say of an output.

    `last` is its last progress, `begins` the first offset that its progress topic still has;
    `topic` is None where there is none yet, `policy` its cleanup.policy.
    """

    last: ProgressRecord | None = None
    begins: int = 0
    topic: Topic | None = None
    policy: str = "delete"


@dataclass(frozen=True, slots=True)
class History:
    """All that a start has read: `outputs` by name, `markers` of every shard by number.

    A start that `finishes` what is on its way does so under the plan of before, so that it does
    not matter what that plan is called in the log.
    """

    plan: Plan
    birth: Birth
    logged: Logged
    outputs: Mapping[str, Shown]
    markers: Mapping[int, Marker | None]
    finishes: bool = False


@dataclass(frozen=True, slots=True)
class GoOn:
    """The start may go on, and with what.

    `published` is the last batch whose progress is published, `new` are the outputs that
    have never had any: nothing has been before their first time.  `waiting` is how much
    waits for its time, by the markers.
    """

    published: int
    new: frozenset[str]
    waiting: int


def judge(found: History) -> GoOn | Refusal:
    """Whether what was found is of one history."""
    for refusal in _refusals(found):
        return refusal
    outputs = [(output.name, found.outputs[output.name]) for output in found.plan.published]
    return GoOn(
        # All outputs of a batch are published at once; one may have lost its records since.
        published=max(-1 if shown.last is None else shown.last.batch for _, shown in outputs),
        # Without a beginning there may have been some, which is gone.
        new=frozenset(n for n, shown in outputs if shown.last is None and not shown.begins),
        waiting=sum(marker.waiting for marker in found.markers.values() if marker is not None),
    )


def _refusals(found: History) -> Iterator[Refusal]:
    for output in found.plan.published:
        yield from _of_output(found, output, found.outputs[output.name])
    if not found.finishes:
        yield from _of_plan(found.birth, found.plan, found.logged)
    for shard, marker in found.markers.items():
        # A shard that an earlier rescaling took away, and the last one made again, has not run.
        if marker is None or (marker.retired and marker.epoch < found.birth.epoch):
            yield from _of_no_marker(found, shard)
        else:
            yield from _of_marker(found, shard, marker)


def lease_refusal(
    plan: Plan, birth: Birth, before: Lease | None, existing: Mapping[str, Topic]
) -> Refusal | None:
    """Refuse a pipeline that another checkpoint, or a newer form of this one, has taken."""
    if before is None:
        return None
    if before.checkpoint != birth.id:
        return Refusal(
            Reason.PIPELINE_OF_ANOTHER_CHECKPOINT,
            f"pipeline {plan.name!r} belongs to another checkpoint ({before.checkpoint}), not "
            f'to {birth.id}: topic "{plan.markers_topic}" says so',
            "If that checkpoint was deleted, start under a new pipeline name and with "
            "new output topics.",
        )
    if before.epoch > birth.epoch:
        return Refusal(
            Reason.RESCALED_SINCE,
            f"this checkpoint was rescaled {birth.epoch} times, the one that last ran "
            f"{before.epoch} times",
            "The checkpoint was rescaled: use the new one.",
        )
    for topic in lasting_topics(plan):
        known = before.topic_ids.get(topic)
        if known is None or (topic in existing and existing[topic].id == known):
            continue
        deleted = topic not in existing
        gone = "was deleted" if deleted else "was deleted and made anew"
        return Refusal(
            Reason.TOPIC_DELETED if deleted else Reason.TOPIC_MADE_ANEW,
            f'output topic "{topic}" {gone} since the checkpoint last ran',
            "The updates in it cannot be made again: start with a new checkpoint "
            "and new output topics.",
        )
    return None


def lasting_topics(plan: Plan) -> list[str]:
    """The topics that have to stay the same as long as the checkpoint lives."""
    own = [plan.loopback_topic] if progress.has_hops(plan) else []
    return [*(output.topic for output in plan.published), *own]


def _of_output(found: History, output: Output, shown: Shown) -> Iterator[Refusal]:
    """Refuse an output that is not this checkpoint's, or that would lose something."""
    last, birth, logged = shown.last, found.birth, found.logged
    if last is not None and last.checkpoint != birth.id:
        yield Refusal(
            Reason.OUTPUT_OF_ANOTHER_CHECKPOINT,
            f'output topic "{output.topic}" belongs to another checkpoint '
            f"({last.checkpoint}, pipeline {last.pipeline!r}), not to {birth.id}",
            "If that checkpoint was deleted, its topics cannot be gone on with: "
            "write to new ones.",
        )
    if last is not None and last.batch > logged.batch:
        yield _rolled_back(f'the progress of "{output.topic}"', last.batch, found)
    if last is not None and _is_new(found, output):
        yield Refusal(
            Reason.TOPIC_OF_AN_OLDER_OUTPUT,
            f'output {output.name!r} is new, but "{output.topic}" has what an '
            "older output of this checkpoint wrote",
            "Write to a new topic.",
        )
    if shown.topic is None:
        return
    if "compact" in shown.policy and not output.traits.latest:
        yield Refusal(
            Reason.COMPACTED,
            f'output topic "{output.topic}" is compacted: it would lose updates',
            "Set its cleanup.policy to delete, or write to another topic.",
        )
    # Where readers rely on a key's staying in one partition.
    by_key = output.traits.single_value
    if by_key and last is not None and len(last.ends) != shown.topic.partitions:
        yield Refusal(
            Reason.OTHER_PARTITIONS,
            f'output topic "{output.topic}" had {len(last.ends)} partitions and has '
            f"{shown.topic.partitions}: a key's messages would lie in two of them, in no order",
            "Write to a new topic under a new checkpoint.",
        )


def _is_new(found: History, output: Output) -> bool:
    """Whether an output came with an edit that no batch has run yet."""
    birth, offset = found.birth, found.logged.offset
    if offset is None or offset.edits >= birth.edits or output.name == ERRORS:
        return False
    return output.name not in {each["name"] for each in birth.before["outputs"]}


def _of_plan(birth: Birth, plan: Plan, logged: Logged) -> Iterator[Refusal]:
    """Refuse another plan as long as something is on its way between two operators.

    Starts finish that first, so it has come since this one has looked.
    """
    found = finishing(birth, plan, logged)
    remedy = "Another instance runs that plan: start again, which finishes what that one has left."
    if found is not None and found.unfinished:
        yield Refusal(
            Reason.UNFINISHED_BATCH_OF_ANOTHER_PLAN,
            f"batch {found.batch} is unfinished, and is one of another plan",
            remedy,
        )
    if found is not None and found.between_operators:
        yield Refusal(
            Reason.UPDATES_ON_THEIR_WAY,
            f"after batch {found.batch} updates are still on their way between operators of "
            "another plan",
            remedy,
        )


def _of_no_marker(found: History, shard: int) -> Iterator[Refusal]:
    committed = found.logged.committed
    if committed >= found.birth.first_batch:
        yield Refusal(
            Reason.NO_MARKER,
            f"the checkpoint has committed batch {committed}, but shard {shard} "
            f'has no marker in "{found.plan.markers_topic}": these are not the topics that '
            "it was made with",
            "The topic was deleted, or this is another cluster, such as a broker "
            "with temporary data that was started anew (ikebana broker --data DIR keeps "
            "them). Start that one again, or start with a new checkpoint and new output "
            "topics.",
        )


def _of_marker(found: History, shard: int, marker: Marker) -> Iterator[Refusal]:
    """Refuse a marker that is not of what the checkpoint has logged."""
    birth, logged = found.birth, found.logged
    if marker.checkpoint != birth.id or marker.epoch > birth.epoch:
        yield Refusal(
            Reason.MARKER_OF_ANOTHER_CHECKPOINT,
            f"the markers are those of checkpoint {marker.checkpoint} after "
            f"{marker.epoch} rescalings, this one is {birth.id} after {birth.epoch}",
            "The checkpoint was rescaled: use the new one.",
        )
    if marker.batch > logged.batch:
        yield _rolled_back(f"the marker of shard {shard}", marker.batch, found)
    if marker.batch < logged.committed:
        yield Refusal(
            Reason.MARKER_BEHIND,
            f"the checkpoint has committed batch {logged.committed}, the marker of shard "
            f"{shard} says {marker.batch}",
            "The markers topic lost records, or the checkpoint ran elsewhere.",
        )
    if (
        marker.batch == logged.batch
        and marker.epoch == birth.epoch
        and logged.offset is not None
        and marker.offset != logged.offset.digest()
    ):
        yield Refusal(
            Reason.OTHER_OFFSET,
            f"batch {logged.batch} was committed to Kafka with another offset than the "
            "checkpoint logs: it was rolled back or replaced",
            "Use the checkpoint as it was left.",
        )


def _rolled_back(what: str, batch: int, found: History) -> Refusal:
    return Refusal(
        Reason.ROLLED_BACK,
        f"{what} is of batch {batch}, but the checkpoint's log ends at batch "
        f"{found.logged.batch}: the checkpoint was rolled back, or is an old copy",
        "Use the checkpoint as it was left, or start with a new one and new output topics.",
    )
