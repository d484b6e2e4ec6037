"""Joins as operators with frontiers: how far behind they are, and what they hold back."""

from ikebana.processor.joins.arrangements import shared
from ikebana.processor.joins.paths import planned
from ikebana.processor.joins.query import DeltaJoin
from ikebana.processor.joins.relation import Relation
from ikebana.processor.joins.stages import edges, last_stages
from ikebana.processor.planning.progress import Edges, advance_frontiers, depths, since
from joins import GRAPH, Q3, SHOP, TRIANGLES


def graph(join: DeltaJoin, relations: dict[str, Relation]) -> dict[str, Edges]:
    """A join behind roots whose updates all have to hop."""
    plans = [planned(join, relations)]
    roots = {name: Edges(from_source=True) for name in relations}
    feeds = {name: Edges(hops=(name,)) for name in relations}
    names = {name: name for name in relations}
    return roots | edges(plans, shared(plans, relations), feeds, names)


def test_a_join_lags_by_its_longest_path() -> None:
    """Q3's updates hop to the first lookup and from there to the second; triangles' go on."""
    q3, triangles = planned(Q3, SHOP), planned(TRIANGLES, GRAPH)

    assert last_stages(q3) == ("q3/c/1", "q3/o/1", "q3/l/1")
    assert [depths(graph(Q3, SHOP))[name] for name in last_stages(q3)] == [2, 2, 2]
    assert [path.hops for path in q3.paths] == [2, 2, 2]
    found = depths(graph(TRIANGLES, GRAPH))
    assert [found[name] for name in last_stages(triangles)] == [4, 4, 4]
    assert [path.hops for path in triangles.paths] == [4, 4, 4]


def test_an_arrangement_is_kept_back_to_its_slowest_reader() -> None:
    """What is on its way to the second lookup of a path asks as of two batches ago."""
    of = graph(Q3, SHOP)
    batches = [advance_frontiers(of, {}, 10)]
    batches += [advance_frontiers(of, batches[-1], 20)]
    batches += [advance_frontiers(of, batches[-1], 30)]
    batches += [advance_frontiers(of, batches[-1], 40)]

    # The second lookups of the paths of customers and orders.
    (items,) = (name for name in of if name.startswith("lineitem("))
    # Only the first lookup of the path of lineitem.
    (by_order,) = (name for name in of if name.startswith("orders(orderkey)"))
    assert batches[-1][items] == batches[-1][by_order] == 30
    assert since(of, batches[-2], items) == 10
    assert since(of, batches[-2], by_order) == 20
