"""Heartbeats come after the last batch, whatever the wall clock does."""

import pytest

from ikebana.processor.topics.batch_selection import Beats

HOUR_MS = 3_600_000


def test_one_is_due_when_the_last_batch_is_long_ago() -> None:
    """Also right after a start, by the clock on the wall."""
    assert Beats(10).is_due(batch=3, upper_ms=5_000, now_ms=15_000, passed_s=0)
    assert not Beats(10).is_due(batch=3, upper_ms=5_000, now_ms=14_999, passed_s=0)


@pytest.mark.parametrize("back_ms", [0, 20_000, HOUR_MS])
def test_a_clock_that_was_set_back_does_not_stop_them(back_ms: int) -> None:
    """The frontier of an idle pipeline stood still until the clock had caught up."""
    beats, due = Beats(10), []
    batch, upper_ms = 1, HOUR_MS
    for second in range(60):
        now_ms = HOUR_MS + second * 1000 - back_ms
        if beats.is_due(batch, upper_ms, now_ms, passed_s=100 + second):
            due.append(second)
            batch, upper_ms = batch + 1, max(now_ms, upper_ms) + 1

    # One more millisecond each, as a batch ends after its time.
    assert len(due) in (4, 5)
    assert due[0] == 10


def test_without_an_interval_there_are_none() -> None:
    beats = Beats(0)

    assert not beats.is_due(1, 0, HOUR_MS, 0)
    assert not beats.is_due(1, 0, HOUR_MS, 1e9)
