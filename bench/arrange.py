"""Arrangements over a real shard, measured without Kafka and Spark.

    python bench/arrange.py                          everything, full size: about 5 minutes
    python bench/arrange.py --rows 50000 --batches 20
    python bench/arrange.py --profile

Every batch opens the shard, applies updates, answers lookups, writes the delta file and
closes, as a task of `ikebana run` does, with the garbage collector set as there.  Figures
are CPU time of this process with RocksDB's threads; a batch does one thing only, so that a
figure is a lookup's or an update's with its share of opening and closing.

unique: one row a key, as a table by its primary key; updates replace a row.
few: rows of a key as orders of a customer or lines of an order: 5 on average.
large: 1,000 rows a key; lookups are fewer, since each has 1,000 matches.

`level` is when all readers are as far as the arrangement, `lagging` when they are two
batches behind: then updates are written with history, and folded two batches later.
"""

import argparse
import cProfile
import pstats
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from keyed import Batches
from rich.console import Console
from rich.table import Table

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.kernels import upsert
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, half_join
from ikebana.processor.kernels.layout import operator_part
from ikebana.processor.kernels.upsert import UpsertArrangement

_CONSOLE = Console(width=120)
_LOADED_AT_ONCE = 200_000
_LAG = 2


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=40, help="measured, of each kind")
    parser.add_argument("--batch", type=int, default=20_000, help="lookups or rows in one")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    args = parser.parse_args()
    exempt_objects()
    profiler = cProfile.Profile() if args.profile else None
    if profiler is not None:
        profiler.enable()
    table = Table(
        "relation",
        "readers",
        "us a lookup",
        "us a match",
        "us an update",
        "bytes a row",
        "of data",
    )
    for name, group in (("unique", 1), ("few", 5), ("large", 1_000)):
        for readers, lag in (("level", 0), ("lagging", _LAG)):
            folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
            try:
                table.add_row(name, readers, *_measured(folder, args, group, lag))
            finally:
                shutil.rmtree(folder)
    for readers, beside in (("none", False), ("level", True)):
        folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
        try:
            table.add_row("upsert", readers, *_upserted(folder, args, beside=beside))
        finally:
            shutil.rmtree(folder)
    if profiler is not None:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    _CONSOLE.print("CPU, medians and the middle half")
    _CONSOLE.print(table)


class _Relation:
    """An arrangement in a shard, which each batch moves by one time."""

    def __init__(self, folder: Path, lag: int) -> None:
        self.shard = Batches(folder)
        self.time = 0
        self._lag = lag

    def run(self, updates: Sequence[KeyedUpdate], lookups: Sequence[LookupRow] = ()) -> int:
        """One batch; the number of matches."""
        time = self.time

        def kernel(store: Store) -> int:
            part = operator_part(store, "arrange rows")
            arrangement = Arrangement(part, Interval(time, time + 1), max(0, time - self._lag))
            arrangement.update(updates)
            found = sum(1 for _ in half_join(arrangement, lookups))
            arrangement.settle(max(0, time + 1 - self._lag))
            return found

        self.time += 1
        return self.shard.run(kernel)


def _measured(folder: Path, args: argparse.Namespace, group: int, lag: int) -> list[str]:
    relation, draw = _Relation(folder, lag), random.Random(1)
    keys, amounts = args.rows // group, dict[int, int]()
    for start in range(0, args.rows, _LOADED_AT_ONCE):
        rows = range(start, min(start + _LOADED_AT_ONCE, args.rows))
        relation.run([_row(at, keys, 0, relation.time, 1) for at in rows])
    for _ in range(_LAG + 1):
        relation.run([])
    bytes_a_row = _size(relation.shard) / args.rows
    of_data = sum(len(_row(at, keys, 0, 0, 1).value) for at in range(args.rows)) / args.rows

    def replaced() -> list[KeyedUpdate]:
        found = []
        for at in draw.sample(range(args.rows), args.batch // 2):
            amount = amounts.get(at, 0)
            amounts[at] = amount + 1
            found.append(_row(at, keys, amount, relation.time, -1))
            found.append(_row(at, keys, amount + 1, relation.time, 1))
        return found

    asked, matches = max(1, min(args.batch, args.batch * 20 // group)), []

    def looked_up() -> None:
        lookups = [
            LookupRow(_key(draw.randrange(keys)), at, relation.time, 1, sees_equal=False)
            for at in range(asked)
        ]
        matches.append(relation.run([], lookups))

    changes = _medians(relation.shard, args.batches, lambda: relation.run(replaced()))
    for _ in range(_LAG + 1):
        relation.run([])
    lookups = _medians(relation.shard, args.batches, looked_up)
    a_match = statistics.median(lookups) / statistics.median(matches) * 1e6
    return [
        _each(lookups, asked),
        f"{a_match:.2f}",
        _each(changes, args.batch),
        f"{bytes_a_row:.1f}",
        f"{of_data:.1f}",
    ]


def _upserted(folder: Path, args: argparse.Namespace, *, beside: bool) -> list[str]:
    """An upsert of a unique key, and lookups in its state if there are readers."""
    shard, draw, at = Batches(folder), random.Random(1), 0
    rows = args.rows

    def run(keys: Sequence[int], lookups: Sequence[LookupRow] = ()) -> int:
        nonlocal at
        interval, at = Interval(at, at + 1), at + 1
        upserts = Upserts(
            "rows",
            0,
            0,
            interval.lower,
            [_key(key) for key in keys],
            [_row(key, rows, interval.lower, 0, 1).value for key in keys],
            list(range(len(keys))),
        )

        def kernel(store: Store) -> int:
            part = operator_part(store, "rows")
            changes = upsert.step(part, [upserts], interval)
            if not beside:
                return 0
            arrangement = UpsertArrangement(part, changes.updates, interval, interval.lower)
            found = sum(1 for _ in half_join(arrangement, lookups))
            arrangement.settle(interval.upper)
            return found

        return shard.run(kernel)

    for start in range(0, rows, _LOADED_AT_ONCE):
        run(range(start, min(start + _LOADED_AT_ONCE, rows)))
    for _ in range(_LAG + 1):
        run([])
    bytes_a_row = _size(shard) / rows

    def changed() -> None:
        run(draw.sample(range(rows), args.batch // 2))

    def looked_up() -> None:
        asked = [draw.randrange(rows) for _ in range(args.batch)]
        run([], [LookupRow(_key(key), key, at, 1, sees_equal=False) for key in asked])

    changes = _medians(shard, args.batches, changed)
    lookups = _each(_medians(shard, args.batches, looked_up), args.batch) if beside else "-"
    of_data = sum(len(_row(at, rows, 0, 0, 1).value) for at in range(rows)) / rows
    return [lookups, "-", _each(changes, args.batch), f"{bytes_a_row:.1f}", f"{of_data:.1f}"]


def _medians(shard: Batches, batches: int, run: Callable[[], object]) -> list[float]:
    """The CPU seconds of batches."""
    before = len(shard.costs)
    for _ in range(batches):
        run()
    return [sum(cost.values()) for cost in shard.costs[before:]]


def _each(costs: Sequence[float], count: int) -> str:
    low, middle, high = (cost / count * 1e6 for cost in statistics.quantiles(costs, n=4))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _key(at: int) -> bytes:
    return b'{"id":%d}' % at


def _row(at: int, keys: int, amount: int, time: int, diff: int) -> KeyedUpdate:
    # What differs is mixed well, for files are compressed.
    name = at * 0x9E3779B97F4A7C15 % 2**64
    value = b'{"amount":%d.25,"id":%d,"name":"%x","status":"open"}' % (amount, at, name)
    return KeyedUpdate(_key(at % keys), value, time, diff)


def _size(shard: Batches) -> int:
    """The bytes of all entries, as they are."""
    return shard.run(lambda store: sum(len(p) + len(e) for p, e in store.scan(b"")))


if __name__ == "__main__":
    main()
