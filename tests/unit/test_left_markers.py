"""The markers of a batch reach the driver by a file, or by Spark where there is none."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from py4j.protocol import Py4JError

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import LostError
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.spark import left_markers, left_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def marker(shard: int) -> Marker:
    """What a shard has told of a batch."""
    told = "checkpoint", 0, 1, shard, 3, 0, 10, "offset", "plan", 5, 0, {"out": 2}
    return Marker(*told, Manifest("checkpoint", shard))


class Frame:
    """What `foreachBatch` is given; `run` is what its only action does."""

    def __init__(self, run: Any, rows: list[bytes], *, has_rdd: bool = True) -> None:
        self._rows = rows
        self.actions: list[str] = []

        def count() -> Any:
            self.actions.append("count")
            run()
            return SimpleNamespace(get=lambda: len(rows))

        rdd = SimpleNamespace(toJavaRDD=lambda: SimpleNamespace(countAsync=count))

        def rdd_of() -> Any:
            if not has_rdd:
                raise Py4JError("Method rdd([]) does not exist")
            return rdd

        logical = SimpleNamespace(rdd=rdd_of)
        self._jdf = SimpleNamespace(
            queryExecution=lambda: SimpleNamespace(logical=lambda: logical)
        )

    def collect(self) -> list[tuple[bytes]]:
        self.actions.append("collect")
        return [(row,) for row in self._rows]


def test_the_driver_reads_what_the_task_of_the_batch_has_left(tmp_path: Path) -> None:
    """By one action that returns no rows; the file of an attempt before is replaced."""
    markers = [marker(0), marker(1)]
    rows = [msgspec.json.encode(each) for each in markers]

    def run() -> None:
        left_markers.leave(str(tmp_path), rows[:1])
        left_markers.leave(str(tmp_path), rows)

    frame = Frame(run, rows)

    assert left_markers.markers_of(cast("DataFrame", frame), str(tmp_path)) == markers
    assert frame.actions == ["count"]
    assert not [*tmp_path.iterdir()]


def test_markers_come_by_spark_where_nobody_leaves_them(tmp_path: Path) -> None:
    """Such as in a cluster, or if another version of Spark makes its frame of something else."""
    rows = [msgspec.json.encode(marker(0))]
    apart = Frame(lambda: None, rows)
    other = Frame(lambda: None, rows, has_rdd=False)

    assert left_markers.markers_of(cast("DataFrame", apart), "") == [marker(0)]
    assert left_markers.markers_of(cast("DataFrame", other), str(tmp_path)) == [marker(0)]
    assert apart.actions == other.actions == ["collect"]


def test_markers_are_left_where_one_task_has_those_of_all_shards() -> None:
    """A checkpoint from a cluster has a task for each shard, also on one machine with owners."""
    assert left_markers.markers_folder("rows", (7, 7, 7)) == "rows"
    assert left_markers.markers_folder("rows", (7, 8, 9)) == ""
    assert left_markers.markers_folder("", (7, 7, 7)) == ""


def test_a_folder_that_somebody_has_removed_is_told_with_the_remedy(tmp_path: Path) -> None:
    """By the task and by the driver; the next run makes another one."""
    gone = str(tmp_path / "gone")
    frame = Frame(lambda: None, [])

    with pytest.raises(LostError, match="could not leave the results") as left:
        left_markers.leave(gone, [])
    with pytest.raises(LostError, match="results of a batch are gone") as found:
        left_markers.markers_of(cast("DataFrame", frame), gone)

    assert left.value.hint == found.value.hint == left_rows.REMEDY
