"""A pipeline played without Spark and Kafka: batches minted, read, computed and published.

Everything that decides what comes out is ikebana's own; topics are lists, and whoever
plays says how far each can be read when a batch is minted.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Set

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import MemoryStore
from ikebana.codecs import diff
from ikebana.codecs.progress import ProgressRecord, pack_times
from ikebana.codecs.upsert_out import Message as Written
from ikebana.processor.batch import dataflow, hops
from ikebana.processor.checkpoint import parts
from ikebana.processor.checkpoint.rescale import united
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.reading.intake import Message
from ikebana.processor.reading.slice_reading import reading_of
from ikebana.processor.reading.update_intake import intake_of
from ikebana.processor.rows.envelope import Records, Tick, pack, unpack
from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import KeyedUpdate
from ikebana.processor.timing import input_times, reclock
from ikebana.processor.timing.diff_input import Closed
from ikebana.processor.timing.event_time import Where
from ikebana.processor.timing.input_times import InputTimes, Learned
from ikebana.processor.timing.reclock import Look, SourceOffset


class Topics:
    """Messages by topic and partition, and the progress of topics that pipelines write."""

    def __init__(self) -> None:
        # None stands for an offset that has no message: the end of a transaction takes one.
        self.messages: defaultdict[str, defaultdict[int, list[Message | None]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.closed: defaultdict[str, list[Closed]] = defaultdict(list)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int = 0,
        headers: diff.Headers | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Append a message."""
        held = self.messages[topic][partition]
        held.append(Message(len(held), key, value, headers, timestamp))

    def end_transaction(self, topic: str, partition: int = 0) -> None:
        """Append what the end of a transaction leaves, be it committed or aborted."""
        self.messages[topic][partition].append(None)

    def ends(self, topic: str) -> dict[int, int]:
        """Where the partitions of a topic end."""
        return {partition: len(held) for partition, held in self.messages[topic].items()}


class Shell:
    """A pipeline of some shards, whose loopback topic is read `most` messages at a time."""

    def __init__(self, plan: Plan, topics: Topics, shards: int = 1, most: int = 1000) -> None:
        self.plan = plan
        self.topics = topics
        names = [t for source in plan.inputs for t in source.topics]
        positions = {
            t: dict.fromkeys(topics.ends(t), 0) for t in (*names, *plan.transaction_topics)
        }
        self.last = SourceOffset(-1, 0, 0, positions, plan.fingerprint())
        self.found: dict[str, list[KeyedUpdate]] = {o.name: [] for o in plan.published}
        self.messages: defaultdict[str, list[Written]] = defaultdict(list)
        self.times: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """What outputs in other formats than `diff` come to, and their updates by time."""
        self.uppers: dict[str, int] = {}
        self.counted: defaultdict[str, int] = defaultdict(int)
        self.waiting = 0
        self.stores = [MemoryStore() for _ in range(shards)]
        self._loopback: list[list[bytes]] = [[] for _ in range(shards)]
        self._news = Learned([], [])
        self._most = most
        self._hydrated: frozenset[str] = frozenset()
        self.released: frozenset[str] = frozenset()
        physical = planner.physical(plan)
        self._intakes = {s.name: intake_of(s, physical, None) for s in plan.inputs}

    def replan(self, plan: Plan) -> None:
        """Go on with another plan, as at a restart."""
        old = parts.parts_of(self.plan)
        self.released = (self.released | old) - parts.parts_of(plan)
        self.plan = plan
        self.found |= {o.name: [] for o in plan.published if o.name not in self.found}
        physical = planner.physical(plan)
        self._intakes = {s.name: intake_of(s, physical, None) for s in plan.inputs}

    def batch(
        self,
        now_ms: int = 0,
        *,
        heartbeat: bool = False,
        first: bool = False,
        limit: int | None = None,
        ends: Mapping[str, Mapping[int, int]] | None = None,
        idle: Set[Where] = frozenset(),
    ) -> bool:
        """Run the next batch, if there is one; it reads no further than `ends`.

        With `first` it is the one that Spark runs in any case.
        """
        before = self.last
        given = {t: dict((ends or {}).get(t, self.topics.ends(t))) for t in before.positions}
        known = input_times.learned(
            self.plan,
            before.known,
            self._news,
            before.positions,
            {name: self.topics.ends(name) for name in before.positions},
            idle,
        )
        closed = {
            source.name: [
                each
                for each in self.topics.closed[source.topics[0]]
                if each.after > known.get(source.name, InputTimes()).progress_at
            ]
            for source in self.plan.inputs
            if source.value_format == "diff"
        }
        at = {shard: len(rows) for shard, rows in enumerate(self._loopback)}
        after = reclock.mint(
            self.plan,
            before,
            Look(given, {}, at, known, closed, self._hydrated),
            limit=limit,
            now_ms=now_ms,
            heartbeat=heartbeat,
            first=first,
            most_hops=self._most,
        )
        if after.batch == before.batch:
            return False
        # As it goes through Spark's log.
        self.last = after = SourceOffset.from_json(after.to_json())
        self._run(before, after)
        return True

    def read(self, *, limit: int | None = None) -> None:
        """Run batches until there is nothing to do."""
        while self.batch(self.last.upper, limit=limit):
            pass

    def rescale(self, shards: int) -> None:
        """Give every entry to the shard of its key; there are more shards then."""
        assert len(set(self.last.frontiers.values())) == 1, "updates are between two shards"
        stores = [MemoryStore() for _ in range(shards)]
        held = [sorted(store.scan(b"")) for store in self.stores]
        for place, entry in united(heapq.merge(*held)):
            by_shard = parts.apart(place, entry, lambda key: shard_of(key, shards))
            for shard, own in by_shard.items():
                stores[shard].put(place, own)
        self._loopback += [[] for _ in range(shards - len(self.stores))]
        self.stores = stores

    def _run(self, before: SourceOffset, after: SourceOffset) -> None:
        intervals = progress.intervals(before.frontiers, after.frontiers)
        rows = self._rows(before, after)
        news = Learned([], [])
        emitted = dict.fromkeys(self.found, 0)
        hydrated: list[frozenset[str]] = []
        self.waiting = 0
        for shard, store in enumerate(self.stores):
            made = dataflow.advance(
                self.plan,
                store,
                rows[shard],
                intervals,
                hydrating=after.hydrating,
                hydrates=after.hydrates,
                released=sorted(self.released),
            )
            hydrated.append(frozenset(made.hydrated))
            self.waiting += made.waiting
            for name, updates in made.updates.items():
                self.found[name] += updates
                emitted[name] += len(updates)
            for name, written in made.messages.items():
                self.messages[name] += written.messages
                self.times[name].update(written.times)
            for at, row in hops.chunks(made.hops, len(self.stores)):
                self._loopback[at].append(pack(row))
            for what, count in made.counted.items():
                self.counted[what] += count
            news.seen.extend(made.seen)
            news.facts.append({name: pack_times(counts) for name, counts in made.facts.items()})
            self._write(made.updates)
        self._news = news
        self._hydrated = frozenset.intersection(*hydrated)
        for name, interval in progress.output_intervals(self.plan, intervals).items():
            self._close(name, interval, after.batch, emitted[name])

    def _rows(self, before: SourceOffset, after: SourceOffset) -> list[list[Records]]:
        rows: list[list[Records]] = [[] for _ in self.stores]
        for piece in reclock.slices(self.plan, before, after):
            place = piece.place
            reading = reading_of(
                self.plan, piece, lambda source: self._intakes[source.name], len(rows)
            )
            held = self.topics.messages[place.topic][place.partition][place.start : piece.end]
            given = [message for message in held if message is not None]
            for shard, chunk in [*reading.add(given), *reading.finish()]:
                rows[shard].append(_record(chunk))
        for shard, end in after.hops.items():
            for chunk in self._loopback[shard][before.hops.get(shard, 0) : end]:
                rows[shard].append(_record(chunk))
        return rows

    def _write(self, updates: Mapping[str, list[KeyedUpdate]]) -> None:
        for output in self.plan.outputs:
            for key, value, time, change in updates[output.name]:
                headers = diff.headers(time, change)
                self.topics.send(output.topic, key, value, headers=headers)

    def _close(self, name: str, interval: Interval, batch: int, count: int) -> None:
        """What came out in a batch lies in its interval, and intervals leave no gap."""
        assert interval.lower == self.uppers.get(name, interval.lower)
        self.uppers[name] = interval.upper
        new = self.found[name][len(self.found[name]) - count :]
        assert all(update.time in interval for update in new), (name, interval, new)
        topic = next(o.topic for o in self.plan.published if o.name == name)
        closed = self.topics.closed[topic]
        lower, upper = interval.lower, interval.upper
        ends = self.topics.ends(topic)
        record = ProgressRecord("c", "p", topic, batch, lower, upper, count, ends, "changes")
        closed.append(Closed(record, len(closed) + 1))


def _record(chunk: bytes) -> Records:
    row = unpack(chunk)
    assert not isinstance(row, Tick)
    return row
