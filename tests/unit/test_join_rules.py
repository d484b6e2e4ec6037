"""The rules that make joins exact, each by the trace that breaks a system without it."""

from collections import Counter
from typing import Any

import pytest

from ikebana import Concat, Input, Linear, Output, Plan, Reduce, Upsert, steps
from ikebana.codecs import cdcv2
from ikebana.processor.base.diff_reader import Cdcv2Reader
from ikebana.processor.planning import progress
from ikebana.processor.planning.joins.query import AsOfJoin, At, DeltaJoin, JoinInput
from support.dated_upserts import Play, dated

ORDERS = dated("orders", "product VARCHAR")
QUOTES = dated("quotes", "product VARCHAR", "price BIGINT")
UPSERTS = (Upsert("orders", "orders"), Upsert("quotes", "quotes"))
TEA = {"product": "tea"}
# What says that all before it is closed waits to be closed itself.
CLOSING = 1


def priced(right: str, price: str = "p.price", at: At = "alt") -> AsOfJoin:
    """Each order with what `right` says of its product."""
    on = "o.product = p.key::VARCHAR" if right == "highest" else "o.product = p.product"
    orders, prices = JoinInput("o", "orders"), JoinInput("p", right)
    return AsOfJoin("priced", orders, prices, (on,), (("price", price),), at=at)


@pytest.mark.parametrize("most", [1, 1_000])
def test_a_right_side_one_exchange_deeper_is_waited_for(most: int) -> None:
    """R2. A price at 52 reaches its arrangement a batch late; the order at 55 asks later still."""
    plan = Plan(
        "p",
        (ORDERS, QUOTES),
        (
            *UPSERTS,
            Reduce("highest", "quotes", (("price", "max(price)"),), by="product"),
            priced("highest"),
        ),
        (Output("o", "priced", "o"),),
    )
    play = Play(plan, most=most)
    play.say("quotes", 1, {**TEA, "price": 5}, 40)
    play.close(50)
    play.say("quotes", 2, {**TEA, "price": 7}, 52)
    play.say("orders", "a", TEA, 55)
    play.reach(56)
    while play.run.batch(play.run.last.upper):
        frontiers = play.run.last.frontiers
        # Nothing is shown of a time before all that it may meet is there.
        assert frontiers["priced"] <= frontiers["highest"] <= frontiers["quotes"]

    assert play.updates("o") == [("a", 7, 55, 1)]
    # The reduction, what is arranged of it, and the results are one exchange behind each other.
    depths = progress.depths(progress.edges(plan))
    assert depths["highest"] == 1
    assert depths["priced"] >= depths["highest"] + 1


def test_rows_of_quicker_paths_wait_for_the_slowest() -> None:
    """R3. An output has one upper, that of whoever is furthest behind."""
    plan = Plan(
        "p",
        (ORDERS, QUOTES),
        (
            *UPSERTS,
            priced("quotes"),
            Linear("plain", "orders", (steps.select(price="-1"),)),
            Concat("both", ("plain", "priced")),
        ),
        (Output("o", "both", "o"), Output("plain", "plain", "plain")),
    )
    play = Play(plan)
    play.say("quotes", 1, {**TEA, "price": 5}, 1)
    play.say("orders", "a", TEA, 2)
    play.reach(3)
    seen = []
    while play.run.batch(play.run.last.upper):
        seen.append((play.run.frontiers["plain"], play.run.frontiers["o"]))
        assert all(update[-2] < play.run.frontiers["o"] for update in play.updates("o"))

    assert any(quick > whole for quick, whole in seen)
    assert seen[-1] == (3, 3)
    assert play.updates("o") == [("a", -1, 2, 1), ("a", 5, 2, 1)]


def test_equal_results_of_two_shards_are_one_update_for_a_cdcv2_reader() -> None:
    """R3. Two keys in two shards each retract x at 9: twice (x, 9, -1) would be taken as one."""
    join = DeltaJoin(
        "sold",
        (JoinInput("o", "orders"), JoinInput("p", "quotes")),
        ("o.product = p.product",),
        (("x", "'x'"),),
        "'all'",
    )
    plan = Plan("p", (ORDERS, QUOTES), (*UPSERTS, join), (Output("o", "sold", "o", "cdcv2-json"),))
    play = Play(plan)
    for name in ("tea", "milk", "salt", "rice", "corn", "wine"):
        play.say("orders", name, {"product": name}, 1)
        play.say("quotes", name, {"product": name, "price": 1}, 1)
    for name in ("tea", "milk", "salt", "rice"):
        play.say("orders", name, None, 9)
    play.close(12)
    reader = Cdcv2Reader()
    for _, value, _ in play.run.written.messages["o"]:
        reader.feed(cdcv2.decode(value))
    for message in cdcv2.encode_progress(0, 12, play.run.written.times["o"], 1 << 20):
        reader.feed(cdcv2.decode(message))

    # What is arranged by product lies in several shards, and the results in one.
    holding = [any(store.scan(b"arrange ")) for store in play.run.stores]
    assert sum(holding) > 1
    found = [(update.time, update.diff) for step in reader.take() for update in step.updates]
    assert found == [(1, 6), (9, -4)]


@pytest.mark.parametrize(("at", "prices"), [("alt", {6: 1}), ("neu", {5: 1})])
def test_what_is_compacted_is_older_than_all_that_can_be_asked(
    at: At, prices: dict[int, int]
) -> None:
    """R7. A price at 1 that is compacted to 3 is seen by an order at 3 that does not see 3."""
    plan = Plan(
        "p", (ORDERS, QUOTES), (*UPSERTS, priced("quotes", at=at)), (Output("o", "priced", "o"),)
    )
    play = Play(plan)
    play.say("quotes", 1, {**TEA, "price": 5}, 1)
    # Time goes on until the price has no time any more.
    play.close(2)
    play.close(3)
    play.say("quotes", 1, {**TEA, "price": 6}, 3)
    play.say("orders", "a", TEA, 3)
    play.close(9)

    assert Counter(update[1] for update in play.updates("o")) == prices
    assert play.updates("o")[0][-2:] == (3, 1)


def test_what_nobody_asks_for_any_more_is_let_go() -> None:
    """However often a price changes, its arrangement ends with one."""
    plan = Plan("p", (ORDERS, QUOTES), (*UPSERTS, priced("quotes")), (Output("o", "priced", "o"),))
    play = Play(plan)
    for time in range(1, 30):
        play.say("quotes", 1, {**TEA, "price": time}, time)
        if time % 7 == 0:
            play.close(time)
    play.close(40)

    arranged = [count for name, count in play.kept().items() if name.startswith("arrange ")]
    assert arranged == [1]


def test_many_matches_are_taken_in_portions_and_never_show_in_between() -> None:
    """R13. 60 updates that each meet 150 others are 9,000 rows between two shards."""
    orders, many = 60, 150
    people = dated("people", "product VARCHAR", "town VARCHAR")
    towns = dated("towns", "open BIGINT")
    join = DeltaJoin(
        "buyers",
        (JoinInput("o", "orders"), JoinInput("w", "people"), JoinInput("t", "towns")),
        ("o.product = w.product AND w.town = t.key::VARCHAR",),
        (("n", "t.open"),),
        "t.key",
    )
    plan = Plan(
        "p",
        (ORDERS, people, towns),
        (Upsert("orders", "orders"), Upsert("people", "people"), Upsert("towns", "towns"), join),
        (Output("o", "buyers", "o"),),
    )
    play = Play(plan, shards=2, most=1)
    for number in range(many):
        play.say("people", number, {"product": "tea", "town": f"t{number % 2}"}, 1)
    play.say("towns", "t0", {"open": 1}, 1)
    play.say("towns", "t1", {"open": 0}, 1)
    play.close(2)
    for number in range(orders):
        play.say("orders", number, TEA, 3)
    play.say("towns", "t1", {"open": 2}, 4)
    play.reach(6)
    batches = reached = 0
    while play.run.batch(play.run.last.upper):
        batches += 1
        reached = play.run.frontiers["o"] - 1
        half = orders * many // 2
        whole = {
            (f"t{town}", is_open): half
            for town, is_open in ((0, 1), (1, 2 if reached >= 4 else 0))
            if reached >= 3
        }
        assert play.shown("o", reached) == whole

    assert reached == 5
    depth = progress.depths(progress.edges(plan))["buyers"]
    assert batches > depth + 1, "nothing was taken in portions"


def changes(play: Play, *updates: tuple[Any, int, int]) -> None:
    """Updates of an input of updates: (product, time, diff)."""
    for product, time, diff in updates:
        play.change("lefts", 1, {"product": product}, time, diff)


LEFTS = Input("lefts", ("lefts",), "diff", mode="diffs", columns=ORDERS.columns)


@pytest.mark.parametrize("outer", [False, True])
def test_a_locked_retraction_takes_back_the_latest_that_is_remembered(
    outer: bool,  # noqa: FBT001
) -> None:
    """R15. Each insertion is remembered, the empty ones too; one too many is an error."""
    join = AsOfJoin(
        "priced",
        JoinInput("o", "lefts"),
        JoinInput("p", "quotes"),
        ("o.product = p.product",),
        (("price", "p.price"),),
        outer=outer,
        retract="locked",
    )
    quotes = (Upsert("quotes", "quotes"),)
    play = Play(Plan("p", (LEFTS, QUOTES), (*quotes, join), (Output("o", "priced", "o"),)))
    play.say("quotes", 1, {**TEA, "price": 5}, 2)
    play.say("quotes", 1, {**TEA, "price": 7}, 4)
    play.say("quotes", 1, None, 6)
    inserted = [("tea", 1, 1), ("tea", 3, 2), ("tea", 5, 1), ("tea", 7, 1)]
    taken = [("tea", 8, -1), ("tea", 9, -2), ("tea", 10, -2), ("tea", 11, -1)]
    changes(play, *inserted, *taken)
    play.close(20)

    nothing = [(1, 1), (7, 1), (8, -1), (10, -1)] if outer else []
    expected = [(5, 3, 2), (7, 5, 1), (7, 9, -1), (5, 9, -1), (5, 10, -1)]
    expected += [(None, time, diff) for time, diff in nothing]  # type: ignore[misc]
    assert sorted(map(repr, (update[1:] for update in play.updates("o")))) == sorted(
        map(repr, expected)
    )
    assert [(time, diff) for _, time, diff in play.errors()] == [(11, 1)]


@pytest.mark.parametrize("pushdown", [True, False])
def test_an_upsert_keeps_whole_rows_once_for_outputs_and_lookups(
    pushdown: bool,  # noqa: FBT001
) -> None:
    """R17. A condition over the value drops nothing before an upsert that lookups ask."""
    names, sizes = dated("names", "size BIGINT", "name VARCHAR"), dated("sizes", "name VARCHAR")
    join = DeltaJoin(
        "named",
        (JoinInput("n", "names"), JoinInput("s", "sizes")),
        ("n.key = s.key AND n.size < 5",),
        (("name", "n.name"), ("other", "s.name")),
    )
    plan = Plan(
        "p",
        (names, sizes),
        (
            Upsert("names", "names"),
            Upsert("sizes", "sizes"),
            join,
            Linear("small", "names", (steps.where("size < 3"), steps.project("size"))),
            AsOfJoin(
                "looked",
                JoinInput("s", "sizes"),
                JoinInput("n", "names"),
                ("s.key = n.key",),
                (("name", "n.name"),),
            ),
        ),
        (Output("o", "named", "o"), Output("small", "small", "small"), Output("l", "looked", "l")),
        pushdown=pushdown,
    )
    play = Play(plan)
    play.say("names", 1, {"size": 1, "name": "a"}, 1)
    play.say("sizes", 1, {"name": "s"}, 2)
    play.say("names", 1, {"size": 9, "name": "b"}, 3)
    play.say("sizes", 1, {"name": "u"}, 4)
    play.say("names", 1, {"size": 4, "name": "c"}, 5)
    play.close(9)

    assert play.updates("o") == [
        (1, "a", "s", 2, 1),
        (1, "a", "s", 3, -1),
        (1, "c", "u", 5, 1),
    ]
    assert play.updates("small") == [(1, 1, 1, 1), (1, 1, 3, -1)]
    # What leaves meets the right as it is then, by default.
    assert play.updates("l") == [(1, "a", 2, 1)]
    # One state of each upsert, and what is behind a filter beside it.
    assert {name.partition(":")[0]: count for name, count in play.kept().items()} == {
        "names": 1 + CLOSING,
        "sizes": 1 + CLOSING,
        "arrange names": 1,
    }


def test_a_lookup_by_the_key_alone_adds_nothing_to_an_upsert_s_state() -> None:
    """It is one state, and counts once."""
    join = DeltaJoin(
        "same",
        (JoinInput("o", "orders"), JoinInput("q", "quotes")),
        ("o.key = q.key",),
        (("price", "q.price"),),
    )
    shown = (Output("o", "orders", "o"), Output("q", "quotes", "q"))
    with_join = Plan("p", (ORDERS, QUOTES), (*UPSERTS, join), (*shown, Output("s", "same", "s")))
    without = Plan("p", (ORDERS, QUOTES), UPSERTS, shown)
    kept = []
    for plan in (with_join, without):
        play = Play(plan)
        for number in range(12):
            play.say("orders", number, TEA, number)
            play.say("quotes", number, {**TEA, "price": number}, number)
        play.close(20)
        kept.append(play.kept())

    assert kept[0] == kept[1] == {"orders": 12 + CLOSING, "quotes": 12 + CLOSING}
    assert not progress.has_exchanges(with_join)
