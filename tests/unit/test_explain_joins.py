"""`ikebana explain` of joins: the arrangements that it shows are those that are made."""

from pathlib import Path
from typing import Any

import pytest

from ikebana import AsOfJoin, Column, DeltaJoin, Input, JoinInput, Linear, Output, Plan, Upsert
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.explain.explanation import Explanation, explained
from ikebana.processor.explain.text import text
from ikebana.processor.linear.steps import Step, project, where
from ikebana.processor.planning.joins.query import Join
from ikebana.processor.planning.plan import Operator

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "explain"
SETTINGS = Settings("checkpoint", {"bootstrap.servers": "broker:9092"})
RECORDS: dict[str, list[tuple[Any, ...]]] = {
    "customers": [(1, {"custkey": 1, "segment": "BUILDING"}, 0)],
    "orders": [(1, {"orderkey": 1, "custkey": 1, "orderdate": "1995-01-01"}, 0)],
    "items": [
        (
            {"id": 1},
            {"op": "c", "before": None, "after": {"orderkey": 1, "product": "tea", "price": 1}},
            0,
        )
    ],
    "rates": [("tea", {"currency": "EUR", "rate": 0.5}, 0)],
    "edges": [(None, {"src": 1, "dst": 2}, 0, 1)],
}


def relation(name: str, *columns: str) -> tuple[Input, Operator]:
    """An input of numbers, and its upsert."""
    source = Input(f"{name}s", (name,), columns=tuple(Column(c, "BIGINT") for c in columns))
    return source, Upsert(name, source.name)


R = relation("r", "x", "y")
S = relation("s", "x", "y")
T = relation("t", "x", "y")


def delta(*conditions: str, name: str = "q", relations: str = "rst", **more: Any) -> DeltaJoin:
    """A join of relations under names that are twice their own."""
    inputs = tuple(JoinInput(2 * each, each) for each in relations)
    return DeltaJoin(name, inputs, conditions, (("made", f"{inputs[0].alias}.y"),), **more)


def plan_of(*operators: Operator) -> Plan:
    """A plan of the three relations that shows all joins."""
    joins = [o.name for o in operators if isinstance(o, DeltaJoin | AsOfJoin)]
    return Plan(
        "p",
        (R[0], S[0], T[0]),
        (R[1], S[1], T[1], *operators),
        tuple(Output(name, name, name) for name in joins),
    )


def lines(plan: Plan, box: str) -> list[str]:
    """What a box says."""
    (found,) = (each for each in explained(plan, SETTINGS).run.boxes if each.id == box)
    return list(found.lines)


def cost(found: Explanation, part: str) -> int:
    """The arrangements that the parts of a kind cost."""
    return sum(each.arrangements for each in found.costs if each.part.startswith(part))


def kept(evaluation: Evaluation) -> set[str]:
    """The operators that have state."""
    places = (place for place, _ in evaluation.stores[0].scan(b""))
    return {place.partition(b"\0")[0].decode() for place in places}


def test_the_arrangements_that_are_shown_are_those_that_are_made() -> None:
    """Each box is a part of the state, by its name, and so are the costs."""
    plan = pipeline.read(GOLDEN / "joins.yaml", environ={}).plan
    found = explained(plan, SETTINGS)
    evaluation = Evaluation(plan)

    made = evaluation.advance(RECORDS, 1)

    assert made["errors"] == []
    arranged = {name for name in kept(evaluation) if name.startswith("arrange ")}
    assert {
        line.rpartition(", as ")[2]
        for box in found.run.boxes
        if box.kind == "arrangement"
        for line in box.lines
        if ", as " in line
    } == arranged
    assert cost(found, "arrangement ") == len(arranged) == 8
    assert cost(found, "upsert ") == len({"customer", "order", "rate"} & kept(evaluation))
    assert cost(found, "join ") == sum(name.startswith("locked ") for name in kept(evaluation))


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        pytest.param(
            delta("rr.x = ss.x AND ss.y = tt.y"),
            [
                "a change of rr, 2 exchanges",
                "1. look up ss by x = rr.x",
                "2. look up tt by y = ss.y",
            ],
            id="one after the other",
        ),
        pytest.param(
            delta("rr.x = ss.x AND rr.x = tt.x AND rr.y < ss.y + tt.y AND rr.y > 0"),
            [
                "a change of rr, 1 exchange",
                "where (y > 0)",
                "1. look up ss by x = rr.x",
                "2. look up tt by x = rr.x",
                "   where (rr.y < (ss.y + tt.y))",
            ],
            id="a predicate, and a filter, and one exchange for one key",
        ),
        pytest.param(
            delta("rr.x = ss.x", relations="rs", key='rr."key"'),
            ["a change of rr, 1 exchange", "1. look up ss by x = rr.x"],
            id="a key of its own",
        ),
        pytest.param(
            delta(relations="rs", cartesian=True),
            ["a change of rr, 1 exchange", "1. look up ss as a whole"],
            id="all combinations",
        ),
        pytest.param(
            delta("rr.y = ss.x AND ss.y = tt.x AND tt.y = rr.x"),
            [
                "a change of rr, 5 exchanges",
                "1. bind ss.y = tt.x",
                "   ss by x = rr.y",
                "   tt by y = rr.x",
                "   fewest first; the others say which they have",
            ],
            id="in a circle",
        ),
        pytest.param(
            delta("rr.key::VARCHAR = ss.key::VARCHAR", relations="rs"),
            [
                "a change of rr, 1 exchange",
                "1. look up ss by CAST(key AS VARCHAR) = CAST(rr.key AS VARCHAR)",
            ],
            id="by a cast, which reads JSON",
        ),
    ],
)
def test_a_path_says_what_a_change_looks_up(join: Join, expected: list[str]) -> None:
    """In the words of the conditions, with what is tested where."""
    assert lines(plan_of(join), "path q/rr") == expected


def test_a_lookup_of_an_upsert_by_its_key_asks_its_own_state() -> None:
    """No arrangement is made, and the box of the state says who asks."""
    join = delta("rr.key = ss.key", relations="rs")
    plan = plan_of(join)
    found = explained(plan, SETTINGS)

    assert [box.id for box in found.run.boxes if box.kind == "arrangement"] == []
    assert lines(plan, "state r")[-2:] == [
        "arranged by key as it is: the upsert's own state",
        "asked by q/ss",
    ]
    assert found.sharing == (
        "joins: 2 distinct arrangements in 1 join, 2 an upsert's own state; "
        "0 beside what is kept anyway",
    )


def test_an_as_of_join_says_what_it_sees_and_remembers() -> None:
    """It has one path, that of its left."""
    join = AsOfJoin(
        "q",
        JoinInput("rr", "r"),
        JoinInput("ss", "s"),
        ("rr.x = ss.x",),
        (("made", "ss.y"),),
        at="neu",
        outer=True,
        retract="locked",
        locked_by=("x",),
    )
    found = explained(plan_of(join), SETTINGS)

    assert [box.id for box in found.run.boxes if box.kind == "path"] == ["path q/rr"]
    assert lines(plan_of(join), "path q/rr")[-1] == (
        "as of the change's own time, without changes of that very time"
    )
    assert lines(plan_of(join), "join q") == [
        "a change that meets nothing shows with null",
        "remembers what was emitted: 1 arrangement, in the shards",
        "an update that leaves rr.x keeps what the row has met",
    ]


def warned(*operators: Operator) -> list[str]:
    return list(explained(plan_of(*operators), SETTINGS).warnings)


def test_arrangements_that_differ_by_a_filter_are_told() -> None:
    """Those that are the same are shared, and nothing is told."""
    one = delta("rr.x = ss.x", relations="rs")
    other = delta("rr.x = ss.x AND ss.y > 1", relations="rs", name="other")

    assert warned(one, delta("rr.x = ss.x", relations="rs", name="other")) == []
    assert warned(one, other) == [
        "s(x) and s(x) where (y > 1) differ by their filters alone; a relation behind the "
        "conditions that they share would be kept once."
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            (where("true"),),
            [
                "Arrangements of wide keep whole rows, and joins read 2 of 5 columns of them: a "
                "linear operator with select: [a, c] before the joins keeps less."
            ],
            id="whole rows",
        ),
        pytest.param((where("true"), project("a", "c")), [], id="a select"),
    ],
)
def test_rows_that_are_kept_whole_for_few_columns_are_told(
    steps: tuple[Step, ...], expected: list[str]
) -> None:
    """With the select that would keep less."""
    source, upsert = relation("all", "a", "b", "c", "d", "e")
    join = DeltaJoin(
        "q",
        (JoinInput("w", "wide"), JoinInput("r", "r")),
        ("w.a = r.x",),
        (("made", "w.c + r.y"),),
    )
    plan = Plan(
        "p",
        (source, R[0]),
        (upsert, R[1], Linear("wide", "all", steps), join),
        (Output("q", "q", "q"),),
    )

    assert list(explained(plan, SETTINGS).warnings) == expected
    assert ("what could cost less" in text(explained(plan, SETTINGS))) == bool(expected)


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (
            delta(
                "rr.x = ss.x",
                relations="rs",
                cartesian=True,
                strategy="lookup",
                orders=(("rr", ("ss",)),),
                key="rr.y",
            ),
            [
                "delta_join: {rr: r, ss: s}",
                "where: rr.x = ss.x",
                "key: rr.y",
                "select: made: rr.y",
                "orders: rr: ss",
                "cartesian: true",
                "strategy: lookup",
            ],
        ),
        (
            AsOfJoin(
                "q",
                JoinInput("rr", "r"),
                JoinInput("ss", "s"),
                ("rr.x = ss.x", "rr.y > ss.y"),
                (("made", "ss.y"),),
                outer=True,
                retract="locked",
                locked_by=("x", "y"),
            ),
            [
                "as_of_join: {rr: r, ss: s}",
                "on: rr.x = ss.x",
                "on: rr.y > ss.y",
                "select: made: ss.y",
                "at: alt",
                "outer: true",
                "retract: locked",
                "locked_by: x, y",
            ],
        ),
    ],
)
def test_joins_are_written_in_the_words_of_the_file(join: Join, expected: list[str]) -> None:
    """With what is said, and what of an as-of join is so by default."""
    found = explained(plan_of(join), SETTINGS)
    (box,) = (each for each in found.written.boxes if each.id == "operator q")

    assert list(box.lines) == expected
