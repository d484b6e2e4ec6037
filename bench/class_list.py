"""Write the list of classes that Spark's JVM loads in a run: processor/spark/classes.txt.gz.

    python bench/class_list.py

An archive of these classes is what a JVM starts from (processor/spark/class_archive.py).
The list is made anew when pyspark's version changes.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import places

from ikebana.processor.kafka.broker import running
from ikebana.processor.spark import class_archive
from ikebana.processor.spark.session import DEFAULTS, EXECUTORS_JAVA_OPTIONS
from support.pipeline_processes import create, produce, upserts
from support.waiting import wait_until

JAVA_OPTIONS = ("spark.driver.extraJavaOptions", EXECUTORS_JAVA_OPTIONS)
# Classes that the JVM makes as it goes, and those of the archive's own making.
MADE = ("$$Lambda$", "$Proxy", "GeneratedClass", "LambdaForm$", "@lambda-form-invoker")


def main() -> None:
    """Run a pipeline of a few batches here and on an executor, and list what was loaded."""
    with tempfile.TemporaryDirectory() as folder, running() as broker:
        lines = loaded(Path(folder) / "local", broker.bootstrap_servers, {}, {})
        with places.executors(1, Path(folder)) as place:
            parts = place.run, place.spark
            lines += loaded(Path(folder) / "cluster", broker.bootstrap_servers, *parts)
    classes = [line for line in dict.fromkeys(lines) if not any(made in line for made in MADE)]
    class_archive.CLASSES.write_bytes(gzip.compress("\n".join(classes).encode(), mtime=0))
    print(f"{len(classes):,} of {len(lines):,} lines in {class_archive.CLASSES}")


def loaded(
    folder: Path, servers: str, run: Mapping[str, Any], spark: Mapping[str, str]
) -> list[str]:
    """Run a pipeline; the lines of the classes that the driver and an executor have loaded."""
    folder.mkdir()
    topic, lists = f"rows-{folder.name}", (folder / "driver.txt", folder / "executor.txt")
    create(servers, topic, 2)
    produce(servers, topic, upserts(2_000, 100, Random(1)))
    listing = {
        name: f"{DEFAULTS[name]} -XX:DumpLoadedClassList={path}"
        for name, path in zip(JAVA_OPTIONS, lists, strict=True)
    }
    sections = {
        "pipeline": f"loading-{folder.name}",
        "inputs": {"rows": {"topic": topic, "format": {"key": "bytes"}}},
        "operators": {"current": {"upsert": "rows"}},
        "outputs": {"out": {"from": "current", "topic": f"{topic}.out"}},
        "kafka": {"bootstrap.servers": servers},
        "source": {"max_records_per_batch": 500},
        "run": {"checkpoint": f"{folder}/checkpoint", **run},
        "spark": {**spark, **listing},
    }
    file = folder / "pipeline.json"
    file.write_text(json.dumps(sections))
    # A JVM that starts from an archive lists what it lacks alone.
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), class_archive.VARIABLE: "off"}
    command = [sys.executable, "-m", "ikebana", "run", str(file), "--once"]
    subprocess.run(command, check=True, env=environment)
    wait_until(lambda: not any(places.executors_here()), 60, "the end of executors")
    return [line for path in lists if path.exists() for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
