"""What a start of `ikebana run --once` costs: seconds and CPU seconds, by part and by process.

    python bench/start.py                  20,000 records, four shards, three runs
    python bench/start.py --records 100 --runs 1 --show

Each run has a new checkpoint; the broker runs before it and isn't counted.  A part begins
when the run says so on standard error, and ends when the next one does.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Cost, Watched

from ikebana.processor.kafka.broker import running
from support.pipeline_processes import create, produce, upserts

WITHIN_S = 300.0


def main() -> None:
    """Start a pipeline as often as asked, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="print what the runs say")
    asked = parser.parse_args()
    costs = []
    with tempfile.TemporaryDirectory() as folder, running() as broker:
        servers = broker.bootstrap_servers
        create(servers, "rows", 2)
        produce(servers, "rows", upserts(asked.records, asked.records // 10 + 1, Random(1)))
        for at in range(asked.runs):
            place = Path(folder) / str(at)
            place.mkdir()
            cost, parts = _start(place, servers, f"start-{at}", asked.shards)
            text = (place / "log").read_text()
            if asked.show or cost.returncode:
                print(text)
            kinds = ", ".join(f"{kind} {s:.1f}" for kind, s in sorted(cost.cpu_by_kind.items()))
            print(f"run {at}: {cost.wall_s:.1f} s, {cost.cpu_s:.1f} CPU s ({kinds})", flush=True)
            for seconds, what in parts:
                print(f"    {seconds:6.2f} s  {what}")
            costs.append(cost)
    for name, values in (
        ("wall s", [cost.wall_s for cost in costs]),
        ("CPU s", [cost.cpu_s for cost in costs]),
        ("peak MiB", [cost.peak_rss_mib for cost in costs]),
    ):
        middle = statistics.median(values)
        print(f"{name}: {min(values):.1f} / {middle:.1f} / {max(values):.1f} (min/median/max)")
    sys.exit(max(cost.returncode for cost in costs))


def _start(
    place: Path, servers: str, name: str, shards: int
) -> tuple[Cost, list[tuple[float, str]]]:
    path = place / "pipeline.json"
    path.write_text(
        json.dumps(
            {
                "pipeline": name,
                "inputs": {"rows": {"topic": "rows", "format": {"key": "bytes"}}},
                "operators": {"current": {"upsert": "rows"}},
                "outputs": {"out": {"from": "current", "topic": f"{name}.out"}},
                "kafka": {"bootstrap.servers": servers},
                "run": {"checkpoint": str(place / "checkpoint"), "shards": shards},
            }
        )
    )
    log = place / "log"
    begun = time.monotonic()
    command = [sys.executable, "-m", "ikebana", "run", str(path), "--once"]
    watched = Watched(command, log)
    parts: list[tuple[float, str]] = []
    last, what = begun, "reading the file"
    while watched.process.poll() is None and time.monotonic() - begun < WITHIN_S:
        said = [line for line in log.read_text().splitlines() if line.strip()]
        now = time.monotonic()
        if said and said[-1] != what:
            parts.append((now - last, what))
            last, what = now, said[-1]
        time.sleep(0.01)
    parts.append((time.monotonic() - last, what))
    return watched.wait(WITHIN_S), parts


if __name__ == "__main__":
    main()
