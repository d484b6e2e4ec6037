"""A run with its sinks beside it, into files, through Kafka and Spark."""

import json
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
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


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
