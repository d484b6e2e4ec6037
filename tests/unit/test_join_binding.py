"""What is wrong with a join is told by name, all of it at once."""

from typing import Any

import msgspec
import pytest

from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning.joins.binding import JoinError
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.relations import Relation
from support.known_joins import MARKET, Q3, SHOP, bound, priced

INPUTS = Q3.inputs
CONNECTED = "c.custkey = o.custkey AND l.orderkey = o.orderkey"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            {"where": (CONNECTED, "o.price > 3")},
            [("where.1", 'input "o": there is no column "price"; there are custkey, key, ord')],
            id="a column",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND x.price > 3",)},
            [("where", 'there is no input "x"; there are c, o, l')],
            id="an alias",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND orderdate > '1999-01-01'",)},
            [("where", '"orderdate" is of no input; write it with one of c, o, l, as in c.order')],
            id="a column of no alias",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND c > 3",)},
            [("where", '"c" is an input; c.value is the whole value of its data')],
            id="an alias as a column",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND 1 = 1",)},
            [("where", '"(1 = 1)" reads no input; leave it out')],
            id="a condition on nothing",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND o.orderdate < now()",)},
            [("where", "now() depends on more than the datum")],
            id="a clock",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND o.orderdate <",)},
            [("where", "syntax error")],
            id="no SQL",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND c.mktsegment = l.orderkey",)},
            [("where", "c.mktsegment = l.orderkey compares VARCHAR with BIGINT, which are not ")],
            id="an equality of two kinds",
        ),
        pytest.param(
            {"where": (f"{CONNECTED} AND o.value > l.orderkey",)},
            [("where", '"o.value" is JSON; cast it')],
            id="JSON that is compared",
        ),
        pytest.param(
            {"where": ("c.custkey = o.custkey",)},
            [("where", 'no equality connects "l" with "c", "o"; write one, or say cartesian: t')],
            id="an input that nothing connects",
        ),
        pytest.param(
            {"where": ("c.custkey = o.custkey AND o.orderkey + l.orderkey = c.custkey",)},
            [("where", 'no equality connects "l"')],
            id="an equality that reads two inputs on one side",
        ),
        pytest.param(
            {"select": (("a", "c.nothing"), ("b", "sum(c.custkey)")), "key": "l.nothing"},
            [
                ("select.a", 'input "c": there is no column "nothing"'),
                ("select.b", "sum() is an aggregate"),
                ("key", 'input "l": there is no column "nothing"'),
            ],
            id="results, all of them",
        ),
        pytest.param({"inputs": INPUTS[:1]}, [("inputs", "at least two are needed")], id="one"),
        pytest.param(
            {"inputs": (*INPUTS, JoinInput("c", "orders"))},
            [("inputs.c", "the name is used 2 times")],
            id="an alias twice",
        ),
        pytest.param(
            {"inputs": (JoinInput("a.b", "orders"), JoinInput("c", "clients"))},
            [
                ("inputs.a.b", '"a.b" is no name for columns'),
                ("inputs.c", 'there is no operator "clients"; there are customer, lineitem, o'),
            ],
            id="names",
        ),
        pytest.param(
            {"orders": (("x", ("c",)), ("c", ("o",)), ("l", ("c", "o")))},
            [
                ("orders.x", 'there is no input "x"; there are c, o, l'),
                ("orders.c", "must name each of o, l once"),
                ("orders.l", 'no equality connects "c" with "l" before it'),
            ],
            id="orders",
        ),
    ],
)
def test_a_problem_is_told_with_its_place(
    parts: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Which part of the join, what is wrong with it, and what there is instead."""
    with pytest.raises(JoinError) as raised:
        bound(msgspec.structs.replace(Q3, **parts), SHOP)

    told = raised.value.problems
    assert [part for part, _ in told] == [part for part, _ in expected]
    for (_, problem), (_, beginning) in zip(told, expected, strict=True):
        assert problem.startswith(beginning)


def test_cartesian_steps_are_there_for_the_asking() -> None:
    """With `cartesian`, what nothing connects is no problem."""
    bound(msgspec.structs.replace(Q3, where=("c.custkey = o.custkey",), cartesian=True), SHOP)


def test_an_as_of_join_has_an_equality() -> None:
    """It is by key, whatever else matches."""
    join = msgspec.structs.replace(priced(), on=("o.limit > p.price",))

    with pytest.raises(JoinError) as raised:
        bound(join, MARKET)

    assert raised.value.problems == (("on", 'no equality connects "p" with "o"; write one'),)


def test_undeclared_fields_are_compared_as_the_data_they_are() -> None:
    """JSON is equal to JSON: no declaration is needed to join by a field."""
    relations = {"r": Relation(Scope({KEY: "JSON", VALUE: "JSON"}, open=True))}
    inputs = (JoinInput("a", "r"), JoinInput("b", "r"))
    join = DeltaJoin("j", inputs, ("a.left = b.right",), (("x", "a.x"),), "b.key")

    ((one, other),) = bound(join, relations).variables

    assert (one.local, other.local) == ('"left"', '"right"')


def test_the_parameter_of_a_lambda_is_no_column() -> None:
    """And one that has a column's name gets another where the column loses its alias."""
    relations = {"r": Relation(Scope({"x": "BIGINT", "items": "BIGINT[]"}))}
    inputs = (JoinInput("a", "r"), JoinInput("b", "r"))

    def filters(condition: str) -> tuple[str, ...]:
        join = DeltaJoin("j", inputs, ("a.x = b.x", condition), (("x", "a.x"),), "b.x")
        return bound(join, relations).inputs[0].filters

    (found,) = filters("len(list_filter(a.items, lambda y: y > a.x)) > 0")
    assert "a." not in found
    (other,) = filters("len(list_filter(a.items, lambda x: x > a.x)) > 0")
    assert "lambda x_: (x_ > x)" in other
