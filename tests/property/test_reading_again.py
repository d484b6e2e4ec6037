"""Event times, edits that read inputs again, and deaths anywhere: each record counts once for all.

The oracle is a plain computation over the times at which records counted when they were first
read: their own, or the frontier that there was for those that were late.
"""

import json
from collections import Counter
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Plan
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.testing import Run
from support import edited_runs
from support.strategies import unhurried
from support.sums import summed

TOPICS = ("orders", "more")
# What the state has of a row, narrower and wider, and of all rows or some.
SELECTS = (
    "select: {n: n}",
    "select: {n: n, note: note}",
    "select: {note: note}",
    "select: {n: n}, where: n > 1",
    "select: {n: n, note: note}, where: n <> 2",
)


def plan_of(select: str) -> Plan:
    return edited_runs.plan_of(f"""
inputs:
  rows:
    topic: [{", ".join(TOPICS)}]
    columns: {{ms: BIGINT, n: BIGINT, note: VARCHAR}}
    event_time: {{of: ms, lateness: 2ms, ahead: never}}
operators:
  row: {{upsert: rows}}
  slim: {{linear: row, {select}}}
outputs:
  slim: {{from: slim, topic: slim}}
""")


class Sent(NamedTuple):
    """A record and its place; `ms` is None where it has no time, and so is an error."""

    key: str
    ms: int | None
    n: int
    place: tuple[int, int, int]


Drawn = tuple[str, int, int, int, int]
records: st.SearchStrategy[list[Drawn]] = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 3),
        st.sampled_from([0, 0, 1, 3, 9, 20, 20, -1]),
        st.integers(0, 1),
        st.just(0),
    ),
    max_size=8,
)


class Reading:
    """A run whose plan is edited, and what it has read when."""

    def __init__(self, select: str, choice: Random) -> None:
        self.select, self.choice, self.now = select, choice, 10
        self.run = Run(plan_of(select), shards=choice.choice([1, 2]))
        for topic in TOPICS:
            self.run.topics.create(topic)
        self.sent: list[Sent] = []
        self.counted: dict[tuple[int, int, int], int] = {}
        self.since, self.edits = 0, 0

    def send(self, drawn: list[Drawn]) -> None:
        for key, later, delay, topic, partition in drawn:
            self.now += later
            ms = None if delay < 0 else self.now - delay
            self._send(key, ms, topic, partition)

    def _send(self, key: str, ms: int | None, topic: int, partition: int) -> None:
        offset, n = self.run.topics.ends(TOPICS[topic])[partition], len(self.sent) % 5
        self.sent.append(Sent(key, ms, n, (topic, partition, offset)))
        row = {"ms": ms, "n": n, "note": f"note {n} {ms}"}
        self.run.topics.send(TOPICS[topic], key, row, partition=partition)

    def close(self) -> None:
        """Close all times that have been sent."""
        self.now += 10
        for topic in range(len(TOPICS)):
            self._send("z", self.now, topic, 0)

    def go_on(self, drawn: list[Drawn]) -> None:
        """Send, and run some batches; what comes after times were closed may be late."""
        self.send(drawn)
        self.go(self.choice.choice([1, 2, 3]))
        if self.choice.random() < 0.5:
            self.close()
            self.go(self.choice.choice([1, 3, 5]))

    def go(self, most: int) -> None:
        for _ in range(most):
            limit = self.choice.choice([1, 2, 5, None])
            if self.choice.random() < 0.2:
                shards = range(len(self.run.stores))
                if not self.run.crash(
                    committed=[s for s in shards if self.choice.random() < 0.5], limit=limit
                ):
                    return
                # An edit may drop it from the log, unless a shard has committed it.
                assert self.run._unfinished is not None
                if self.run._unfinished.committed:
                    self.note(self.run._unfinished.after)
                if self.choice.random() < 0.5:
                    self.run.restart(plan_of(self.select))
            if not self.run.batch(limit=limit):
                return
            self.note(self.run.last)

    def note(self, logged: SourceOffset) -> None:
        """Note the frontier before which what a batch reads cannot count."""
        for each in self.sent:
            topic, partition, offset = each.place
            if offset < logged.positions.get(TOPICS[topic], {}).get(partition, 0):
                self.counted.setdefault(each.place, logged.lower)
        if logged.transition.edits > self.edits:
            self.edits, self.since = logged.transition.edits, logged.lower

    def expected(self, as_of: int) -> Counter[str]:
        """The rows as of a time."""
        last: dict[str, tuple[tuple[int, tuple[int, int, int]], Sent]] = {}
        for each in self.sent:
            if each.ms is not None and each.place in self.counted:
                rank = max(each.ms, self.counted[each.place]), each.place
                if rank[0] <= as_of and (each.key not in last or last[each.key][0] < rank):
                    last[each.key] = rank, each
        return Counter(text for _, each in last.values() if (text := self.shown(each)) is not None)

    def shown(self, each: Sent) -> str | None:
        n = each.n
        if ("n > 1" in self.select and n <= 1) or ("n <> 2" in self.select and n == 2):
            return None
        row: dict[str, object] = {"n": n} if "n: n" in self.select else {}
        if "note: note" in self.select:
            row["note"] = f"note {n} {each.ms}"
        return json.dumps([each.key, row], sort_keys=True)

    def judge(self) -> int:
        upper = self.run.frontier("slim")
        for as_of in range(self.since, upper):
            found = summed(
                (json.dumps(data, sort_keys=True), diff)
                for data, time, diff in self.run.updates("slim")
                if time <= as_of
            )
            assert found == self.expected(as_of), as_of
        return upper


@unhurried
@given(st.data(), st.randoms(use_true_random=False))
def test_a_record_counts_at_the_time_at_which_it_has_counted(
    data: st.DataObject, choice: Random
) -> None:
    """Keys are in both topics, so that the order of times decides."""
    reading = Reading(data.draw(st.sampled_from(SELECTS), label="first"), choice)
    for number in range(data.draw(st.integers(1, 3), label="edits")):
        for _ in range(data.draw(st.integers(1, 3), label="batches before")):
            reading.go_on(data.draw(records))
        if number and data.draw(st.booleans(), label="ends"):
            reading.go(1_000)
        reading.select = data.draw(st.sampled_from(SELECTS), label=f"plan {number}")
        reading.run.restart(plan_of(reading.select))
        for _ in range(data.draw(st.integers(0, 3), label="batches meanwhile")):
            reading.go_on(data.draw(records))
    reading.close()
    reading.go(1_000)
    reading.close()
    reading.go(1_000)

    assert reading.judge() > reading.since or reading.since == 0
