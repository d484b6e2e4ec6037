"""What of a Spark session of the user's is looked at before a pipeline runs on it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from ikebana.errors import ConfigError
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.spark.given_session import GivenSpark

SETTINGS = Settings("./state", {"bootstrap.servers": "b:1"})


def session(python: str, conf: dict[str, str] | None = None, master: str = "local[2]") -> Any:
    context = SimpleNamespace(
        getConf=lambda: conf or {}, pythonExec=python, master=master, environment={}
    )
    return SimpleNamespace(_jsparkSession=object(), sparkContext=context)


def given(found: Any) -> GivenSpark:
    return GivenSpark(cast("SparkSession", found), SETTINGS, "shop")


def python_that(tmp_path: Path, ends_with: int) -> str:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexit {ends_with}\n")
    program.chmod(0o755)
    return str(program)


def test_workers_that_can_import_us_are_taken(tmp_path: Path) -> None:
    with given(session(sys.executable)), given(session(python_that(tmp_path, 0))):
        pass


def test_workers_that_cannot_import_us_are_refused_with_what_to_set(tmp_path: Path) -> None:
    """A program whose environment is not activated gets the Python of the PATH."""
    for python in (python_that(tmp_path, 1), str(tmp_path / "none")):
        with pytest.raises(ConfigError, match=f"run {python}, which cannot import") as refused:
            given(session(python))
        assert f"PYSPARK_PYTHON={sys.executable}" in str(refused.value)


def test_the_python_of_other_machines_is_not_asked(tmp_path: Path) -> None:
    with given(session(python_that(tmp_path, 1), master="spark://somewhere:7077")):
        pass


def test_settings_that_lose_exactness_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"it has spark\.speculation=true"):
        given(session(sys.executable, {"spark.speculation": "true"}))
    unlike = SimpleNamespace(sparkContext=None)
    with pytest.raises(ConfigError, match="Spark Connect"):
        given(unlike)
