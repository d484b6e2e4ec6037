"""What the driver hears of a batch: the results of its groups, and how long it was read."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from py4j.protocol import Py4JError

from ikebana.processor.spark.keyed_operator import GroupResult
from ikebana.processor.spark.query import results_of
from ikebana.processor.spark.signals import Signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULTS = [
    GroupResult([b"commit 0", b"commit 2"], owned=True),
    GroupResult([b"commit 1"], owned=False),
]


class Frame:
    """What `foreachBatch` is given."""

    def __init__(self, *, has_rdd: bool = True) -> None:
        self.actions: list[str] = []
        rows = [msgspec.msgpack.encode(result) for result in RESULTS]
        self._rows = rows

        def collect() -> Any:
            self.actions.append("collectAsync")
            found = [SimpleNamespace(getBinary=lambda _, row=row: bytearray(row)) for row in rows]
            return SimpleNamespace(get=lambda: found)

        rdd = SimpleNamespace(toJavaRDD=lambda: SimpleNamespace(collectAsync=collect))

        def rdd_of() -> Any:
            if not has_rdd:
                raise Py4JError("Method rdd([]) does not exist")
            return rdd

        logical = SimpleNamespace(rdd=rdd_of)
        self._jdf = SimpleNamespace(
            queryExecution=lambda: SimpleNamespace(logical=lambda: logical)
        )

    def collect(self) -> list[tuple[bytearray]]:
        self.actions.append("collect")
        return [(bytearray(row),) for row in self._rows]


@pytest.mark.parametrize(("has_rdd", "action"), [(True, "collectAsync"), (False, "collect")])
def test_a_batch_is_run_by_one_action(action: str, *, has_rdd: bool) -> None:
    """By the plainest one, or if another Spark makes its frame of something else, by a frame's."""
    frame = Frame(has_rdd=has_rdd)

    assert results_of(cast("DataFrame", frame)) == RESULTS
    assert frame.actions == [action]


def test_how_long_a_batch_was_read_is_known_once(tmp_path: Path) -> None:
    """Whoever reports the batch adds it to the time that Spark took; others tasks have read."""
    signals, gone = Signals(tmp_path / "stop-1"), Signals(tmp_path / "gone" / "stop")
    signals.record_reading_time(0.25)

    assert signals.take_reading_time_s() == 0.25
    assert signals.take_reading_time_s() == gone.take_reading_time_s() == 0.0
