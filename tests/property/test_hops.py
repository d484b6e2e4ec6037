"""Exchanges: operators in several shards, each at its own frontier, as one plain computation.

The shell is played without Spark and Kafka: batches are minted, decoded and cut into
shards as in a running pipeline, and the exchange topic is a list a shard.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Concat, Input, Linear, Output, Plan, Reduce, Upsert, steps
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import exchange_chunks
from ikebana.processor.planning import progress
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.testing import Run, Topics
from support.strategies import unhurried
from support.sums import summed

Pair = tuple[str, str | None]

PLAN = Plan(
    "p",
    inputs=(Input("names", ("names",)),),
    operators=(
        Upsert("current", "names"),
        Reduce("by_value", "current", (("n", "count(*)"),), by="value"),
        Reduce("by_count", "by_value", (("values", "count(*)"),), by="n"),
        Linear("shaped", "current", (steps.select({"n": "0"}),)),
        Concat("both", ("shaped", "by_value")),
        Reduce("of_both", "both", (("rows", "count(*)"),), by="n"),
    ),
    outputs=(
        Output("current", "current", "current"),
        Output("by_value", "by_value", "by_value", "upsert"),
        Output("by_count", "by_count", "by_count"),
        Output("both", "both", "both"),
        Output("of_both", "of_both", "of_both"),
    ),
)


def feed(topics: Topics, upserts: Iterable[Pair]) -> None:
    """Append messages to the input topic."""
    for key, value in upserts:
        raw = None if value is None else canonical.encode(value)
        topics.send("names", canonical.encode(key), raw)


def fresh(shards: int, most: int) -> Run:
    """The pipeline before its first batch."""
    topics = Topics()
    assert topics.messages["names"][0] == []
    return Run(PLAN, topics, shards, most)


def source_batch(run: Run) -> None:
    """Run batches until the source has moved, and read all that there is."""
    while run.batch(run.last.upper, heartbeat=True) and run.last.lower == run.last.upper:
        pass


def empty_batch(run: Run) -> bool:
    """Run a batch that reads nothing and in which time stands still."""
    return run.batch(ends={"names": run.last.positions["names"]})


def counted(rows: Iterable[Any]) -> Counter[bytes]:
    return Counter(map(canonical.encode, rows))


def expected(state: dict[str, str]) -> dict[str, Counter[bytes]]:
    """What the outputs come to, plainly computed from the current values."""
    by_value = Counter(state.values())
    both = [(key, {"n": 0}) for key in state] + [(v, {"n": n}) for v, n in by_value.items()]
    return {
        "current": counted(state.items()),
        "by_value": counted((value, {"n": n}) for value, n in by_value.items()),
        "by_count": counted((n, {"values": c}) for n, c in Counter(by_value.values()).items()),
        "both": counted(both),
        "of_both": counted(
            (n, {"rows": c}) for n, c in Counter(row["n"] for _, row in both).items()
        ),
    }


def accumulated(updates: Sequence[KeyedUpdate], time: int) -> Counter[bytes]:
    """What updates up to a time come to."""
    return summed(
        (canonical.encode((canonical.decode(key or b""), canonical.decode(value))), diff)
        for key, value, at, diff in updates
        if at <= time
    )


upserts = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["x", "y", "z", None]))
batches = st.lists(st.lists(upserts, max_size=6), min_size=1, max_size=6)


@unhurried
@given(batches, st.lists(st.booleans(), max_size=12), st.integers(1, 3), st.integers(1, 4))
def test_every_output_is_what_a_plain_computation_says(
    given_batches: list[list[Pair]], empty: list[bool], shards: int, most: int
) -> None:
    """At each time of the source, however many empty batches and portions lie between."""
    run = fresh(shards, most)
    states: dict[int, dict[str, str]] = {}
    state: dict[str, str] = {}
    pauses = iter(empty)
    for batch in given_batches:
        feed(run.topics, batch)
        source_batch(run)
        for key, value in batch:
            state.pop(key, None)
            if value is not None:
                state[key] = value
        states[run.last.upper - 1] = dict(state)
        while next(pauses, False):
            empty_batch(run)
    while empty_batch(run):
        pass

    assert set(run.frontiers.values()) == {run.last.upper}
    assert run.written.updates.pop("errors") == []
    for time, at in states.items():
        wanted = expected(at)
        for name, updates in run.written.updates.items():
            assert accumulated(updates, time) == wanted[name], (name, time)


def test_an_operator_stays_while_portions_of_its_exchanges_are_left() -> None:
    """R2, R13. It would close a time of which more is to come."""
    run = fresh(1, 1)
    feed(run.topics, [("a", "x")])
    run.batch(10)
    feed(run.topics, [("b", "y")])
    run.batch(20)  # A portion: the source waits, and so do all behind it.

    assert run.last.frontiers["current"] == 11
    assert run.last.frontiers["by_value"] == 0
    assert run.last.positions == {"names": {0: 1}}


@pytest.mark.parametrize("shards", [1, 3])
def test_exchanges_are_cut_into_messages(shards: int) -> None:
    """So many updates a message; each is for the shard of its key, and none is lost."""
    updates = [KeyedUpdate(b"%d" % n, b"{}", 1, 1) for n in range(12_000)]

    found = list(exchange_chunks({"op": updates}, shards))

    assert max(len(row.keys) for _, row in found) <= 5_000
    assert sorted(str(key) for _, row in found for key in row.keys) == sorted(
        str(update.key) for update in updates
    )
    assert {at for at, _ in found} == set(range(shards))


def test_depths_are_the_exchanges_on_the_way() -> None:
    """As many micro-batches later an update shows."""
    depths = progress.depths(progress.edges(PLAN))

    assert depths == {"current": 0, "by_value": 1, "by_count": 2, "of_both": 2}


def test_an_offset_goes_through_the_log_and_back() -> None:
    """With the positions in the exchange topic."""
    offset = SourceOffset(3, 1, 2, {"a": {0: 4}}, "p", exchanges={0: 7, 1: 9})

    assert SourceOffset.from_json(msgspec.json.decode(msgspec.json.encode(offset.to_json()))) == (
        offset
    )
