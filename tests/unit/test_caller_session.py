"""What of a Spark session of the user's is looked at before a pipeline runs on it."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import pytest
from pyspark.sql import SparkSession

from ikebana.errors import ConfigError, LostError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.processes import Stopping
from ikebana.processor.spark.caller_session import CallerSpark
from ikebana.processor.spark.supervised import _Attempts

if TYPE_CHECKING:
    from ikebana.processor.spark.query import Running

SETTINGS = Settings("./state", {"bootstrap.servers": "b:1"})


class Stoppable:
    """The part of a session's Java object that says whether Spark has been stopped."""

    stopped: bool | None = False
    """None: its JVM has ended."""

    def sc(self) -> Self:
        if self.stopped is None:
            raise ConnectionRefusedError
        return self

    def isStopped(self) -> bool:
        return bool(self.stopped)


def session(python: str, conf: dict[str, str] | None = None, master: str = "local[2]") -> Any:
    context = SimpleNamespace(
        getConf=lambda: conf or {}, pythonExec=python, master=master, environment={}
    )
    return SimpleNamespace(_jsparkSession=object(), sparkContext=context, _jsc=Stoppable())


def given(found: Any) -> CallerSpark:
    return CallerSpark(cast("SparkSession", found), SETTINGS, "shop")


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


@pytest.mark.parametrize("stopped", [True, None])
def test_a_session_that_is_stopped_ends_its_runs_by_name(*, stopped: bool | None) -> None:
    """Whatever came of it, and no other attempt is made, nor a run begun on it."""
    mine = session(sys.executable)
    stopping = Stopping()

    def start(begin: Callable[[], None], _: int) -> "Running":
        running.begin()
        begin()
        mine._jsc.stopped = stopped
        raise AssertionError

    with given(mine) as running:
        assert running.survives(AssertionError())
        with pytest.raises(
            LostError, match='pipeline "shop": the Spark session that it was given'
        ):
            _Attempts(start, stopping, running.survives).attempt()
        with pytest.raises(LostError, match="has been stopped"):
            running.begin()
    with pytest.raises(LostError, match="has been stopped") as refused:
        given(mine)
    assert "Stop runs before their session" in (refused.value.hint or "")
