"""Joins, measured, and on request Flink and Kafka Streams on the same data in the same run.

    python bench/joins.py q3 --flink               full size: about 10 minutes
    python bench/joins.py asof --flink             about 8 minutes
    python bench/joins.py sharing --flink          about 10 minutes
    python bench/joins.py q3 --kafka-streams       also asof; or with --flink, all three in turns
    python bench/joins.py triangles                in-process, about 1 minute
    python bench/joins.py q3 --flink --customers 1500 --orders 15000 --lines 60000 \\
        --updates 15000

A broker of its own is started, and its cost is not counted; of the others the whole
process tree is.  Both run all the while and are given backlogs: what is there before the
start, and then some that come in one transaction each.  The CPU of these, warm, is the
figure to compare.  Every result is compared with DuckDB's (`exact`).

What differs: ikebana writes updates, -old +new, with their times and progress, Flink's
sink of a join the new row or a tombstone (`--format upsert` makes ikebana do that), and
that of an as-of join plain rows; Kafka Streams the same.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import flink
import triangles
from backlogs import Phase
from join_data import (
    PRICED,
    RESULT,
    Market,
    Shop,
    Verdict,
    order_messages,
    price_messages,
)
from rich.console import Console
from systems import Bench
from upsert import machine, table

from ikebana.processor.kafka import broker

_CONSOLE = Console()
PEERS = ("flink", "kafka-streams")
_SOURCES = ("customer", "orders", "lineitem")
# Conditions between inputs, in which queries that share all arrangements differ.
_CONDITIONS = ("", "l.disc > o.prio", "l.ship > o.odate + 300", "l.ship - o.odate < 400")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=["q3", "asof", "sharing", "triangles"])
    parser.add_argument("--flink", action="store_true", help="run Flink on the same data too")
    parser.add_argument("--kafka-streams", action="store_true", help="q3, asof: run it too")
    parser.add_argument("--only-flink", action="store_true", help="run Flink alone")
    parser.add_argument("--customers", type=int, default=15_000)
    parser.add_argument("--orders", type=int, help="150,000; as-of: 500,000")
    parser.add_argument("--lines", type=int, default=600_000)
    parser.add_argument("--updates", type=int, default=150_000, help="q3: of each backlog")
    parser.add_argument("--backlogs", type=int, default=3, help="q3: after what is there")
    parser.add_argument("--prices", type=int, default=100_000)
    parser.add_argument("--products", type=int, default=5_000)
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 2, 4], help="sharing")
    parser.add_argument("--nodes", type=int, default=5_000, help="triangles")
    parser.add_argument("--edges", type=int, default=20_000, help="triangles")
    parser.add_argument("--format", default="diff", choices=["diff", "upsert"], help="q3")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--parallelism", type=int, default=2, help="Flink's")
    parser.add_argument("--max", type=int, default=0, help="records a batch; 0: the default")
    args = parser.parse_args()
    if args.orders is None:
        args.orders = 500_000 if args.what == "asof" else 150_000
    systems = ["flink"] if args.only_flink else ["ikebana"]
    systems += [peer for peer in PEERS if getattr(args, peer.replace("-", "_"))]
    found: list[dict[str, Any]]
    if args.what == "triangles":
        found = triangles.measured(args.nodes, args.edges)
    else:
        run = {"q3": q3, "asof": asof, "sharing": sharing}[args.what]
        found = []
        with (
            tempfile.TemporaryDirectory(prefix="ikebana-bench-") as folder,
            broker.running() as running,
        ):
            for system in systems:
                found += run(Bench(Path(folder), running.bootstrap_servers, system, args))
    finish(f"joins-{args.what}", found)


def finish(name: str, found: list[dict[str, Any]]) -> NoReturn:
    """Write and show the results of a command, and end it; status 1 if any was not exact."""
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    path = results / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), "results": found}, indent=1))
    table(found)
    for ratio in ratios(found):
        _CONSOLE.print(ratio)
    _CONSOLE.print(f"written to {path}")
    sys.exit(not all(row["exact"] for row in found))


def q3(bench: Bench) -> list[dict[str, Any]]:
    """Customers, orders and lines: loaded, then backlogs of updates of lines."""
    return [_q3(bench, "q3", [""], bench.args.updates)]


def sharing(bench: Bench) -> list[dict[str, Any]]:
    """The state of one query, and of several over the same relations by the same keys."""
    return [
        _q3(bench, f"q3x{count}", _CONDITIONS[:count], updates=0) for count in bench.args.queries
    ]


def _q3(bench: Bench, job: str, conditions: Sequence[str], updates: int) -> dict[str, Any]:
    args, shop = bench.args, _shop(bench.args)
    outputs = [f"out{at}" for at in range(len(conditions))]
    bench.make(job, _SOURCES, outputs)
    backlog = shop.load()
    bench.send(job, backlog)
    records = len(shop.customers) + len(shop.orders) + len(shop.lines)
    names = {source: bench.topic(job, source) for source in _SOURCES}
    common = {"servers": bench.servers, "group": f"{bench.system}.{job}"}
    sql = [flink.statements("q3", {**common, **names})]
    for output, condition in zip(outputs, conditions, strict=True):
        more = f"AND {condition}" if condition else ""
        given = {"sink": output, "topic": bench.topic(job, output), "conditions": more}
        sql.append(flink.statements("q3_query", {**common, **given}))
    worker = bench.started(job, _q3_sections(bench, job, conditions), sql, outputs)
    phases = [worker.phase(records)]
    for _ in range(args.backlogs if updates else 0):
        bench.send(job, {"lineitem": shop.updates(updates)}, worker.begin)
        phases.append(worker.phase(updates))
    state, whole = bench.state_mib(job), worker.stop()
    form = args.format if bench.system == "ikebana" else "upsert"
    verdicts = [
        shop.judged(bench.rows(job, output, RESULT, form), f"AND {condition}" if condition else "")
        for output, condition in zip(outputs, conditions, strict=True)
    ]
    return row_of(bench, job, "line", {"lineitem": 1}, phases, whole, state, verdicts)


def _shop(args: argparse.Namespace) -> Shop:
    return Shop(args.customers, args.orders, args.lines)


def _q3_sections(bench: Bench, job: str, conditions: Sequence[str]) -> dict[str, Any]:
    columns = {
        "customer": {"ck": "BIGINT", "seg": "BIGINT"},
        "orders": {"ok": "BIGINT", "ck": "BIGINT", "odate": "BIGINT", "prio": "BIGINT"},
        "lineitem": dict.fromkeys(("ok", "ln", "ship", "price", "disc"), "BIGINT"),
    }
    operators: dict[str, Any] = {
        alias: {"upsert": source} for alias, source in zip("col", _SOURCES, strict=True)
    }
    outputs = {}
    for at, condition in enumerate(conditions):
        where = ["c.ck = o.ck", "l.ok = o.ok", "c.seg = 0", "o.odate < 500", "l.ship > 500"]
        operators[f"q{at}"] = {
            "delta_join": {alias: alias for alias in "col"},
            "where": [*where, condition] if condition else where,
            "select": {
                "ok": "l.ok",
                "ln": "l.ln",
                "revenue": "l.price * (100 - l.disc)",
                "odate": "o.odate",
                "prio": "o.prio",
                "ck": "c.ck",
            },
            "key": "{'ok': l.ok, 'ln': l.ln}",
        }
        topic = bench.topic(job, f"out{at}")
        outputs[f"out{at}"] = {"from": f"q{at}", "topic": topic, "format": bench.args.format}
    unique = {"customer": ["ck"], "orders": ["ok"], "lineitem": ["ok", "ln"]}
    inputs = {
        source: {
            "topic": bench.topic(job, source),
            "columns": columns[source],
            "unique": unique[source],
        }
        for source in _SOURCES
    }
    return {"inputs": inputs, "operators": operators, "outputs": outputs}


def asof(bench: Bench) -> list[dict[str, Any]]:
    """Each order with its product's price as of its time: one half, then the other."""
    args, job = bench.args, "asof"
    market = Market(args.orders, args.prices, args.products)
    bench.make(job, ["orders", "prices"], ["priced"])

    def half(at: int) -> dict[str, Any]:
        prices, orders = (
            given[at * len(given) // 2 : (at + 1) * len(given) // 2]
            for given in (market.prices, market.orders)
        )
        last_prices, last_orders = market.last() if at else ([], [])
        return {
            "prices": [*price_messages(prices), *_each_partition(price_messages(last_prices))],
            "orders": [
                *order_messages(orders),
                *_each_partition(order_messages(last_orders)),
            ],
        }

    bench.send(job, half(0))
    topics = {name: bench.topic(job, name) for name in ("orders", "prices")}
    given = {**topics, "topic": bench.topic(job, "priced"), "group": f"{bench.system}.{job}"}
    sql = [flink.statements("asof", {**given, "servers": bench.servers})]
    worker = bench.started(job, _asof_sections(bench, job), sql, ["priced"])
    phases = [worker.phase(args.orders // 2)]
    bench.send(job, half(1), worker.begin)
    phases.append(worker.phase(args.orders - args.orders // 2))
    state, whole = bench.state_mib(job), worker.stop()
    form = "diff" if bench.system == "ikebana" else "rows"
    found = [row for row in bench.rows(job, "priced", PRICED, form) if row[0] >= 0]
    inputs = {"orders": 1, "prices": args.prices / args.orders}
    verdicts = [market.judged(found)]
    return [row_of(bench, job, "order", inputs, phases, whole, state, verdicts)]


def _each_partition(messages: Any) -> list[tuple[bytes, bytes | None, int]]:
    return [(*message, at) for at, message in enumerate(messages)]


def _asof_sections(bench: Bench, job: str) -> dict[str, Any]:
    event_time = {"of": "ts", "lateness": 0, "idle": "never"}
    return {
        "inputs": {
            "orders": {
                "topic": bench.topic(job, "orders"),
                "mode": "append",
                "columns": dict.fromkeys(("id", "product", "qty", "ts"), "BIGINT"),
                "event_time": dict(event_time),
            },
            "prices": {
                "topic": bench.topic(job, "prices"),
                "columns": dict.fromkeys(("product", "price", "ts"), "BIGINT"),
                "event_time": dict(event_time),
            },
        },
        "operators": {
            "current": {"upsert": "prices"},
            "priced": {
                "as_of_join": {"o": "orders", "p": "current"},
                "on": ["o.product = p.product"],
                "select": {
                    **{name: f"o.{name}" for name in ("id", "product", "qty", "ts")},
                    "price": "p.price",
                    "pts": "p.ts",
                },
                "outer": True,
            },
        },
        "outputs": {"priced": {"from": "priced", "topic": bench.topic(job, "priced")}},
    }


def row_of(
    bench: Bench,
    job: str,
    what: str,
    inputs: Mapping[str, float],
    phases: Sequence[Phase],
    whole: float,
    state_mib: float,
    verdicts: Sequence[Verdict],
) -> dict[str, Any]:
    """The figures of a job, whose phases are the load and then backlogs.

    A `what` is a record of the backlogs, for which `inputs` have so many records.
    """
    first, *warm = phases
    row = {
        "job": f"{job}, {bench.system}",
        "records": sum(phase.records for phase in phases),
        f"us a {what}, cold": round(first.us_each, 1),
        f"us a {what}, warm": [round(phase.us_each, 1) for phase in warm],
        "of that": [phase.us_by_kind() for phase in warm],
        f"{what}s/s, cold": round(first.records / first.wall_s),
        f"{what}s/s, warm": [round(phase.records / phase.wall_s) for phase in warm],
        "all CPU s": round(whole, 1),
        "state_mib": state_mib,
        "rows": [verdict.rows for verdict in verdicts],
        "exact": all(verdict.exact for verdict in verdicts),
    }
    if bench.system == "ikebana":
        row[f"us a {what}, estimated"] = round(bench.estimated_us(job, inputs), 1)
    wrong = [verdict for verdict in verdicts if not verdict.exact]
    if wrong:
        row["wrong"] = str(wrong)
    _CONSOLE.print(row)
    return row


def ratios(found: Sequence[dict[str, Any]]) -> list[str]:
    """What ikebana takes of what its peers do, for figures of the same job."""
    by_system: dict[str, dict[str, dict[str, Any]]] = {}
    for row in found:
        job, _, system = row["job"].partition(", ")
        by_system.setdefault(job, {})[system] = row
    told = []
    for job, rows in by_system.items():
        ours = rows.get("ikebana", {})
        for peer in [peer for peer in PEERS if peer in rows]:
            theirs = rows[peer]
            # Peers estimate nothing.
            for figure in [each for each in ours if each in theirs]:
                if figure.startswith("us") and figure.endswith("warm") and ours[figure]:
                    ratio = statistics.fmean(ours[figure]) / statistics.fmean(theirs[figure])
                elif figure == "state_mib" or (
                    figure.startswith("us") and figure.endswith("cold")
                ):
                    ratio = ours[figure] / theirs[figure]
                else:
                    continue
                told.append(f"{job}, {figure}: {ratio:.2f} of {peer}'s")
    return told


if __name__ == "__main__":
    main()
