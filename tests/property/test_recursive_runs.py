"""A recursion goes on through restarts, other numbers of shards, edits and recoveries."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.known import Known
from ikebana.processor.relational.sql import sql_operators
from ikebana.testing import Run
from support.strategies import few

EDGES = Input("edges", ("edges",), columns=(Column("a", "BIGINT"), Column("b", "BIGINT")))
Graph = dict[int, tuple[int, int]]


def plan_of(begin: int | None, *, is_shown: bool = True) -> Plan:
    """The nodes that are reached from one; with None all edges, without a recursion."""
    query = "SELECT b AS n FROM now"
    if begin is not None:
        query = (
            f"WITH RECURSIVE r AS (SELECT b AS n FROM now WHERE a = {begin} UNION "
            "SELECT e.b FROM r JOIN now e ON e.a = r.n) SELECT n FROM r"
        )
    operators: list[Operator] = [Upsert("now", "edges")]
    operators += sql_operators("view", query, Known((EDGES,), operators))
    shown = Output("view", "view", "view") if is_shown else Output("now", "now", "now")
    plan = Plan("p", (EDGES,), tuple(operators), (shown,), time="offset")
    return checked(plan)


def reached(graph: Graph, begin: int | None) -> Counter[int]:
    """The nodes, computed again."""
    if begin is None:
        return Counter(b for _, b in graph.values())
    found: set[int] = set()
    ahead = {b for a, b in graph.values() if a == begin}
    while ahead:
        found |= ahead
        ahead = {b for a, b in graph.values() if a in ahead} - found
    return Counter(found)


NODES = st.integers(0, 4)
CHANGES = st.lists(
    st.tuples(st.integers(0, 6), st.one_of(st.none(), st.tuples(NODES, NODES))), max_size=8
)
LIVES = st.lists(
    st.tuples(CHANGES, st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, 0, 0, 1])),
    max_size=4,
)


@few
@given(LIVES)
def test_it_goes_on_through_restarts_rescalings_and_edits(
    lives: list[tuple[list[tuple[int, tuple[int, int] | None]], int | None, int | None]],
) -> None:
    """At each moment the output has what is reached over all edges that there are."""
    run, graph = Run(plan_of(0), shards=2), Graph()
    for changes, shards, begin in lives:
        run.restart(plan_of(begin), shards=shards)
        for key, edge in changes:
            graph.pop(key, None)
            if edge is not None:
                graph[key] = edge
            value = None if edge is None else {"a": edge[0], "b": edge[1]}
            run.send("edges", key, value)
        run.read()
        shown = Counter(value["n"] for _, value in run.collection("view"))
        assert shown == reached(graph, begin)
