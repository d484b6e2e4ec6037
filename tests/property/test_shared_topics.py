"""Several inputs that read one topic see what each would see of a copy of it, or alone."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Concat, EventTime, Input, Output, Plan, Reduce, Upsert
from ikebana.testing import Run
from support.strategies import few
from support.sums import summed

Message = tuple[Any, Any]

COLUMNS = (Column("id", "BIGINT"), Column("v", "BIGINT"), Column("t", "BIGINT"))
JSON = (
    Input("plain", ("t",)),
    Input("typed", ("t",), columns=COLUMNS),
    Input("rows", ("t",), mode="append", columns=COLUMNS[1:]),
)
CANAL = (
    Input("a", ("t",), "canal", tables=r"shop\.a", key=("id",), columns=COLUMNS),
    Input("b", ("t",), "canal", tables=r"shop\.b", mode="diffs"),
    Input("all", ("t",), "canal", columns=COLUMNS),
)

small = st.integers(0, 3)
values = st.fixed_dictionaries(
    {"v": st.one_of(small, st.just("text"))}, optional={"t": st.integers(0, 40)}
)
plain_messages = st.tuples(small, st.one_of(values, st.none(), st.just(b"{")))


@st.composite
def canal_messages(draw: st.DrawFn) -> Message:
    """A change of one of three tables, one of which nobody chooses, or what cannot be read."""
    if draw(st.integers(0, 9)) == 0:
        return None, draw(st.sampled_from([b"{", b'{"type":"DINDEX"}', b'{"type":"?"}']))
    kind = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE", "TRUNCATE"]))
    row = {"id": str(draw(small)), "v": str(draw(small)), "t": str(draw(st.integers(0, 40)))}
    message: dict[str, Any] = {
        "type": kind,
        "database": "shop",
        "table": draw(st.sampled_from("aabbc")),
        "pkNames": ["id"],
        "sqlType": {"id": -5, "v": -5, "t": -5},
        "data": None if kind == "TRUNCATE" else [row],
    }
    if kind == "UPDATE":
        message["old"] = [{draw(st.sampled_from(["id", "v"])): str(draw(small))}]
    return None, json.dumps(message).encode()


steps = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "crash", "restart", "rescale"]),
        st.one_of(st.none(), st.integers(1, 6)),
        st.integers(1, 3),
        st.frozensets(st.integers(0, 1)),
    ),
    min_size=1,
    max_size=8,
)
families = st.one_of(
    st.tuples(st.just(JSON), st.lists(st.lists(plain_messages, max_size=5), max_size=8)),
    st.tuples(st.just(CANAL), st.lists(st.lists(canal_messages(), max_size=5), max_size=8)),
)


def plan_of(inputs: Sequence[Input], *, reduces: bool = True, time: Any = "ingest") -> Plan:
    """Each input as a collection of its own, and what all of them come to by another key."""
    upserts = tuple(Upsert(f"{i.name}_now", i.name) for i in inputs if i.mode == "upsert")
    shown = [i.name if i.is_collection else f"{i.name}_now" for i in inputs]
    outputs = tuple(Output(name, name, f"{name}.out") for name in shown)
    if not reduces:
        return Plan("p", tuple(inputs), upserts, outputs, time=time)
    together = Concat("together", tuple(shown))
    counts = Reduce("counts", "together", (("n", "count(*)"),), by="value->>'v'")
    return Plan(
        "p",
        tuple(inputs),
        (*upserts, together, counts),
        (*outputs, Output("counts", "counts", "counts.out")),
        time=time,
    )


def dated(source: Input, lateness_ms: int) -> Input:
    """The input with times of its own; rows without one are errors."""
    of = "t" if source.columns else "(value->>'t')::BIGINT"
    event = EventTime(of=of, lateness_ms=lateness_ms, ahead_ms=None)
    return replace(source, event_time=event)


def sums(run: Run, output: str) -> Counter[Any]:
    """The diffs of an output by data and time, of errors without what names topic or input."""
    found: Counter[Any] = Counter()
    for key, value, time, diff in run.written.updates[output]:
        data: Any = key, value
        if output == "errors":
            record = msgspec.json.decode(value)
            topic, reason = (record["topic"] or "")[:1], record["reason"]
            for source in run.plan.inputs:
                reason = reason.removeprefix(f"input {source.name}: ")
            rest = {name: record[name] for name in ("partition", "offset", "key", "value")}
            data = json.dumps([topic, reason, rest], sort_keys=True)
        found[data, time] += diff
    return Counter({at: count for at, count in found.items() if count})


class Played:
    """A run over `count` topics that have the same messages."""

    def __init__(self, plan: Plan, shards: int, partitions: int) -> None:
        self.run = Run(plan, shards=shards)
        self.names = tuple(dict.fromkeys(plan.topics))
        self._sent = 0
        self._partitions = partitions
        for name in self.names:
            self.run.topics.create(name, partitions)

    def send(self, messages: Sequence[Message]) -> None:
        """Append messages to all topics."""
        for key, value in messages:
            self._sent += 1
            for name in self.names:
                partition = self._sent % self._partitions
                raw = value if isinstance(value, bytes | None) else json.dumps(value).encode()
                key_bytes = None if key is None else json.dumps(key).encode()
                self.run.topics.send(
                    name, key_bytes, raw, partition=partition, timestamp=self._sent
                )

    def step(self, kind: str, limit: int | None, shards: int, some: frozenset[int]) -> None:
        """Go on by a batch, a death within one, a restart or another number of shards."""
        most = None if limit is None else limit * len(self.names)
        if kind == "crash":
            here = [shard for shard in some if shard < len(self.run.stores)]
            self.run.crash(committed=here, limit=most)
        elif kind == "restart":
            self.run.restart()
        elif kind == "rescale":
            self.read()
            self.run.restart(shards=shards)
        else:
            idle = {(name, partition) for name in self.names for partition in some}
            self.run.batch(limit=most, idle=idle)

    def read(self) -> None:
        """Run micro-batches until there is nothing to do."""
        self.run.read()


@few
@given(
    families,
    st.frozensets(st.integers(0, 2), min_size=2),
    st.booleans(),
    steps,
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_inputs_of_one_topic_are_inputs_of_copies_of_it(
    family: tuple[tuple[Input, ...], list[list[Message]]],
    which: frozenset[int],
    has_times: bool,  # noqa: FBT001
    steps: list[tuple[str, int | None, int, frozenset[int]]],
    shards: int,
    partitions: int,
) -> None:
    """With the same cuts, restarts and shards: updates, errors, frontiers and counts.

    A batch of one topic reads as many records as one of n copies that may read n times more.
    """
    pool, messages = family
    inputs = [pool[at] for at in sorted(which)]
    if has_times:
        inputs = [dated(source, 3 * at) for at, source in enumerate(inputs)]
    copies = [replace(each, topics=(f"t{at}",)) for at, each in enumerate(inputs)]
    both = [Played(plan_of(each), shards, partitions) for each in (inputs, copies)]
    one, several = (each.run for each in both)
    for at, step in enumerate(steps):
        for each in both:
            each.send(messages[at] if at < len(messages) else ())
            each.step(*step)
        assert one.last.upper == several.last.upper
        assert one.frontiers == several.frontiers
    for each in both:
        each.send([message for sent in messages[len(steps) :] for message in sent])
        each.read()

    assert one.last.upper == several.last.upper
    assert one.frontiers == several.frontiers
    assert one.counted == several.counted
    assert one.waiting == several.waiting
    for output in one.plan.published:
        assert sums(one, output.name) == sums(several, output.name), output.name


@few
@given(
    families,
    st.permutations([0, 1, 2]),
    st.sampled_from(["ingest", "offset"]),
    steps,
    st.integers(1, 2),
)
def test_each_input_of_a_topic_sees_what_it_would_alone(
    family: tuple[tuple[Input, ...], list[list[Message]]],
    order: list[int],
    time: str,
    steps: list[tuple[str, int | None, int, frozenset[int]]],
    partitions: int,
) -> None:
    """Also in time by records, of which each counts once however many inputs have it."""
    pool, messages = family
    inputs = [pool[at] for at in order]
    together = Played(plan_of(inputs, reduces=False, time=time), 2, partitions)
    alone = [Played(plan_of([each], reduces=False, time=time), 2, partitions) for each in inputs]
    for at, step in enumerate(steps):
        for each in (together, *alone):
            each.send(messages[at] if at < len(messages) else ())
            each.step(*step)
    for each in (together, *alone):
        each.read()

    for each in alone:
        assert each.run.last.positions == together.run.last.positions
        assert each.run.last.upper == together.run.last.upper
        for output in each.run.plan.outputs:
            assert sums(each.run, output.name) == sums(together.run, output.name)
            assert each.run.frontier(output.name) == together.run.frontier(output.name)
    errors: Counter[Any] = Counter()
    for each in alone:
        errors.update(sums(each.run, "errors"))
    assert sums(together.run, "errors") == summed(errors.items())
