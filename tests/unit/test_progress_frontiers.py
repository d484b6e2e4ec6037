"""Frontiers of operators: how far each may go in each batch, and what holds it back."""

from collections.abc import Iterator, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Concat, Input, Linear, Output, Plan, Reduce, Upsert, steps
from ikebana.arrangements.update import Interval
from ikebana.processor.planning.progress import (
    Edges,
    advance_frontiers,
    edges,
    intervals,
    output_intervals,
    since,
)
from support.strategies import unhurried

Frontiers = Mapping[str, int]

# Orders look up prices that are one exchange deeper than the orders are.
PRICED = {
    "prices": Edges(from_source=True),
    "current_prices": Edges(exchanges=("prices",)),
    "orders": Edges(from_source=True, looks_up=("current_prices",)),
}


def batches(graph: Mapping[str, Edges], uppers: Sequence[int]) -> Iterator[Frontiers]:
    """The frontiers after each batch."""
    frontiers: Frontiers = {}
    for upper in uppers:
        frontiers = advance_frontiers(graph, frontiers, upper)
        yield frontiers


def test_every_operator_of_a_plan_waits_for_the_source_alone() -> None:
    """An upsert reads its input and nothing else, so it is never behind."""
    plan = Plan(
        "p",
        inputs=(Input("a", ("a",)), Input("b", ("b",))),
        operators=(Upsert("one", "a"), Upsert("other", "b")),
        outputs=(Output("out", "one", "out"),),
    )

    assert list(batches(edges(plan), [3, 8])) == [
        {"one": 3, "other": 3},
        {"one": 8, "other": 8},
    ]


def test_a_lookup_waits_until_the_arrangement_has_passed_its_time() -> None:
    """A price at 52 reaches its arrangement in batch 6; the order at 55 is looked up then."""
    before, batch_5, batch_6 = batches(PRICED, [50, 60, 70])

    assert 55 not in intervals(before, batch_5)["orders"]
    assert batch_5["current_prices"] <= 52
    assert 55 in intervals(batch_5, batch_6)["orders"]
    assert batch_6["current_prices"] > 55


def test_a_lookup_is_never_ahead_of_what_it_looks_up() -> None:
    """Whatever the reader's own edges allow, the arrangement's upper of the batch bounds it."""
    for frontiers in batches(PRICED, [1, 2, 2, 5, 100]):
        assert frontiers["orders"] <= frontiers["current_prices"]


def test_an_operator_that_is_exchanges_deep_works_so_many_batches_behind() -> None:
    """In steady state the frontier at depth d is that of the source d batches ago."""
    graph = {
        "0": Edges(from_source=True),
        "1": Edges(exchanges=("0",)),
        "2": Edges(exchanges=("1",)),
        "3": Edges(exchanges=("2", "0")),
    }
    uppers = [10, 20, 30, 40, 50, 60]
    found = list(batches(graph, uppers))

    for batch in range(3, len(uppers)):
        assert found[batch] == {str(depth): uppers[batch - depth] for depth in range(4)}


def test_empty_batches_bring_every_operator_up_to_the_source() -> None:
    """While the source stands still, the deeper operators catch up exchange by exchange."""
    assert (
        list(batches(PRICED, [10, 10, 10]))[1:]
        == [{"prices": 10, "current_prices": 10, "orders": 10}] * 2
    )


def test_a_new_operator_begins_where_the_others_are() -> None:
    """What was before then it gets as of that time, if it gets it at all."""
    graph = {"old": Edges(from_source=True), "new": Edges(exchanges=("old",))}
    before = {"old": 10}
    after = advance_frontiers(graph, before, 20)

    assert intervals(before, after) == {"old": Interval(10, 20), "new": Interval(10, 10)}


def test_since_is_the_least_lower_of_the_readers() -> None:
    """A lookup at 3 that must not see time 3 still finds price 5 of time 1 below it.

    History before `since` is folded into an untimed base that every lookup sees.  So
    no reader may look up at a time before `since`, and what stands at a time at or
    after it keeps that time.
    """
    graph = {**PRICED, "audits": Edges(from_source=True, looks_up=("current_prices",))}
    lowers = {"prices": 9, "current_prices": 7, "orders": 3, "audits": 5}

    assert since(graph, lowers)["current_prices"] == 3
    assert since(graph, {**lowers, "orders": 6})["current_prices"] == 5
    assert since(graph, {**lowers, "orders": 7, "audits": 7})["current_prices"] == 7


def test_an_arrangement_without_readers_is_compacted_up_to_its_own_lower() -> None:
    """Nobody asks for what it was before."""
    assert since(PRICED, {"prices": 9, "current_prices": 7, "orders": 3})["prices"] == 9


def test_an_output_has_the_least_upper_of_its_producers() -> None:
    """Rows of quicker paths wait for it, and errors for all."""
    plan = Plan(
        "p",
        inputs=(Input("a", ("a",)),),
        operators=(
            Upsert("quick", "a"),
            Reduce("slow", "quick", (("n", "count(*)"),), by="value"),
            Linear("same", "quick", (steps.select({"n": "1"}),)),
            Concat("both", ("slow", "same")),
        ),
        outputs=(
            Output("quick", "quick", "quick"),
            Output("slow", "slow", "slow"),
            Output("both", "both", "both"),
        ),
    )
    of = {"quick": Interval(4, 9), "slow": Interval(1, 4)}

    assert output_intervals(plan, of) == {
        "quick": Interval(4, 9),
        "slow": Interval(1, 4),
        "both": Interval(1, 4),
        "errors": Interval(1, 4),
    }


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Edges]:
    """Operators in an order in which each looks up earlier ones; exchanges go anywhere."""
    names = "abcdef"[: draw(st.integers(1, 6))]
    found = {}
    for at, name in enumerate(names):
        exchanges = tuple(draw(st.sets(st.sampled_from(names), max_size=2)))
        looks_up = tuple(draw(st.sets(st.sampled_from(names[:at]), max_size=2))) if at else ()
        from_source = draw(st.booleans()) or not (exchanges or looks_up)
        found[name] = Edges(from_source, (), exchanges, looks_up)
    return found


@unhurried
@given(graphs(), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_frontiers_never_go_back_and_respect_every_bound(
    graph: dict[str, Edges], steps: list[int]
) -> None:
    """An upper is the least of its bounds: source, producers a batch ago, arrangements now."""
    uppers = [sum(steps[: at + 1]) for at in range(len(steps))]
    before: Frontiers = {}
    for upper, after in zip(uppers, batches(graph, uppers), strict=True):
        for name, edge in graph.items():
            bounds = [upper] * edge.from_source
            bounds += [before.get(producer, 0) for producer in edge.exchanges]
            bounds += [after[arrangement] for arrangement in edge.looks_up]

            assert after[name] == min(bounds)
            assert after[name] >= before.get(name, 0)
        before = after


@unhurried
@given(graphs(), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_since_never_passes_a_reader_and_never_goes_back(
    graph: dict[str, Edges], steps: list[int]
) -> None:
    """Every lookup of a batch is at or after the since of what it looks up."""
    uppers = [sum(steps[: at + 1]) for at in range(len(steps))]
    found = [dict.fromkeys(graph, 0), *batches(graph, uppers)]
    for arrangement in graph:
        sinces = [since(graph, lowers)[arrangement] for lowers in found]

        assert sinces == sorted(sinces)
        for reader, edge in graph.items():
            if arrangement in edge.looks_up:
                assert all(at <= lowers[reader] for at, lowers in zip(sinces, found, strict=True))
