"""kill -9 of a sink's process, and of its database, at random moments.

After each kill every table is exactly the collection at the frontier of the token that is in the
same database.  `python -m cdc.test_postgres_sink_killed KILLS` does it any number of times.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from cdc.fetched import Unavailable
from cdc.postgres import Postgres, running, started
from cdc.sink_child import NAME, begun
from cdc.test_postgres_sink import Target
from ikebana.delivering.postgres import PostgresSink
from ikebana.delivering.sink import MODES, Mode, Sink
from support.sink_conformance import judge, story, tables_of
from support.waiting import patient

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(600)]
# A story of so many batches takes a process some seconds.
_LENGTH = 120


class _Named(Target):
    """The target of the child's sink."""

    def sink(self) -> Sink:
        return PostgresSink(NAME, self.conninfo)


@pytest.fixture
def server() -> Iterator[Postgres]:
    try:
        with running() as found:
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("mode", MODES)
def test_a_sink_that_is_killed_goes_on_exactly(server: Postgres, mode: Mode) -> None:
    """At every token the tables are the collections."""
    within = killed(server, mode, seed=1, kills=3)

    assert within > 0


def killed(server: Postgres, mode: Mode, seed: int, kills: int) -> int:
    """Kill sinks so often, then let one end; return how many were within their work."""
    draw, target = random.Random(seed), _Named(server)
    told, tables = story(seed, _LENGTH), tables_of(mode)
    within = 0
    for _ in range(kills):
        process, said = begun(target.conninfo, seed, _LENGTH, mode)
        with suppress(EOFError):
            # The process is within another batch then, or ends.
            for _ in range(draw.randint(0, 20)):
                said.recv()
        time.sleep(draw.random() * 0.05)
        process.kill()
        process.join()
        upper = judge(target, tables, told)
        within += 0 < upper < told.upper
        if upper == told.upper:
            seed += 1000
            target, told = _Named(server), story(seed, _LENGTH)
    process, _ = begun(target.conninfo, seed, _LENGTH, mode)
    process.join(patient(120))
    assert process.exitcode == 0
    assert judge(target, tables, told) == told.upper
    return within


def test_a_database_that_is_killed_goes_on_exactly(server: Postgres) -> None:
    """The sink asks again until it is there, and finds by its token what was committed."""
    database_killed(server, seed=2, kills=2)


def database_killed(server: Postgres, seed: int, kills: int) -> None:
    """Kill the database under one sink, which has to deliver everything meanwhile."""
    draw, target = random.Random(seed), _Named(server)
    told, tables = story(seed, _LENGTH), tables_of("current")
    process, said = begun(target.conninfo, seed, _LENGTH, "current")
    with ExitStack() as opened:
        for _ in range(kills):
            for _ in range(draw.randint(1, 10)):
                said.recv()
            time.sleep(draw.random() * 0.05)
            os.kill(server.pid, signal.SIGKILL)
            time.sleep(0.2)
            opened.enter_context(started(server))
        process.join(patient(120))
        assert process.exitcode == 0
        assert judge(target, tables, told) == told.upper


def main(kills: int) -> None:
    """Kill sinks so often in each mode, and databases a third of that."""
    with running() as server:
        for mode in MODES:
            within = killed(server, mode, seed=kills, kills=kills)
            print(f"{mode}: {kills} kills, {within} within the work", flush=True)
    for seed in range(max(1, kills // 9)):
        with running() as server:
            database_killed(server, seed, 3)
            print(f"database: 3 kills, seed {seed}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
