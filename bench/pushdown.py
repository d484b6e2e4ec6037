"""Pushdown, measured: Debezium JSON of 30 columns, a filter that keeps 1%, 3 columns.

    python bench/pushdown.py                      a million messages: about 8 minutes
    python bench/pushdown.py --messages 100000

Each job runs with `pushdown: true` and `false`, through Kafka and Spark, exactly once,
and the updates that come out are compared.  CPU is that of the whole process tree, less
that of the same job on a thousand messages, which is start-up.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generate
import msgspec
import yaml
from measure import Watched
from rich.console import Console
from rich.table import Table
from upsert import RUN, records_of

from ikebana.processor.kafka import broker

_CONSOLE = Console()
_FEW = 1_000
_JOBS: dict[str, dict[str, Any]] = {
    "diffs, a filter over the value": {
        "mode": "diffs",
        "where": "status = 'lost'",
    },
    "upsert, a filter over the key": {
        "mode": "upsert",
        "where": "id % 100 = 7",
    },
}


def main() -> None:
    """Run all jobs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=1_000_000)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-bench-"))
    table = Table("job", "pushdown", "CPU us a message", "wall s", "updates")
    with broker.running() as running:
        servers = running.bootstrap_servers
        for topic, count in (("few", _FEW), ("many", args.messages)):
            generate.make_topic(servers, topic)
            generate.fill(servers, topic, messages(count))
        for at, (job, given) in enumerate(_JOBS.items()):
            cost: dict[bool, float] = {}
            found: dict[bool, Counter[Any]] = {}
            for pushdown in (True, False):
                name = f"job{at}-{'on' if pushdown else 'off'}"
                few = _pipeline(folder, f"{name}-few", "few", given, pushdown=pushdown)
                many = _pipeline(folder, f"{name}-many", "many", given, pushdown=pushdown)
                start, _ = _run(few, servers, folder / f"{name}-few.log")
                seconds, wall = _run(many, servers, folder / f"{name}-many.log")
                cost[pushdown] = (seconds - start) / args.messages * 1e6
                found[pushdown] = _collection(servers, f"{name}-many.out")
                table.add_row(
                    job,
                    "on" if pushdown else "off",
                    f"{cost[pushdown]:.1f}",
                    f"{wall:.0f}",
                    f"{sum(found[pushdown].values()):,}",
                )
            assert found[True] == found[False], f"{job}: pushdown changes the result"
            table.add_row(job, "off / on", f"{cost[False] / cost[True]:.1f}", "", "", style="bold")
    _CONSOLE.print(table)


def _run(path: Path, servers: str, log: Path) -> tuple[float, float]:
    """The CPU and wall seconds of a run."""
    watched = Watched([*RUN, str(path), "--once", "--bootstrap-servers", servers], log)
    cost = watched.wait(1_800)
    if cost.returncode:
        sys.exit(f"{path} ended with {cost.returncode}:\n{log.read_text()[-3000:]}")
    return cost.cpu_s, cost.wall_s


def _pipeline(
    folder: Path, name: str, topic: str, given: dict[str, Any], *, pushdown: bool
) -> Path:
    diffs = given["mode"] == "diffs"
    operators: dict[str, Any] = {} if diffs else {"rows": {"upsert": "orders"}}
    operators["kept"] = {
        "linear": "orders" if diffs else "rows",
        "where": given["where"],
        "select": ["id", "status", "amount"],
    }
    path = folder / f"{name}.yaml"
    document = {
        "pipeline": name,
        "inputs": {
            "orders": {
                "topic": topic,
                "format": "debezium-json",
                "mode": given["mode"],
                "key": "id",
                "columns": {"id": "BIGINT", "status": "VARCHAR", "amount": "DECIMAL(12,2)"},
            }
        },
        "operators": operators,
        "outputs": {"out": {"from": "kept", "topic": f"{name}.out"}},
        "pushdown": pushdown,
        "run": {
            "checkpoint": str(folder / name / "checkpoint"),
            "local_directory": str(folder / name / "local"),
            "heartbeat": 0,
        },
    }
    path.write_text(yaml.safe_dump(document))
    return path


def messages(count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Updates of rows of 30 columns, as Debezium's MySQL connector writes them."""
    encode = msgspec.json.Encoder().encode
    for at in range(count):
        yield b'{"id":%d}' % at, encode(event(at))


def event(at: int) -> dict[str, Any]:
    """An update of a row."""
    return {
        "before": row(at, "open"),
        "after": row(at, "lost" if at % 100 == 0 else "paid"),
        "source": {
            "version": "3.6.3.Final",
            "connector": "mysql",
            "name": "shop",
            "ts_ms": 1_700_000_000_000 + at,
            "snapshot": "false",
            "db": "shop",
            "table": "orders",
            "server_id": 1,
            "gtid": None,
            "file": "binlog.000003",
            "pos": 154 + at,
            "row": 0,
        },
        "op": "u",
        "ts_ms": 1_700_000_000_005 + at,
    }


def row(at: int, status: str) -> dict[str, Any]:
    """A row of 30 columns."""
    made: dict[str, Any] = {"id": at, "status": status, "amount": at % 100_000 / 100}
    for column in range(27):
        number = (at * (column + 7)) % 1_000_003
        match column % 3:
            case 0:
                made[f"text_{column:02d}"] = f"a text of the order, {number}"
            case 1:
                made[f"count_{column:02d}"] = number
            case _:
                made[f"share_{column:02d}"] = number / 1000
    return made


def _collection(servers: str, topic: str) -> Counter[Any]:
    """What the updates of a topic come to."""
    counts: Counter[Any] = Counter()
    for message in records_of(servers, topic):
        counts[message.key(), message.value()] += int(dict(message.headers())["diff"])
    return Counter({data: count for data, count in counts.items() if count})


if __name__ == "__main__":
    main()
