"""How cost goes with size: executors, keys, values, shards, joins, and a day of history.

    python bench/scale.py                              every table with small points: half an hour
    python bench/scale.py executors --records 2000000
    python bench/scale.py keys --points 10000 100000 1000000 10000000
    python bench/scale.py values --points 10 100 1000 10000
    python bench/scale.py shards --points 1 4 16 64
    python bench/scale.py joins --points 1 2 4 8
    python bench/scale.py history --batches 8640       a day of a batch each ten seconds

executors, keys, values, shards and joins: `ikebana run --once` over a backlog that is there, with
its start; CPU and memory are those of all its processes, and of executors.  From each point but
those of keys the cost of a run of as good as no records is taken off.  executors are workers of a
standalone cluster of Spark on this machine with one core each, and `local[1]`; the broker takes
its part of the same cores, and what goes over loopback is what it and Spark send.  history: a
shard in this process, without Spark and Kafka, through batches whose clock is simulated; each
opens the shard, runs the plan, writes its files and closes, as a task does.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import generate
import markdown
import psutil
import upsert
import yaml
from keyed import Batches
from measure import Cost, Watched, nothing_else
from places import executors_here
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ikebana import Column, JoinInput
from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.base.rows import Records, Upserts
from ikebana.processor.base.sharding import exchange_chunks
from ikebana.processor.engine import dataflow
from ikebana.processor.kafka import broker
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.joins.query import DeltaJoin
from ikebana.processor.planning.plan import Input, Output, Plan, Reduce, Upsert
from support.standalone_spark import cluster
from support.waiting import wait_until

_CONSOLE = Console(width=120)
_LONGEST_S = 1800
_END_S = 60.0
Records_ = Iterator[tuple[bytes, bytes | None]]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", default="all", choices=["all", *_TABLES])
    parser.add_argument("--points", type=int, nargs="+", help="in place of the usual ones")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=1_440, help="history: of ten seconds each")
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    names = [*_TABLES] if args.what == "all" else [args.what]
    if names == ["history"]:
        found["history"] = history(args)
    else:
        folder = Path(tempfile.mkdtemp(prefix="ikebana-scale-"))
        with broker.running() as running:
            for name in names:
                usual, table = _TABLES[name]
                points = args.points or usual
                found[name] = (
                    history(args)
                    if table is None
                    else table(Runs(running.bootstrap_servers, folder / name), points, args)
                )
                tell(name, found[name])
    if names == ["history"]:
        tell("history", found["history"])
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"scale-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"machine": upsert.machine(), "results": found}, indent=1))
    _CONSOLE.print(f"written to {path}")


def tell(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print a table as Markdown."""
    told = markdown.table(list(rows[0]), ([*map(markdown.cell, row.values())] for row in rows))
    _CONSOLE.print("\n".join([f"\n{name}\n", *told]), soft_wrap=True, markup=False)


class Runs:
    """Runs of pipelines over one broker."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._servers = servers
        self._count = 0

    def topic(self, name: str, records: Records_) -> str:
        """Make and fill a topic; return its name."""
        self._count += 1
        topic = f"scale-{self.folder.name}-{self._count}-{name}"
        generate.make_topic(self._servers, topic)
        generate.fill(self._servers, topic, records)
        return topic

    def costs(
        self,
        records: int,
        document: Callable[[str, Path], dict[str, Any]],
        others: Callable[[], Iterable[psutil.Process]] = nothing_else,
    ) -> "Point":
        """Run a pipeline until it has caught up; `document` makes its file, by its name."""
        self._count += 1
        name = f"scale-{self.folder.name}-{self._count}"
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document(name, self.folder / name)))
        log = self.folder / f"{name}.log"
        command = [*upsert.RUN, str(path), "--once", "--bootstrap-servers", self._servers]
        before = _through_loopback()
        cost = Watched(command, log, others=others).wait(_LONGEST_S)
        if cost.returncode:
            sys.exit(f"{name} ended with {cost.returncode}:\n{log.read_text()[-3000:]}")
        return Point(cost, records, _through_loopback() - before)

    def is_exact(self, name: str, source: str) -> bool:
        """Whether an output has what the input says."""
        return bool(upsert.outputs(self._servers, name, source)["exact"])


class Point:
    """What a run has cost."""

    def __init__(self, cost: Cost, records: int, moved: int) -> None:
        self._cost, self._records, self._moved = cost, records, moved

    def row(self, empty: "Point | None" = None) -> dict[str, Any]:
        """The figures; those of as good as no records are taken off."""
        cost = self._cost
        wall_s, cpu_s = cost.wall_s, cost.cpu_s
        if empty is not None:
            wall_s -= empty._cost.wall_s
            cpu_s -= empty._cost.cpu_s
        return {
            "records": self._records,
            "s": round(wall_s, 1),
            "records/s": round(self._records / max(wall_s, 0.1)),
            "CPU s / M": round(cpu_s / self._records * 1e6, 1),
            "peak MiB": round(cost.peak_rss_mib),
        }

    def parts(self, empty: "Point") -> dict[str, Any]:
        """The CPU time of the driver and of executors, and the bytes sent over loopback."""

        def each(spent: float) -> float:
            return round(spent / self._records * 1e6, 1)

        ours, theirs = self._cost, empty._cost
        executors = ours.cpu_by_kind.get("executors", 0.0)
        executors -= theirs.cpu_by_kind.get("executors", 0.0)
        return {
            "driver, CPU s / M": each(ours.cpu_s - theirs.cpu_s - executors),
            "executors, CPU s / M": each(executors) if executors else "in the driver",
            "loopback, bytes a record": round((self._moved - empty._moved) / self._records),
        }


def _through_loopback() -> int:
    """Bytes that this machine has sent to itself: Kafka's, and those between Spark's processes."""
    found = psutil.net_io_counters(pernic=True)
    return sum(int(each.bytes_sent) for name, each in found.items() if name.startswith("lo"))


def plain(
    topic: str, shards: int = 4, master: str = "", value_format: str = "bytes"
) -> Callable[[str, Path], dict[str, Any]]:
    """An upsert alone."""

    def document(name: str, place: Path) -> dict[str, Any]:
        made: dict[str, Any] = {
            "pipeline": name,
            "inputs": {"rows": {"topic": topic, "format": value_format}},
            "operators": {"current": {"upsert": "rows"}},
            "outputs": {"diffs": {"from": "current", "topic": f"{name}.diffs"}},
            "run": {
                "shards": shards,
                "checkpoint": str(place / "checkpoint"),
                "local_directory": str(place / "local"),
            },
        }
        if master:
            made["run"]["master"] = master
            made["spark"] = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "768m"}
        return made

    return document


def executors(runs: Runs, points: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same backlog with so many executors of one core; 0 is `local[1]`."""
    records, keys = args.records, args.records // 10
    full = runs.topic("full", generate.upserts(records, keys))
    few = runs.topic("few", generate.upserts(1_000, 1_000))
    rows = []
    for count in points:
        place = (
            cluster(runs.folder / f"cluster-{count}", count) if count else nullcontext("local[1]")
        )
        with place as master:
            empty = runs.costs(1_000, plain(few, master=master), executors_here)
            # What is left of them would be taken for the next run's.
            wait_until(lambda: not any(executors_here()), _END_S, "the end of executors")
            point = runs.costs(records, plain(full, master=master), executors_here)
        row = point.row(empty) | point.parts(empty)
        rows.append({"executors": count or "local[1]", **row})
    return rows


def keys(runs: Runs, points: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """So many keys loaded, and as many records as else upon them."""
    rows = []
    for count in points:
        topic = runs.topic("keys", generate.distinct(count))
        load = runs.costs(count, plain(topic))
        rows.append({"keys": count, **load.row()})
    return rows


def values(runs: Runs, points: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Values of so many bytes; large ones are fewer, at most a gigabyte in all."""
    few = runs.topic("few", generate.upserts(1_000, 1_000))
    empty = runs.costs(1_000, plain(few))
    rows = []
    for size in points:
        records = min(args.records, (1 << 30) // size)
        topic = runs.topic("values", sized(records, records // 10, size))
        point = runs.costs(records, plain(topic))
        mib = records * size / 2**20
        rows.append({"bytes a value": size, "MiB": round(mib), **point.row(empty)})
    return rows


def sized(records: int, among: int, size: int) -> Records_:
    """Values that cannot be compressed to nothing."""
    choice = random.Random(1)
    for _ in range(records):
        yield b"%d" % choice.randrange(max(1, among)), choice.randbytes(size)


def shards(runs: Runs, points: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same backlog in so many shards."""
    full = runs.topic("full", generate.upserts(args.records, args.records // 10))
    few = runs.topic("few", generate.upserts(1_000, 1_000))
    rows = []
    for count in points:
        empty = runs.costs(1_000, plain(few, count))
        point = runs.costs(args.records, plain(full, count))
        rows.append({"shards": count, **point.row(empty)})
    return rows


def joins(runs: Runs, points: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """So many joins of orders with customers by the same key, which share their arrangements."""
    customers = 1_000

    def orders(count: int) -> Records_:
        choice = random.Random(1)
        for at in range(count):
            yield b"%d" % at, b'{"customer":%d,"amount":%d}' % (choice.randrange(customers), at)

    named = ((b"%d" % at, b'{"city":"c %d"}' % at) for at in range(customers))
    full = runs.topic("orders", orders(args.records))
    few = runs.topic("few", orders(1_000))
    other = runs.topic("customers", named)
    rows = []
    for count in points:
        empty = runs.costs(1_000, joined(few, other, count))
        point = runs.costs(args.records, joined(full, other, count))
        rows.append({"joins": count, **point.row(empty)})
    return rows


def joined(topic: str, other: str, count: int) -> Callable[[str, Path], dict[str, Any]]:
    """A pipeline with so many joins."""

    def document(name: str, place: Path) -> dict[str, Any]:
        columns = {"customer": "BIGINT", "amount": "BIGINT"}
        of = {
            f"join{at}": {
                "delta_join": {"o": "order", "c": "customer"},
                "where": ["o.customer = c.key::BIGINT", f"o.amount >= {at}"],
                "select": {"amount": "o.amount", "city": "c.city"},
                "key": "o.key",
            }
            for at in range(count)
        }
        return {
            "pipeline": name,
            "inputs": {
                "orders": {"topic": topic, "columns": columns},
                "customers": {"topic": other, "columns": {"city": "VARCHAR"}},
            },
            "operators": {
                "order": {"upsert": "orders"},
                "customer": {"upsert": "customers"},
                **of,
            },
            "outputs": {each: {"from": each, "topic": f"{name}.{each}"} for each in of},
            "run": {
                "shards": 4,
                "checkpoint": str(place / "checkpoint"),
                "local_directory": str(place / "local"),
            },
        }

    return document


# History: a batch each ten seconds of a simulated clock.
_TICK_MS = 10_000
_A_BATCH = 200
_KEYS = 20_000


def history(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The cost of a batch as the day goes on, in twelve parts of it."""
    exempt_objects()
    with tempfile.TemporaryDirectory() as name:
        day = Day(Path(name))
        costs = [day.batch(at) for at in range(args.batches)]
        files = day.files
    step = max(1, args.batches // 12)
    rows = []
    for begin in range(0, args.batches - step + 1, step):
        part = costs[begin : begin + step]
        rows.append(
            {
                "until, hours": round((begin + step) * _TICK_MS / 3_600_000, 1),
                "batches": begin + step,
                "median CPU ms": round(1000 * statistics.median(part), 2),
                "mean CPU ms": round(1000 * statistics.fmean(part), 2),
                "most CPU ms": round(1000 * max(part), 1),
                "state MiB": round(files[begin + step - 1][0] / 2**20, 2),
                "runs": files[begin + step - 1][1],
            }
        )
    return rows


class Day:
    """A shard that upserts orders, sums them by customer and joins them with customers."""

    def __init__(self, folder: Path) -> None:
        columns = (Column("customer", "BIGINT"), Column("amount", "BIGINT"))
        join = DeltaJoin(
            "placed",
            (JoinInput("o", "order"), JoinInput("c", "customer")),
            ("o.customer = c.key::BIGINT",),
            (("amount", "o.amount"), ("city", "c.city")),
            "o.key",
        )
        self._plan = Plan(
            "day",
            (
                Input("orders", ("orders",), columns=columns),
                Input("customers", ("customers",), columns=(Column("city", "VARCHAR"),)),
            ),
            (
                Upsert("order", "orders"),
                Upsert("customer", "customers"),
                Reduce("totals", "order", (("n", "count(*)"),), by="customer"),
                join,
            ),
            tuple(Output(each, each, each) for each in ("order", "totals", "placed")),
        )
        self._physical = planner.physical(self._plan)
        self._edges = progress.edges(self._plan)
        self._frontiers = dict.fromkeys(self._edges, 0)
        self._batches = Batches(folder)
        self._choice = random.Random(1)
        self._exchanges: list[Records] = []
        self.files: list[tuple[int, int]] = []

    def batch(self, at: int) -> float:
        """Run a batch; return the CPU seconds that it took."""
        upper = (at + 1) * _TICK_MS
        rows = [*self._exchanges, self._orders(at, upper - 1)]
        if at == 0:
            rows.append(_customers(upper - 1))
        after = progress.advance_frontiers(self._edges, self._frontiers, upper)
        intervals = {name: Interval(self._frontiers[name], to) for name, to in after.items()}
        self._frontiers = after

        def kernel(store: Store) -> int:
            made = dataflow.advance(self._plan, store, rows, intervals, self._physical)
            self._exchanges = [row for _, row in exchange_chunks(made.exchanges, 1)]
            return 0

        self._batches.run(kernel)
        manifest = self._batches.manifest
        self.files.append((manifest.size, len(manifest.runs)))
        return sum(self._batches.costs[-1].values())

    def _orders(self, at: int, time_ms: int) -> Upserts:
        choice, ids = self._choice, range(at * _A_BATCH, (at + 1) * _A_BATCH)
        # The first ones fill the relation, all others change what is there.
        picked = [each if each < _KEYS else choice.randrange(_KEYS) for each in ids]
        values: list[bytes | None] = [
            b'{"customer":%d,"amount":%d}' % (choice.randrange(1_000), choice.randrange(1_000))
            for _ in picked
        ]
        given = [b"%d" % each for each in picked]
        return Upserts("orders", 0, 0, time_ms, given, values, list(ids))


def _customers(time_ms: int) -> Upserts:
    given = [b"%d" % each for each in range(1_000)]
    values: list[bytes | None] = [b'{"city":"c %d"}' % each for each in range(1_000)]
    return Upserts("customers", 1, 0, time_ms, given, values, list(range(1_000)))


_Table = Callable[[Runs, Sequence[int], argparse.Namespace], list[dict[str, Any]]]
_TABLES: dict[str, tuple[Sequence[int], _Table | None]] = {
    "executors": ((0, 1, 2, 4), executors),
    "keys": ((10_000, 100_000, 1_000_000), keys),
    "values": ((10, 100, 1_000, 10_000), values),
    "shards": ((1, 4, 16, 64), shards),
    "joins": ((1, 2, 4, 8), joins),
    "history": ((), None),
}

if __name__ == "__main__":
    main()
