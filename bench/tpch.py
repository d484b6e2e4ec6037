"""Queries of TPC-H as views, measured, and on request Flink SQL on the same data in one run.

    python bench/tpch.py --flink                         q1, q3, q5 and q17: about 40 minutes
    python bench/tpch.py --flink --queries q3 --scale 0.01 --updates 10000

Each query is a job of its own: tables are loaded, and then two backlogs of updates and deletes
of lines come while it runs.  The text of a query is the same for both systems.  The CPU of the
backlogs, warm, is the figure to compare: microseconds a change of a line.  A broker of its own
is started, whose cost is not counted; of the others the whole process tree is.  What comes out
is compared with DuckDB's answer (`exact`).

What differs: ikebana writes updates, -old +new, with their times and progress (`--format
upsert` makes it write new rows and tombstones), Flink's sink the new row or a tombstone; Flink
gives averages and quotients 6 digits behind the point, and ikebana 15 digits.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import flink
from joins import finish, row_of
from systems import Bench
from tpch_data import KEYS, QUERIES, TABLES, View, Warehouse

from ikebana.processor.kafka import broker

_BACKLOGS = 2


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--flink", action="store_true", help="run Flink on the same data too")
    parser.add_argument("--only-flink", action="store_true", help="run Flink alone")
    parser.add_argument("--queries", nargs="+", default=list(QUERIES), choices=list(QUERIES))
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H; 1 is 6 million lines")
    parser.add_argument("--updates", type=int, default=300_000, help="of lines, in two backlogs")
    parser.add_argument("--format", default="diff", choices=["diff", "upsert"])
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--parallelism", type=int, default=2, help="Flink's")
    parser.add_argument("--max", type=int, default=0, help="records a batch; 0: the default")
    args = parser.parse_args()
    systems = ["flink"] if args.only_flink else ["ikebana", "flink"][: 1 + args.flink]
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="ikebana-bench-") as folder,
        broker.running() as running,
    ):
        for name in args.queries:
            for system in systems:
                bench = Bench(Path(folder), running.bootstrap_servers, system, args)
                found.append(measured(bench, name, QUERIES[name]))
    finish("tpch", found)


def measured(bench: Bench, job: str, view: View) -> dict[str, Any]:
    """One query in one system: loaded, then two backlogs of updates of lines."""
    warehouse = Warehouse(bench.args.scale)
    tables = [name for name in TABLES if name in view.sql]
    bench.make(job, tables, ["out"])
    bench.send(job, warehouse.load(tables))
    records = sum(len(warehouse.rows[name]) for name in tables)
    sql = [*(_source(bench, job, name) for name in tables), *_sink(bench, job, view)]
    worker = bench.started(job, _sections(bench, job, tables, view), sql, ["out"])
    phases = [worker.phase(records)]
    each = bench.args.updates // _BACKLOGS
    for _ in range(_BACKLOGS):
        bench.send(job, {"lineitem": warehouse.updates(each)}, worker.begin)
        phases.append(worker.phase(each))
    state, whole = bench.state_mib(job), worker.stop()
    form = "upsert" if bench.system == "flink" else bench.args.format
    verdict = warehouse.judged(view, bench.rows(job, "out", tuple(view.columns), form))
    return row_of(bench, job, "change", {"lineitem": 1}, phases, whole, state, [verdict])


def _sections(bench: Bench, job: str, tables: list[str], view: View) -> dict[str, Any]:
    """The pipeline file."""
    key = ", ".join(f"'{column}': {column}" for column in view.key)
    out = {"from": "view", "topic": bench.topic(job, "out"), "format": bench.args.format}
    return {
        "inputs": {
            name: {
                "topic": bench.topic(job, name),
                "columns": dict(TABLES[name]),
                "unique": [list(KEYS[name])],
            }
            for name in tables
        },
        "operators": {"view": {"sql": view.sql, "key": f"{{{key}}}"}},
        "outputs": {"out": out},
    }


def _source(bench: Bench, job: str, name: str) -> str:
    """Flink's table of a topic of upserts."""
    return _table(bench, job, name, name, TABLES[name], KEYS[name], reads=True)


def _sink(bench: Bench, job: str, view: View) -> list[str]:
    """Flink's table of the results, and the query that fills it."""
    sink = _table(bench, job, "sink", "out", view.columns, view.key, reads=False)
    columns = view.columns.items()
    casts = ", ".join(f"CAST({column} AS {_type(kind)})" for column, kind in columns)
    query = f"INSERT INTO sink\nSELECT {casts} FROM ({view.sql})\nON CONFLICT DO DEDUPLICATE"
    return [sink, query]


def _table(
    bench: Bench,
    job: str,
    name: str,
    relation: str,
    columns: Any,
    key: tuple[str, ...],
    *,
    reads: bool,
) -> str:
    """A statement that makes a table over a topic of upserts."""
    given = {
        "name": name,
        "columns": ", ".join(f"{column} {_type(kind)}" for column, kind in columns.items()),
        "key": ", ".join(key),
        "topic": bench.topic(job, relation),
        "servers": bench.servers,
        "group": f"{bench.system}.{job}",
    }
    return flink.statements("upserts_in" if reads else "upserts_out", given)


def _type(kind: str) -> str:
    return "STRING" if kind == "VARCHAR" else kind


if __name__ == "__main__":
    main()
