"""Kafka Streams beside ikebana: its jars, fetched once, and the main job as a process.

    python bench/kafka_streams.py        fetch only

The jars are from Maven Central and are kept in the cache folder, 90 MB.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import java_peers

from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka import broker

VERSION = broker.KAFKA_VERSION
_HERE = Path(__file__).parent / "peers" / "kafka_streams"
_FETCH_S = 900.0
_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ikebana" module="kafka-streams"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{VERSION}" conf="default"/>
    <dependency org="com.fasterxml.jackson.core" name="jackson-databind" rev="2.18.2"
                conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="2.0.16" conf="default"/>
  </dependencies>
</ivy-module>
"""


def jars() -> Path:
    """The folder of the jars, which are fetched if this is the first time."""
    folder = broker.jars_folder().with_name(f"kafka-streams-{VERSION}")
    return broker.fetched_once(folder, _fetch)


def _fetch(private: Path, log_file: Path) -> None:
    java = find_java(os.environ)
    status = broker.retrieve(java, _IVY_FILE, private, log_file, _FETCH_S)
    if status != 0 or not list((private / "lib").glob("kafka-streams-*.jar")):
        sys.exit(f"could not fetch Kafka Streams; see {log_file}")


def command(
    folder: Path, servers: str, source: str, output: str, form: str, instances: int = 1
) -> list[str]:
    """The command that turns upserts of a topic into updates of another, until it is ended.

    It is its output's consumer group, has its store in `folder`, and writes updates in a form:
    `headers` or `envelope`.  Of several instances each is a process with one thread.
    """
    threads = str((os.cpu_count() or 1) if instances == 1 else 1)
    every = [
        _java(folder, "ToDiffs", servers, source, output, str(store), threads, form)
        for store in (folder / "store" / str(number) for number in range(instances))
    ]
    if instances == 1:
        return every[0]
    # What ends the shell ends them.
    started = " ".join(f"{shlex.join(each)} &" for each in every)
    return ["sh", "-c", f"trap 'trap \"\" TERM; kill 0; wait' TERM; {started} wait"]


def joins(
    folder: Path, job: str, servers: str, group: str, output: str, inputs: Sequence[str]
) -> list[str]:
    """The command that joins topics into another one, until it is ended: `q3` or `asof`.

    It has its stores in `folder`.
    """
    threads = str(os.cpu_count() or 1)
    return _java(
        folder, "Joins", job, servers, group, str(folder / "store"), threads, output, *inputs
    )


def _java(folder: Path, program: str, *arguments: str) -> list[str]:
    classes = java_peers.compiled(_HERE / f"{program}.java", jars(), folder)
    return [
        *(str(find_java(os.environ)), "-Xmx2g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", f"{classes}:{jars()}/*", program, *arguments),
    ]


if __name__ == "__main__":
    sys.stdout.write(f"{jars()}\n")
