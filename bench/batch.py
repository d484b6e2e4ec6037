"""What a micro-batch costs: milliseconds and CPU by part and by thread; and an idle pipeline.

    python bench/batch.py        100 records a batch, four shards, 100 batches
    python bench/batch.py --records 5 --shards 1 --batches 30 --idle 5

A pipeline of one upsert runs as `ikebana run`; records are sent for one batch at a time, and
those for the next one when it is committed.  The first batches are not counted.  Parts are
those of Spark (its progress report) and of the shards' tasks (their commit records), from the
metrics; CPU is that of each thread in /proc; programs are those that Hadoop runs by name.  The
broker is not counted.  The tables are in Markdown.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psutil

from ikebana.processor.kafka.broker import running
from ikebana.processor.spark.workers import serving
from support.pipeline_processes import Pipeline, Run, create, produce, upserts

PROGRAMS = ("chmod", "readlink", "ls", "bash")
_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class Looked(NamedTuple):
    """What there is at a moment: CPU seconds by thread, metrics, programs started.

    `cpu` has for each thread's folder in /proc the kinds of its process and of itself.
    """

    at: float
    cpu: dict[str, tuple[tuple[str, str], float]]
    metrics: dict[str, float]
    programs: int


def main() -> None:
    """Run the pipeline, and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--warm", type=int, default=60, help="batches that are not counted")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--master", default="local[*]", help="Spark's")
    parser.add_argument("--spark", nargs="*", default=[], help="settings of Spark: name=value")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, running() as broker:
        folder, servers = Path(name), broker.bootstrap_servers
        called = _counted_programs(folder)
        create(servers, "rows", 2)
        pipeline = Pipeline(folder, servers, "floor", "rows", "ingest", limit=100_000).but(
            shards=asked.shards, master=asked.master, heartbeat="1h", trigger_interval="0s"
        )
        given = dict(each.split("=", 1) for each in asked.spark)
        pipeline = replace(pipeline, spark=given)
        port = _free_port()
        with pipeline.start("--http", f"127.0.0.1:{port}") as run:
            choice = Random(1)
            walls: list[float] = []
            before: Looked | None = None
            for batch in range(asked.warm + asked.batches):
                if batch == asked.warm:
                    before = _look(run, port, called)
                begun = time.monotonic()
                produce(servers, "rows", upserts(asked.records, 1_000, choice))
                _wait_until_read(run, pipeline, (batch + 1) * asked.records)
                walls.append(time.monotonic() - begun)
            assert before is not None
            after = _look(run, port, called)
            quiet = _look(run, port, called)
            time.sleep(asked.idle)
            later = _look(run, port, called)
            run.stop()
    _print_batch(before, after, walls[asked.warm :])
    idle = sum(_spent(quiet, later).values()) / (later.at - quiet.at)
    print(f"\nidle: {idle:.3f} cores, {later.programs - quiet.programs} programs")


def _counted_programs(folder: Path) -> Path:
    """Put programs before Hadoop's that write down each call."""
    called, bin_ = folder / "called", folder / "bin"
    called.touch()
    bin_.mkdir()
    for program in PROGRAMS:
        ours = bin_ / program
        real = shutil.which(program)
        ours.write_text(f'#!/bin/sh\necho {program} >> {called}\nexec {real} "$@"\n')
        ours.chmod(0o755)
    os.environ["PATH"] = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    return called


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.match(line)) is not None:
            found[f"{sample[1]}{{{sample[2] or ''}}}"] = float(sample[3])
    return found


def _wait_until_read(run: Run, pipeline: Pipeline, count: int) -> None:
    """Return when a batch is committed that has read so many records."""
    while not _is_read(pipeline, count):
        assert run.poll() is None, run.text
        time.sleep(0.002)


def _is_read(pipeline: Pipeline, count: int) -> bool:
    folder = pipeline.place / "commits"
    names = [name for name in os.listdir(folder) if name.isdigit()] if folder.is_dir() else []
    if not names:
        return False
    text = (pipeline.place / "offsets" / max(names, key=int)).read_text()
    positions: dict[str, dict[str, int]] = json.loads(text.splitlines()[2])["positions"]
    return sum(end for by in positions.values() for end in by.values()) >= count


def _total(metrics: dict[str, float], name: str) -> float:
    return sum(value for key, value in metrics.items() if key.startswith(name + "{"))


def _look(run: Run, port: int, called: Path) -> Looked:
    cpu: dict[str, tuple[tuple[str, str], float]] = {}
    for process in run.family.alive():
        kind = _kind(process)
        for task in Path(f"/proc/{process.pid}/task").glob("*"):
            try:
                stat = (task / "stat").read_text()
            except OSError:
                continue
            name = stat[stat.index("(") + 1 : stat.rindex(")")]
            fields = stat[stat.rindex(")") + 2 :].split()
            spent = (int(fields[11]) + int(fields[12])) / _TICKS
            cpu[str(task)] = (kind, _thread(kind, name)), spent
    return Looked(time.monotonic(), cpu, _metrics(port), len(called.read_text().splitlines()))


def _spent(before: Looked, after: Looked) -> dict[tuple[str, str], float]:
    """CPU seconds between two looks, of threads that still are there."""
    found: dict[tuple[str, str], float] = {}
    for task, (group, seconds) in after.cpu.items():
        _, known = before.cpu.get(task, (group, 0.0))
        found[group] = found.get(group, 0.0) + seconds - known
    return found


def _kind(process: psutil.Process) -> str:
    try:
        line = " ".join(process.cmdline())
        if process.name() == "java":
            return "JVM"
        if process.name() == serving.OWNER_NAME:
            return "owners of shards"
        parent = process.ppid()
    except psutil.Error:
        return "gone"
    if "spark.workers" in line or "pyspark" in line:
        return "Python workers"
    return "driver" if "ikebana" in line else f"other ({parent and line[:20]})"


def _thread(kind: str, name: str) -> str:
    if kind != "JVM":
        return (
            "rdkafka"
            if name.startswith(("rdk", "kafka"))
            else "Python"
            if "py" in name or name == serving.OWNER_NAME
            else name
        )
    for prefix, group in (
        ("stream execut", "query"),
        ("Executor task", "tasks"),
        ("C2 Comp", "JIT"),
        ("C1 Comp", "JIT"),
        ("GC ", "GC"),
        ("G1 ", "GC"),
        ("VM ", "VM"),
        ("dag-sched", "scheduler"),
        ("dispatcher", "scheduler"),
        ("state-store", "state store"),
    ):
        if name.startswith(prefix):
            return group
    return re.sub(r"[-\d#]+$", "", name)


def _print_batch(before: Looked, after: Looked, walls: list[float]) -> None:
    count = _total(after.metrics, "ikebana_batch") - _total(before.metrics, "ikebana_batch")
    spent_cpu = _spent(before, after)
    total = sum(spent_cpu.values())
    print(f"{count:.0f} batches for {len(walls)} portions of records")
    print(f"from sending to counted: median {1000 * statistics.median(walls):.0f} ms")
    print(
        f"CPU a batch: {1000 * total / count:.0f} ms; programs a batch: "
        f"{(after.programs - before.programs) / count:.1f}\n"
    )
    print("| part | ms a batch |\n|---|---|")
    for name, metric, of in (
        ("a batch, whole", "ikebana_batch_duration_seconds_sum", ""),
        *(
            (f"Spark: {phase}", "ikebana_batch_phase_seconds_total", f'phase="{phase}"')
            for phase in _phases(after.metrics, "ikebana_batch_phase_seconds_total")
        ),
        *(
            (f"shards, added up: {phase}", "ikebana_shard_phase_seconds_total", f'phase="{phase}"')
            for phase in _phases(after.metrics, "ikebana_shard_phase_seconds_total")
        ),
    ):
        spent = sum(
            value - before.metrics.get(key, 0.0)
            for key, value in after.metrics.items()
            if key.startswith(metric + "{") and of in key
        )
        print(f"| {name} | {1000 * spent / count:.1f} |")
    print("\n| process | thread | CPU ms a batch |\n|---|---|---|")
    most = sorted(spent_cpu.items(), key=itemgetter(1), reverse=True)[:24]
    for (kind, thread), seconds in most:
        if seconds > 0:
            print(f"| {kind} | {thread} | {1000 * seconds / count:.1f} |")


def _phases(metrics: dict[str, float], name: str) -> list[str]:
    found = {
        phase[1]
        for key in metrics
        if key.startswith(name + "{") and (phase := re.search(r'phase="(\w+)"', key))
    }
    return sorted(found)


if __name__ == "__main__":
    main()
