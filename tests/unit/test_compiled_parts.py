"""The compiled modules are the same wherever they are listed."""

import tomllib
from pathlib import Path

from ikebana.processor.base.fast_paths import PARTS

ROOT = Path(__file__).resolve().parents[2]


def test_all_compiled_modules_are_known() -> None:
    """What is not would be missing from a build, or be missed by nobody where it was not built."""
    there = sorted(path.stem.removeprefix("_") for path in (ROOT / "compiled").glob("*.pyx"))
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    names = [each["name"] for each in built["ext-modules"]]

    assert list(PARTS) == there
    assert sorted(names) == [f"ikebana.compiled._{name}" for name in there]
