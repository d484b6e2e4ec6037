"""The compiled modules are the same wherever they are listed."""

import os
import subprocess
import sys
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


def test_what_is_not_compiled_runs_in_python() -> None:
    """A package that was built without a C compiler can be imported, with all that uses them."""
    users = [
        ".".join(("ikebana", *path.relative_to(ROOT).with_suffix("").parts))
        for folder in ("arrangements", "codecs", "processor", "serving", "delivering")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "ikebana.compiled" in path.read_text()
    ]
    assert len(users) > 10
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run(
        [sys.executable, "-c", program, *users],
        env={**os.environ, "IKEBANA_COMPILED": "0"},
        check=True,
        timeout=120,
    )
