"""A run whose checkpoint is lost, and is made anew of its topics."""

from collections.abc import Mapping

from ikebana.codecs import diff
from ikebana.processor.planning.plan import Plan
from ikebana.processor.rows.rebuilding import Rebuilding
from ikebana.processor.testing.topics import Topics
from ikebana.processor.timing import own_topics
from ikebana.processor.timing.recovering import recovered
from ikebana.processor.timing.source_offset import Positions, SourceOffset


def after_loss(
    plan: Plan,
    topics: Topics,
    frontiers: Mapping[str, int],
    begins: Positions,
    hops: Mapping[int, int],
    batch: int,
    upper: int,
) -> SourceOffset:
    """The offset at which the state of a plan begins anew.

    The outputs are closed up to `frontiers`, and `upper` is the last time that a batch may have
    reached, whether it was finished or not.
    """
    own: dict[str, Mapping[int, tuple[int, int]]] = {}
    unclosed = {}
    for output in plan.published:
        snapshot, ends = topics.snapshots.get(output.topic), topics.ends(output.topic)
        own |= own_topics.to_read(output.topic, dict.fromkeys(ends, 0), ends, snapshot)
        stand = frontiers.get(output.name, 0)
        times = [
            diff.read_headers(message.headers)[0]
            for held in topics.messages[output.topic].values()
            for message in held
            if message is not None
        ]
        unclosed[output.name] = sum(time >= stand for time in times)
    rebuilding = Rebuilding(
        begin=upper,
        until={topic: topics.ends(topic) for topic in begins},
        stands={output.name: frontiers.get(output.name, 0) for output in plan.published},
        unclosed=unclosed,
    )
    return recovered(
        plan,
        rebuilding,
        batch=batch,
        positions={topic: dict(by) for topic, by in begins.items()},
        topic_ids={},
        hops=hops,
        own=own,
    )
