"""Times as people read and write them."""

import click
import pytest

from ikebana.processor.base import texts
from ikebana.processor.cli import connection


@pytest.mark.parametrize(
    ("written", "time"),
    [
        ("0", 0),
        ("-1", -1),
        ("1700000000500", 1_700_000_000_500),
        ("2013-07-02", 1_372_723_200_000),
        ("2013-07-02T01:30", 1_372_728_600_000),
        ("2013-07-02 01:30:00", 1_372_728_600_000),
        ("2013-07-02T01:30:00Z", 1_372_728_600_000),
        ("2013-07-02T01:30:00.250+02:00", 1_372_721_400_250),
        ("2300-01-01", 10_413_792_000_000),
    ],
)
def test_times_are_numbers_or_dates(written: str, time: int) -> None:
    assert connection.time(written) == time


@pytest.mark.parametrize("written", ["", "noon", "2013-13-01", "1.5", "2013-07-02T25:00"])
def test_what_is_neither_is_refused_with_what_would_do(written: str) -> None:
    with pytest.raises(click.BadParameter, match="a whole number, or, where times are millisec"):
        connection.time(written)


@pytest.mark.parametrize("time", [1_000_000_000_000, 1_372_721_400_250, 9_999_999_999_999])
def test_a_shown_date_is_read_back(time: int) -> None:
    assert texts.parse_moment(texts.iso(time)) == time


@pytest.mark.parametrize("time", [-5, 0, 999_999_999_999, 10_000_000_000_000])
def test_what_is_no_clock_s_time_is_shown_as_it_is(time: int) -> None:
    assert texts.moment(time) == texts.iso(time) == str(time)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_940, "59.9 s"),
        (60_000, "1 min"),
        (119_999, "1 min 59 s"),
        (3_599_999, "59 min 59 s"),
        (3_600_000, "1 h"),
        (86_399_999, "23 h 59 min"),
        (90_000_000, "1 d 1 h"),
        (864_000_000, "10 d"),
    ],
)
def test_spans_have_their_two_largest_units(milliseconds: int, shown: str) -> None:
    assert texts.span(milliseconds) == shown
