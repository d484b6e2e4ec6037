"""Executors that Spark is asked for and given back, on a cluster of processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.standalone_spark import cluster
from support.waiting import patient

pytestmark = [pytest.mark.full, pytest.mark.spark]

# A session of its own: that of other tests has no executors.
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from ikebana.processor.spark.executors import executors_of
from ikebana.processor.spark.executors import ask_for
from support.waiting import wait_until

builder = SparkSession.builder.master(sys.argv[1]).config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.executor.memory", "512m").getOrCreate()
seen = []
for count in (2, 1, 2):
    ask_for(spark, count)
    wait_until(lambda: len(executors_of(spark)) == count, 60, f"{count} executors")
    seen.append(sorted(executors_of(spark)))
    assert spark.range(100, numPartitions=4).count() == 100
spark.stop()
print(seen)
"""


def test_spark_has_as_many_executors_as_it_is_asked_for(tmp_path: Path) -> None:
    """The newest one goes, and its place is not taken before more are asked for."""
    with cluster(tmp_path / "cluster", 2, memory="600m") as address:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, address],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(240),
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "[['0', '1'], ['0'], ['0', '2']]"
