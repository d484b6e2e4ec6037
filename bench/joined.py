"""The batches of a join over real shards, measured without Kafka and Spark, by what they do.

    python bench/joined.py q3                        full size: about 2 minutes
    python bench/joined.py asof
    python bench/joined.py tpch-q5 --scale 0.2       a view of `bench/tpch.py`; also q1, q3, q17
    python bench/joined.py q3 --scale 0.2 --profile  where the time of the warm part goes

The pipelines and the data are those of `bench/joins.py`, or of `bench/tpch.py` at a scale of
0.05.  What is there first is loaded, then
come the backlogs whose CPU counts.  Batches are minted as a run mints them; each shard opens its
database as an owner of shards does, computes, writes its delta file, and packs what it sends to
other shards.  Figures are CPU time of this process with RocksDB's threads:

read: from messages to packed rows.  unpack: of these.  catch up: apply the delta of the batch
before.  compute: the operators.  store: write the delta file.  send: pack what goes to others.

Transactions, and what Spark and Kafka's client take, are not in it.  `digest` is one of all
updates written, by which two versions of the code are compared.
"""

import argparse
import cProfile
import functools
import hashlib
import pstats
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import joins
import msgspec
import tpch
import yaml
from join_data import PARTITIONS, PRICED, RESULT, Market, Shop, order_messages, price_messages
from rich.console import Console
from rich.table import Table
from systems import Bench
from tpch_data import QUERIES, TABLES, Warehouse

import ikebana
from ikebana.arrangements import rocks
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import opened
from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.base.rows import Records, pack, unpack
from ikebana.processor.base.sharding import exchange_chunks, owner_of
from ikebana.processor.engine.dataflow import Beside, Emitted, advance
from ikebana.processor.engine.testing.run import Run, Unfinished
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import replays
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import reading_of, slices

_CONSOLE = Console(width=120)
_RETAINED = 10
_PARTS = ("read", "unpack", "catch up", "compute", "store", "send")
# As many as a consumer gives at once.
_POLLED = 10_000
_LIMIT = 250_000


class Costs:
    """CPU seconds by part, and their profile, while they count."""

    def __init__(self, profiler: cProfile.Profile | None) -> None:
        self.spent = dict.fromkeys(_PARTS, 0.0)
        self.counts = False
        self._profiler = profiler

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Count what a block takes."""
        if not self.counts:
            yield
            return
        if self._profiler is not None:
            self._profiler.enable()
        before = time.process_time()
        try:
            yield
        finally:
            self.spent[part] += time.process_time() - before
            if self._profiler is not None:
                self._profiler.disable()


class Shards(Run):
    """A run over topics in memory whose shards are real ones."""

    def __init__(self, plan: Plan, folder: Path, shards: int, costs: Costs) -> None:
        super().__init__(plan, shards=shards)
        self._costs = costs
        self._folder = folder / "shards"
        self._files = [Folder.at(str(folder), "shards", f"{at:04d}") for at in range(shards)]
        recent = shards * rocks.RECENT_BYTES
        self._databases = LocalDatabases(folder / "local", "bench", shards, recent)
        self._manifests = [Manifest("bench", at) for at in range(shards)]

    def state(self) -> dict[str, Any]:
        """The size of the runs that make up the state, and of all files that are kept."""
        runs = [run for manifest in self._manifests for run in manifest.runs]
        files = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        return {
            "state_mib": sum(run.size for run in runs) / 2**20,
            "files_mib": files / 2**20,
            "entries": sum(run.entries for run in runs),
            "runs": len(runs),
        }

    def close(self) -> None:
        """Close the databases."""
        self._databases.close_all()

    def _finish(self, batch: Unfinished) -> None:
        after = batch.after
        intervals = replays.intervals(self._running, batch.before, after)
        rows = self._packed(batch)
        made = []
        for shard, own in enumerate(rows):
            with self._costs.of("unpack"):
                records: Any = [unpack(row) for row in own]
            beside = Beside(
                transition=after.transition,
                owns=owner_of(shard, len(rows)),
            )
            with self._costs.of("catch up"):
                context = opened(self._files[shard], self._databases, self._manifests[shard])
                store = context.__enter__()
            with self._costs.of("compute"):
                store.clean(after.batch, _RETAINED)
                step = functools.partial(self._advanced, records, intervals, beside)
                emitted = store.attempt(step)
            with self._costs.of("store"):
                self._manifests[shard] = store.commit(after.batch, _RETAINED)
                context.__exit__(None, None, None)
            with self._costs.of("send"):
                for _, row in exchange_chunks(emitted.exchanges, len(rows)):
                    pack(row)
            made.append(emitted)
        self._unfinished = None
        self.last = after
        self._publish(batch, made)

    def _advanced(
        self,
        records: Sequence[Records],
        intervals: Mapping[str, Interval],
        beside: Beside,
        store: Store,
    ) -> Emitted:
        return advance(self._running, store, records, intervals, beside=beside)

    def _packed(self, batch: Unfinished) -> list[list[bytes]]:
        """The packed rows that each shard gets."""
        rows: list[list[bytes]] = [[] for _ in self._manifests]
        for piece in slices(self._running, batch.before, batch.after):
            with self._costs.of("read"):
                place = piece.place
                reading = reading_of(self._running, piece, self._intake, len(rows))
                held = self.topics.messages[place.topic][place.partition]
                given = iter(held[place.start : piece.end])
                while some := [each for each in islice(given, _POLLED) if each is not None]:
                    for shard, chunk in reading.add(some):
                        rows[shard].append(chunk)
                for shard, chunk in reading.finish():
                    rows[shard].append(chunk)
        for shard, own in enumerate(rows):
            begin, end = (of.exchanges.get(shard, 0) for of in (batch.before, batch.after))
            own += self._exchange[shard][begin:end]
        return rows


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=["q3", "asof", *map("tpch-{}".format, QUERIES)])
    parser.add_argument("--scale", type=float, default=1.0, help="of the full size")
    parser.add_argument("--backlogs", type=int, default=2)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sort", default="tottime")
    parser.add_argument("--json", action="store_true", help="one line for a comparison")
    args = parser.parse_args()
    args.format, args.max = "diff", 0
    exempt_objects()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
    profiler = cProfile.Profile() if args.profile else None
    try:
        measured = {"q3": _q3, "asof": _asof}.get(args.what, _tpch)
        found = measured(folder, args, Costs(profiler))
    finally:
        shutil.rmtree(folder)
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        table = Table(
            "us a record", *_PARTS, "state MiB", "files MiB", "entries", "exact", "digest"
        )
        table.add_row(
            f"{found['us']:.2f}",
            *(f"{found[part]:.2f}" for part in _PARTS),
            f"{found['state_mib']:.1f}",
            f"{found['files_mib']:.1f}",
            f"{found['entries']:,}",
            str(found["exact"]),
            found["digest"],
        )
        _CONSOLE.print(table)
    if profiler is not None:
        pstats.Stats(profiler).sort_stats(args.sort).print_stats(45)


def _plan(folder: Path, sections: dict[str, Any]) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({"pipeline": "bench", **sections}, sort_keys=False))
    return ikebana.load(path).plan()


def _bench(folder: Path, args: argparse.Namespace) -> Bench:
    return Bench(folder, "", "ikebana", args)


def _send(run: Shards, topic: str, messages: Any) -> int:
    """Append messages to the partitions of their keys, or to those that they name."""
    count = 0
    held = run.topics.messages[topic]
    for key, value, *at in messages:
        into = held[at[0] if at else crc32(key) % PARTITIONS]
        into.append(Message(len(into), key, value, None, 0))
        count += 1
    return count


def _row(
    run: Shards, costs: Costs, records: int, output: str, columns: Sequence[str]
) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    collection: Counter[bytes] = Counter()
    digest = 0
    for update in run.written.updates[output]:
        collection[update.value] += update.diff
        each = hashlib.blake2b(repr(tuple(update)).encode(), digest_size=8).digest()
        digest = (digest + int.from_bytes(each, "big")) % 2**64
    assert not run.written.updates["errors"], run.written.updates["errors"][:3]
    run.close()
    rows = [
        tuple(row.get(column) for column in columns)
        for row in map(msgspec.json.decode, collection.elements())
    ]
    found = {part: costs.spent[part] / records * 1e6 for part in _PARTS}
    found["us"] = sum(found.values())
    return {**found, **run.state(), "digest": f"{digest:016x}"}, rows


def _q3(folder: Path, args: argparse.Namespace, costs: Costs) -> dict[str, Any]:
    scale = args.scale
    shop = Shop(int(15_000 * scale), int(150_000 * scale), int(600_000 * scale))
    bench = _bench(folder, args)
    plan = _plan(folder, joins._q3_sections(bench, "q3", [""]))
    run = Shards(plan, folder, args.shards, costs)
    updates = (shop.updates(int(150_000 * scale)) for _ in range(args.backlogs))
    records = _updated(run, functools.partial(bench.topic, "q3"), shop.load(), updates)
    found, rows = _row(run, costs, records, "out0", RESULT)
    return {**found, "exact": shop.judged(rows).exact}


def _asof(folder: Path, args: argparse.Namespace, costs: Costs) -> dict[str, Any]:
    scale, parts = args.scale, 2 if args.backlogs < 2 else args.backlogs
    market = Market(int(500_000 * scale), int(100_000 * scale), max(10, int(5_000 * scale)))
    bench = _bench(folder, args)
    plan = _plan(folder, joins._asof_sections(bench, "asof"))
    run = Shards(plan, folder, args.shards, costs)
    for relation in ("orders", "prices"):
        run.topics.create(bench.topic("asof", relation), PARTITIONS)
    run._open()
    records = 0
    for at in range(parts):
        last = at == parts - 1
        costs.counts = at > 0
        prices, orders = (
            given[at * len(given) // parts : (at + 1) * len(given) // parts]
            for given in (market.prices, market.orders)
        )
        last_prices, last_orders = market.last() if last else ([], [])
        for name, messages in (
            ("prices", [*price_messages(prices), *_each_partition(price_messages(last_prices))]),
            ("orders", [*order_messages(orders), *_each_partition(order_messages(last_orders))]),
        ):
            _send(run, bench.topic("asof", name), messages)
        records += len(orders) if costs.counts else 0
        run.read(now_ms=market.end, limit=_LIMIT)
    found, rows = _row(run, costs, records, "priced", PRICED)
    exact = market.judged([row for row in rows if row[0] >= 0]).exact
    return {**found, "exact": exact}


def _tpch(folder: Path, args: argparse.Namespace, costs: Costs) -> dict[str, Any]:
    name = args.what.removeprefix("tpch-")
    view, warehouse = QUERIES[name], Warehouse(0.05 * args.scale)
    tables = [table for table in TABLES if table in view.sql]
    bench = _bench(folder, args)
    plan = _plan(folder, tpch._sections(bench, name, tables, view))
    run = Shards(plan, folder, args.shards, costs)
    updates = (warehouse.updates(int(30_000 * args.scale)) for _ in range(args.backlogs))
    records = _updated(run, functools.partial(bench.topic, name), warehouse.load(tables), updates)
    found, rows = _row(run, costs, records, "out", tuple(view.columns))
    return {**found, "exact": warehouse.judged(view, rows).exact}


def _updated(
    run: Shards,
    topic: Callable[[str], str],
    load: Mapping[str, Any],
    updates: Iterable[Any],
) -> int:
    """Load relations, then count the cost of backlogs of lines; how many lines these have."""
    for relation, messages in load.items():
        run.topics.create(topic(relation), PARTITIONS)
        _send(run, topic(relation), messages)
    run._open()
    run._begins = {t: dict.fromkeys(run.topics.ends(t), 0) for t in run._running.topics}
    run.read(limit=_LIMIT)
    run._costs.counts, records = True, 0
    for messages in updates:
        records += _send(run, topic("lineitem"), messages)
        run.read(limit=_LIMIT)
    return records


def _each_partition(messages: Any) -> list[tuple[bytes, bytes | None, int]]:
    return [(*message, at) for at, message in enumerate(messages)]


if __name__ == "__main__":
    main()
