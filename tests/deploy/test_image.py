"""An image that has been built: what is in it and what is not.

deploy/build_without_engine.sh builds it; IKEBANA_TEST_ROOT names its mounted root.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

_PLACES = ("bin", "usr/bin", "usr/local/bin", "opt/ikebana/bin")


@pytest.fixture
def root() -> Path:
    """The image's root."""
    if "IKEBANA_TEST_ROOT" not in os.environ:
        pytest.skip("no image is built: deploy/build_without_engine.sh FOLDER")
    return Path(os.environ["IKEBANA_TEST_ROOT"])


def said(root: Path, *command: str) -> str:
    """What a command of the image prints, run as its user."""
    done = subprocess.run(
        ["chroot", "--userspec=185:185", root, *command],
        env={"PATH": "/opt/ikebana/bin:/usr/sbin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_no_build_tools(root: Path) -> None:
    """Nothing in it compiles or installs Python packages."""
    tools = ("cc", "gcc", "g++", "make", "ld", "javac", "pip", "pip3", "git", "curl", "wget")
    assert [name for place in _PLACES for name in tools if (root / place / name).exists()] == []
    packages = root / "opt/ikebana/lib/python3.11/site-packages"
    assert [
        each.name for each in packages.glob("*") if re.match(r"pip|setuptools", each.name)
    ] == []


def test_versions_are_those_that_are_pinned(root: Path) -> None:
    """Java 17, Python 3.11, and the packages of deploy/requirements.txt."""
    assert 'JAVA_VERSION="17.' in next(root.glob("usr/lib/jvm/java-17-*/release")).read_text()
    assert said(root, "python", "--version").startswith("Python 3.11.")
    listed = "from importlib.metadata import distributions as d\n"
    listed += "print(*{f'{each.name.lower()}=={each.version}' for each in d()}, sep='\\n')"
    found = said(root, "python", "-c", listed).replace("_", "-").split()
    lines = (Path(__file__).parents[2] / "deploy" / "requirements.txt").read_text().splitlines()
    locked = {line.split(" ")[0].replace("_", "-") for line in lines if "==" in line}
    assert {each for each in found if not each.startswith("ikebana==")} == locked


def test_it_has_a_list_of_its_parts(root: Path) -> None:
    """All packages of Python that are installed, and all of Spark's jars, by version."""
    made = json.loads((root / "opt/ikebana/sbom.cdx.json").read_text())
    assert made["bomFormat"] == "CycloneDX"
    parts = [*made["components"], made["metadata"]["component"]]
    (packages,) = root.glob("opt/ikebana/lib/python3.11/site-packages")
    jars = {path.stem for path in packages.glob("pyspark/jars/**/*.jar")}
    of_java = {
        f"{each['name']}-{each['version']}" for each in parts if each["bom-ref"][:5] == "java/"
    }
    assert of_java == jars
    assert len(jars) > 100
    of_python = {each["name"] for each in parts if each["bom-ref"][:7] == "python/"}
    infos = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    egg_infos = {path.name.partition("-")[0] for path in packages.glob("*.egg-info")}
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in infos | egg_infos}
    assert of_python == names
    assert {"ikebana", "pyspark", "confluent-kafka"} <= of_python
    # What has written it is not in the image.
    assert not (root / "opt/sbom").exists()


def test_only_its_own_folder_is_its_users(root: Path) -> None:
    """The image's user can change nothing of what it runs."""
    can = ("(", "-uid", "185", "-o", "-perm", "-g+w", "-gid", "185", "-o", "-perm", "-o+w", ")")
    found = subprocess.run(
        [
            "find",
            root,
            "-xdev",
            "-path",
            root / "dev",
            "-prune",
            "-o",
            *can,
            "-not",
            "-type",
            "l",
            "-printf",
            "/%P\\n",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(found.split()) == {"/var/lib/ikebana", "/tmp", "/var/tmp", "/run/lock"}
