"""A recursion goes on through restarts, deaths, rescalings, edits and recoveries."""

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import KnownRelations
from ikebana.processor.relational.sql import sql_operators
from ikebana.testing import Run
from support.strategies import few

EDGES = Input("edges", ("edges",), columns=(Column("a", "BIGINT"), Column("b", "BIGINT")))
Graph = dict[int, tuple[int, int]]


def plan_of(begin: int | None, least: int = 0) -> Plan:
    """The nodes that are reached from one, from a least one on; with None all ends of edges."""
    query = f"SELECT b AS n FROM now WHERE b >= {least}"
    if begin is not None:
        query = (
            f"WITH RECURSIVE r AS (SELECT b AS n FROM now WHERE a = {begin} UNION "
            f"SELECT e.b FROM r JOIN now e ON e.a = r.n) SELECT n FROM r WHERE n >= {least}"
        )
    operators: list[Operator] = [Upsert("now", "edges")]
    operators += sql_operators("view", query, KnownRelations((EDGES,), operators))
    shown = Output("view", "view", "view")
    return checked(Plan("p", (EDGES,), tuple(operators), (shown,), time="offset"))


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


class Life(NamedTuple):
    """Changes of edges after a start, and what it starts with; some shards commit and die."""

    changes: list[tuple[int, tuple[int, int] | None]]
    shards: int | None
    begin: int | None
    least: int
    committed: list[int] | None
    is_lost: bool


LIVES = st.lists(
    st.builds(
        Life,
        CHANGES,
        st.sampled_from([None, None, 1, 2, 3]),
        st.sampled_from([None, 0, 0, 0, 1]),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([None, [], [0]]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=4,
)


@few
@given(LIVES)
def test_it_goes_on_through_lives(
    lives: list[Life],
) -> None:
    """At each moment the output has what is reached over all edges that there are."""
    run, graph = Run(plan_of(0), shards=2), Graph()
    for life in lives:
        if life.is_lost:
            run.recover(plan_of(life.begin, life.least))
        else:
            run.restart(plan_of(life.begin, life.least), shards=life.shards)
        for key, edge in life.changes:
            graph.pop(key, None)
            if edge is not None:
                graph[key] = edge
            value = None if edge is None else {"a": edge[0], "b": edge[1]}
            run.send("edges", key, value)
        if life.committed is not None:
            run.crash(committed=life.committed)
        run.read()
        shown = Counter(value["n"] for _, value in run.collection("view"))
        expected = reached(graph, life.begin)
        assert shown == Counter({n: count for n, count in expected.items() if n >= life.least})
