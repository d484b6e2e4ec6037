"""Deliver drawn batches into a real PostgreSQL: rows a second, and CPU of the sink a change.

    PYTHONPATH=tests python bench/deliver.py [ROWS] [CHANGES]

First ROWS rows in one batch, then CHANGES updates in batches of 10,000, over topics in memory, so
what is measured is the sink and the database, and no broker.  The database syncs nothing.
"""

import sys
import time

from cdc.postgres import running
from ikebana.delivering.postgres import PostgresSink
from ikebana.delivering.sink import MODES, Table
from support.served_topics import MemoryTopics
from support.sink_conformance import ORDERS, Updates, delivered, tables_of

_BATCH = 5_000


def main(rows: int, changes: int) -> None:
    """Measure each mode once."""
    for mode in MODES:
        with running() as server:
            place = f"host={server.folder} port={server.port} user=postgres dbname=postgres"
            tables, topics = tables_of(mode)[:1], MemoryTopics()
            topics.close(ORDERS, 1, *[_row(at, 0, 0, 1) for at in range(rows)])
            first = _timed(place, tables, topics)
            for number in range(changes // (2 * _BATCH)):
                updates: Updates = []
                for at in range(number * _BATCH, (number + 1) * _BATCH):
                    # How often the row was changed before.
                    old = at // rows
                    updates.append(_row(at % rows, old, number + 1, -1))
                    updates.append(_row(at % rows, old + 1, number + 1, 1))
                topics.close(ORDERS, number + 2, *updates)
            later = _timed(place, tables, topics)
            for what, (count, wall, cpu) in (("first rows", first), ("changes", later)):
                print(
                    f"{mode}, {what}: {count:,} updates, {count / wall:,.0f} a second, "
                    f"{cpu / count * 1e6:.1f} us of CPU each in the sink",
                    flush=True,
                )


def _row(number: int, version: int, at: int, diff: int) -> tuple[bytes, bytes, int, int]:
    value = b'{"name":"frank %d","price":%d.5}' % (version, number % 100)
    return b'{"id":%d}' % number, value, at, diff


def _timed(
    place: str, tables: tuple[Table, ...], topics: MemoryTopics
) -> tuple[int, float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = delivered(PostgresSink("measured", place), tables, topics, 64 << 20)
    return (
        max(1, found.standing().updates),
        time.perf_counter() - wall,
        time.process_time() - cpu,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ("200000", "100000")))
