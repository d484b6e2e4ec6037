"""The sum of delta paths is the nested-loop join of the inputs accumulated at every time."""

from collections import Counter
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.update import Update, accumulate
from ikebana.processor.linear.scope import KEY, Scope
from ikebana.processor.planning.joins.paths import Extend, Planned
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput, Strategy
from ikebana.processor.planning.relations import Relation
from support.delta_path_oracle import Datum, Given, rows_made, run, run_from
from support.known_joins import planned
from support.random_joins import (
    COLUMNS,
    RELATIONS,
    Drawn,
    histories,
    nested_loops,
    queries,
    updates,
)

TIMES = range(-1, 5)


@given(queries(), histories())
def test_the_sum_of_all_paths_is_the_nested_loop_join_at_every_time(
    drawn: Drawn, history: dict[str, list[Update[Datum]]]
) -> None:
    """Whatever the order, the strategy, self-joins, retractions, nulls, negative counts."""
    given_ = {name: Given(COLUMNS, of) for name, of in history.items()}

    made = run(planned(drawn.join, RELATIONS), RELATIONS, given_)

    for time in TIMES:
        assert accumulate(made, time) == nested_loops(drawn, history, time)


@given(queries(), histories(), st.sampled_from([0, 1, 2, 3, 4]))
def test_a_join_that_is_new_has_what_an_older_one_has_from_its_beginning_on(
    drawn: Drawn, history: dict[str, list[Update[Datum]]], begin: int
) -> None:
    """One input's data before then, along its own path, are enough to begin with."""
    given_ = {name: Given(COLUMNS, of) for name, of in history.items()}

    made = run_from(planned(drawn.join, RELATIONS), RELATIONS, given_, begin)

    assert accumulate(made, begin - 1) == {}
    for time in (time for time in TIMES if time >= begin):
        assert accumulate(made, time) == nested_loops(drawn, history, time)


EDGES = {"edges": Relation(Scope({"src": "BIGINT", "dst": "BIGINT", KEY: "JSON"}))}
CIRCLES = {
    "triangles": ("e.dst = f.src", "f.dst = g.src", "g.dst = e.src"),
    "squares": ("e.dst = f.src", "f.dst = g.src", "g.dst = h.src", "h.dst = e.src"),
    "cliques of four": (
        "e.src = f.src AND e.src = g.src AND e.dst = h.src AND e.dst = i.src",
        "f.dst = j.src AND f.dst = h.dst AND g.dst = i.dst AND g.dst = j.dst",
    ),
}


def circles(name: str, strategy: Strategy) -> DeltaJoin:
    """All circles of one kind in a graph."""
    where = CIRCLES[name]
    aliases = sorted({word[0] for text in where for word in text.split() if "." in word})
    return DeltaJoin(
        name,
        tuple(JoinInput(alias, "edges") for alias in aliases),
        where,
        tuple((alias, f"{alias}.dst") for alias in aliases),
        "e.src",
        strategy=strategy,
    )


@cache
def planned_circles(name: str, strategy: Strategy) -> Planned:
    return planned(circles(name, strategy), EDGES)


@cache
def planned_of_wide(strategy: Strategy) -> Planned:
    return planned(msgspec.structs.replace(WIDE, strategy=strategy), RELATIONS)


nodes = st.integers(0, 4)
edges = st.lists(
    st.builds(
        Update, st.tuples(nodes, nodes), st.integers(0, 2), st.sampled_from([1, 1, 1, 2, -1])
    ),
    max_size=14,
)


@pytest.mark.parametrize("name", CIRCLES)
@given(graph=edges)
def test_intersecting_gives_what_looking_up_gives(name: str, graph: list[Update[Datum]]) -> None:
    """Two plans of one query, on random graphs with self loops and simultaneous changes."""
    given_ = {"edges": Given(("src", "dst"), graph)}

    looked_up, intersected = (
        run(planned_circles(name, strategy), EDGES, given_) for strategy in ("lookup", "auto")
    )

    assert Counter(intersected) == Counter(looked_up)


WIDE = DeltaJoin(
    "wide",
    tuple(JoinInput(alias, "r") for alias in "abc"),
    ("a.x = b.x AND a.y = c.x", "b.y = c.y AND b.z = c.z"),
    (("a", "a.z"), ("b", "b.z")),
    "c.x",
)


@given(updates)
def test_a_variable_is_bound_before_all_of_an_input_is_known(history: list[Update[Datum]]) -> None:
    """Of a change of a, the others share y and z: y first, of which both only say whether."""
    given_ = {"r": Given(COLUMNS, history)}
    intersecting = planned_of_wide("auto")
    first = intersecting.paths[0].steps[0]

    assert isinstance(first, Extend)
    assert not any(each.completes for each in first.candidates)
    assert Counter(run(intersecting, RELATIONS, given_)) == Counter(
        run(planned_of_wide("lookup"), RELATIONS, given_)
    )


def test_intersecting_does_less_on_a_skewed_graph() -> None:
    """A hub with 60 edges in and 60 out has 3,600 paths of two edges and no triangle."""
    graph = [Update((leaf, 0), leaf, 1) for leaf in range(1, 61)]
    graph += [Update((0, 100 + leaf), leaf, 1) for leaf in range(1, 61)]
    given_ = {"edges": Given(("src", "dst"), graph)}

    looked_up, intersected = (
        rows_made(planned_circles("triangles", strategy), EDGES, given_)
        for strategy in ("lookup", "intersect")
    )

    assert looked_up >= 60 * 60
    assert intersected <= 2 * len(graph)
