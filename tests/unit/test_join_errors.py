"""Errors of joins of several inputs: one of each combination, for as long as it is there."""

from itertools import permutations, product

import pytest

from ikebana import Output, Plan, Upsert
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput, Strategy
from support.dated_upserts import Play, dated

NAMES = ("a", "b", "c")
CHAIN = "a.y = b.y AND b.y = c.y"
CIRCLE = "a.y = b.y AND b.z = c.y AND c.z = a.z"
# The ways in which three rows come, and go again.
ORDERS = list(product(permutations(NAMES), permutations(NAMES)))


def played(
    *where: str,
    on: str = CHAIN,
    shown: str = "b.z",
    x: str = "VARCHAR",
    strategy: Strategy = "auto",
) -> Play:
    """For each way three rows, which only meet each other; x is no number."""
    inputs = tuple(dated(name, f"x {x}", "y BIGINT", "z BIGINT") for name in NAMES)
    join = DeltaJoin(
        "joined",
        tuple(JoinInput(name, name) for name in NAMES),
        (on, *where),
        (("shown", shown),),
        "b.key",
        strategy=strategy,
    )
    upserts = (Upsert(name, name) for name in NAMES)
    play = Play(Plan("p", inputs, (*upserts, join), (Output("o", "joined", "o"),)), 2)
    for at in range(3):
        for number, (coming, _) in enumerate(ORDERS):
            play.say(coming[at], number, {"x": "bad", "y": number, "z": number}, 1 + at)
    for at in range(3):
        for number, (_, leaving) in enumerate(ORDERS):
            play.say(leaving[at], number, None, 5 + at)
    play.close(20)
    return play


def there(play: Play, time: int) -> int:
    return sum(diff for _, at, diff in play.errors() if at <= time)


both_plans = pytest.mark.parametrize(
    ("on", "strategy"),
    [
        pytest.param(CHAIN, "lookup", id="chain"),
        pytest.param(CIRCLE, "intersect", id="circle by intersection"),
    ],
)


@both_plans
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(("CAST(a.x AS BIGINT) < b.y",), id="one"),
        pytest.param(("CAST(a.x AS BIGINT) < b.y", "c.y < 5 + b.z"), id="beside a true one"),
        pytest.param(("CAST(a.x AS INT) < b.y", "a.y < CAST(c.x AS INT)"), id="two"),
    ],
)
def test_a_predicate_that_fails_is_one_error_of_each_combination(
    on: str, strategy: Strategy, where: tuple[str, ...]
) -> None:
    """Though the paths of the inputs test it before or after the third is met."""
    play = played(*where, on=on, strategy=strategy)

    assert [there(play, time) for time in (2, 3, 4)] == [0, len(ORDERS), len(ORDERS)]
    assert [there(play, time) for time in (5, 6, 7)] == [0, 0, 0]
    assert len({reason for reason, *_ in play.errors()}) == 1
    assert play.updates("o") == []


@both_plans
@pytest.mark.parametrize(
    "where",
    [
        ("CAST(a.x AS BIGINT) < b.y", "b.y > c.z"),
        ("b.y > c.z", "CAST(a.x AS BIGINT) < c.y"),
    ],
)
def test_what_another_predicate_is_false_of_is_no_error(
    on: str, strategy: Strategy, where: tuple[str, ...]
) -> None:
    """Whichever is tested first, or fails."""
    play = played(*where, on=on, strategy=strategy)

    assert play.errors() == []


@both_plans
def test_a_column_of_another_type_is_an_error_of_its_row(on: str, strategy: Strategy) -> None:
    """Whoever reads it: the row is in no combination."""
    play = played(on=on, strategy=strategy, shown="a.x", x="BIGINT")

    met = [there(play, time) / len(ORDERS) for time in (1, 2, 3, 5, 6, 7)]
    assert met == [1, 2, 3, 2, 1, 0]
    assert play.updates("o") == []


@both_plans
def test_a_key_that_cannot_be_made_is_an_error_of_its_own_row(on: str, strategy: Strategy) -> None:
    """The row is arranged by nothing, so it is told as long as it is there, and never met."""
    play = played("CAST(a.x AS BIGINT) = c.y", on=on, strategy=strategy)

    assert there(play, 3) > 0
    assert there(play, 7) == 0
    by_reason = {reason.partition(":")[0] for reason, *_ in play.errors()}
    assert all(told.startswith("operator a(") for told in by_reason)
