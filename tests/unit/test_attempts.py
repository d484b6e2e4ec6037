"""When a run of a plan is worth another attempt."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any, Self, cast

import pytest

from ikebana.errors import (
    AwayError,
    CheckpointError,
    ConfigError,
    IkebanaError,
    LateError,
    LostError,
    SparkStartError,
)
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.processes import AttemptFailed, Stopping
from ikebana.processor.building.handle import PipelineRun
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.spark import alone, supervised
from ikebana.processor.spark.supervised import _Attempts
from support.waiting import patient, wait_until


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
    with pytest.raises(AttemptFailed) as raised:
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
    with pytest.raises(AttemptFailed):
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


class Starting:
    """A stand-in for Spark that is being started until it is told that it cannot be."""

    def __init__(self) -> None:
        self.begun, self.fails = Event(), Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        self.begun.set()
        assert self.fails.wait(patient(30))
        raise SparkStartError("could not start Spark")


def start(name: str) -> PipelineRun:
    """Start a pipeline on Spark of its own, in the background."""
    settings = Settings("./state", {"bootstrap.servers": "b:1"})
    inputs = (Input("flights", ("flights",)),)
    plan = Plan(name, inputs, (Upsert("u", "flights"),), (Output("o", "u", "o"),))
    return PipelineRun(plan, settings, once=True)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Starting:
    """Spark that is being started when it is asked for."""
    spark = Starting()
    monkeypatch.setattr(supervised, "_spark", lambda *_: spark)
    monkeypatch.setattr(alone, "_is_running", lambda: False)
    return spark


def test_spark_is_started_once_in_a_process(spark: Starting) -> None:
    """A second start is refused from before the first begins until it has ended, failed or not.

    It is refused where it is asked for, not in a handle that nobody may look at.
    """
    first = start("first")
    with pytest.raises(ConfigError, match='for pipeline "second": this process has Spark already'):
        start("second")
    assert first.status == "starting"
    spark.fails.set()
    with pytest.raises(SparkStartError):
        first.wait()
    # Not refused, but as the first.
    with pytest.raises(SparkStartError):
        start("third").wait()


def test_a_run_that_shows_its_end_lets_the_next_one_start(spark: Starting) -> None:
    """Whoever has seen the status `failed` may start another one at once."""
    spark.fails.set()
    for name in ("first", "second", "third"):
        run = start(name)
        wait_until(lambda run=run: run.status == "failed", 30, f"{name} has failed")  # type: ignore[misc]


def test_of_starts_at_the_same_time_one_begins(spark: Starting) -> None:
    """The others are refused by name, while it goes on."""
    with ThreadPoolExecutor(8) as pool:
        errors = [each.exception() for each in [pool.submit(start, f"p{at}") for at in range(8)]]
    assert [type(error) for error in errors if error is not None] == [ConfigError] * 7
    spark.fails.set()


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
    assert alone._is_running() is expected
