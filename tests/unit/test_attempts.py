"""When a run of a plan is worth another attempt."""

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from ikebana.errors import (
    AwayError,
    CheckpointError,
    IkebanaError,
    LateError,
    LostError,
    SparkStartError,
)
from ikebana.processor.ground.restarts import Failed
from ikebana.processor.ground.stopping import Stopping
from ikebana.processor.spark import supervised
from ikebana.processor.spark.supervised import _Attempts


class Query:
    """A query that fails, or goes on to its end."""

    precedes = False
    incarnation = 1

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def wait(self, _: Callable[[], bool]) -> None:
        if self._error is not None:
            raise self._error


def attempt(error: Exception, *, begins: bool) -> None:
    """Fail with an error, before the query has begun or later."""

    def start(on_begin: Callable[[], None], _: int) -> Any:
        if not begins:
            raise error
        on_begin()
        return Query(error)

    _Attempts(start, Stopping(), lambda _: True).attempt()


@pytest.mark.parametrize(
    "error",
    [
        LostError("a Python worker did not connect within 10 s"),
        AwayError("the brokers are away"),
        SparkStartError("could not start Spark"),
    ],
)
def test_what_may_pass_is_worth_another_attempt_once_the_query_has_begun(
    error: IkebanaError,
) -> None:
    """It has worked before."""
    with pytest.raises(Failed) as raised:
        attempt(error, begins=True)

    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        LostError("a Python worker did not connect within 10 s"),
        LateError("the brokers have ended transaction t, which took longer than 3 s"),
    ],
)
def test_what_a_busy_machine_has_no_time_for_in_a_start_is_worth_another_attempt(
    error: IkebanaError,
) -> None:
    """It is no mistake of anybody's."""
    with pytest.raises(Failed):
        attempt(error, begins=False)


@pytest.mark.parametrize(
    "error",
    [
        AwayError("the brokers are away"),
        SparkStartError("could not start Spark"),
        CheckpointError("it belongs to another pipeline"),
    ],
)
def test_a_first_start_that_cannot_succeed_ends_at_once(error: IkebanaError) -> None:
    """Whoever has made a mistake sees it."""
    with pytest.raises(type(error)):
        attempt(error, begins=False)


@pytest.mark.parametrize(
    ("pyspark", "expected"),
    [
        pytest.param(None, False, id="not imported"),
        pytest.param(ModuleType("pyspark"), False, id="being imported by another thread"),
        pytest.param(
            SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=None)),
            False,
            id="imported",
        ),
        pytest.param(
            SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context="local-1")),
            True,
            id="running",
        ),
    ],
)
def test_spark_that_runs_here_is_known_without_importing_it(
    pyspark: Any, monkeypatch: pytest.MonkeyPatch, *, expected: bool
) -> None:
    """A second one cannot be started in a process."""
    if pyspark is None:
        monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "pyspark", cast(ModuleType, pyspark))
    assert supervised._is_running() is expected
