"""Pipelines in Python through Spark, started by a program or on a session that is there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import create
from support.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

# {name}, {source} and {target} are of one test.
DEFINED = """
import sys
from typing import Any, TypedDict

import ikebana as ik


class Order(TypedDict):
    product: str
    quantity: int


def doubled(data: tuple[Any, Order]) -> tuple[Any, int]:
    return data[0], 2 * data[1]["quantity"]


shop = ik.Pipeline("{name}", time="offset")
shop.topic("{source}", row=Order, name="orders").upsert().map(doubled).to("{target}", name="out")
SETTINGS = {{"run": {{"shards": 2, "heartbeat": 0, "master": "local[2]"}}}}
"""

RUN = """
if __name__ == "__main__":
    run = shop.start(sys.argv[1], checkpoint="state", once=True, settings=SETTINGS)
    try:
        shop.run(sys.argv[1], checkpoint="other", settings=SETTINGS)
    except ik.ConfigError as error:
        print(run.status, error.hint)
    run.wait()
    print(run.status, run.frontier, run.metrics.records, run.metrics.updates["out"])
"""

START = """
if __name__ == "__main__":
    import time
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    before = session.conf.get("spark.sql.shuffle.partitions")
    try:
        shop.run(sys.argv[1], checkpoint="state", settings=SETTINGS)
    except ik.ConfigError as error:
        print(error.hint)
    with shop.start(sys.argv[1], checkpoint="state", settings=SETTINGS, spark=session) as run:
        until = time.monotonic() + float(sys.argv[2])
        while run.metrics.records < 3 and not run.wait(0.1):
            assert time.monotonic() < until, run
        print(run.status, "frontier" in run._repr_html_())
    print(run.status, run.metrics.records, run.metrics.updates["out"])
    print(session.range(3).count(), session.conf.get("spark.sql.shuffle.partitions") == before)
"""

# What workers import has another function of the name.
HANGS = """
def doubled(data):
    import re
    return data[0], bool(re.match("(a+)+$", "a" * 60 + "!"))


if __name__ == "__main__":
    SETTINGS["run"]["max_batch"] = "12s"
    try:
        shop.run(sys.argv[1], checkpoint="state", once=True, settings=SETTINGS)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def program(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> Callable[[str], str]:
    """Run a program with three messages in the pipeline's topic; what it prints."""
    servers = broker.bootstrap_servers
    names = {part: topic_name(part) for part in ("name", "source", "target")}
    create(servers, names["source"], 1)
    producer = Producer({"bootstrap.servers": servers})
    for key, quantity in [(1, 3), (2, 5), (1, 4)]:
        value = {"product": "tea", "quantity": quantity}
        producer.produce(names["source"], json.dumps(value), key=str(key))
    assert producer.flush(patient(30)) == 0

    def run(then: str) -> str:
        (tmp_path / "shop_program.py").write_text(DEFINED.format(**names) + then)
        return printed([sys.executable, "shop_program.py", servers, str(patient(240))], tmp_path)

    return run


def printed(command: Sequence[str], folder: Path) -> str:
    """What a command prints, which has to end well."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
        cwd=folder,
        # As with an environment that is activated.
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_a_program_runs_its_own_pipeline(program: Callable[[str], str]) -> None:
    """With a function of its own: +3, +5, -3 and +4, doubled.

    Another one that begins while it starts is refused, and does it no harm.
    """
    refused, ended = program(RUN).splitlines()

    assert refused.startswith("starting Stop that one first, or run several pipelines on one ")
    assert ended == "ended 3 3 4"


@pytest.mark.full
def test_a_pipeline_runs_on_a_session_that_is_there(program: Callable[[str], str]) -> None:
    """It is started and stopped, and leaves the session and its settings alone."""
    hint, *lines = program(START).splitlines()

    assert "spark=" in hint
    assert lines == ["running True", "ended 3 4", "3 True"]


@pytest.mark.full
def test_a_function_that_hangs_ends_a_run_by_name(program: Callable[[str], str]) -> None:
    """Also one that keeps Python's lock, as a pattern that explodes does."""
    told = program(HANGS)

    assert told.startswith("StuckError operator")
    assert "map shop_program:doubled has not returned for 6 s" in told
    assert "in doubled" in told
