"""The offset at which the state of a lost checkpoint begins to be made anew.

What the lost one had processed, and all that has come since, counts from one time on, which is
beyond all that it has written.  `base.rebuilding` says what follows until the difference is
written.
"""

from collections.abc import Mapping

from ikebana.processor.base.rebuilding import Rebuilding
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.own_topics import Ends
from ikebana.processor.topics.source_offset import Positions, SourceOffset


def recovered(
    plan: Plan,
    rebuilding: Rebuilding,
    *,
    batch: int,
    positions: Positions,
    topic_ids: Mapping[str, str],
    hops: Mapping[int, int],
    own: Ends,
) -> SourceOffset:
    """Make the offset after `batch`, the last one of the lost checkpoint that was closed.

    Inputs are read from `positions` on, the topics of outputs as `own` says.  What is in the
    loopback topic, which has the ends `hops` by shard, is of the lost state, and is passed over.
    """
    begin = rebuilding.begin
    return SourceOffset(
        batch=batch,
        lower=begin,
        upper=begin,
        positions=positions,
        plan=plan.fingerprint(),
        frontiers=dict.fromkeys(progress.edges(plan), begin) if begin else {},
        topic_ids=dict(topic_ids),
        hops=dict(hops),
        own=own_topics.begun(own),
        rebuilding=rebuilding,
    )
