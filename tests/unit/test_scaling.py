"""How many executors a pipeline asks for, batch by batch."""

import functools
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.processor.authoring.settings import Settings, SettingsError
from ikebana.processor.spark import executors
from ikebana.processor.spark.executors import FEWER_AFTER_S, MORE_AFTER_S, Scaling
from support.clocks import Clock


def after(scaling: Scaling, clock: Clock, batches: int, seconds: float, behind: int = 0) -> int:
    """The number of executors after so many batches, each a second after the one before."""
    for _ in range(batches):
        clock.now += seconds + 1.0
        scaling.after(seconds, behind)
    return scaling.executors


def test_executors_double_while_batches_are_long_and_stop_at_the_most() -> None:
    """A backlog of half a minute asks for as many again as there are."""
    clock = Clock()
    scaling = Scaling(1, 3, 1, clock)

    assert after(scaling, clock, 2, 10.0) == 1
    assert after(scaling, clock, 1, 10.0) == 2
    assert after(scaling, clock, 3, 10.0) == 3
    assert after(scaling, clock, 9, 10.0) == 3


def test_a_short_batch_between_long_ones_begins_the_count_anew() -> None:
    """A moment's backlog asks for nothing."""
    clock = Clock()
    scaling = Scaling(1, 4, 1, clock)

    for _ in range(20):
        assert after(scaling, clock, 2, 10.0) == 1
        assert after(scaling, clock, 1, 0.2) == 1


def test_records_left_for_later_count_as_a_long_batch() -> None:
    """Batches are cut to the read limit: then they are short, and the lag grows."""
    clock = Clock()
    scaling = Scaling(2, 8, 2, clock)

    assert after(scaling, clock, 40, 0.2, behind=10_000) == 4


def test_one_executor_goes_after_ten_quiet_minutes() -> None:
    """Never below the least, and only if the others would have batches as short."""
    clock = Clock()
    scaling = Scaling(1, 4, 1, clock)
    assert after(scaling, clock, 40, 10.0) == 4

    assert after(scaling, clock, 600, 0.9) == 4
    assert after(scaling, clock, 600, 0.1) == 3
    assert after(scaling, clock, 6_000, 0.1) == 1


@given(
    st.integers(1, 5),
    st.integers(0, 5),
    st.lists(
        st.tuples(st.floats(0.01, 60.0), st.integers(0, 3), st.floats(0.0, 400.0)), max_size=60
    ),
)
def test_the_number_stays_within_its_bounds_and_moves_seldom(
    least: int, more: int, batches: list[tuple[float, int, float]]
) -> None:
    """Two changes are at least half a minute apart, and a smaller number ten minutes."""
    clock = Clock()
    scaling = Scaling(least, least + more, least, clock)
    moves = [(0.0, least)]
    for seconds, behind, pause in batches:
        clock.now += seconds + pause
        if scaling.after(seconds, behind):
            moves.append((clock.now, scaling.executors))
        assert least <= scaling.executors <= least + more

    for (before, was), (at, count) in itertools.pairwise(moves):
        assert count != was
        assert at - before >= (MORE_AFTER_S if count > was else FEWER_AFTER_S) - 60.0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"master": "local[2]"}, "run.master local[2] has no executors", id="local"),
        pytest.param({}, "set spark.executor.instances", id="no least"),
        pytest.param(
            {"spark": {"spark.executor.instances": "5"}}, "is 4, and spark.executor.", id="less"
        ),
        pytest.param(
            {
                "spark": {
                    "spark.executor.instances": "2",
                    "spark.dynamicAllocation.enabled": "true",
                }
            },
            "spark.dynamicAllocation.enabled is true",
            id="two that ask",
        ),
    ],
)
def test_more_executors_than_the_first_need_to_be_possible(
    options: dict[str, Any], problem: str
) -> None:
    """The least is the number that Spark begins with, and nobody else may change it."""
    kafka = {"bootstrap.servers": "k:1"}
    with pytest.raises(SettingsError) as caught:
        Settings("c", kafka, **{"master": "spark://m:1", "max_executors": 4, **options})
    assert [path for path, _ in caught.value.problems] == ["run.max_executors"]
    assert problem in str(caught.value)


class FakeSpark:
    """A session, and Spark's own object behind it, which has as many executors as it is told."""

    def __init__(self, executors: list[str]) -> None:
        self.executors = executors
        self.asked: list[int] = []
        self.sparkContext = self._jsc = self._jvm = self.PythonUtils = self

    def sc(self) -> "FakeSpark":
        return self

    def getExecutorIds(self) -> "FakeSpark":
        return self

    def size(self) -> int:
        return len(self.executors)

    def apply(self, at: int) -> str:
        return self.executors[at]

    def killExecutor(self, name: str) -> None:
        self.executors.remove(name)

    def toScalaMap(self, found: dict[str, int]) -> dict[str, int]:
        return found

    def requestTotalExecutors(self, count: int, _: int, tasks: dict[str, int]) -> None:
        assert tasks == {}
        self.asked.append(count)


def test_a_run_asks_spark_when_batches_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """For more while they are long; it begins with what Spark has, after a restart too."""
    spark, told, seen = FakeSpark(["7", "10"]), list[str](), list[Any]()
    clock = Clock()
    monkeypatch.setattr(executors, "Scaling", functools.partial(Scaling, clock=clock))
    settings = Settings(
        "c",
        {"bootstrap.servers": "k:1"},
        master="spark://m:1",
        spark={"spark.executor.instances": "1"},
        max_executors=8,
    )
    ours = executors.Scaled(settings, lambda: spark, seen.append, told.append)
    report = SimpleNamespace(seconds=10.0, behind=0)
    for _ in range(4):
        clock.now += 11.0
        ours(report)  # type: ignore[arg-type]

    assert spark.asked == [4]
    assert told == ["asking Spark for 4 executors"]
    assert seen == [report] * 4


def test_the_newest_executors_are_given_up() -> None:
    """Their ids are numbers, as texts."""
    spark = FakeSpark(["10", "9", "2", "11"])

    executors.ask_for(spark, 3)

    assert sorted(spark.executors) == ["10", "2", "9"]
    assert spark.asked == [3]
