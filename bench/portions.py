"""What comes of few changes that come to much: memory and CPU of a shard, in process.

    python bench/portions.py                       every case, about a minute
    python bench/portions.py join --rows 100000 --updates 100
    python bench/portions.py expand --each 1000000 --updates 3

join: a key has so many rows on the right, and updates of the left meet all of them.  expand: a
`flat_map` makes so many updates of each record.  Every case runs in a process of its own, whose
peak of resident memory is that of the batch less that of the process before it.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import markdown
from rich.console import Console

from ikebana import Column, DeltaJoin, JoinInput
from ikebana.arrangements.store import MemoryStore, Overlay
from ikebana.arrangements.update import Interval
from ikebana.processor.base.processes import exempt_objects
from ikebana.processor.base.rows import Records, Upserts
from ikebana.processor.base.sharding import exchange_chunks
from ikebana.processor.engine import dataflow
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.plan import Input, Linear, Output, Plan, Upsert

_CONSOLE = Console(width=110)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", default="all", choices=["all", "join", "expand"])
    parser.add_argument("--rows", type=int, default=100_000, help="join: rows of the hot key")
    parser.add_argument("--each", type=int, default=1_000_000, help="expand: updates a record")
    parser.add_argument("--updates", type=int, nargs="+", default=[1, 10, 30])
    parser.add_argument("--alone", action="store_true", help="one case, in this process")
    args = parser.parse_args()
    if args.alone:
        exempt_objects()
        print(json.dumps(case(args.what, args)))
        return
    rows: list[tuple[str, ...]] = []
    for what in ("join", "expand") if args.what == "all" else (args.what,):
        for updates in args.updates:
            sized = ["--rows", str(args.rows), "--each", str(args.each), "--updates", str(updates)]
            command = [sys.executable, __file__, what, "--alone", *sized]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                rows.append((what, f"{updates}", f"ended with {done.returncode}", "", "", ""))
                continue
            found = json.loads(done.stdout)
            each = found["cpu_s"] / found["results"] * 1e6
            figures = f"{found['cpu_s']:.1f}", f"{each:.1f}", f"{found['mib']:,.0f}"
            rows.append((what, f"{updates}", f"{found['results']:,}", *figures))
    head = ("case", "updates", "results", "CPU s", "us a result", "MiB above the start")
    _CONSOLE.print("\n".join(markdown.table(head, rows)), soft_wrap=True)


def case(what: str, args: argparse.Namespace) -> dict[str, Any]:
    """The costs of one batch."""
    plan, loaded, changed = joined(args) if what == "join" else expanded(args)
    shard = Shard(plan)
    shard.run(loaded, 10)
    before, begun = peak_mib(), time.process_time()
    results = shard.run(changed, 20)
    return {
        "results": results,
        "cpu_s": time.process_time() - begun,
        "mib": peak_mib() - before,
    }


class Shard:
    """The only shard of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._physical = plan, planner.physical(plan)
        self._store = MemoryStore()
        self._edges = progress.edges(plan)
        self._frontiers = dict.fromkeys(self._edges, 0)

    def run(self, rows: Sequence[Records], upper: int) -> int:
        """Run batches until nothing is on its way; return how many updates came out."""
        results = 0
        while rows or any(at < upper for at in self._frontiers.values()):
            after = progress.advance_frontiers(
                self._edges, self._frontiers, upper, all_exchanges=True, frozen=()
            )
            intervals = {name: Interval(self._frontiers[name], at) for name, at in after.items()}
            overlay, self._frontiers = Overlay(self._store), after
            emitted = dataflow.advance(self._plan, overlay, rows, intervals, self._physical)
            # As a sink does, one after the other.
            results += sum(1 for _ in emitted.updates["out"])
            rows = [row for _, row in exchange_chunks(emitted.exchanges, 1)]
            for key, value in overlay.changes.items():
                if value is None:
                    self._store.delete(key)
                else:
                    self._store.put(key, value)
        return results


def joined(args: argparse.Namespace) -> tuple[Plan, list[Upserts], list[Upserts]]:
    """Orders of one product that all have its key, and prices of that product."""
    join = DeltaJoin(
        "pairs",
        (JoinInput("l", "left"), JoinInput("r", "right")),
        ("l.at = r.at",),
        (("one", "l.n"), ("other", "r.n")),
    )
    columns = (Column("at", "VARCHAR"), Column("n", "BIGINT"))
    plan = Plan(
        "p",
        (
            Input("lefts", ("lefts",), columns=columns),
            Input("rights", ("rights",), columns=columns),
        ),
        (Upsert("left", "lefts"), Upsert("right", "rights"), join),
        (Output("out", "pairs", "out"),),
    )
    (updates,) = args.updates
    return plan, [upserts("rights", args.rows, 5)], [upserts("lefts", updates, 15)]


def expanded(args: argparse.Namespace) -> tuple[Plan, list[Upserts], list[Upserts]]:
    """Records of one number, which become as many rows."""
    plan = Plan(
        "p",
        (Input("given", ("given",), columns=(Column("n", "BIGINT"),)),),
        (
            Upsert("one", "given"),
            Linear("many", "one", (Sql(flat_map=("each", "range(n)"), select=(("e", "each"),)),)),
        ),
        (Output("out", "many", "out"),),
    )
    (updates,) = args.updates
    rows = upserts("given", updates, 15)
    rows.values[:] = [b'{"n":%d}' % args.each] * updates
    return plan, [], [rows]


def upserts(name: str, count: int, time: int) -> Upserts:
    """So many rows with the same `at`."""
    keys = [b"%d" % at for at in range(count)]
    values: list[bytes | None] = [b'{"at":"x","n":%d}' % at for at in range(count)]
    return Upserts(name, 0, 0, time, keys, values, list(range(count)))


def peak_mib() -> float:
    """The greatest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
