"""The least time between two batches."""

import pytest

from ikebana.processor.topics.batch_selection import Pace
from ikebana.processor.topics.source_offset import SourceOffset
from support.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    """At 100 seconds."""
    return Clock(100.0)


def offset(*, is_settled: bool) -> SourceOffset:
    """An offset after which something is on its way, or nothing."""
    return SourceOffset(1, 3, 5, {}, "", frontiers={"in": 5, "joined": 5 if is_settled else 3})


def test_a_batch_waits_for_its_interval_after_the_one_before(clock: Clock) -> None:
    """The first one does not wait."""
    pace, last = Pace(0.4, clock), offset(is_settled=True)
    assert pace.early_s(last) < 0
    pace.begin()
    clock.now += 0.1
    assert pace.early_s(last) == pytest.approx(0.3)
    clock.now += 0.3
    assert pace.early_s(last) <= 1e-9


def test_what_is_on_its_way_is_not_held_up(clock: Clock) -> None:
    """Else each exchange between operators would take an interval."""
    pace = Pace(60.0, clock)
    pace.begin()

    assert pace.early_s(offset(is_settled=False)) == 0.0
    assert pace.early_s(offset(is_settled=True)) == 60.0


def test_no_interval_holds_nothing_up(clock: Clock) -> None:
    """One batch follows another."""
    pace = Pace(0.0, clock)
    pace.begin()

    assert pace.early_s(offset(is_settled=True)) == 0.0
