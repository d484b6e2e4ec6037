"""What the image installs: pinned, by hash, and what pyproject.toml asks for; and its audit."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
LISTS = ("requirements.txt", "requirements-lake.txt", "sbom-requirements.txt")
# The extras that a list of the image has beside the dependencies.
EXTRAS = {
    "requirements.txt": ("registry", "postgres"),
    "requirements-lake.txt": ("registry", "postgres", "iceberg", "delta"),
}


def entries(name: str) -> dict[str, tuple[Version, int]]:
    """The version of each package of a list, and how many hashes it has."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / name).read_text(), flags=re.MULTILINE)
    found: dict[str, tuple[Version, int]] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        requirement, *hashes = entry.split()
        package, _, version = requirement.partition("==")
        package = package.partition("[")[0]
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), entry
        found[canonicalize_name(package)] = (Version(version), len(hashes))
    return found


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


@pytest.mark.parametrize("name", LISTS)
def test_every_package_has_one_version_and_its_hashes(name: str) -> None:
    """So pip installs nothing else, whatever an index offers."""
    found = entries(name)
    assert found
    assert [package for package, (_, hashes) in found.items() if not hashes] == []


@pytest.mark.parametrize("name", EXTRAS)
def test_what_is_locked_is_what_is_wanted(name: str) -> None:
    """Every dependency of pyproject.toml that the image has, in its range."""
    extras = project()["optional-dependencies"]
    locked = entries(name)
    wanted = [
        *project()["dependencies"],
        *(each for extra in EXTRAS[name] for each in extras[extra]),
    ]
    assert len(wanted) > 15
    for text in wanted:
        requirement = Requirement(text)
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), text


def test_an_image_for_lakes_has_more_and_nothing_else() -> None:
    """What both lists have, they have in one version."""
    usual, lake = entries("requirements.txt"), entries("requirements-lake.txt")
    assert usual.items() <= lake.items()
    assert {"pyiceberg", "deltalake"} <= lake.keys() - usual.keys()
    assert "psycopg-binary" in usual


def test_what_makes_the_list_of_parts_is_locked_as_it_is_tested() -> None:
    """Its generator has one version, here and in the image's build."""
    (wanted,) = (
        Requirement(text)
        for text in project()["optional-dependencies"]["dev"]
        if text.startswith("cyclonedx")
    )
    version, _ = entries("sbom-requirements.txt")[wanted.name]
    assert str(wanted.specifier) == f"=={version}"


def test_the_image_takes_only_what_is_locked() -> None:
    """Each installation by pip asks for hashes, or takes our own wheel without an index."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [part for line in lines for part in line.split("&&") if "pip install" in part]
    assert len(installs) == 3
    for each in installs:
        assert "--require-hashes" in each or "--no-index" in each, each


# What pip-audit prints: nothing known, something known, no answer of one package, and no database.
GOOD = {"dependencies": [{"name": "a", "version": "1", "vulns": []}], "fixes": []}
BAD = {
    "dependencies": [
        {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]}
    ]
}
UNKNOWN = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
NONE_KNOWN = {"dependencies": [{"name": name, "skip_reason": "not found"} for name in "ab"]}
AWAY = "ERROR:pip_audit._cli:ConnectionError: pypi.org"


@pytest.mark.parametrize(
    ("printed", "status", "said"),
    [
        pytest.param(GOOD, 0, "1 packages, 0 known vulnerabilities", id="nothing known"),
        pytest.param(BAD, 1, "a 1: CVE-1, mended in 1.1", id="something known"),
        pytest.param(UNKNOWN, 2, "it has no answer for a", id="no answer"),
        pytest.param(NONE_KNOWN, 2, "it has no answer for any package", id="no network"),
        pytest.param(None, 2, f"could not be asked: {AWAY}", id="no database"),
    ],
)
def test_an_audit_that_was_none_is_told_as_such(
    tmp_path: Path, printed: object, status: int, said: str
) -> None:
    """It is no clean one, and no finding either."""
    program = tmp_path / "pip-audit"
    told = f"print('''{json.dumps(printed)}''')" if printed else ""
    program.write_text(
        f"#!{sys.executable}\nimport sys\n{told}\n"
        f"sys.exit({bool(status)} and (print('''{AWAY}''', file=sys.stderr) or 1))\n"
    )
    program.chmod(0o755)

    done = subprocess.run(
        [sys.executable, DEPLOY / "audit.py", program],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done
