"""Kernels over a real shard, measured without Kafka and Spark: hold, reduce, window functions.

    python bench/keyed.py                                  all, full size: about 35 minutes
    python bench/keyed.py hold --pending 100000 1000000
    python bench/keyed.py reduce --records 200000
    python bench/keyed.py reduce --profile
    python bench/keyed.py windows --rows 1000 100000
    python bench/keyed.py windows --only lag --profile

Every batch opens the shard, runs the kernel, writes the delta file and closes, as a task
of `ikebana run` does, with the garbage collector set as there.  Figures are CPU time of
this process with RocksDB's threads.

hold: updates of the future that fall due one a millisecond.  A batch is one second: it
releases 1,000, takes in 1,000 at the far end, and adds to 1,000 that lie anywhere.

reduce: rows counted by a value.  The first half of the records fill the relation, each of
the others is an update of a row: its old value goes and a new one comes.

windows: one partition of so many rows, and batches of one change each.  Figures are CPU
microseconds a change, of the kernel alone and with opening, committing and closing the shard.
"""

import argparse
import cProfile
import functools
import pstats
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import markdown
from rich.console import Console
from rich.table import Table

from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import opened
from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold, reduce, window_functions
from ikebana.processor.kernels.layout import operator_part
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import (
    ALL,
    CURRENT,
    End,
    Frame,
    FrameAggregate,
    FrameBound,
    Offset,
    Ranking,
    WindowFunction,
)

Result = TypeVar("Result")

# Wide enough for its tables where there is no terminal to ask.
_CONSOLE = Console(width=110)
_RETAINED = 10
_PARTS = ("open", "kernel", "commit", "close")
_SECOND = 1_000
_LOADED_AT_ONCE = 500_000


class Batches:
    """The batches of one shard, and the CPU seconds of each by part."""

    def __init__(self, folder: Path) -> None:
        self.costs: list[dict[str, float]] = []
        self._files = Folder.at(str(folder), "shards", "0000")
        self._local = LocalDatabases(folder / "local", "bench")
        self.manifest = Manifest("bench", 0)
        self._batch = 0

    def run(self, kernel: Callable[[Store], int]) -> int:
        """One batch; what the kernel returns."""
        marks = [time.process_time()]
        with opened(self._files, self._local, self.manifest) as shard:
            marks.append(time.process_time())
            found = shard.attempt(kernel)
            marks.append(time.process_time())
            shard.clean(self._batch, _RETAINED)
            self.manifest = shard.commit(self._batch, _RETAINED)
            marks.append(time.process_time())
        marks.append(time.process_time())
        self._batch += 1
        spent = zip(_PARTS, marks, marks[1:], strict=False)
        self.costs.append({part: after - before for part, before, after in spent})
        return found


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    kernels = ["all", "hold", "reduce", "windows"]
    parser.add_argument("what", nargs="?", default="all", choices=kernels)
    parser.add_argument("--pending", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--batches", type=int, default=400, help="hold: batches measured")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--values", type=int, nargs="+", default=[1_000, 200_000])
    parser.add_argument("--batch", type=int, default=100_000, help="reduce: updates of a batch")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**n for n in range(3, 7)])
    parser.add_argument("--only", default="", help="windows: of these functions alone")
    parser.add_argument("--changes", type=int, default=200, help="windows: changes measured")
    parser.add_argument("--profile", action="store_true", help="not hold: where the time goes")
    args = parser.parse_args()
    exempt_objects()
    if args.what in ("all", "hold"):
        measure_hold(args.pending, args.batches)
    if args.what in ("all", "reduce"):
        measure_reduce(args.records, args.values, args.batch, profile=args.profile)
    if args.what in ("all", "windows"):
        windows = {name: of for name, of in _WINDOWS.items() if args.only in name}
        measure_windows(windows, args.rows, args.changes, profile=args.profile)


def measure_hold(pending: Sequence[int], batches: int) -> None:
    """The CPU milliseconds of a batch, by how many updates are pending."""
    edge = max(1, batches // 4)
    table = Table("pending", "median", *_PARTS, "mean", f"first {edge}", f"last {edge}", "most")
    for count in pending:
        costs = _in_folder(functools.partial(_hold, pending=count, batches=batches))
        totals = [sum(cost.values()) for cost in costs]
        table.add_row(
            f"{count:,}",
            _ms(statistics.median(totals)),
            *(_ms(statistics.median(cost[part] for cost in costs)) for part in _PARTS),
            _ms(statistics.fmean(totals)),
            _ms(statistics.median(totals[:edge])),
            _ms(statistics.median(totals[-edge:])),
            _ms(max(totals)),
        )
    _CONSOLE.print("hold: CPU ms a batch that releases 1,000")
    _CONSOLE.print(table)


def _hold(folder: Path, pending: int, batches: int) -> list[dict[str, float]]:
    shard, draw = Batches(folder), random.Random(1)

    def step(updates: list[KeyedUpdate], upper: int) -> int:
        def kernel(store: Store) -> int:
            return len(hold.step(operator_part(store, "hold out"), updates, upper))

        return shard.run(kernel)

    for start in range(0, pending, _LOADED_AT_ONCE):
        ids = range(start, min(start + _LOADED_AT_ONCE, pending))
        assert step([_due(at) for at in ids], 0) == 0
    loaded = len(shard.costs)
    for lower in range(0, batches * _SECOND, _SECOND):
        upper, far = lower + _SECOND, lower + pending
        updates = [_due(at) for at in range(far, far + _SECOND)]
        updates += [_due(draw.randrange(upper, far)) for _ in range(_SECOND)]
        assert step(updates, upper) == _SECOND
    return shard.costs[loaded:]


def _due(at: int) -> KeyedUpdate:
    """An update of a row of its own that falls due at millisecond `at`."""
    value = b'{"amount":%d.25,"id":%d,"status":"open"}' % (at % 997, at)
    return KeyedUpdate(b'{"id":%d}' % at, value, at, 1)


def measure_reduce(records: int, values: Sequence[int], batch: int, *, profile: bool) -> None:
    """The CPU microseconds of a record, by how many values there are."""
    table = Table("values", "us a record", *_PARTS, "noise", "updates out")
    for count in values:
        profiler = cProfile.Profile() if profile else None
        costs, out = _in_folder(
            functools.partial(
                _reduce, records=records, values=count, batch=batch, profiler=profiler
            )
        )
        a_record = [sum(cost.values()) / batch * 1e6 for cost in costs]
        low, middle, high = statistics.quantiles(a_record, n=4)
        table.add_row(
            f"{count:,}",
            f"{middle:.2f}",
            *(
                f"{statistics.median(cost[part] for cost in costs) / batch * 1e6:.2f}"
                for part in _PARTS
            ),
            f"{low:.2f} to {high:.2f}",
            f"{out:,}",
        )
        if profiler is not None:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    _CONSOLE.print(f"reduce: batches of {batch:,}; medians, noise is the middle half")
    _CONSOLE.print(table)


def _reduce(
    folder: Path, records: int, values: int, batch: int, profiler: cProfile.Profile | None
) -> tuple[list[dict[str, float]], int]:
    shard, aggregates, out = Batches(folder), [Aggregate("count", "count")], 0
    for at, updates in enumerate(_in_batches(_counted(records, values, batch), batch)):

        def step(store: Store, at: int = at, updates: list[KeyedUpdate] = updates) -> int:
            part, interval = operator_part(store, "reduce counts"), Interval(at, at + 1)
            return len(reduce.step(part, updates, interval, aggregates).updates)

        if profiler is not None:
            profiler.enable()
        out += shard.run(step)
        if profiler is not None:
            profiler.disable()
    return shard.costs, out


def _counted(records: int, values: int, batch: int) -> Iterator[KeyedUpdate]:
    """The updates of rows, as an upsert gives them; the time is that of the batch."""
    draw, current = random.Random(1), [0] * (records // 2)
    count = 0
    for row in range(len(current)):
        current[row] = draw.randrange(values)
        yield _row(current[row], count // batch, 1)
        count += 1
    while count < records:
        row, value = draw.randrange(len(current)), draw.randrange(values)
        yield _row(current[row], count // batch, -1)
        yield _row(value, count // batch, 1)
        current[row] = value
        count += 2


def _row(value: int, time: int, diff: int) -> KeyedUpdate:
    # A count of rows has no argument, so the planner's select leaves an empty row.
    return KeyedUpdate(b'{"status":%d}' % value, b"{}", time, diff)


Change = Callable[[random.Random, list[int], int], dict[tuple[int, int], int]]
"""Draws a change: rows as (order, value) with their diffs.

It is given the values of the rows, which are at even orders from 0 on, and the change's number.
"""


def _anywhere(draw: random.Random, values: list[int], _: int) -> dict[tuple[int, int], int]:
    """A row has another value."""
    at, value = draw.randrange(len(values)), draw.randrange(1_000, 1_000_000)
    old, values[at] = values[at], value
    return {(2 * at, old): -1, (2 * at, value): 1}


def _last(draw: random.Random, values: list[int], _: int) -> dict[tuple[int, int], int]:
    """A row is added behind all others."""
    values.append(draw.randrange(1_000))
    return {(2 * len(values) - 2, values[-1]): 1}


def _head(_: random.Random, __: list[int], number: int) -> dict[tuple[int, int], int]:
    """A row is added among the first ones, and the one of the change before is removed."""
    added = {(2 * (number % 5) + 1, number): 1}
    removed = {(2 * ((number - 1) % 5) + 1, number - 1): -1} if number else {}
    return {**removed, **added}


def _moved(_: random.Random, values: list[int], number: int) -> dict[tuple[int, int], int]:
    """A row moves by ten places; the next change moves it back."""
    at = random.Random(number // 2).randrange(len(values) - 10)
    diff = -1 if number % 2 == 0 else 1
    return {(2 * at, values[at]): diff, (2 * at + 21, values[at]): -diff}


class _Measured(NamedTuple):
    """Functions over a partition, and the changes whose cost is measured."""

    functions: tuple[WindowFunction, ...]
    changes: tuple[tuple[str, Change], ...]
    most: int = 0


_NEAR = FrameBound("preceding", 100), FrameBound("preceding", "from")
_ANYWHERE = (("a row anywhere", _anywhere),)
_OF_HEAD = (*_ANYWHERE, ("a row among the first 5", _head))
_WINDOWS = {
    "sum from the beginning": _Measured(
        (FrameAggregate(Aggregate("w", "sum", "x")),), (("a new last row", _last),)
    ),
    "max from the beginning": _Measured((FrameAggregate(Aggregate("w", "max", "x")),), _ANYWHERE),
    "sum ROWS 100 PRECEDING": _Measured(
        (FrameAggregate(Aggregate("w", "sum", "x"), frame=Frame("rows", _NEAR[0])),), _ANYWHERE
    ),
    "sum RANGE 100 PRECEDING": _Measured(
        (FrameAggregate(Aggregate("w", "sum", "x"), frame=Frame("range", _NEAR[1])),), _ANYWHERE
    ),
    "row_number": _Measured((Ranking("row_number"),), (("a row moves by 10 places", _moved),)),
    "row_number up to 10": _Measured((Ranking("row_number"),), _OF_HEAD, most=10),
    "rank up to 10": _Measured((Ranking("rank"),), _OF_HEAD, most=10),
    "lag, lead": _Measured((Offset("lag", "x"), Offset("lead", "x")), _ANYWHERE),
    "first_value, last_value": _Measured(
        (
            End("first_value", "x"),
            End("last_value", "x", frame=Frame("rows", CURRENT, ALL)),
        ),
        _ANYWHERE,
    ),
}


def measure_windows(
    windows: dict[str, _Measured], sizes: Sequence[int], changes: int, *, profile: bool
) -> None:
    """The CPU microseconds of a change, by the rows of its partition, line by line."""
    print(f"windows: CPU us a change, medians of {changes} batches of one change each\n")
    head = "function", "change", "rows", "kernel", "all", "updates", "us a row loaded"
    print("\n".join(markdown.table(head, ())), flush=True)
    for name, measured in windows.items():
        for size in sizes:
            profiler = cProfile.Profile() if profile else None
            load_us, costs = _in_folder(
                functools.partial(
                    _window, measured=measured, rows=size, changes=changes, profiler=profiler
                )
            )
            for (change, _), (own, updates) in zip(measured.changes, costs, strict=True):
                kernel = statistics.median(cost["kernel"] for cost in own) * 1e6
                whole = statistics.median(sum(cost.values()) for cost in own) * 1e6
                figures = f"{kernel:,.0f}", f"{whole:,.0f}", f"{updates:.1f}", f"{load_us:.0f}"
                row = name, change, f"{size:,}", *figures
                print(markdown.table(head, [row])[-1], flush=True)
            if profiler is not None:
                pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def _window(
    folder: Path,
    measured: _Measured,
    rows: int,
    changes: int,
    profiler: cProfile.Profile | None,
) -> tuple[float, list[tuple[list[dict[str, float]], float]]]:
    """The cost of a row of the load, and of each kind of change with its updates."""
    shard, draw = Batches(folder), random.Random(1)
    window = Window(measured.functions, ("row", (("o0", ""),)), "", most=measured.most)
    values = [draw.randrange(1_000) for _ in range(rows)]

    def run(diffs: dict[tuple[int, int], int]) -> int:
        time = len(shard.costs)
        updates = [
            KeyedUpdate(b"0", _ordered(window, *row), time, diff) for row, diff in diffs.items()
        ]

        def step(store: Store) -> int:
            part, interval = operator_part(store, "window view"), Interval(time, time + 1)
            return len(window_functions.step(part, updates, interval, window))

        return shard.run(step)

    run({(2 * at, value): 1 for at, value in enumerate(values)})
    loaded = sum(shard.costs[0].values()) / rows * 1e6
    costs = []
    for _, change in measured.changes:
        begin, made = len(shard.costs), 0
        if profiler is not None:
            profiler.enable()
        for number in range(changes):
            made += run(change(draw, values, number))
        if profiler is not None:
            profiler.disable()
        costs.append((shard.costs[begin:], made / changes))
    return loaded, costs


def _ordered(window: Window, at: int, x: int) -> bytes:
    values = {"from": {"o0": at - 200}, "x": x}
    arguments = {f"a{number}": values[name] for name, number in window.fields.items()}
    return canonical.encode({"o": {"o0": at}, "r": {"at": at, "x": x}, **arguments})


def _in_batches(updates: Iterator[KeyedUpdate], size: int) -> Iterator[list[KeyedUpdate]]:
    held: list[KeyedUpdate] = []
    for update in updates:
        held.append(update)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held


def _in_folder(measured: Callable[[Path], Result]) -> Result:
    folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
    try:
        return measured(folder)
    finally:
        shutil.rmtree(folder)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


if __name__ == "__main__":
    main()
