"""A run that loses its checkpoint, which is rebuilt from its topics."""

from collections.abc import Mapping

import msgspec

from ikebana.codecs import diff
from ikebana.codecs.cdcv2 import Progress
from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.recovering import Left, Unclosed, problems_left, rebuilding
from ikebana.processor.checkpoint.starting import OutputState
from ikebana.processor.engine.testing.topics import Topics
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.recovering import recovered
from ikebana.processor.topics.source_offset import Positions, SourceOffset


def after_loss(
    plan: Plan, topics: Topics, begins: Positions, hops: Mapping[int, int], batch: int, upper: int
) -> SourceOffset:
    """The offset at which the rebuild of a plan's state begins.

    `batch` is the last finished batch, and `upper` the last time that any batch, finished or
    not, may have reached.

    Raises: CheckpointError, for topics of outputs that `ikebana recover` refuses.
    """
    own_ranges: dict[str, Mapping[int, tuple[int, int]]] = {}
    for output in plan.published:
        if output.traits.codec is None:
            snapshot, ends = topics.snapshots.get(output.topic), topics.ends(output.topic)
            own_ranges |= own_topics.to_read(output.topic, dict.fromkeys(ends, 0), ends, snapshot)
    left = Left(
        lease=None,
        markers={},
        outputs={each.name: OutputState(topics.last(each.topic)) for each in plan.published},
        unclosed={each.name: _unclosed(each, topics) for each in plan.published},
        lost={},
        read_back=own_ranges,
        begins={topic: dict.fromkeys(by, 0) for topic, by in begins.items()},
        ends={topic: topics.ends(topic) for topic in begins},
        policies={},
        topic_ids={},
        hops=hops,
        starts=begins,
    )
    if problems := list(problems_left(plan, left)):
        raise CheckpointError(
            "the checkpoint cannot be made anew: "
            + "; ".join(f"{each.path} {each.reason}" for each in problems),
            hint=f"{problems[0].instead}.",
            paths=[each.path for each in problems],
        )
    return recovered(
        plan,
        msgspec.structs.replace(rebuilding(plan, left), begin=upper),
        batch=batch,
        positions={topic: dict(by) for topic, by in begins.items()},
        topic_ids={},
        hops=hops,
        read_back=own_ranges,
    )


def _unclosed(output: Output, topics: Topics) -> Unclosed:
    """What a topic has beyond the end of its last progress."""
    last = topics.last(output.topic)
    ends, stand = ({}, 0) if last is None else (last.ends, last.upper)
    beyond = [
        message
        for partition, held in topics.messages[output.topic].items()
        for message in held[ends.get(partition, 0) :]
        if message is not None
    ]
    if output.traits.codec is not None:
        return Unclosed(len(beyond))
    times = [time for message in beyond for time in _times(output, message) if time >= stand]
    return Unclosed(len(times), max(times, default=-1))


def _times(output: Output, message: Message) -> list[int]:
    """The times of the updates in a message of an output's format."""
    if output.traits.facts is None:
        return [diff.read_headers(message.headers)[0]]
    content = output.traits.facts().decode(message.value)
    return [] if isinstance(content, Progress) else [time for _, _, time, _ in content.updates]
