"""The tables of joins on whole plans, in shards and through exchanges, and what their state is."""

import pytest

from ikebana import Output, Plan, Upsert
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput, Strategy
from support.dated_upserts import Play, dated
from support.known_joins import Q3, SHOP, columns_of

both_plans = pytest.mark.parametrize("strategy", ["lookup", "intersect"])
TRIANGLE = ("ab.dst = bc.src AND bc.dst = ac.dst AND ab.src = ac.src",)


def triangles(strategy: Strategy) -> Plan:
    """Triangles of edges that are keyed by a number."""
    join = DeltaJoin(
        "triangles",
        (JoinInput("ab", "edges"), JoinInput("bc", "edges"), JoinInput("ac", "edges")),
        TRIANGLE,
        (("b", "bc.src"), ("c", "ac.dst")),
        "ab.src",
        strategy=strategy,
    )
    source = dated("edges", "src BIGINT", "dst BIGINT")
    return Plan("p", (source,), (Upsert("edges", "edges"), join), (Output("o", "triangles", "o"),))


def edge(src: int, dst: int) -> dict[str, int]:
    return {"src": src, "dst": dst}


@both_plans
def test_three_edges_at_one_time_are_one_triangle(strategy: Strategy) -> None:
    """Not three, though each of them could have been the last."""
    play = Play(triangles(strategy))
    for number, (src, dst) in enumerate([(1, 2), (1, 3), (2, 3)]):
        play.say("edges", number, edge(src, dst), 5)
    play.close(9)

    assert play.updates("o") == [(1, 2, 3, 5, 1)]


def shop(*joins: DeltaJoin) -> Plan:
    """The shop's tables as they come from topics, keyed by what is not joined."""
    inputs = [
        dated(name, *(f"{column.name} {column.type}" for column in columns_of(relation)))
        for name, relation in SHOP.items()
    ]
    return Plan(
        "p",
        tuple(inputs),
        (*(Upsert(name, name) for name in SHOP), *joins),
        tuple(Output(join.name, join.name, join.name) for join in joins),
    )


def sold(*joins: DeltaJoin) -> Play:
    play = Play(shop(*joins))
    for number in range(4):
        customer = {"custkey": number, "mktsegment": "BUILDING" if number else "MACHINERY"}
        play.say("customer", f"c{number}", customer, 1)
        order = {"orderkey": number, "custkey": number, "orderdate": "1995-01-01", "priority": 0}
        play.say("orders", f"o{number}", order, 2)
        line = {
            "orderkey": number,
            "extendedprice": 10 + number,
            "discount": 0,
            "shipdate": "1995-06-01",
        }
        play.say("lineitem", f"l{number}", line, 3)
    play.close(9)
    return play


def arrangements(play: Play) -> dict[str, int]:
    return {name: n for name, n in play.kept().items() if name.startswith("arrange ")}


def test_the_third_query_keeps_four_arrangements_and_another_adds_none() -> None:
    """Measured in the state: each has the rows behind its filter once, whoever reads them."""
    again = DeltaJoin("again", Q3.inputs, Q3.where, (("segment", "c.mktsegment"),), "o.orderkey")

    one, two = sold(Q3), sold(Q3, again)

    assert {name.partition(":")[0] for name in arrangements(one)} == {
        "arrange customer",
        "arrange orders",
        "arrange lineitem",
    }
    assert sorted(arrangements(one).values()) == [3, 4, 4, 4]
    assert arrangements(two) == arrangements(one)
    assert two.kept() == one.kept()
    assert len(two.shown("q3", 8)) == len(two.shown("again", 8)) == 3
