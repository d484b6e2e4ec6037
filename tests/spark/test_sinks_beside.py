"""A run with its sinks beside it, into files, through Kafka and Spark."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest

from ikebana.processor.kafka.broker import Broker, free_port
from support.pipeline_processes import Pipeline, Run, create, produce
from support.waiting import patient, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

PROGRAM = """
import time
import ikebana as ik
from pathlib import Path

if __name__ == "__main__":
    shop = ik.Pipeline("{name}")
    rows = shop.topic("{name}.in", columns=[ik.Column("n", "BIGINT")], key_format="bytes").upsert()
    rows.to("{name}.out")
    tables = {{"t": {{"from": "{name}.out", "mode": "changes"}}}}
    shop.deliver("files", tables, parquet={{"folder": "{folder}/files"}})
    settings = {{"run": {{"shards": 1, "driver_memory": "512m"}}}}
    with shop.start("{servers}", checkpoint="{folder}/checkpoint", settings=settings) as run:
        end = time.monotonic() + 200
        while not (Path("{folder}/files/t").is_dir() and run.sinks["files"].updates):
            assert run.status != "failed", run
            assert time.monotonic() < end, run.sinks
            time.sleep(0.1)
        print("delivered to", run.sinks["files"].updates, "row")
"""


def made(broker: Broker, name: str, folder: Path) -> Pipeline:
    """A pipeline whose updates are kept in files, beside a sink whose target cannot be there."""
    servers = broker.bootstrap_servers
    create(servers, f"{name}.in", 1)
    column = {"type": "JSON", "whole": "value"}
    tables = {"t": {"from": "out", "mode": "changes", "columns": {"v": column}}}
    sinks = {
        "files": {"parquet": {"folder": str(folder / "files")}, "tables": tables},
        "gone": {"postgres": {"connection": "host=127.0.0.1 port=1"}, "tables": tables},
    }
    pipeline = Pipeline(folder, servers, name, f"{name}.in")
    sections = {
        "inputs": {"changes": {"topic": f"{name}.in", "format": {"key": "bytes"}}},
        "operators": {"current": {"upsert": "changes"}},
        "outputs": {"out": {"from": "current", "topic": f"{name}.out"}},
        "deliver": sinks,
    }
    return replace(pipeline, plan=sections)


def rows(folder: Path) -> list[tuple[Any, int]]:
    """The updates in the files: each value with its diff."""
    found = []
    for file in sorted((folder / "files" / "t").glob("**/*.parquet")):
        for row in pyarrow.parquet.read_table(file).to_pylist():
            found.append((json.loads(row["v"]), row["ikebana_diff"]))
    return sorted(found, key=str)


def delivering(run: Run, sink: str) -> list[psutil.Process]:
    """The processes of a sink, without the guards that started them."""
    return [each for each in run.family.alive() if {"deliver", sink} <= set(each.cmdline()[1:6])]


def test_sinks_run_beside_a_pipeline_and_end_with_it(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """One that is killed goes on, one whose target is away changes nothing for the others."""
    name, port = topic_name("beside"), free_port()
    pipeline = made(broker, name, tmp_path)
    produce(pipeline.servers, pipeline.source, [(b"a", b"1")])

    def told() -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return {
            sink: f'ikebana_sink_ready{{pipeline="{name}",sink="{sink}"}} 1.0' in text
            for sink in ("files", "gone")
        }

    with pipeline.start("--http", f"127.0.0.1:{port}") as run:
        wait_until(lambda: rows(tmp_path) == [(1, 1)], 120, f"the first row: {run.text}")
        wait_until(lambda: told() == {"files": True, "gone": False}, 60, "what is told of sinks")
        [first] = delivering(run, "files")
        first.kill()
        run.wait_for("sink files: starting again in 1 s")
        produce(pipeline.servers, pipeline.source, [(b"a", b"2")])
        wait_until(
            lambda: rows(tmp_path) == [(1, -1), (1, 1), (2, 1)], 120, f"the others: {run.text}"
        )
        assert 'sink gone: sink "gone" waits: ' in run.text
        assert run.stop() == 0
        assert delivering(run, "files") == delivering(run, "gone") == []


@pytest.mark.full
def test_a_run_once_delivers_what_it_has_closed(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """And with --no-deliver nothing, so that other processes do."""
    pipeline = made(broker, topic_name("once"), tmp_path)
    del pipeline.plan["deliver"]["gone"]
    produce(pipeline.servers, pipeline.source, [(b"a", b"1")])

    pipeline.drained("--no-deliver")
    assert rows(tmp_path) == []
    run = pipeline.drained()

    assert rows(tmp_path) == [(1, 1)]
    assert "sink files: files: delivered 1 updates" in run.text


def test_a_run_in_python_has_its_sinks_beside_it(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Those that the pipeline declares, while it runs, and with their progress."""
    name, servers = topic_name("python"), broker.bootstrap_servers
    create(servers, f"{name}.in", 1)
    produce(servers, f"{name}.in", [(b"a", b'{"n": 1}')])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(name=name, servers=servers, folder=tmp_path))

    temporary = tmp_path / "temporary"
    temporary.mkdir()

    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )

    assert done.returncode == 0, done.stderr
    assert "delivered to 1 row" in done.stdout
    assert not list(temporary.glob("ikebana-sinks-*"))
