"""An as-of join's one path is its definition: each left update with the right of its time."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.update import Update, accumulate, consolidate
from ikebana.processor.planning.joins.query import At
from support.delta_path_oracle import Datum, Given, run
from support.known_joins import MARKET, planned, priced

products = st.sampled_from(["tea", "milk", None])
small = st.integers(0, 3)
diffs = st.sampled_from([1, 1, 2, -1])
orders = st.lists(st.builds(Update, st.tuples(small, products, small), small, diffs), max_size=6)
prices = st.lists(st.builds(Update, st.tuples(products, small), small, diffs), max_size=8)


def definition(
    left: list[Update[Datum]], right: list[Update[Datum]], at: At, *, outer: bool
) -> list[Update[Any]]:
    """Each update of the left with what the right is, or was before, at its time."""
    found = []
    for (number, product, limit), time, diff in left:
        there = accumulate(right, time if at == "alt" else time - 1)
        matches: Counter[int | None] = Counter()
        for (name, price), count in there.items():
            if product is not None and name == product and price < limit:
                matches[price] += count
        if outer and not matches:
            matches[None] = 1
        found += [Update((number, price), time, diff * n) for price, n in matches.items()]
    return consolidate(found)


@given(orders, prices, st.sampled_from(["alt", "neu"]), st.booleans())
def test_each_update_meets_the_right_of_its_own_time(
    left: list[Update[Datum]],
    right: list[Update[Datum]],
    at: At,
    outer: bool,  # noqa: FBT001
) -> None:
    """With ties seen or not, with nulls, with negative multiplicities on both sides."""
    join = priced("p.price < o.limit", at=at, outer=outer)
    columns = {"orders": ("number", "product", "limit"), "prices": ("product", "price")}
    history = {"orders": left, "prices": right}

    made = run(
        planned(join, MARKET),
        MARKET,
        {name: Given(columns[name], history[name]) for name in columns},
    )

    assert Counter(made) == Counter(definition(left, right, at, outer=outer))


@given(orders, prices)
def test_what_is_remembered_is_what_is_taken_back(
    left: list[Update[Datum]], right: list[Update[Datum]]
) -> None:
    """With `retract: locked`, what is inserted and retracted later leaves nothing."""
    inserted = [update._replace(diff=abs(update.diff)) for update in left]
    retracted = [Update(data, time + 4, -diff) for data, time, diff in inserted]
    both = inserted + retracted
    given_ = {
        "orders": Given(("number", "product", "limit"), both),
        "prices": Given(("product", "price"), right),
    }

    made = run(planned(priced(outer=True, retract="locked"), MARKET), MARKET, given_)

    assert accumulate(made, 9) == {}
    # Without a match there is null, so there is always something to take back.
    assert not left or made
