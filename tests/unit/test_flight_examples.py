"""The flight examples equal a plain computation, whatever the order of their history."""

from datetime import timedelta
from typing import Any

import pytest

from flights import closing, departures, events, shuffled
from support.flight_examples import (
    Replay,
    at_each,
    counts_at,
    flights_of_2013,
    in_order,
    plan_of,
    refused_at,
)
from support.flight_oracle import STATES, Plain, hours

LATENESS = timedelta(hours=6)


@pytest.fixture(scope="module")
def february() -> Any:
    """A month with a storm: 24,951 flights, of which 1,261 never left."""
    year = flights_of_2013()
    return year[year.month == 2]


@pytest.fixture(scope="module")
def stormy(february: Any) -> Any:
    """Its four days about the storm: 3,375 flights, of which 895 never left."""
    return february[february.day.between(7, 10)]


@pytest.mark.full
def test_the_flights_in_the_air_are_those_of_a_plain_count_at_every_hour_of_the_year() -> None:
    """By origin, at all 8,760 full hours of 2013."""
    times = hours("2013-01-01", "2014-01-01")
    assert len(times) == 8_760
    assert min(map(max, in_the_air(flights_of_2013(), times, 50_000).values())) > 50


def test_the_flights_in_the_air_are_those_of_a_plain_count_at_every_hour(stormy: Any) -> None:
    """By origin, about a storm."""
    counts = in_the_air(stormy, hours("2013-02-07", "2013-02-12"), 1_000)
    assert min(map(max, counts.values())) > 30


def in_the_air(flown: Any, times: Any, batch: int) -> Any:
    """The counts by origin, out of history within its lateness, once they are as expected."""
    messages = shuffled(departures(flown), LATENESS, seed=7)

    found = Replay(plan_of("in-the-air"), messages, batch)

    expected = Plain(flown).in_the_air(times)
    assert found.updates["errors"] == []
    assert counts_at(found.updates["by_origin"], times.tolist(), expected) == expected
    return expected


@pytest.mark.full
def test_the_life_cycle_is_that_of_a_plain_computation_at_every_hour_of_a_month(
    february: Any,
) -> None:
    """The counts by state at every hour; each flight's own, and its error, at some of them."""
    check_life_cycle(february, hours("2013-01-31", "2013-03-03"), 20_000, 67)


def test_the_life_cycle_is_that_of_a_plain_computation_at_every_hour(stormy: Any) -> None:
    """The same for a few days."""
    check_life_cycle(stormy, hours("2013-02-06", "2013-02-13"), 1_000, 7)


def check_life_cycle(flown: Any, times: Any, batch: int, every: int) -> None:
    """Compare the life cycle of some flights with a plain computation."""
    plain = Plain(flown)

    found = Replay(plan_of("life-cycle"), events(flown), batch).updates

    some = times[20::every].tolist()
    assert counts_at(found["by_state"], times.tolist(), STATES) == plain.counts(times)
    for time, data in zip(some, at_each(found["states"], some), strict=True):
        assert dict(data) == plain.states(time), time
        assert refused_at(found["errors"], time) == plain.refused(time), time
    assert {event for time in some for event in plain.refused(time).values()} == {
        "cancel",
        "divert",
    }


@pytest.mark.parametrize("example", ["in-the-air", "life-cycle"])
def test_shuffled_history_gives_the_updates_of_the_ordered_one(example: str, stormy: Any) -> None:
    """Within the lateness, in batches of another size; beyond it records are late."""
    plan, made = plan_of(example), departures if example == "in-the-air" else events
    messages = made(stormy)
    messages.append(closing(messages[-1]))

    ordered = Replay(plan, messages, 5_000)
    mixed = Replay(plan, shuffled(messages, LATENESS, seed=2), 97)
    too_late = Replay(plan, shuffled(messages, 2 * LATENESS, seed=2), 97)

    assert (ordered.late, mixed.late) == (0, 0)
    assert too_late.late > 0
    for name, updates in ordered.updates.items():
        assert in_order(mixed.updates[name]) == in_order(updates), name
        assert sum(u.diff for u in too_late.updates[name]) == sum(u.diff for u in updates), name
