"""Write the list of classes that Spark's JVM loads in a run: processor/spark/classes.txt.gz.

    python bench/class_list.py

An archive of these classes is what a JVM starts from (processor/spark/class_archive.py).
The list is made anew when pyspark's version changes.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from ikebana.processor.kafka.broker import running
from ikebana.processor.spark import class_archive
from ikebana.processor.spark.options import DEFAULTS
from support.pipeline_processes import create, produce, upserts

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Classes that the JVM makes as it goes, and those of the archive's own making.
MADE = ("$$Lambda$", "$Proxy", "GeneratedClass", "LambdaForm$", "@lambda-form-invoker")


def main() -> None:
    """Run a pipeline of a few batches, and keep what was loaded."""
    with tempfile.TemporaryDirectory() as folder, running() as broker:
        loaded = Path(folder) / "classes.txt"
        servers = broker.bootstrap_servers
        create(servers, "rows", 2)
        produce(servers, "rows", upserts(2_000, 100, Random(1)))
        sections = {
            "pipeline": "loading",
            "inputs": {"rows": {"topic": "rows", "format": {"key": "bytes"}}},
            "operators": {"current": {"upsert": "rows"}},
            "outputs": {"out": {"from": "current", "topic": "loading.out"}},
            "kafka": {"bootstrap.servers": servers},
            "source": {"max_records_per_batch": 500},
            "run": {"checkpoint": f"{folder}/checkpoint"},
            "spark": {JAVA_OPTIONS: f"{DEFAULTS[JAVA_OPTIONS]} -XX:DumpLoadedClassList={loaded}"},
        }
        file = Path(folder) / "pipeline.json"
        file.write_text(json.dumps(sections))
        command = [sys.executable, "-m", "ikebana", "run", str(file), "--once"]
        subprocess.run(command, check=True)
        lines = loaded.read_text().splitlines()
    kept = [line for line in lines if not any(made in line for made in MADE)]
    class_archive.CLASSES.write_bytes(gzip.compress("\n".join(kept).encode(), mtime=0))
    print(f"{len(kept):,} of {len(lines):,} lines in {class_archive.CLASSES}")


if __name__ == "__main__":
    main()
