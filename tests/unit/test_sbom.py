"""The list of the image's parts: Python's packages and Spark's jars, as CycloneDX."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from sbom import document


def packed(path: Path, entries: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, text in entries.items():
            file.writestr(name, text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A virtual environment with ikebana, a package, and three jars."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, version in (("ikebana", "0.1.0"), ("Confluent_Kafka", "2.16.0")):
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    jars = packages / "pyspark" / "jars"
    jars.mkdir(parents=True)
    pom = "META-INF/maven/org.example/{0}/pom.properties"
    packed(
        jars / "shaded-core_2.13-1.2.jar",
        {
            pom.format("inner"): "groupId=org.inner\nartifactId=inner\nversion=9\n",
            pom.format("x"): "#c\ngroupId=org.example\nartifactId=shaded-core_2.13\nversion=1.2\n",
        },
    )
    packed(jars / "plain-2.0-M1.jar", {"A.class": ""})
    packed(jars / "plain-3.0.jar", {"A.class": ""})
    return tmp_path


def test_packages_and_jars_are_listed_with_what_scanners_look_for(home: Path) -> None:
    """By purl and version; jars without coordinates by name, version and hash alone."""
    made: dict[str, Any] = json.loads(document(home))

    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/ikebana@0.1.0"
    found = {(each["name"], each["version"], each.get("purl", "")) for each in made["components"]}
    assert found == {
        ("confluent-kafka", "2.16.0", "pkg:pypi/confluent-kafka@2.16.0"),
        (
            "shaded-core_2.13",
            "1.2",
            "pkg:maven/org.example/shaded-core_2.13@1.2",
        ),
        ("plain", "2.0-M1", ""),
        ("plain", "3.0", ""),
    }
    hashed = [each for each in made["components"] if "hashes" in each]
    assert len(hashed) == 3
    assert all(each["hashes"][0]["alg"] == "SHA-256" for each in hashed)


def test_it_is_what_the_standard_says(home: Path) -> None:
    """By its schema."""
    pytest.importorskip("jsonschema")
    try:
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(document(home))
    except Exception as missing:
        if type(missing).__name__ != "MissingOptionalDependencyException":
            raise
        pytest.skip(str(missing))
    assert error is None


def test_a_jar_without_a_version_is_no_part_to_list(home: Path) -> None:
    """It would be in the image and not in the list."""
    (jars,) = home.glob("lib/*/site-packages/pyspark/jars")
    packed(jars / "mystery.jar", {"A.class": ""})
    with pytest.raises(ValueError, match=r"mystery\.jar: its name has no version"):
        document(home)
