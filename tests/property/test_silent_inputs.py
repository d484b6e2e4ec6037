"""Inputs that fall silent hold nobody up; what they say after all counts at the frontier."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Concat, EventTime, Input, Output, Plan, Reduce, Upsert, evaluate
from ikebana.codecs import canonical, cdcv2, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.topics.batch_selection import LAST_TIME, ClosedProgress
from ikebana.processor.topics.event_time import Where
from ikebana.testing import Run, Topics
from support.dated_upserts import Play, dated
from support.strategies import unhurried
from support.sums import summed

LATENESS = 5


def lasting(name: str) -> Input:
    """A topic of rows that say when they are, at most `LATENESS` out of order."""
    columns = (Column("t", "BIGINT"), Column("v", "BIGINT"))
    event = EventTime(of="t", lateness_ms=LATENESS, ahead_ms=None)
    return Input(name, (name,), columns=columns, event_time=event)


BOTH = Plan(
    "both",
    inputs=(lasting("orders"), lasting("customers")),
    operators=(
        Upsert("order", "orders"),
        Upsert("customer", "customers"),
        Concat("all", ("order", "customer")),
        Reduce("by_value", "all", (("n", "count(*)"),), by="v"),
    ),
    outputs=(Output("all", "all", "all"), Output("by_value", "by_value", "by-value")),
)
PARTITIONS = [("orders", 0), ("orders", 1), ("customers", 0)]


def row(time: int, value: int) -> bytes:
    return b'{"t":%d,"v":%d}' % (time, value)


def sums(updates: list[KeyedUpdate], before: int) -> Counter[tuple[bytes | None, bytes, int]]:
    """The diffs by data and time, of times before one."""
    return summed(((u.key, u.value, u.time), u.diff) for u in updates if u.time < before)


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(PARTITIONS), st.integers(0, 40), st.integers(0, 2)),
            max_size=3,
        ),
        st.frozensets(st.sampled_from(PARTITIONS)),
        # As after a restart: what was silent is waited for again.
        st.booleans(),
    ),
    max_size=10,
)


@unhurried
@given(steps, st.integers(1, 3), st.randoms(use_true_random=False))
def test_with_idle_inputs_all_that_is_closed_is_what_was_said(
    told: list[tuple[list[tuple[Where, int, int]], frozenset[Where], bool]],
    shards: int,
    choice: Random,
) -> None:
    """Each record counts at its time, or at the frontier if that has passed it; each once."""
    topics = Topics()
    for topic, partition in PARTITIONS:
        assert topics.messages[topic][partition] == []
    run = Run(BOTH, topics, shards)
    # As the records count: a record is read by the batch after it was sent.
    given: dict[str, list[tuple[str, dict[str, int], int]]] = {"orders": [], "customers": []}
    late, greatest, number = 0, -1, 0
    for records, idle, again in told:
        lower = run.last.upper
        for (topic, partition), time, value in records:
            number += 1
            key = f"{topic}{choice.randrange(3)}-{partition}"
            at = {"t": time, "v": value}
            topics.send(topic, canonical.encode(key), row(time, value), partition=partition)
            given[topic].append((key, at, max(time, lower)))
            late += time < lower
            greatest = max(greatest, time)
        if records:
            assert run.batch()
        # What has just spoken is not idle; what has not, may be.
        spoke = frozenset(where for where, _, _ in records)
        silent = frozenset() if again else idle - spoke
        while run.batch(idle=silent):
            pass
        assert run.last.upper >= lower
        if silent == frozenset(PARTITIONS) and greatest >= 0:
            assert run.last.upper > greatest
    assert run.counted["late"] == late

    upper = run.last.upper
    plain_inputs = tuple(replace(source, event_time=None) for source in BOTH.inputs)
    expected = evaluate(replace(BOTH, inputs=plain_inputs), given, upper=upper)
    for name in ("all", "by_value"):
        plain = Counter(
            {
                (canonical.encode(u.data[0]), canonical.encode(u.data[1]), u.time): u.diff
                for u in expected[name]
            }
        )
        assert sums(run.written.updates[name], upper) == plain
    assert set(run.frontiers.values()) <= {upper}


def frontier_after(play: Play, *idle: str) -> int:
    """How far it is when these inputs, of one partition each, have long been silent."""
    while play.run.batch(idle={(name, 0) for name in idle}):
        pass
    return play.run.last.upper


def shop(shards: int = 3) -> Play:
    """Orders and customers, both in one output."""
    return Play(
        Plan(
            "shop",
            tuple(dated(name) for name in ("orders", "customers")),
            (
                Upsert("order", "orders"),
                Upsert("customer", "customers"),
                Concat("all", ("order", "customer")),
            ),
            (Output("all", "all", "all"),),
        ),
        shards,
    )


def test_a_rare_input_does_not_hold_a_fast_one() -> None:
    """Once it is idle the frontier is that of the others; until then it is waited for."""
    play = shop()
    play.say("customers", "ann", 1, 10)
    for time in range(10, 100, 10):
        play.say("orders", time, 1, time)

    assert frontier_after(play) == 10
    assert frontier_after(play, "customers") == 90
    # Its record that is late counts there, and is told.
    play.say("customers", "bob", 1, 20)
    assert frontier_after(play) == 90
    assert play.run.counted["late"] == 1
    play.say("orders", 200, 1, 200)
    assert frontier_after(play, "customers") == 200
    assert [at for key, _, at, _ in play.updates("all") if key == "bob"] == [90]


def test_an_input_that_never_spoke_is_not_waited_for_once_it_is_idle() -> None:
    """As nobody knows when it will begin."""
    play = shop()
    play.say("orders", 1, 1, 50)

    assert frontier_after(play) == 0
    assert frontier_after(play, "customers") == 50


def test_when_all_are_silent_all_that_was_read_is_closed() -> None:
    """Whatever the lateness: nobody is expected to say anything before."""
    play = shop()
    play.say("customers", "ann", 1, 10)
    play.say("orders", 1, 1, 50)
    play.run.read()

    assert frontier_after(play, "customers", "orders") == 51
    assert play.shown("all", 50) == {("ann", 1): 1, (1, 1): 1}
    # Waited for again, as after a restart, it stays there.
    assert frontier_after(play) == 51


def test_when_nothing_was_ever_read_silence_closes_nothing() -> None:
    """There is no time of which anything is known."""
    assert frontier_after(shop(), "customers", "orders") == 0


def beside(*sources: Input) -> Play:
    """Orders in event time beside other inputs, all in one output."""
    upserts = [Upsert(f"u-{s.name}", s.name) for s in sources if not s.is_collection]
    others = [s.name for s in sources if s.is_collection]
    shown = (*(upsert.name for upsert in upserts), *others, "order")
    return Play(
        Plan(
            "mixed",
            (dated("orders"), *sources),
            (Upsert("order", "orders"), *upserts, Concat("all", shown)),
            (Output("all", "all", "all"),),
        )
    )


def test_inputs_without_times_go_on_beside_silent_ones() -> None:
    """Their records get the last time that is closed, and each batch closes one more."""
    play = beside(Input("names", ("names",)))
    play.say("orders", 1, 1, 50)
    play.run.read()
    assert frontier_after(play, "orders") == 51

    play.topics.send("names", b'"a"', b"1")
    play.run.read()
    assert play.shown("all", 60) == {(1, 1): 1}
    assert frontier_after(play, "orders") == 52
    assert play.shown("all", 51) == {(1, 1): 1, ("a", 1): 1}
    play.topics.send("names", b'"b"', b"1")
    assert frontier_after(play, "orders") == 53


@pytest.mark.parametrize(
    ("upper", "expected"), [(20, 20), (90, 90), (LAST_TIME + 1, 51)], ids=["less", "more", "ended"]
)
def test_topics_of_updates_are_always_waited_for(upper: int, expected: int) -> None:
    """Their progress says how far they are, unless it is that nothing will ever come."""
    play = beside(Input("given", ("given",), "diff", mode="diffs"))
    play.topics.send("given", b'"k"', b"1", headers=diff.headers(15, 1))
    ends = play.topics.ends("given")
    record = ProgressRecord("c", "p", "given", 0, 0, upper, 1, ends, "changes")
    play.topics.closed["given"].append(ClosedProgress(record, 1))
    play.say("orders", 1, 1, 50)

    assert frontier_after(play) == min(expected, 50)
    assert frontier_after(play, "orders") == expected


def test_when_all_with_times_of_their_own_are_over_others_go_on() -> None:
    """Records without times come after all of theirs, and after one another."""
    plan = Plan(
        "both",
        inputs=(
            Input("given", ("given",), "cdcv2-json", mode="diffs"),
            Input("names", ("names",)),
        ),
        operators=(Upsert("name", "names"),),
        outputs=(Output("given", "given", "out.given"), Output("names", "name", "out.names")),
    )
    run = Run(plan)
    for fact in cdcv2.encode_updates([(b'"k"', b"1", 15, 1)], 1 << 20):
        run.topics.send("given", None, fact)
    for statement in cdcv2.encode_progress(0, cdcv2.END, {15: 1}, 1 << 20):
        run.topics.send("given", None, statement)
    for value in (1, 2):
        run.send("names", "a", value)
        run.read()

    assert run.updates("given") == [(("k", 1), 15, 1)]
    first, gone, second = run.updates("names")
    assert (first.data, second.data) == (("a", 1), ("a", 2))
    assert 15 < first.time < gone.time == second.time < run.frontier("names")


@pytest.mark.parametrize("shards", [1, 3])
def test_what_waits_is_counted(shards: int) -> None:
    """What was read and is not closed, in all shards together."""
    play = shop(shards)
    play.say("customers", "ann", 1, 10)
    for time in range(10, 100, 10):
        play.say("orders", time, 1, time)
    play.run.read()

    # Those at 10 wait as well: it is not closed yet.
    assert (play.run.last.upper, play.run.waiting) == (10, 10)
    assert (frontier_after(play, "customers"), play.run.waiting) == (90, 1)
    assert (frontier_after(play, "customers", "orders"), play.run.waiting) == (91, 0)
