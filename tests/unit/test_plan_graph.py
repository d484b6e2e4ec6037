"""The graph of a plan: what reads what, and what follows of it."""

from dataclasses import replace
from typing import get_args

import pytest

from ikebana import (
    AsOfJoin,
    Concat,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
)
from ikebana.processor.explain import operators
from ikebana.processor.linear.steps import where
from ikebana.processor.planning.graph import GraphNode, graph_of
from ikebana.processor.planning.kind import Way
from ikebana.processor.planning.kinds import KINDS
from ikebana.processor.planning.plan import Operator

SOME = where("key > 1")
SIDES = (JoinInput("l", "some"), JoinInput("r", "counted"))
PLAN = Plan(
    "p",
    (Input("rows", ("rows",)), Input("clicks", ("clicks",), mode="append"), Input("e", ("e",))),
    (
        DeltaJoin("joined", SIDES, ("l.key = r.key",), (), key="l.key"),
        AsOfJoin("priced", *SIDES, ("l.key = r.key",), ()),
        Reduce("counted", "both", (("n", "count(*)"),)),
        Concat("both", ("some", "clicks", "some")),
        Linear("some", "current", (SOME,)),
        StateMachine("machine", "e", "shop_functions:step"),
        Upsert("current", "rows"),
    ),
    (Output("out", "joined", "out"),),
)
GRAPH = graph_of(PLAN)


def facts(node: GraphNode) -> tuple[object, ...]:
    return node.sources, node.input, node.is_root, node.kind.is_keyed, node.single_valued


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("current", ((), "rows", True, False, True)),
        ("machine", ((), "e", True, False, False)),
        ("clicks", ((), "clicks", True, False, False)),
        ("some", (("current",), None, False, False, False)),
        ("both", (("some", "clicks", "some"), None, False, False, False)),
        ("counted", (("both",), None, True, True, True)),
        ("joined", (("some", "counted"), None, True, True, False)),
        ("priced", (("some", "counted"), None, True, True, False)),
    ],
)
def test_what_a_collection_is_made_of(name: str, expected: tuple[object, ...]) -> None:
    """Its sources, its input, whether it is a root or keyed, and one value a key."""
    assert facts(GRAPH.nodes[name]) == expected


def test_an_input_of_upserts_is_no_collection() -> None:
    """Before it is read by an operator."""
    assert "rows" not in GRAPH.nodes


def test_keyed_roots_come_after_what_they_read() -> None:
    """Wherever they stand in the plan; those of inputs come first."""
    assert GRAPH.roots == ("current", "machine", "clicks", "counted", "joined", "priced")


def test_every_way_to_a_collection_is_there() -> None:
    """As often as it is read."""
    one = Way("current", (("some", SOME),))

    assert GRAPH.ways("both") == (one, Way("clicks", ()), one)
    assert GRAPH.ways("counted") == (Way("counted", ()),)


def test_a_loop_is_found() -> None:
    """An operator is behind itself."""
    loop = (Linear("a", "b", (SOME,)), Linear("b", "a", (SOME,)))
    graph = graph_of(replace(PLAN, operators=(*PLAN.operators, *loop)))

    assert "a" in graph.behind(*graph.nodes["a"].sources)
    assert "both" not in graph.behind(*graph.nodes["both"].sources)


def test_a_graph_is_made_once_for_a_plan() -> None:
    """Equal plans have one."""
    assert graph_of(replace(PLAN)) is graph_of(PLAN)


def test_every_operator_has_a_kind_and_its_words() -> None:
    """A row in each table."""
    assert set(KINDS) == set(get_args(Operator))
    assert set(operators._WRITTEN) == set(KINDS)
    assert set(operators._TEXTS) == {
        of for of, kind in KINDS.items() if kind.parts and not issubclass(of, DeltaJoin | AsOfJoin)
    }
    assert all(operators.written(operator) for operator in PLAN.operators)
