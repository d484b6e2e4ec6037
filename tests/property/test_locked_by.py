"""As-of joins that are locked by columns, as plans: a row meets the right when these change."""

from collections import Counter
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from ikebana import AsOfJoin, Column, Input, JoinInput, Output, Plan, Upsert
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning.joins.query import At
from support.strategies import unhurried
from support.sums import summed

TIMES = 8
_LEFT = ("product", "state", "note")
_Row = tuple[str | None, ...]
_Said = list[tuple[Any, tuple[Any, ...] | None, int]]
_Shown = Counter[tuple[Any, ...]]

# Mostly of one product, so that its price changes between two changes of an order.
products = st.sampled_from(["a", "a", "a", "b", None])
few = st.sampled_from(["a", "b", None])
order = st.tuples(products, few, few)
price = st.tuples(products, st.integers(1, 9))


def changes(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[_Said]:
    """A row, now and then none, of one of the keys, at a time."""
    rows = st.one_of(of, of, of, st.none())
    return st.lists(
        st.tuples(st.integers(1, 2), rows, st.integers(0, TIMES - 1)), min_size=4, max_size=most
    )


def plan_of(locked_by: tuple[str, ...], at: At, *, outer: bool, by_state: bool) -> Plan:
    """Orders with the prices of their products; no result shows an order's state."""
    columns = tuple(Column(name, "VARCHAR") for name in _LEFT)
    right = (Column("product", "VARCHAR"), Column("price", "BIGINT"))
    # Over both sides, so that it decides what is met.
    both = ("(o.state || p.product) IS NOT NULL",) if by_state else ()
    join = AsOfJoin(
        "priced",
        JoinInput("o", "order"),
        JoinInput("p", "price"),
        ("o.product = p.product", *both),
        (("note", "o.note"), ("price", "p.price")),
        at=at,
        outer=outer,
        retract="locked",
        locked_by=locked_by,
    )
    return Plan(
        "p",
        (
            Input("orders", ("orders",), columns=columns),
            Input("prices", ("prices",), columns=right),
        ),
        (Upsert("order", "orders"), Upsert("price", "prices"), join),
        (Output("out", "priced", "out"),),
    )


def told(said: _Said, time: int) -> dict[Any, tuple[Any, ...]]:
    """The rows by key after all that is said up to a time."""
    rows: dict[Any, tuple[Any, ...]] = {}
    for key, row, at in sorted(said, key=lambda each: each[2]):
        if at <= time:
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
    return rows


def defined(
    left: _Said, right: _Said, locked_by: tuple[str, ...], at: At, *, outer: bool, by_state: bool
) -> list[_Shown]:
    """What is there at each time: each order with what it met when its lock changed last."""
    lock = [_LEFT.index(column) for column in locked_by if column in _LEFT]
    met: dict[Any, tuple[list[Any], list[int | None]]] = {}
    shown = []
    for time in range(TIMES):
        there = told(right, time if at == "alt" else time - 1).values()
        rows = told(left, time)
        met = {key: known for key, known in met.items() if key in rows}
        for key, row in rows.items():
            now = [row[place] for place in lock]
            if key in met and met[key][0] == now:
                continue
            asked = None if by_state and row[1] is None else row[0]
            found: list[int | None] = [
                price for name, price in there if name is not None and name == asked
            ]
            met[key] = (now, found or ([None] if outer else []))
        shown.append(
            Counter((key, row[2], price) for key, row in rows.items() for price in met[key][1])
        )
    return shown


def test_an_update_of_another_column_keeps_the_price() -> None:
    """The table of docs/joins.md."""
    said: dict[str, list[Any]] = {
        "prices": [
            *[(1, {"product": "tea", "price": 5}, 1), (2, {"product": "ink", "price": 9}, 1)],
            (1, {"product": "tea", "price": 7}, 3),
        ],
        "orders": [
            (1, {"product": "tea", "note": "open"}, 2),
            (1, {"product": "tea", "note": "paid"}, 4),
            (1, {"product": "ink", "note": "paid"}, 5),
        ],
    }

    def prices(locked_by: tuple[str, ...]) -> list[tuple[str, int, int, int]]:
        plan = plan_of(locked_by, "alt", outer=False, by_state=False)
        found = Evaluation(plan).advance(said, TIMES)["out"]
        return [(row["note"], row["price"], time, diff) for (_, row), time, diff in found]

    first, last = ("open", 5, 2, 1), ("paid", 9, 5, 1)
    assert sorted(prices(("product",))) == sorted(
        [first, ("open", 5, 4, -1), ("paid", 5, 4, 1), ("paid", 5, 5, -1), last]
    )
    assert sorted(prices(())) == sorted(
        [first, ("open", 5, 4, -1), ("paid", 7, 4, 1), ("paid", 7, 5, -1), last]
    )


@unhurried
@given(
    left=changes(order, 14),
    right=changes(price, 12),
    lock=st.sampled_from(["product", "product, state", "key, product", "product, state, note"]),
    at=st.sampled_from(["alt", "neu"]),
    outer=st.booleans(),
    by_state=st.booleans(),
    cuts=st.sets(st.integers(1, TIMES - 1)),
    shards=st.integers(1, 3),
)
def test_a_row_has_what_it_met_when_a_column_of_its_lock_changed_last(
    left: _Said,
    right: _Said,
    lock: str,
    at: Literal["alt", "neu"],
    cuts: set[int],
    shards: int,
    *,
    outer: bool,
    by_state: bool,
) -> None:
    """At every time, over any cut into batches; also by columns that nothing else reads."""
    locked_by = tuple(lock.split(", "))
    by_state = by_state and "state" in locked_by
    steps = Evaluation(plan_of(locked_by, at, outer=outer, by_state=by_state), shards=shards)
    updates = []
    lower = 0
    for upper in (*sorted(cuts), TIMES):
        given_: dict[str, list[Any]] = {
            name: [
                (key, None if row is None else dict(zip(columns, row, strict=True)), time)
                for key, row, time in said
                if lower <= time < upper
            ]
            for name, said, columns in (
                ("orders", left, _LEFT),
                ("prices", right, ("product", "price")),
            )
        }
        found = steps.advance(given_, upper)
        assert found["errors"] == []
        updates += found["out"]
        lower = upper

    expected = defined(left, right, locked_by, at, outer=outer, by_state=by_state)
    for time in range(TIMES):
        shown = summed(
            ((key, value["note"], value["price"]), diff)
            for (key, value), when, diff in updates
            if when <= time
        )
        assert shown == expected[time]
