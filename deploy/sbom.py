"""Write what is installed in a folder of Python as a CycloneDX document: packages and jars.

    python deploy/sbom.py HOME FILE

HOME is a virtual environment.  Its packages are those that `importlib.metadata` finds in it, and
its jars those that lie in pyspark's folder, by the Maven coordinates that they carry, or else by
the names of their files.  Run it with the packages of deploy/sbom-requirements.txt, which are not
those of HOME.
"""

import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

_WHAT = "ikebana"
# As Maven names files: the version is what begins with a digit behind the last such hyphen.
_FILE = re.compile(r"(?P<name>.+?)-(?P<version>\d.*)\.jar")


class Jar(NamedTuple):
    """A file of Java classes: `group` is empty if the file does not say it."""

    group: str
    name: str
    version: str
    sha256: str


def packages(home: Path) -> Iterator[Distribution]:
    """The Python packages of a virtual environment."""
    (folder,) = home.glob("lib/python3*/site-packages")
    yield from distributions(path=[str(folder)])


def jars(home: Path) -> Iterator[Jar]:
    """The jars of pyspark in a virtual environment.  Raises: ValueError, if one has no version."""
    for path in sorted(home.glob("lib/python3*/site-packages/pyspark/jars/**/*.jar")):
        named = _FILE.fullmatch(path.name)
        if named is None:
            raise ValueError(f"{path}: its name has no version")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        yield Jar(_group(path, named["name"]), named["name"], named["version"], digest)


def _group(path: Path, name: str) -> str:
    """The group that a jar says of itself; one that contains others has their coordinates too."""
    with zipfile.ZipFile(path) as packed:
        for entry in packed.namelist():
            parts = entry.split("/")
            if parts[:2] == ["META-INF", "maven"] and parts[-1] == "pom.properties":
                told = dict(
                    line.split("=", 1)
                    for line in packed.read(entry).decode().splitlines()
                    if "=" in line
                )
                if told.get("artifactId") == name:
                    return told.get("groupId", "")
    return ""


def document(home: Path) -> str:
    """The document, as JSON of CycloneDX 1.6."""
    found = Bom()
    for each in packages(home):
        name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
        component = Component(
            type=ComponentType.APPLICATION if name == _WHAT else ComponentType.LIBRARY,
            name=name,
            version=each.version,
            purl=PackageURL("pypi", None, name, each.version),
            bom_ref=f"python/{name}",
        )
        if name == _WHAT:
            found.metadata.component = component
            continue
        found.components.add(component)
    for jar in jars(home):
        found.components.add(
            Component(
                type=ComponentType.LIBRARY,
                group=jar.group or None,
                name=jar.name,
                version=jar.version,
                # A scanner finds nothing by a coordinate without its group.
                purl=PackageURL("maven", jar.group, jar.name, jar.version) if jar.group else None,
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=jar.sha256)],
                bom_ref=f"java/{jar.name}/{jar.version}/{jar.sha256[:16]}",
            )
        )
    if found.metadata.component is not None:
        # All of it is there because ikebana is.
        found.register_dependency(found.metadata.component, found.components)
    return JsonV1Dot6(found).output_as_string(indent=1)


if __name__ == "__main__":
    home, file = map(Path, sys.argv[1:])
    file.write_text(document(home) + "\n")
