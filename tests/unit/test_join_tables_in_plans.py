"""The tables of joins on whole plans, in shards and through hops, and what their state is."""

from collections import Counter
from typing import Any

import pytest

from ikebana import Output, Plan, Update, Upsert, differentiate, integrate
from ikebana.arrangements.update import AltNeu, Instant, alt, neu
from ikebana.processor.planning.joins.query import (
    AsOfJoin,
    At,
    DeltaJoin,
    JoinInput,
    Retract,
    Strategy,
)
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


@both_plans
def test_a_self_loop_is_a_triangle_of_itself(strategy: Strategy) -> None:
    """Twice the loop is eight times the triangle, and without the loop there is none."""
    play = Play(triangles(strategy))
    play.say("edges", "one", edge(7, 7), 0)
    play.say("edges", "two", edge(7, 7), 1)
    play.say("edges", "one", None, 2)
    play.say("edges", "two", None, 2)
    play.close(9)

    assert [play.shown("o", time) for time in range(3)] == [{(7, 7, 7): 1}, {(7, 7, 7): 8}, {}]


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


def priced(at: At = "alt", retract: Retract = "current") -> Plan:
    join = AsOfJoin(
        "priced",
        JoinInput("o", "orders"),
        JoinInput("p", "prices"),
        ("o.product = p.product",),
        (("price", "p.price"),),
        at=at,
        retract=retract,
    )
    inputs = (
        dated("orders", "product VARCHAR"),
        dated("prices", "product VARCHAR", "price BIGINT"),
    )
    upserts = (Upsert("orders", "orders"), Upsert("prices", "prices"))
    return Plan("p", inputs, (*upserts, join), (Output("o", "priced", "o"),))


TEA = {"product": "tea"}


@pytest.mark.parametrize(("retract", "price"), [("current", 7), ("locked", 5)])
def test_a_retraction_meets_the_right_as_it_is_or_what_was_emitted(
    retract: Retract, price: int
) -> None:
    """Price 5 at 1, order at 2, price 7 at 3, order retracted at 4."""
    play = Play(priced(retract=retract))
    play.say("prices", "t", {**TEA, "price": 5}, 1)
    play.say("orders", "a", TEA, 2)
    play.say("prices", "t", {**TEA, "price": 7}, 3)
    play.say("orders", "a", None, 4)
    play.close(9)

    assert play.updates("o") == [("a", 5, 2, 1), ("a", price, 4, -1)]


ORDERS = [("a", 1, 1), ("b", 3, 1), ("a", 4, -1), ("c", 6, 1), ("b", 6, -1)]
PRICES = [(5, 1, 1), (5, 3, -1), (7, 3, 1), (7, 5, -1), (8, 6, 1)]


@pytest.mark.parametrize("at", ["alt", "neu"])
def test_between_differentiate_and_integrate_a_join_is_the_as_of_join(at: At) -> None:
    """A price beside an order's Alt and Neu is seen by both, by the latter, or by none."""
    expected = Counter[tuple[Any, ...]]()
    met = Counter[tuple[str, int, AltNeu]]()
    for order, time, change in differentiate([Update(*each) for each in ORDERS]):
        for price, known, count in PRICES:
            beside = alt(known) if at == "alt" else neu(known)
            met[order, price, time.join(beside)] += change * count
    instants = [Instant((order, price), t, n) for (order, price, t), n in met.items()]
    for (order, price), at_time, count in integrate(instants):
        expected[order, price, at_time] += count

    play = Play(priced(at))
    said: list[tuple[str, str, Any, int]] = [("prices", "t", None, 5)]
    said += [("prices", "t", {**TEA, "price": p}, t) for p, t, change in PRICES if change > 0]
    said += [("orders", order, TEA if change > 0 else None, t) for order, t, change in ORDERS]
    for record in sorted(said, key=lambda each: each[3]):
        play.say(*record)
    play.close(9)

    assert {update[:-1]: update[-1] for update in play.updates("o")} == {
        each: count for each, count in expected.items() if count
    }
