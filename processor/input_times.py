"""What is known of the times of inputs that have times of their own, between batches.

It is logged with each batch.  What a batch has read is learned from its markers before
the next is minted: so the interval of a batch never depends on what it reads itself.
"""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

import msgspec

from ikebana.codecs.cdcv2 import Progress
from ikebana.processor import event_time, transactions
from ikebana.processor.cdcv2_coverage import Coverage, advanced
from ikebana.processor.event_time import Where
from ikebana.processor.formatting import add_times
from ikebana.processor.plan import Input, Plan
from ikebana.processor.rows import Seen
from ikebana.processor.transactions import Transactions

Positions = dict[str, dict[int, int]]


class InputTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one input.

    `greatest` are the event times seen by topic and partition, `coverage` what the facts
    of CDCv2 come to, `transactions` what was read of a source's.  Of a diff topic: `reads`
    is up to where the batch reads, `progress_at` where progress is to be read on from,
    `checkpoint` whose topic it is.
    """

    frontier: int = 0
    greatest: Positions = {}
    coverage: Coverage | None = None
    transactions: Transactions | None = None
    reads: dict[int, int] = {}
    progress_at: int = 0
    checkpoint: str = ""


class Learned(NamedTuple):
    """What the shards have told of a batch: what they saw, and new facts by input, packed."""

    seen: list[Seen]
    facts: list[dict[str, list[int]]]


def topic_key(topic: str) -> str:
    """Under which name it is known what a transaction topic tells; no input's has a space."""
    return f"transactions {topic}"


def key_of(source: Input) -> str:
    """Under which name it is known how far an input is complete."""
    topic = source.transaction_topic
    return source.name if topic is None else topic_key(topic)


def learned(
    plan: Plan,
    known: Mapping[str, InputTimes],
    news: Learned,
    partitions: Mapping[str, Iterable[int]],
    idle: Set[Where],
) -> dict[str, InputTimes]:
    """What is known after a batch, of the inputs that batches tell of.

    `partitions` are those of every topic, `idle` those that are not waited for.
    """
    found = dict(known)
    for topic in plan.transaction_topics:
        before = known.get(topic_key(topic), InputTimes())
        told = [s.transactions for s in news.seen if s.input == topic_key(topic)]
        after = transactions.advanced(
            before.transactions or Transactions(), [one for one in told if one is not None]
        )
        found[topic_key(topic)] = msgspec.structs.replace(
            before, frontier=after.frontier, transactions=after
        )
    for source in plan.inputs:
        if source.tells_later and source.transaction_topic is None:
            before = known.get(source.name, InputTimes())
            if source.event_time is not None:
                found[source.name] = _events(source, before, news, partitions, idle)
            else:
                found[source.name] = _facts(source, before, news)
    return found


def _events(
    source: Input,
    before: InputTimes,
    news: Learned,
    partitions: Mapping[str, Iterable[int]],
    idle: Set[Where],
) -> InputTimes:
    greatest: Positions = before.greatest
    for seen in news.seen:
        if seen.input == source.name and seen.greatest is not None:
            greatest = event_time.merged(greatest, {seen.topic: {seen.partition: seen.greatest}})
    all_partitions = [(topic, p) for topic in source.topics for p in partitions.get(topic, ())]
    assert source.event_time is not None
    frontier = event_time.frontier(
        source.event_time, all_partitions, greatest, idle, before.frontier
    )
    return msgspec.structs.replace(before, frontier=frontier, greatest=greatest)


def _facts(source: Input, before: InputTimes, news: Learned) -> InputTimes:
    statements = []
    for seen in news.seen:
        if seen.input == source.name:
            for lower, upper, packed in seen.statements:
                counts: dict[int, int] = {}
                add_times(counts, packed)
                statements.append(Progress(lower, upper, counts))
    new: dict[int, int] = {}
    for facts in news.facts:
        add_times(new, facts.get(source.name, ()))
    coverage = advanced(before.coverage or Coverage(), statements, new)
    return msgspec.structs.replace(before, frontier=coverage.frontier, coverage=coverage)
