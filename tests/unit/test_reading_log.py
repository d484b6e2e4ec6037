"""The log of how the records of an input with event times were judged."""

import pytest

from ikebana.processor.base.rows import Judged
from ikebana.processor.topics import input_times
from ikebana.processor.topics.input_times import ReadingLog


def test_ranges_of_one_frontier_are_one() -> None:
    log = ReadingLog()
    for first, last, lower in ((3, 4, 10), (7, 7, 10), (9, 9, 20)):
        log = log.with_judged("t", 0, Judged(first, last, lower))
    log = log.with_judged("t", 0, Judged(11, 12, 20, 99))

    assert log.judged == {"t": {0: [Judged(3, 7, 10), Judged(9, 9, 20), Judged(11, 12, 20, 99)]}}
    assert log.within("t", 0, 7, 9) == (Judged(3, 7, 10),)
    assert log.within("t", 0, 8, 12) == (Judged(9, 9, 20), Judged(11, 12, 20, 99))
    assert log.within("t", 1, 0, 12) == ()


def test_of_many_frontiers_some_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is later than what has been read allows."""
    monkeypatch.setattr(input_times, "_LEAST_REACHED", 4)
    monkeypatch.setattr(input_times, "_MOST_OFFSETS", 8)
    log = ReadingLog()
    for number in range(1, 200):
        log = log.with_frontier(10 * number, {"t": {0: number, 1: 2 * number}})
        assert len(log.reached) <= 4
    assert log.with_frontier(10, {"t": {0: 999}}) == log
    assert len(log.reached) > 1
    for number in range(250):
        closed = log.closed({"t": {0: number, 1: 1_000}})
        assert closed <= 10 * number
        assert closed == max(
            (r.frontier for r in log.reached if r.frontier <= 10 * number), default=0
        )
    assert log.closed({"t": {0: 1_000}}) == 0
