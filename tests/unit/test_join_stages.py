"""Joins as operators with frontiers: how far behind they are, and what they hold back."""

from ikebana.processor.explain.graph import as_run
from ikebana.processor.planning.joins.stages import shared, stages
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.planning.planner import physical
from ikebana.processor.planning.progress import advance_frontiers, depths, edges, since
from ikebana.testing import Run, Topics
from support.known_joins import GRAPH, Q3, SHOP, TRIANGLES, columns_of, planned


def plan_of(*joins: object) -> Plan:
    """Q3 over upserts of its relations."""
    names = ("customer", "orders", "lineitem")
    return Plan(
        "shop",
        inputs=tuple(Input(f"{n}s", (n,), columns=columns_of(SHOP[n])) for n in names),
        operators=(*(Upsert(n, f"{n}s") for n in names), *joins),  # type: ignore[arg-type]
        outputs=(Output("out", "q3", "out"),),
    )


def test_a_join_lags_by_its_longest_path() -> None:
    """Q3's updates go to the first lookup and from there to the second; triangles' go on."""
    graph = edges(plan_of(Q3))

    assert graph["q3"].after == ("q3/c/1", "q3/o/1", "q3/l/1")
    assert [depths(graph)[name] for name in graph["q3"].after] == [2, 2, 2]
    assert [path.exchanges for path in planned(Q3, SHOP).paths] == [2, 2, 2]
    assert [path.exchanges for path in planned(TRIANGLES, GRAPH).paths] == [4, 4, 4]


def test_what_is_arranged_by_what_it_asks_for_travels_once() -> None:
    """All that Q3's changes ask for first, they are arranged by as well."""
    plans = [planned(Q3, SHOP)]
    found = stages(plans, shared(plans, SHOP))

    assert {feed.name for feed in found.feeds} == set(found.arrangements)
    assert all(stage.rows_from for stage in found.stages.values())


def test_an_arrangement_is_kept_back_to_its_slowest_reader() -> None:
    """What is on its way to the second lookup of a path asks as of two batches ago."""
    of = edges(plan_of(Q3))
    batches = [advance_frontiers(of, {}, 10)]
    batches += [advance_frontiers(of, batches[-1], 20)]
    batches += [advance_frontiers(of, batches[-1], 30)]
    batches += [advance_frontiers(of, batches[-1], 40)]
    kept = {
        str(each.arrangement): name
        for name, each in stages(
            [planned(Q3, SHOP)], shared([planned(Q3, SHOP)], SHOP)
        ).arrangements.items()
    }

    # The second lookups of the paths of customers and orders.
    (items,) = (name for text, name in kept.items() if text.startswith("lineitem("))
    # Only the first lookup of the path of lineitem.
    (by_order,) = (name for text, name in kept.items() if text.startswith("orders(orderkey)"))
    assert batches[-1][items] == batches[-1][by_order] == 30
    assert since(of, batches[-2])[items] == 10
    assert since(of, batches[-2])[by_order] == 20


def test_an_output_lags_by_the_exchanges_that_explain_tells() -> None:
    """With everything read by one batch, each exchange is one batch more, and no more."""
    topics = Topics()
    topics.send("customer", b"1", b'{"custkey":1,"mktsegment":"BUILDING"}')
    topics.send(
        "orders", b"2", b'{"orderkey":2,"custkey":1,"orderdate":"1995-01-01","priority":0}'
    )
    topics.send(
        "lineitem",
        b"3",
        b'{"orderkey":2,"extendedprice":5,"discount":0,"shipdate":"1995-12-31"}',
    )
    plan = plan_of(Q3)
    run = Run(plan, topics, shards=2)
    assert run.batch(now_ms=10)
    read = run.last.upper
    batches = 0
    while run.frontiers["out"] < read:
        assert run.written.updates["out"] == []
        assert run.batch(now_ms=10)
        batches += 1

    assert len(run.written.updates["out"]) == 1
    box = next(b for b in as_run(plan, physical(plan)).boxes if b.id == "output out")
    assert f"its frontier follows {batches} exchanges behind the input's" in box.lines
    assert not run.batch(now_ms=10)
