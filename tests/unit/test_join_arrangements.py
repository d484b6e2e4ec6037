"""Arrangements of several joins: how many there are, who reads them, which nearly are one."""

from typing import Any

import msgspec

from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.joins.stages import (
    ArrangementReader,
    cost,
    near_misses,
    shared,
)
from support.known_joins import GRAPH, Q3, SHOP, TRIANGLES, planned

EDGES = {"edges(src)", "edges(dst)", "edges(dst, src)"}
PLAIN = ("c.custkey = o.custkey AND l.orderkey = o.orderkey",)


def changed(**parts: Any) -> DeltaJoin:
    return msgspec.structs.replace(Q3, **parts)


def names(*joins: DeltaJoin) -> list[str]:
    found = shared([planned(join, SHOP) for join in joins], SHOP)
    return [str(each.arrangement) for each in found]


def test_q3_has_four_arrangements() -> None:
    """Customer by its key, orders by two keys, lineitem by its order."""
    assert sorted(names(changed(where=PLAIN))) == [
        "customer(custkey)",
        "lineitem(orderkey)",
        "orders(custkey)",
        "orders(orderkey)",
    ]
    assert len(names(Q3)) == 4


def test_a_second_query_on_the_same_keys_adds_none() -> None:
    """Whatever it calls the inputs, shows, or asks of several of them."""
    other = DeltaJoin(
        "late",
        (JoinInput("item", "lineitem"), JoinInput("of", "orders"), JoinInput("who", "customer")),
        (
            "of.custkey = who.custkey AND item.orderkey = of.orderkey",
            "item.shipdate > of.orderdate",
        ),
        (("priority", "of.priority"),),
        "who.mktsegment",
    )
    first = planned(changed(where=PLAIN), SHOP)

    both = shared([first, planned(other, SHOP)], SHOP)

    assert [each.arrangement for each in both] == [
        each.arrangement for each in shared([first], SHOP)
    ]
    assert all(each.joins == ("q3", "late") for each in both)


def test_an_arrangement_knows_its_readers() -> None:
    """Two paths of Q3 ask lineitem by its order."""
    found = {str(each.arrangement): each for each in shared([planned(Q3, SHOP)], SHOP)}

    items = next(each for name, each in found.items() if name.startswith("lineitem"))
    assert items.readers == (ArrangementReader("q3", "c", "l"), ArrangementReader("q3", "o", "l"))


def test_self_joins_share() -> None:
    """Triangles need edges by either end and by both, whichever edge of the triangle asks."""
    found = shared([planned(TRIANGLES, GRAPH)], GRAPH)

    assert {str(each.arrangement) for each in found} == EDGES


def test_a_join_of_two_edges_adds_nothing_to_triangles() -> None:
    """It asks for edges by either end."""
    two = DeltaJoin(
        "two",
        (JoinInput("a", "edges"), JoinInput("b", "edges")),
        ("a.dst = b.src",),
        (("to", "b.dst"),),
        "a.src",
    )

    found = shared([planned(join, GRAPH) for join in (two, TRIANGLES)], GRAPH)

    assert {str(each.arrangement) for each in found} == EDGES


def test_those_that_differ_by_a_filter_alone_are_told() -> None:
    """The same keys behind other conditions are other arrangements."""
    joins = [planned(join, SHOP) for join in (Q3, changed(name="all", where=PLAIN))]
    found = shared(joins, SHOP)

    misses = list(near_misses(found))

    assert len(found) == 8
    assert sorted(miss.other.relation for miss in misses) == [
        "customer",
        "lineitem",
        "orders",
        "orders",
    ]
    assert "differ by their filters alone" in str(misses[0])
    assert list(near_misses(shared(joins[:1], SHOP))) == []


def test_the_state_of_a_relation_by_its_key_costs_nothing() -> None:
    """An upsert's values are its arrangement; behind a filter they are another one."""
    for where, expected in (("a.key = b.key", 0), ("a.key = b.key AND a.custkey > 1", 1)):
        join = DeltaJoin(
            "j",
            (JoinInput("a", "customer"), JoinInput("b", "orders")),
            (where,),
            (("k", "a.custkey"),),
            "a.key",
        )

        found = shared([planned(join, SHOP)], SHOP)

        assert len(found) == 2
        assert cost(found) == expected
