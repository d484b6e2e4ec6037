"""A pipeline under load for a long time: memory, files, lag and disk stay as they are, or not.

    python bench/load.py                               80% of its maximum for 30 minutes
    python bench/load.py --minutes 10 --share 0.5 --plain
    python bench/load.py --burst 20                    with a 20-fold burst in the middle
    python bench/load.py --cold 10000000               a start on a backlog, and nothing else
    python bench/load.py --skew                        a hot key, a hot join key, an uneven shard
    python bench/load.py --expand 1000000              a record that comes to a million rows
    python bench/load.py --errors 1000000              errors by the million
    python bench/load.py --table                       the results so far, as Markdown

A broker of its own is started, and `ikebana run` as a user would run it: an upsert of orders,
their sums by customer behind an exchange, and a join with customers; with `--plain` the upsert
alone.
First its maximum is measured, for a minute of backlog.  Then records come at a share of that.
Every few seconds all its processes are looked at: memory by kind (PSS: what processes share counts
once), open files, threads; the lag; the size and the files of the checkpoint and of the local
databases.  Through each series goes a line by least squares, without the first minutes.  A series
is flat if it would grow in an hour by less than `--tolerance` of its mean, by less than a floor
(`watch.FLOORS`), or by less than twice the error of the line.  At the end the outputs are compared
with what the input says.  The run ends by itself, with status 1 if anything is not flat or wrong.
"""

import argparse
import itertools
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import load_cases
import load_table
import upsert
import watch
from loaded import (
    CUSTOMERS,
    DRAIN_S,
    Orders,
    Running,
    Sender,
    prepared,
    producer,
    send,
    verified,
    wait_until,
)
from rich.console import Console

from ikebana.processor.kafka import broker

_CONSOLE = Console(width=120)
# The maximum is measured over as many batches as this.
_COMMITS = 4
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run what is asked for."""
    args = _arguments()
    if args.table:
        print("\n".join(load_table.table(sorted(RESULTS.glob("load-*.json")))))
        return
    # What it has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="ikebana-load-"))
    cases = _cases(args)
    begun, load = time.strftime("%Y-%m-%d %H:%M"), upsert.machine()
    with broker.running() as running:
        found = []
        for case in cases:
            found.append(case(running.bootstrap_servers, folder, args))
            if case is not steady:
                _CONSOLE.print(found[-1], soft_wrap=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"load-{time.strftime('%Y%m%d-%H%M%S')}.json"
    told = {
        "begun": begun,
        "machine": load,
        "load_at_the_end": upsert.machine()["load"],
        "arguments": vars(args),
        "results": found,
    }
    path.write_text(json.dumps(told, indent=1))
    _CONSOLE.print(f"written to {path}")
    sys.exit(0 if all(each["good"] for each in found) else 1)


def _cases(args: argparse.Namespace) -> list[load_cases.Case]:
    """The cases that are asked for."""
    if args.cold:
        return [cold]
    if args.expand:
        return [load_cases.expand]
    if args.errors:
        return [load_cases.errors]
    if args.skew:
        every = {
            "hot-key": load_cases.hot_key,
            "hot-join": load_cases.hot_join_key,
            "uneven": load_cases.uneven,
        }
        return [case for name, case in every.items() if args.skew in ("all", name)]
    return [steady]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--warm", type=float, help="minutes left out; by default a quarter")
    parser.add_argument("--share", type=float, default=0.8, help="of the measured maximum")
    parser.add_argument("--rate", type=float, help="records a second, in place of a share")
    parser.add_argument("--maximum", type=float, default=60.0, help="seconds to measure it")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--tolerance", type=float, default=0.05, help="of the mean, an hour")
    parser.add_argument("--plain", action="store_true", help="an upsert alone")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--burst", type=float, default=0.0, help="so many times the rate")
    parser.add_argument("--burst-seconds", type=float, default=10.0)
    parser.add_argument("--cold", type=int, default=0, metavar="RECORDS")
    parser.add_argument(
        "--within", type=float, default=3_000.0, help="--cold: MiB that all may take together"
    )
    parser.add_argument(
        "--skew", nargs="?", const="all", choices=["all", "hot-key", "hot-join", "uneven"]
    )
    parser.add_argument("--matches", type=int, default=100_000, help="--skew: rows of a join key")
    parser.add_argument("--expand", type=int, default=0, metavar="ROWS", help="of a record")
    parser.add_argument("--errors", type=int, default=0, metavar="COUNT", help="of each kind")
    parser.add_argument("--table", action="store_true", help="print what the results say")
    args = parser.parse_args()
    if args.warm is None:
        args.warm = args.minutes / 4
    return args


def steady(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A share of the maximum for a long time, with a burst in the middle if it is asked for."""
    name, orders = "steady", Orders(args.keys)
    path = prepared(servers, folder, name, args)
    topic, beside = f"{name}.orders", 0 if args.plain else CUSTOMERS
    send(to := producer(servers), topic, orders.every(args.keys))
    assert to.flush(120) == 0
    run = Running(servers, folder, name, path)
    try:
        run.drained(orders.sent + beside, DRAIN_S)
        most = maximum(run, servers, topic, orders, args) if args.rate is None else None
        run.drained(orders.sent + beside, DRAIN_S)
        rate = args.rate or most * args.share
        told = f"{rate:,.0f} records/s for {args.minutes:g} minutes"
        _CONSOLE.print(told if most is None else f"maximum {most:,.0f} records/s; {told}")
        sender = Sender(servers, topic, orders, rate)

        def behind(told: Mapping[str, float]) -> dict[str, float]:
            if not told:
                return {}
            read = told.get("ikebana_records_total", 0)
            return {
                "records behind": max(0.0, orders.sent + beside - read),
                "lag s": told.get("ikebana_lag_seconds", 0.0),
                "batches": told.get("ikebana_batch", 0.0),
            }

        sampler = watch.Sampler(run.watched, run.folders, run.url, args.every, behind)
        burst = _through(sampler, sender, args)
        sender.stop()
        samples = sampler.stop()
        # Before anything else can go wrong: it has taken half an hour.
        found = _slopes(samples, args)
        try:
            drain_s: float | None = run.drained(orders.sent + beside, DRAIN_S)
        except TimeoutError:
            drain_s = None
    finally:
        status = run.stop()
    flat = all(each for *_, each in found)
    wrong = ["not read to its end"]
    if drain_s is not None:
        wrong = verified(servers, name, orders, args)
    _CONSOLE.print(
        f"{'flat' if flat else 'NOT FLAT'} within {args.tolerance:.0%} of the mean an hour; "
        f"outputs {'exact' if not wrong else 'WRONG: ' + ', '.join(wrong)}; status {status}; "
        f"the rest was read in {drain_s} s",
        soft_wrap=True,
    )
    if burst:
        _CONSOLE.print(f"burst: {burst}", soft_wrap=True)
    return {
        "job": "steady",
        "records": orders.sent,
        "maximum": most,
        "rate": rate,
        "series": {name: line._asdict() | {"flat": flat} for name, line, flat in found},
        "burst": burst,
        "wrong": wrong,
        "good": flat and not wrong and status == 0,
    }


def _slopes(
    samples: Sequence[watch.Sample], args: argparse.Namespace
) -> list[tuple[str, watch.Slope, bool]]:
    """Write the samples down, and judge them without the first ones."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"samples-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    path.write_text("".join(json.dumps(each._asdict()) + "\n" for each in samples))
    kept = [each for each in samples if each.at_s >= args.warm * 60]
    bare = [each._replace(values=_bare(each.values)) for each in kept]
    found = watch.judged(bare, args.tolerance)
    _CONSOLE.print("\n".join(watch.table(found, bare)), soft_wrap=True, markup=False)
    return found


def _bare(values: Mapping[str, float]) -> dict[str, float]:
    """What ought to be flat."""
    return {name: value for name, value in values.items() if name != "batches"}


def maximum(
    run: Running, servers: str, topic: str, orders: Orders, args: argparse.Namespace
) -> float:
    """How many records a second it reads while there are always more.

    Records count when their batch is committed, and a batch may take half a minute: so it is
    measured from the commit of one batch to that of a later one, over several.
    """
    end = threading.Event()
    to = producer(servers)
    commits = list[tuple[float, int]]()

    def enough() -> int:
        """A backlog of some batches, all of which has to be read afterwards."""
        sizes = [after - before for (_, before), (_, after) in itertools.pairwise(commits)]
        return max(100_000, 4 * max(sizes, default=0))

    def push() -> None:
        while not end.is_set():
            send(to, topic, orders.some(5_000))
            while orders.sent - run.records() > enough() and not end.wait(0.2):
                pass

    pushing = threading.Thread(target=push, daemon=True)
    pushing.start()
    begun = time.monotonic()

    def measured() -> bool:
        read, now = run.records(), time.monotonic()
        if read and (not commits or read > commits[-1][1]):
            commits.append((now, read))
        return now - begun >= args.maximum and len(commits) > 2 * _COMMITS

    wait_until(measured, DRAIN_S, "some batches to be committed")
    end.set()
    pushing.join()
    assert to.flush(120) == 0
    # The first half is on the way there.
    (first_s, first), (last_s, last) = commits[len(commits) // 2], commits[-1]
    return (last - first) / (last_s - first_s)


def _through(
    sampler: watch.Sampler, sender: Sender, args: argparse.Namespace
) -> dict[str, float] | None:
    """Let the time pass; what a burst in the middle did, if there is one."""
    whole_s = args.minutes * 60
    if not args.burst:
        time.sleep(whole_s)
        return None
    time.sleep(whole_s / 2)
    at_s, rate = sampler.now_s, sender.rate
    before = [each.values for each in sampler.since(at_s / 2) if "lag s" in each.values]
    usual = statistics.median(each["records behind"] for each in before)
    memory = statistics.median(each["PSS MiB"] for each in before)
    sender.rate = rate * args.burst
    time.sleep(args.burst_seconds)
    sender.rate = rate
    ended_s = sampler.now_s

    def recovered() -> float | None:
        for each in sampler.since(ended_s):
            if each.values.get("records behind", 1e18) <= 2 * usual + rate:
                return each.at_s - ended_s
        return None

    try:
        took_s = wait_until(recovered, max(900.0, whole_s / 2), "the burst to be read")
    except TimeoutError:
        took_s = -1.0
    after = [each.values for each in sampler.since(at_s)]
    rest_s = whole_s - sampler.now_s
    if rest_s > 0:
        time.sleep(rest_s)
    return {
        "times": args.burst,
        "seconds": args.burst_seconds,
        "recovered_s": round(took_s, 1),
        "most_behind": max(each.get("records behind", 0) for each in after),
        "memory_before_mib": round(memory),
        "memory_peak_mib": round(max(each["PSS MiB"] for each in after)),
    }


def cold(servers: str, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """A start on a long backlog."""
    name, orders = "cold", Orders(args.keys)
    path = prepared(servers, folder, name, args)
    to = producer(servers)
    send(to, f"{name}.orders", orders.some(args.cold))
    assert to.flush(600) == 0
    begun = time.monotonic()
    with load_cases.Watching(servers, folder, name, path) as run:
        run.drained(orders.sent + (0 if args.plain else CUSTOMERS))
        took_s = time.monotonic() - begun
    kinds = ("PSS MiB", *(f"{kind} PSS MiB" for kind in watch.KINDS))
    peaks = {each: round(run.most(each)) for each in kinds}
    wrong = verified(servers, name, orders, args)
    return {
        "job": "cold",
        "records": args.cold,
        "took_s": round(took_s, 1),
        "peaks": peaks,
        "wrong": wrong,
        "within_mib": args.within,
        "good": not wrong and run.status == 0 and peaks["PSS MiB"] <= args.within,
    }


if __name__ == "__main__":
    main()
