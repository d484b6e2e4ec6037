"""Reclocking: which records make up a micro-batch and what time they get.

The source mints one `SourceOffset` a batch, and Spark logs it before the batch runs:
it is the durable remap from Kafka's offsets to our times, and the only place where a
clock is read.  Whatever follows is a function of it.

* ingest: all records of a batch have the time `upper - 1`, milliseconds; a batch is at
  least one millisecond, and the clock going back does not take the time with it.
* offset: a record's time is `lower` + its rank in the batch by (input, partition,
  offset), so every change shows; `upper` is `lower` + the number of offsets.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ikebana.processor import progress
from ikebana.processor.decoding import Place
from ikebana.processor.plan import Input, Plan

# A message of the loopback topic holds thousands of updates: this is a large batch.
MOST_HOPS = 400

# By topic, by partition.
Positions = dict[str, dict[int, int]]


class SourceOffset(msgspec.Struct, frozen=True):
    """A batch as the offset log holds it: up to where, until when, for which plan.

    `begins` are the first offsets of partitions that this batch sees for the first
    time; `behind` is how many offsets were left for later batches when it was minted.
    `hops` says up to where the loopback topic is read, by shard.
    """

    batch: int
    lower: int
    upper: int
    positions: Positions
    plan: str
    frontiers: dict[str, int] = {}
    begins: Positions = {}
    topic_ids: dict[str, str] = {}
    behind: int = 0
    hops: dict[int, int] = {}

    def to_json(self) -> dict[str, Any]:
        """As the JSON object that Spark logs."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> "SourceOffset":
        """From the JSON object that Spark logged."""
        return msgspec.convert(logged, cls, strict=False)

    def digest(self) -> str:
        """Names this offset in markers, so that a replay is known to be of the same batch."""
        return hashlib.sha256(msgspec.json.encode(self.to_json(), order="sorted")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets `start <= offset < end` of one partition, and where they belong."""

    input: str
    place: Place
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, which aborted records and markers take too."""
        return self.end - self.place.start


def mint(
    plan: Plan,
    last: SourceOffset,
    ends: Positions,
    *,
    begins: Positions,
    limit: int | None,
    now_ms: int | None,
    hops: Mapping[int, int] | None = None,
    most_hops: int = MOST_HOPS,
) -> SourceOffset:
    """The next batch after `last`, of at most about `limit` records up to `ends`.

    `begins` gives the first offset of each partition that `last` does not know, `hops` up
    to where the loopback topic is written, by shard.  With nothing to read the batch is a
    heartbeat in the ingest domain, unless `now_ms` is None: then time stands still, and
    only what is behind moves.  In the offset domain time stands still without records.  If
    nothing moves at all, `last` itself comes back.

    If the loopback topic has more than `most_hops` messages, the batch takes a portion of
    them and nothing else, and no operator that they go to moves.
    """
    waiting = {shard: end - last.hops.get(shard, 0) for shard, end in (hops or {}).items()}
    backlog = sum(waiting.values())
    all_hops = backlog <= most_hops
    if not all_hops:
        waiting = {shard: -(-count * most_hops // backlog) for shard, count in waiting.items()}
        ends, now_ms = {}, None
    starts = {
        topic: {
            p: last.positions.get(topic, {}).get(p, begins.get(topic, {}).get(p, 0)) for p in by
        }
        for topic, by in ends.items()
    }
    lag = sum(ends[t][p] - start for t, by in starts.items() for p, start in by.items())
    taken = ends
    if limit is not None and lag > limit:
        # Every partition gives the same share of its lag, at least one offset.
        taken = {
            topic: {
                p: start + -(-(ends[topic][p] - start) * limit // lag) for p, start in by.items()
            }
            for topic, by in starts.items()
        }
    count = sum(taken[t][p] - start for t, by in starts.items() for p, start in by.items())
    upper = last.upper
    if plan.time == "offset":
        upper += count
    elif now_ms is not None:
        upper = max(now_ms, last.upper) + 1
    frontiers = progress.advance_frontiers(
        progress.edges(plan), last.frontiers, upper, all_hops=all_hops
    )
    moved = any(at != last.frontiers.get(name, 0) for name, at in frontiers.items())
    if all_hops and upper == last.upper and not moved:
        return last
    new = {
        topic: {p: at for p, at in by.items() if p not in last.positions.get(topic, {})}
        for topic, by in starts.items()
    }
    return SourceOffset(
        batch=last.batch + 1,
        lower=last.upper,
        upper=upper,
        # By partition: one that `ends` happens not to name stays where it was.
        positions={
            topic: {**last.positions.get(topic, {}), **taken.get(topic, {})}
            for topic in [*last.positions, *(t for t in taken if t not in last.positions)]
        },
        plan=plan.fingerprint(),
        frontiers=frontiers,
        begins={topic: by for topic, by in new.items() if by},
        topic_ids=last.topic_ids,
        behind=lag - count,
        hops={**last.hops, **{s: last.hops.get(s, 0) + count for s, count in waiting.items()}},
    )


def slices(plan: Plan, start: SourceOffset, end: SourceOffset) -> Iterator[Slice]:
    """What a batch reads, in the order in which it counts at equal times.

    Partitions of all of an input's topics are numbered through in the order in which
    the topics are listed, inputs in that of the plan.
    """
    base = end.lower
    for source in plan.inputs:
        partitions = sum(len(end.positions.get(topic, {})) for topic in source.topics)
        for topic in source.topics:
            for partition, until in sorted(end.positions.get(topic, {}).items()):
                begin = end.begins.get(topic, {}).get(partition, 0)
                since = start.positions.get(topic, {}).get(partition, begin)
                if until > since:
                    each = plan.time == "offset"
                    yield Slice(
                        source.name,
                        Place(
                            topic,
                            partition,
                            _order(plan, source, topic),
                            since,
                            base if each else end.upper - 1,
                            each,
                            partitions,
                        ),
                        until,
                    )
                    base += until - since


def _order(plan: Plan, source: Input, topic: str) -> int:
    """The rank of a topic among all that the plan reads."""
    order = 0
    for known in plan.inputs:
        if known.name == source.name:
            return order + known.topics.index(topic)
        order += len(known.topics)
    raise AssertionError(f"input {source.name} is not in the plan")
