"""Flink beside ikebana: its jars, fetched once, and SQL files as jobs of one process.

    python bench/flink.py        fetch and compile only

Flink's jars are those of its Python package, the Kafka connector is from Maven Central.
They are kept in the cache folder, 250 MB.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

import java_peers

from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka import broker

VERSION = "2.3.0"
_CONNECTOR = "5.0.0-2.2"
_HERE = Path(__file__).parent / "peers" / "flink"
_FETCH_S = 900.0
_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ikebana" module="flink"/>
  <dependencies>
    <dependency org="org.apache.flink" name="flink-sql-connector-kafka" rev="{_CONNECTOR}"
                conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""
# What Flink's serializers look into.
_OPENED = ("java.base/java.util", "java.base/java.lang", "java.base/java.time")


def jars() -> Path:
    """The folder of Flink's jars, which are fetched if this is the first time."""
    folder = broker.jars_folder().with_name(f"flink-{VERSION}")
    return broker.fetched_once(folder, _fetch)


def _fetch(private: Path, log_file: Path) -> None:
    java = find_java(os.environ)
    status = broker.retrieve(java, _IVY_FILE, private, log_file, _FETCH_S)
    if status != 0 or not list((private / "lib").glob("flink-sql-connector-kafka-*.jar")):
        sys.exit(f"could not fetch Flink's Kafka connector; see {log_file}")
    package = private / "package"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--target", str(package), f"apache-flink-libraries=={VERSION}"),
        ],
        check=True,
        timeout=_FETCH_S,
    )
    for jar in (package / "pyflink" / "lib").glob("*.jar"):
        shutil.move(jar, private / "lib")


def statements(name: str, given: Mapping[str, str]) -> str:
    """An SQL file of ours, with what it leaves open filled in."""
    return Template((_HERE / f"{name}.sql").read_text()).substitute(given)


def command(
    folder: Path, name: str, sql: Sequence[str], parallelism: int, connectors: Path | None = None
) -> list[str]:
    """The command that runs statements as one job, with its state in `folder`/`name`.

    `connectors` is a folder of further jars.
    """
    path = folder / f"{name}.sql"
    path.write_text(";\n".join(sql))
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    classes = java_peers.compiled(_HERE / "SqlJob.java", jars(), folder)
    further = "" if connectors is None else f":{connectors}/*"
    return [
        *(str(find_java(os.environ)), "-Xmx2g", *opened),
        *("-cp", f"{classes}:{jars()}/*{further}", "SqlJob"),
        *(str(path), str(folder / name), str(parallelism)),
    ]


if __name__ == "__main__":
    sys.stdout.write(f"{jars()}\n")
