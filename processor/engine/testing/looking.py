"""The records that can be read when a batch is minted, and the caller's wishes for it."""

from collections.abc import Mapping, Set
from typing import NamedTuple

from ikebana.processor.engine.testing.topics import Topics
from ikebana.processor.planning import starts
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import input_times
from ikebana.processor.topics.event_time import Where
from ikebana.processor.topics.input_times import InputTimes, Learned
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.topics.taking import MintingState


class BatchRequest(NamedTuple):
    """The arguments of the next batch; see `Run.batch`."""

    now_ms: int | None
    limit: int | None
    ends: Mapping[str, Mapping[int, int]] = {}
    idle: Set[Where] = frozenset()
    heartbeat: bool = False
    first: bool = False


def look_at(
    plan: Plan,
    topics: Topics,
    last: SourceOffset,
    news: Learned,
    asked: BatchRequest,
) -> MintingState:
    """How far the topics go after a batch in which `news` were learned."""
    names = dict.fromkeys((*plan.topics, *plan.transaction_topics))
    there = {name: topics.ends(name) for name in names}
    idle = dict.fromkeys((source.name for source in plan.inputs), asked.idle)
    times = input_times.learned(plan, last.input_times, news, last.positions, there, idle)
    closed = {
        source.name: [
            each
            for each in topics.closed[source.topics[0]]
            if each.after > times.get(source.name, InputTimes()).progress_at
        ]
        for source in plan.inputs
        if source.traits.kind == "updates"
    }
    ends = {topic: dict(asked.ends.get(topic, there[topic])) for topic in there}
    begins = {
        topic: topics.first(source, topic)
        for source in plan.inputs
        for topic in source.topics
        if topic not in last.positions
        and source.name not in plan.backfills
        and source.start not in starts.WORDS
    }
    return MintingState(ends, begins, {}, times, closed)
