"""Joins as they run: in shards, through exchanges, in any batches, they are their definitions."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random

import msgspec
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan
from ikebana.arrangements.update import Update
from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine import replaying
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning.joins.query import (
    AsOfJoin,
    At,
    DeltaJoin,
    JoinInput,
    Retract,
    Strategy,
)
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.testing import Run, Topics
from support.delta_path_oracle import Datum
from support.random_joins import COLUMNS, RELATIONS, Drawn, histories, nested_loops, queries
from support.strategies import few
from support.sums import summed

END = 5
SIZES = {"s": 3, "t": 9}
INPUTS = tuple(
    Input(
        name,
        (name,),
        "diff",
        mode="diffs",
        columns=tuple(Column(column, "BIGINT") for column in COLUMNS),
        unique=RELATIONS[name].unique,
        size=RELATIONS[name].size,
    )
    for name in RELATIONS
)


def plan_of(*joins: object) -> Plan:
    """Joins over the relations, each shown."""
    names = [join.name for join in joins]  # type: ignore[attr-defined]
    outputs = tuple(Output(name, name, name) for name in names)
    return Plan("p", INPUTS, joins, outputs)  # type: ignore[arg-type]


def publish(topics: Topics, name: str, interval: range, updates: Iterable[Update[Datum]]) -> None:
    """A batch of the pipeline that writes a relation."""
    new = [update for update in updates if update.time in interval]
    for datum, time, change in new:
        value = json.dumps(dict(zip(COLUMNS, datum, strict=True))).encode()
        topics.send(name, None, value, headers=diff.headers(time, change))
    lower, upper = interval.start, interval.stop
    closed = topics.closed[name]
    ends = topics.ends(name)
    record = ProgressRecord("c", name, name, len(closed), lower, upper, len(new), ends, "changes")
    closed.append(ClosedProgress(record, len(closed) + 1))


def begun(plan: Plan, choice: Random, shards: int) -> Run:
    """A pipeline over empty topics, which reads what exchanges in portions."""
    topics = Topics()
    for name in RELATIONS:
        assert topics.messages[name][0] == []
    return Run(plan, topics, shards, exchange=choice.choice([1, 2, 1_000]))


def play(
    run: Run, history: Mapping[str, Sequence[Update[Datum]]], choice: Random, times: range
) -> None:
    """The histories of some times in batches of any size, read at any time."""
    reached = dict.fromkeys(RELATIONS, times.start)
    while min(reached.values()) < times.stop:
        name = choice.choice([name for name, at in reached.items() if at < times.stop])
        upper = choice.randrange(reached[name], times.stop) + 1
        publish(run.topics, name, range(reached[name], upper), history.get(name, ()))
        reached[name] = upper
        while choice.random() < 0.5 and run.batch():
            pass
    run.read()


def played(
    plan: Plan, history: Mapping[str, Sequence[Update[Datum]]], choice: Random, shards: int
) -> Run:
    """All of the histories."""
    run = begun(plan, choice, shards)
    play(run, history, choice, range(END))
    return run


def shown(updates: Iterable[KeyedUpdate], time: int) -> Counter[tuple[object, ...]]:
    """A join's results as of a time: the key, and the values in the order of their names."""
    return summed(
        ((json.loads(key or b""), *json.loads(value).values()), change)
        for key, value, at, change in updates
        if at <= time
    )


@few
@given(queries(), histories(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_delta_join_is_the_nested_loop_join_at_every_time(
    drawn: Drawn, history: dict[str, list[Update[Datum]]], choice: Random, shards: int
) -> None:
    """Whatever is cut, and however the rows of its paths are held up."""
    run = played(plan_of(drawn.join), history, choice, shards)

    assert run.written.updates["errors"] == []
    assert run.frontiers["q"] == END
    for time in range(-1, END):
        assert shown(run.written.updates["q"], time) == nested_loops(drawn, history, time)


@few
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([-2, -1, 1, 2])), min_size=2, max_size=5
    ),
    st.integers(2, 5),
    st.sampled_from(["auto", "lookup", "intersect"]),
    st.lists(st.integers(0, END), max_size=3),
)
@example([(0, -1), (1, 1)], 3, "auto", [1])
@example([(0, -1), (1, 1)], 4, "intersect", [0, 1])
def test_a_circle_of_one_datum_has_the_power_of_its_count(
    changes: list[tuple[int, int]], inputs: int, strategy: Strategy, uppers: list[int]
) -> None:
    """Whatever the sign of the count, and when it passes through 0, in any batches."""
    aliases = "abcde"[:inputs]
    circle = tuple(
        f"{one}.y = {other}.x" for one, other in zip(aliases, aliases[1:] + "a", strict=True)
    )
    shared = tuple(JoinInput(alias, "r") for alias in aliases)
    join = DeltaJoin("q", shared, circle, (("x", "a.x"),), "a.x", strategy=strategy)
    evaluation = Evaluation(Plan("p", INPUTS[:1], (join,), (Output("q", "q", "q"),)))
    records = [(None, dict.fromkeys(COLUMNS, 0), time, change) for time, change in changes]
    found: Counter[int] = Counter()
    for upper in [*sorted(uppers), END]:
        for update in evaluation.advance({"r": records}, upper)["q"]:
            found[update.time] += update.diff
        records = []

    for before in range(END):
        count = sum(change for time, change in changes if time < before)
        assert sum(diff for time, diff in found.items() if time < before) == count**inputs


def as_of(
    history: Mapping[str, Sequence[Update[Datum]]], join: AsOfJoin
) -> Counter[tuple[object, ...]]:
    """The definition: each update of the left meets the right as of its own time."""
    seen = 1 if join.at == "alt" else 0
    remembered: dict[Datum, list[dict[Datum | None, int]]] = {}
    found: Counter[tuple[object, ...]] = Counter()
    lefts = summed(((time, datum), change) for datum, time, change in history["r"])

    def met(left: Datum, time: int) -> dict[Datum | None, int]:
        matches: dict[Datum | None, int] = summed(
            (datum, change)
            for datum, at, change in history["s"]
            if at < time + seen and left[0] is not None and left[0] == datum[0]
            if _passes(left, datum)
        )
        return matches or ({None: 1} if join.outer else {})

    def emit(left: Datum, time: int, matches: dict[Datum | None, int], change: int) -> None:
        for right, count in matches.items():
            found[time, left[0], left[1], left[2], right and right[2]] += change * count

    for (time, left), change in sorted(lefts.items(), key=lambda item: item[0][0]):
        if join.retract == "current":
            emit(left, time, met(left, time), change)
            continue
        own = remembered.setdefault(left, [])
        for _ in range(change):
            own.append(met(left, time))
            emit(left, time, own[-1], 1)
        for _ in range(-change):
            if not own:
                break
            emit(left, time, own.pop(), -1)
    return Counter({at: count for at, count in found.items() if count})


def _passes(left: Datum, right: Datum) -> bool:
    """What the predicate says: null is not less than anything."""
    return left[1] is not None and right[1] is not None and left[1] <= right[1]


@few
@given(
    histories(),
    st.sampled_from(["alt", "neu"]),
    st.booleans(),
    st.sampled_from(["current", "locked"]),
    st.randoms(use_true_random=False),
    st.integers(1, 3),
)
def test_an_as_of_join_is_its_definition(
    history: dict[str, list[Update[Datum]]],
    at: At,
    outer: bool,  # noqa: FBT001
    retract: Retract,
    choice: Random,
    shards: int,
) -> None:
    """With ties, without matches, with a predicate, and whatever is retracted."""
    join = AsOfJoin(
        "q",
        JoinInput("l", "r"),
        JoinInput("r", "s"),
        ("l.x = r.x", "l.y <= r.y"),
        (("a", "l.x"), ("b", "l.y"), ("c", "l.z"), ("d", "r.z")),
        "l.x",
        at=at,
        outer=outer,
        retract=retract,
    )

    run = played(plan_of(join), history, choice, shards)

    updates = run.written.updates["q"]
    found = summed(((u.time, *json.loads(u.value).values()), u.diff) for u in updates)
    assert found == as_of(history, join)


@few
@given(
    st.lists(queries(), min_size=2, max_size=2),
    histories(),
    st.randoms(use_true_random=False),
)
def test_joins_that_share_arrangements_are_what_each_is_alone(
    drawn: list[Drawn], history: dict[str, list[Update[Datum]]], choice: Random
) -> None:
    """Readers of one arrangement may be further than others."""
    joins = [msgspec.structs.replace(d.join, name=f"q{at}") for at, d in enumerate(drawn)]

    run = played(plan_of(*joins), history, choice, 2)

    for at, each in enumerate(drawn):
        for time in range(-1, END):
            assert shown(run.written.updates[f"q{at}"], time) == nested_loops(each, history, time)


@few
@given(
    queries(),
    histories(),
    st.integers(0, END - 1),
    st.randoms(use_true_random=False),
    st.integers(1, 2),
)
def test_a_join_that_is_new_begins_with_all_that_was_there(
    drawn: Drawn, history: dict[str, list[Update[Datum]]], begin: int, choice: Random, shards: int
) -> None:
    """It asks the arrangements of one that runs, which goes on; and then that one is removed."""
    inputs = list(drawn.join.inputs)
    choice.shuffle(inputs)
    old = drawn.join
    new = msgspec.structs.replace(old, name="new", inputs=tuple(inputs))
    both, alone = plan_of(old, new), plan_of(new)
    assume(set(joined(both).arrangements) == set(joined(plan_of(old)).arrangements))
    # Another layout without the other join is refused (`edits`).
    assume(joined(alone).stages.items() <= joined(both).stages.items())
    replaying.PORTION, before = choice.choice([1, 2, 1_000]), replaying.PORTION
    run = begun(plan_of(old), choice, shards)
    try:
        play(run, history, choice, range(begin + 1))
        run.restart(both)
        play(run, history, choice, range(begin + 1, END))
    finally:
        replaying.PORTION = before

    assert run.frontiers == {"q": END, "new": END, "errors": END}
    for time in range(begin + 1, END):
        assert shown(run.written.updates["q"], time) == nested_loops(drawn, history, time)
        assert shown(run.written.updates["new"], time) == nested_loops(drawn, history, time)

    run.restart(alone)
    publish_all(run, END)
    kept = {parts.operator_of(place) for store in run.stores for place, _ in store.scan(b"")}
    assert kept <= parts.parts_of(alone) | {parts.EDIT.prefix}
    for time in range(begin + 1, END):
        assert shown(run.written.updates["new"], time) == nested_loops(drawn, history, time)


def publish_all(run: Run, time: int) -> None:
    """Close a time in which nothing happens."""
    for name in RELATIONS:
        publish(run.topics, name, range(time, time + 1), ())
    run.read()
