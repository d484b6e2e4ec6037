"""A run says which of the ways that make it cheap are on, and why others are off."""

import sys
from pathlib import Path

import pytest

from ikebana.processor.base.fast_paths import FastPath, in_words
from ikebana.processor.spark.child_processes import is_this_python

PATHS = (FastPath("owners", "executors open their shards"), FastPath("compiled code"))


def test_one_line_has_all() -> None:
    """Those that are off have their reasons."""
    assert in_words(PATHS) == (
        "fast paths: owners no (executors open their shards), compiled code yes"
    )


def test_an_environment_has_several_names_for_its_python(tmp_path: Path) -> None:
    """What counts is the environment and the interpreter behind its links."""
    here = Path(sys.executable)
    assert is_this_python(sys.executable)
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        assert is_this_python(str(here.with_name(name)))
    assert is_this_python(f"{here.parent}/./{here.name}")

    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python"
    other.symlink_to(sys.executable)
    assert not is_this_python(str(other)), "a link from elsewhere leads out of the environment"
    (tmp_path / "pyvenv.cfg").touch()
    assert not is_this_python(str(other)), "another environment has other packages"
    assert not is_this_python("there-is-no-such-python")


def test_a_python_of_the_path_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare name is a command."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert is_this_python("python")
    monkeypatch.setenv("PATH", "")
    assert not is_this_python("python")
