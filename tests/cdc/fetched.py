"""What Maven Central has for these tests, fetched once.

It lies in the cache folder beside the embedded broker's jars, a folder for each name.
"""

import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ikebana.errors import BrokerError, IkebanaError
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka.broker import (
    KAFKA_VERSION,
    end_of_log,
    fetched_once,
    jars_folder,
    retrieve,
)

_TIMEOUT_S = 1800


class Unavailable(Exception):
    """What a test needs cannot be had here; the message says why."""


@dataclass(frozen=True)
class Jar:
    """A jar and what it depends on, but for some organisations and `organisation:module`s."""

    organisation: str
    name: str
    version: str
    without: tuple[str, ...] = ()

    def dependency(self) -> str:
        """What an Ivy file says of it."""
        excluded = "".join(
            f'<exclude org="{organisation}" module="{module or "*"}"/>'
            for organisation, _, module in (each.partition(":") for each in self.without)
        )
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.version}"'
            f' conf="default">{excluded}</dependency>'
        )


@dataclass(frozen=True)
class Archive:
    """A file that has everything: a tar.gz, or a jar."""

    organisation: str
    name: str
    version: str
    classifier: str = ""
    kind: str = "tar.gz"

    def dependency(self) -> str:
        """What an Ivy file says of it."""
        classifier = f' m:classifier="{self.classifier}"' if self.classifier else ""
        return (
            f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.version}"'
            f' conf="default" transitive="false">'
            f'<artifact name="{self.name}" type="{self.kind}" ext="{self.kind}"{classifier}/>'
            "</dependency>"
        )


# Kafka and most others log through it.
LOGGING = Jar("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
# A connector is built against a Kafka of its own; a worker always brings that of the broker.
WORKER = tuple(
    Jar("org.apache.kafka", name, KAFKA_VERSION) for name in ("connect-runtime", "connect-json")
)


def java() -> Path:
    """Raises: Unavailable, if there is none."""
    try:
        return find_java(os.environ)
    except IkebanaError as err:
        raise Unavailable(str(err).splitlines()[0]) from err


def fetched(name: str, parts: Iterable[Jar | Archive]) -> Path:
    """The folder of what these parts are, jars as they are and archives unpacked.

    Raises:
        Unavailable: there is no Java, or they could not be fetched.
    """
    machine = java()
    dependencies = "".join(part.dependency() for part in parts)
    ivy_file = (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        f'<info organisation="ikebana" module="{name}"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )

    def fetch(folder: Path, log_file: Path) -> None:
        types = ("jar", "bundle", "tar.gz")
        status = retrieve(machine, ivy_file, folder, log_file, _TIMEOUT_S, types=types)
        if status != 0:
            raise BrokerError(f"Ivy's status is {status}; {log_file}:\n{end_of_log(log_file)}")
        for archive in (folder / "lib").glob("*.tar.gz"):
            with tarfile.open(archive) as opened:
                opened.extractall(folder / "lib", filter="data")
            archive.unlink()

    try:
        return fetched_once(jars_folder().with_name(name), fetch)
    except IkebanaError as err:
        # The first line is the reason, the others are the end of a log.
        raise Unavailable(f"no {name}: {str(err).splitlines()[0]}") from err
