"""Event time of an input of a pipeline that is written in Python."""

from datetime import timedelta

from ikebana.processor.planning.plan import Clock, EventTime


def event_time(
    of: str | None = None,
    *,
    clock: Clock | None = None,
    lateness: timedelta = timedelta(0),
    idle: timedelta | None = timedelta(minutes=1),
    ahead: timedelta | None = timedelta(days=1),
    transactions: str | None = None,
) -> EventTime:
    """Event time of an input, for `Pipeline.topic(event_time=...)`.

    `of` is SQL over the row for its time; without it `clock` names the source of times, such
    as `"kafka"` for the timestamps of records.  The frontier is `lateness` behind the greatest
    time seen.  A partition without records for `idle` does not hold it back (None: always
    does), and a time more than `ahead` in the future is an error (None: never).

    >>> event_time("ordered", lateness=timedelta(minutes=10)).lateness_ms
    600000
    """
    idle_ms, ahead_ms = (None if each is None else _ms(each) for each in (idle, ahead))
    return EventTime(of, clock, _ms(lateness), idle_ms, ahead_ms, transactions)


def _ms(length: timedelta) -> int:
    return round(length.total_seconds() * 1000)
