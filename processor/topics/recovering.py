"""The offset at which the rebuild of a lost checkpoint's state begins.

All records, those that the lost checkpoint had processed and later ones, count from one time on,
which is beyond all times that it has written.  `base.transition` describes the rebuild.
"""

from collections.abc import Mapping

from ikebana.processor.base.transition import Rebuilding, Stage, Transition
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.own_topics import Ends
from ikebana.processor.topics.source_offset import Positions, SourceOffset


def recovered(
    plan: Plan,
    rebuilding: Rebuilding,
    *,
    begin: int,
    batch: int,
    positions: Positions,
    topic_ids: Mapping[str, str],
    hops: Mapping[int, int],
    read_back: Ends,
) -> SourceOffset:
    """Make the offset after `batch`, the last one of the lost checkpoint that was closed.

    The new state begins at the time `begin`, beyond all updates in the topics of outputs.
    Inputs are read from `positions` on, and the topics of outputs at the offsets `read_back`.
    The loopback topic, which has the ends `hops` by shard, belongs to the lost state and is
    skipped.
    """
    return SourceOffset(
        batch=batch,
        lower=begin,
        upper=begin,
        positions=positions,
        plan=plan.fingerprint(),
        frontiers=dict.fromkeys(progress.edges(plan), begin) if begin else {},
        topic_ids=dict(topic_ids),
        hops=dict(hops),
        transition=Transition(
            at=begin,
            stage=Stage.REBUILD,
            read_back=own_topics.begun(read_back),
            rebuilding=rebuilding,
        ),
    )
