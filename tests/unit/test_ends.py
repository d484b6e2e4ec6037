"""A run ends well only if it was asked to, or has done all that it was to do."""

import threading
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from ikebana.errors import LostError, QueryError
from ikebana.processor.checkpoint.checkpoint import Logged
from ikebana.processor.spark import failures
from ikebana.processor.spark.connection import is_stopped
from ikebana.processor.spark.query import Going, Running
from ikebana.processor.spark.signals import Signals
from support.waiting import wait_until


class Query:
    """Spark's query, which ends by itself, perhaps with an error, or when it is stopped."""

    def __init__(self, *, ends: bool = False, error: Exception | None = None) -> None:
        self.status = {"isTriggerActive": False}
        self.stopped = False
        self._over = Event()
        self._error = error
        if ends or error is not None:
            self._over.set()

    def awaitTermination(self) -> None:
        self._over.wait(60)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self.stopped = True
        self._over.set()


def running(
    query: Query,
    folder: Path,
    *,
    has_ended: bool = False,
    committed: int = 3,
    placing: Any = None,
    took_s: float = 0.0,
) -> Running:
    layout: Any = SimpleNamespace(logged=lambda: Logged(None, 3, committed, took_s))
    signals = Signals(folder / "stop-1")
    going = Going(cast("Any", query), signals, None, lambda: has_ended, query.stop, placing)
    return Running(going, layout, 1, precedes=False)


def test_a_query_that_ends_unasked_and_without_a_reason_is_an_error(tmp_path: Path) -> None:
    """Spark's own end in a JVM that lives may look like the end of all work."""
    with pytest.raises(LostError, match="gave no reason"):
        running(Query(ends=True), tmp_path).wait(lambda: False)


def test_spark_that_has_ended_is_noticed_where_its_query_stands_still(tmp_path: Path) -> None:
    """The query waits for answers that nobody is there to give."""
    with pytest.raises(LostError):
        running(Query(), tmp_path, has_ended=True).wait(lambda: False)


@pytest.mark.parametrize("committed", [2, 3])
def test_a_batch_that_waits_for_a_lost_executor_ends_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: int
) -> None:
    """A frozen machine ends no connection; between batches nobody waits for it."""
    monkeypatch.setattr("ikebana.processor.spark.query._WAITS_S", 0.0)
    query, lost = Query(), [frozenset({"1"})]
    looks: list[int] = []

    def look() -> frozenset[str]:
        looks.append(1)
        return lost.pop() if lost else frozenset()

    placing = SimpleNamespace(look=look)
    run = running(query, tmp_path, committed=committed, placing=placing)
    if committed == 3:
        run.wait(lambda: len(looks) > 1)
    else:
        with pytest.raises(LostError, match="an executor was lost"):
            run.wait(lambda: False)
        assert query.stopped


def test_a_batch_that_was_repeated_may_take_as_long_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of minutes are not given up ten seconds after a loss."""
    monkeypatch.setattr("ikebana.processor.spark.query._WAITS_S", 0.0)
    looks: list[int] = []

    def look() -> frozenset[str]:
        looks.append(1)
        return frozenset({"1"}) if len(looks) == 1 else frozenset()

    query = Query()
    run = running(query, tmp_path, committed=2, placing=SimpleNamespace(look=look), took_s=1_000.0)
    query.status["isTriggerActive"] = True
    ended = threading.Thread(target=lambda: run.wait(lambda: False), daemon=True)
    ended.start()
    wait_until(lambda: len(looks) > 2, 30, "three looks")
    assert not query.stopped
    Signals(tmp_path / "stop-1").done.touch()
    query.stop()
    ended.join(30)


@pytest.mark.parametrize("suffix", [".done", ".filled"])
def test_a_query_that_has_done_what_it_was_to_do_ends_well(tmp_path: Path, suffix: str) -> None:
    """The source says when there is nothing left to do."""
    (tmp_path / f"stop-1{suffix}").touch()
    query = Query(ends=True)
    if suffix == ".filled":
        query.status["isTriggerActive"] = True

    running(query, tmp_path).wait(lambda: False)


def test_what_has_ended_a_query_is_raised_where_one_waits_for_it(tmp_path: Path) -> None:
    """The thread that waits for the JVM's answer has nobody to tell."""
    error = StreamingQueryException("no more")

    with pytest.raises(StreamingQueryException) as found:
        running(Query(error=error), tmp_path).wait(lambda: False)
    assert found.value is error


def test_a_query_that_was_asked_to_stop_ends_well(tmp_path: Path) -> None:
    """Between two batches, when the source has been told."""
    query = Query()

    running(query, tmp_path).wait(lambda: True)

    assert query.stopped


def test_whatever_a_query_says_when_spark_has_ended_may_pass() -> None:
    """It meets parts of Spark that are gone, and has no words for that."""
    text = '[STREAM_FAILED] "org.apache.spark.SparkContext.dagScheduler()" is null'
    error = StreamingQueryException(text)

    assert isinstance(failures.own_error(error, alive=True), QueryError)
    assert isinstance(found := failures.own_error(error, alive=False), LostError)
    assert "dagScheduler()" in str(found)
    assert failures.is_transient(found)


def test_a_jvm_that_does_not_answer_is_not_one_whose_spark_has_ended() -> None:
    """Its end has an error of its own."""

    def gone() -> None:
        raise Py4JError("gone")

    session: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=gone))

    assert not is_stopped(session)
