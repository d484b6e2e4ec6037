"""Delta paths: the order of lookups, what each step reads, tests, sees and lets go."""

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import ikebana as ik
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning.joins.paths import ArrangedBy, Extend, Lookup
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.relations import Relation
from support.known_joins import GRAPH, MARKET, Q3, SHOP, TRIANGLES, planned, priced, relation

BUILDING = ("(mktsegment = 'BUILDING')",)
EARLY = ("(orderdate < CAST('1995-03-15' AS DATE))",)
LATE = ("(shipdate > CAST('1995-03-15' AS DATE))",)


def orders(join: DeltaJoin, relations: dict[str, Relation]) -> dict[str, list[str]]:
    """The order of lookups of each path."""
    return {
        path.alias: [step.alias for step in path.steps if isinstance(step, Lookup)]
        for path in planned(join, relations).paths
    }


def changed(join: DeltaJoin, **parts: Any) -> DeltaJoin:
    return msgspec.structs.replace(join, **parts)


def test_the_paths_of_tpch_q3() -> None:
    """Customer to orders to lineitem, orders to customer first, lineitem back to customer."""
    assert orders(Q3, SHOP) == {"c": ["o", "l"], "o": ["c", "l"], "l": ["o", "c"]}
    assert [path.filters for path in planned(Q3, SHOP).paths] == [BUILDING, EARLY, LATE]


def test_the_lookups_of_tpch_q3() -> None:
    """Each asks the relation behind its filters, by a key of what is bound, with its tie."""
    found = [
        (step.arrangement, [key.sql for key in step.key], step.sees_equal)
        for path in planned(Q3, SHOP).paths
        for step in path.steps
        if isinstance(step, Lookup)
    ]

    customer = ArrangedBy("customer", BUILDING, ("custkey",))
    by_customer = ArrangedBy("orders", EARLY, ("custkey",))
    by_order = ArrangedBy("orders", EARLY, ("orderkey",))
    items = ArrangedBy("lineitem", LATE, ("orderkey",))
    assert found == [
        (by_customer, ['"c.custkey"'], False),
        (items, ['"o.orderkey"'], False),
        (customer, ['"o.custkey"'], True),
        (items, ['"o.orderkey"'], False),
        (by_order, ['"l.orderkey"'], True),
        (customer, ['"o.custkey"'], True),
    ]


def test_a_path_carries_what_is_read_later_and_no_more() -> None:
    """A filter's columns stay where the filter is; a key is let go when it has been asked."""
    path = planned(Q3, SHOP).paths[2]

    money = ("l.discount", "l.extendedprice")
    shown = (*money, "l.orderkey", "o.orderdate", "o.priority")
    assert path.carries == (*money, "l.orderkey")
    assert [step.carries for step in path.steps] == [
        (*money, "l.orderkey", "o.custkey", "o.orderdate", "o.priority"),
        shown,
    ]


@pytest.mark.parametrize(
    ("c", "d", "expected"),
    [
        pytest.param(relation(k="BIGINT"), relation(k="BIGINT"), "bcd", id="as they are listed"),
        pytest.param(
            relation(k="BIGINT"), relation(k="BIGINT", size=9), "dbc", id="a declared size"
        ),
        pytest.param(
            relation(k="BIGINT", size=10), relation(k="BIGINT", size=9), "dcb", id="less first"
        ),
        pytest.param(
            relation(("k",), k="BIGINT"),
            relation(k="BIGINT", size=9),
            "cdb",
            id="a unique key before a size",
        ),
        pytest.param(
            relation(("k", "other"), k="BIGINT", other="BIGINT"),
            relation(k="BIGINT", size=9),
            "dbc",
            id="half of a unique key is none",
        ),
    ],
)
def test_the_order_of_what_is_connected(c: Relation, d: Relation, expected: str) -> None:
    """Unique keys first, then declared sizes, then as the inputs are listed."""
    relations = {"a": relation(k="BIGINT"), "b": relation(k="BIGINT"), "c": c, "d": d}
    join = DeltaJoin(
        "j",
        tuple(JoinInput(name, name) for name in "abcd"),
        ("a.k = b.k AND a.k = c.k AND a.k = d.k",),
        (("k", "a.k"),),
        "a.k",
    )

    assert "".join(orders(join, relations)["a"]) == expected


def test_what_is_connected_comes_before_what_is_unique_or_small() -> None:
    """A cartesian step is the last resort, even to a relation of one datum."""
    relations = {name: relation(k="BIGINT") for name in "ab"} | {
        "c": relation(("k",), k="BIGINT", size=1)
    }
    join = DeltaJoin(
        "j",
        tuple(JoinInput(name, name) for name in "acb"),
        ("a.k = b.k",),
        (("k", "a.k"),),
        "a.k",
        cartesian=True,
    )

    assert orders(join, relations)["a"] == ["b", "c"]


def test_an_order_that_is_told_is_kept() -> None:
    """For the path that it is told for; the others are chosen."""
    told = changed(Q3, orders=(("o", ("l", "c")),))

    assert orders(told, SHOP) == {"c": ["o", "l"], "o": ["l", "c"], "l": ["o", "c"]}


def test_what_follows_from_equalities_connects_too() -> None:
    """a = b and b = c: the path of a asks c before b, if c is smaller."""
    relations = {name: relation(k="BIGINT", size=ord("z") - ord(name)) for name in "abc"}
    join = DeltaJoin(
        "j",
        tuple(JoinInput(name, name) for name in "abc"),
        ("a.k = b.k AND b.k = c.k",),
        (("k", "a.k"),),
        "a.k",
    )

    path = planned(join, relations).paths[0]

    assert orders(join, relations)["a"] == ["c", "b"]
    # The second is asked for the same key, so the row stays in its shard.
    assert [step.exchange for step in path.steps if isinstance(step, Lookup)] == [True, False]
    assert path.exchanges == 1


def test_a_predicate_is_tested_as_soon_as_what_it_reads_is_bound() -> None:
    """On the path of customers after two lookups, on that of orders after lineitem's."""
    join = changed(Q3, where=(*Q3.where, "o.orderdate < l.shipdate AND c.custkey < o.orderkey"))

    found = {
        path.alias: [[each.sql for each in step.predicates] for step in path.steps]
        for path in planned(join, SHOP).paths
    }

    dates = '("o.orderdate" < "l.shipdate")'
    keys = '("c.custkey" < "o.orderkey")'
    assert found == {
        "c": [[keys], [dates]],
        "o": [[keys], [dates]],
        "l": [[dates], [keys]],
    }


def test_two_expressions_over_one_input_that_must_be_equal_are_a_filter() -> None:
    """x = o.k and y = o.k makes x = y, which is known without o."""
    relations = {"a": relation(x="BIGINT", y="BIGINT"), "o": relation(k="BIGINT")}
    join = DeltaJoin(
        "j",
        (JoinInput("a", "a"), JoinInput("o", "o")),
        ("a.x = o.k", "a.y = o.k"),
        (("k", "o.k"),),
        "o.k",
    )

    of_a, of_o = planned(join, relations).paths

    assert of_a.filters == ("(x = y)",)
    assert list(of_o.reads()) == [("a", ArrangedBy("a", ("(x = y)",), ("x",)))]


def test_circles_are_extended_by_all_who_know_the_variable() -> None:
    """Each edge of a triangle asks both others for the third node."""
    found = []
    for path in planned(TRIANGLES, GRAPH).paths:
        (step,) = path.steps
        assert isinstance(step, Extend)
        found.append([(each.alias, str(each.values)) for each in step.candidates])
        assert {str(each.data) for each in step.candidates} == {"edges(dst, src)"}

    out, into = "edges(src)", "edges(dst)"
    assert found == [
        [("bc", out), ("ac", out)],
        [("ab", into), ("ac", into)],
        [("ab", out), ("bc", into)],
    ]


def test_a_tail_of_a_circle_is_looked_up() -> None:
    """One input that knows a variable needs no intersection."""
    join = changed(
        TRIANGLES,
        inputs=(*TRIANGLES.inputs, JoinInput("tail", "edges")),
        where=(*TRIANGLES.where, "tail.src = ac.dst"),
    )

    kinds = {
        path.alias: [type(step).__name__ for step in path.steps]
        for path in planned(join, GRAPH).paths
    }

    assert kinds["ab"] == ["Extend", "Lookup"]
    assert kinds["bc"] == ["Extend", "Lookup"]


LOCAL = DeltaJoin(
    "local",
    tuple(JoinInput(name, name) for name in ("customer", "orders", "lineitem", "supplier")),
    (
        "customer.custkey = orders.custkey",
        "lineitem.orderkey = orders.orderkey",
        "lineitem.suppkey = supplier.suppkey",
        "customer.nation = supplier.nation",
    ),
    (("nation", "supplier.nation"),),
)


def local(*keys: str) -> dict[str, Relation]:
    """The relations of TPC-H's query 5, some of them with their keys."""
    columns: dict[str, tuple[str, str]] = {
        "customer": ("custkey", "nation"),
        "orders": ("orderkey", "custkey"),
        "lineitem": ("orderkey", "suppkey"),
        "supplier": ("suppkey", "nation"),
    }
    return {
        name: relation(
            *([(own,)] if name in keys else []), size=None, **{own: "BIGINT", other: "BIGINT"}
        )
        for name, (own, other) in columns.items()
    }


def test_a_circle_in_which_keys_lead_on_is_none() -> None:
    """Each line has one order, one customer and one supplier: no more rows than lines."""
    plan = planned(LOCAL, local("customer", "orders", "supplier"))

    assert orders(LOCAL, local("customer", "orders", "supplier")) == {
        "customer": ["orders", "lineitem", "supplier"],
        "orders": ["customer", "lineitem", "supplier"],
        "lineitem": ["orders", "customer", "supplier"],
        # Not the customers of its nation, each with all orders.
        "supplier": ["lineitem", "orders", "customer"],
    }
    asked = [step for path in plan.paths for step in path.steps if isinstance(step, Lookup)]
    # By the key alone, so that all paths ask one arrangement; the nation is tested.
    assert {str(step.arrangement) for step in asked if step.alias == "supplier"} == {
        "supplier(suppkey)"
    }
    assert [[each.shown for each in step.predicates] for step in asked[-1:]] == [
        ['"customer.nation" = "supplier.nation"']
    ]


@pytest.mark.parametrize("keys", [(), ("customer",), ("orders",)])
def test_a_circle_in_which_they_do_not_is_extended(keys: tuple[str, ...]) -> None:
    """As ever, whatever else is unique."""
    plan = planned(LOCAL, local(*keys))

    assert any(isinstance(step, Extend) for path in plan.paths for step in path.steps)


@pytest.mark.parametrize("strategy", ["auto", "lookup"])
def test_what_goes_in_no_circle_is_looked_up(strategy: str) -> None:
    """And what does, if the join says so."""
    join = Q3 if strategy == "auto" else changed(TRIANGLES, strategy="lookup")

    for path in planned(join, {**SHOP, **GRAPH}).paths:
        assert all(isinstance(step, Lookup) for step in path.steps)


@pytest.mark.parametrize(("at", "sees_equal"), [("alt", True), ("neu", False)])
def test_an_as_of_join_is_one_path(at: Any, sees_equal: bool) -> None:  # noqa: FBT001
    """That of the left; the right's changes make nothing."""
    (path,) = planned(priced(at=at), MARKET).paths
    (step,) = path.steps

    assert path.alias == "o"
    assert isinstance(step, Lookup)
    assert step.arrangement == ArrangedBy("prices", (), ("product",))
    assert step.sees_equal is sees_equal


def test_json_beside_a_unique_key_is_looked_up_and_not_tested() -> None:
    """SQL compares no JSON: the lookup is by all columns, as without a unique key."""
    shop = ik.Pipeline("shop")
    shop.topic("l", columns=[ik.Column("i", "JSON"), ik.Column("j", "JSON")]).upsert()
    shop.topic("r", columns=[ik.Column("q", "JSON")]).upsert()
    shop.sql("SELECT l.i, r.q FROM l JOIN r ON l.i = r.key AND l.j = r.q", name="v").to("out")

    left = [("a", {"i": 1, "j": [1]}, 0), ("b", {"i": 1, "j": [2]}, 0)]
    found = shop.evaluate(l=left, r=[(1, {"q": [1]}, 0)])

    assert [update.data for update in found["out"]] == [("a", {"i": 1, "q": [1]})]


def calls_to_plan(tables: int, columns: Callable[[int], tuple[str, str]]) -> int:
    """How many functions are called to plan a join of so many tables."""
    types = {"a": "BIGINT", "b": "BIGINT", KEY: "JSON", VALUE: "JSON"}
    known = {f"r{at}": Relation(Scope(types), (("a",),) if at % 2 else ()) for at in range(tables)}
    inputs = tuple(JoinInput(f"t{at}", f"r{at}") for at in range(tables))
    where = tuple(" = ".join(columns(at)) for at in range(1, tables))
    join = DeltaJoin("j", inputs, where, (("x", "t0.a"),))
    count = 0

    def called(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    # All of it is compiled once before, so that SQL is not counted.
    planned(join, known)
    sys.setprofile(called)
    try:
        planned(join, known)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param(lambda at: (f"t{at - 1}.b", f"t{at}.a"), id="chain"),
        pytest.param(lambda at: ("t0.a", f"t{at}.a"), id="one column"),
        pytest.param(lambda at: (f"t{(at - 1) // 2}.b", f"t{at}.b"), id="tree"),
    ],
)
def test_the_work_of_planning_grows_with_the_third_power_of_tables_at_most(
    columns: Callable[[int], tuple[str, str]],
) -> None:
    """A path has a step for each other table, and each step looks at those that are left."""
    assert calls_to_plan(16, columns) <= 2**3 * calls_to_plan(8, columns)
