"""docs/editing.md through Kafka and Spark: its commands, over two days of flights."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flights
from ikebana.processor.kafka.broker import Broker
from support.edited_flights import expected, files, summaries
from support.flight_examples import two_days
from support.pipeline_processes import create, produce
from support.shops import collection, counted
from support.waiting import patient

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]


def ikebana(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the page."""
    command = [str(Path(sys.executable).with_name("ikebana")), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patient(240), check=False, cwd=folder
    )


def test_the_commands_of_the_page_do_what_it_says(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    servers, name = broker.bootstrap_servers, topic_name("delays")
    days = two_days()
    create(servers, f"{name}.flights", 2)
    messages = flights.departures(days)
    produce(servers, f"{name}.flights", [(m.key, m.value) for m in messages])
    file, told = tmp_path / "delays.yaml", []
    for number, document in enumerate(files()):
        document["pipeline"] = name
        document["inputs"]["flights"]["topic"] = f"{name}.flights"
        for output, found in document["outputs"].items():
            found["topic"] = f"{name}.{output}"
        document["kafka"] = {"bootstrap.servers": servers}
        document["run"] |= {"master": "local[2]", "driver_memory": "512m"}
        file.write_text(json.dumps(document))
        planned = ikebana(tmp_path, "plan", "delays.yaml")
        assert planned.returncode == 2, planned.stderr
        if number:
            told.append(planned.stdout.splitlines()[-1])
        run = ikebana(tmp_path, "run", "delays.yaml", "--once")
        assert run.returncode == 0, run.stderr
        for output, rows in expected(document, days).items():
            assert collection(servers, f"{name}.{output}") == counted(rows), output
    assert told == summaries()
    check = ikebana(tmp_path, "check", f"{name}.late", "--bootstrap-servers", servers)
    assert check.returncode == 0, check.stdout
