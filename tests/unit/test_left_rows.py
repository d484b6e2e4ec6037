"""Rows that a source task leaves in a file come back as they were, or not at all."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import LostError, SparkStartError
from ikebana.processor.base.rows import Upserts, pack, unpack
from ikebana.processor.spark.source_task import spark_rows
from ikebana.processor.spark.workers import left_rows
from ikebana.processor.spark.workers.left_rows import RowsFolder, leave_large_rows

LARGE = b"\x95" + b"r" * 20_000


@given(
    rows=st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from([b"\x91small", LARGE, LARGE[:9_000]])),
            min_size=1,
            max_size=5,
        ),
        max_size=5,
    )
)
def test_the_owner_finds_the_rows_that_a_task_has_left(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[tuple[int, bytes]]]
) -> None:
    """In their order and with their shards, however many come at once."""
    folder = tmp_path_factory.mktemp("rows")

    passed_on = [*spark_rows(rows, [7, 8, 7, 8], str(folder))]

    expected = [row for each in rows for row in each]
    assert len(passed_on) == bool(expected)
    if passed_on:
        (batch,) = passed_on
        chunks = batch.column("chunk").to_pylist()
        shards = batch.column("shard").to_pylist()
        assert [*zip(shards, left_rows.resolve(chunks), strict=True)] == expected
        assert batch.column("group_number").to_pylist() == [7 + shard % 2 for shard in shards]
        # What goes through Spark is small.
        assert all(len(chunk) < 9_000 for chunk in chunks)


def test_without_a_folder_rows_go_through_spark_as_they_come() -> None:
    """Such as in a cluster, where nobody knows on which machine a shard runs."""
    batches = [*spark_rows([[(0, LARGE)], [(1, b"\x91"), (0, LARGE)]], [0, 0], "")]

    assert [each.column("chunk").to_pylist() for each in batches] == [[LARGE], [b"\x91", LARGE]]


def test_no_packed_row_is_taken_for_a_place(tmp_path: Path) -> None:
    """A row that is passed on as it is comes out as it is."""
    row = pack(Upserts("in", 0, 0, 1, [b"k"], [b"v"], [0]))

    assert leave_large_rows([[(0, row)]], str(tmp_path)) == [(0, row)]
    assert [*left_rows.resolve([row])] == [row]
    assert unpack(row) == unpack(next(left_rows.resolve([row])))
    assert [*tmp_path.iterdir()] == []


def test_many_rows_at_once_are_all_written(tmp_path: Path) -> None:
    """More than the system takes in one call."""
    rows = [(0, b"\x91%05d" % number) for number in range(3_000)]

    places = leave_large_rows([rows], str(tmp_path))

    assert [*left_rows.resolve(place for _, place in places)] == [row for _, row in rows]


def test_rows_of_a_batch_that_is_done_are_removed(tmp_path: Path) -> None:
    """A file that is gone is an error with a remedy, and so is one that is cut off."""
    [(_, place)] = leave_large_rows([[(0, LARGE)]], str(tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_bytes(LARGE[:100])
    with pytest.raises(LostError, match=r"cut off: .*") as cut:
        next(left_rows.resolve([place]))
    left_rows.forget(str(tmp_path))

    assert [*tmp_path.iterdir()] == []
    with pytest.raises(LostError, match=r"are gone: .*: No such file") as gone:
        next(left_rows.resolve([place]))
    assert "TMPDIR" in str(cut.value.hint)
    assert "TMPDIR" in str(gone.value.hint)


def test_to_forget_where_there_is_nothing_is_no_error(tmp_path: Path) -> None:
    """A run without owners has no folder, and one may be removed by whoever cleans up."""
    left_rows.forget("")
    left_rows.forget(str(tmp_path / "away"))


def test_the_folder_is_where_spark_has_its_own_files(tmp_path: Path) -> None:
    """In the first of them, made if need be, and gone at the end."""
    scratch = tmp_path / "disk" / "spark"

    found, other = RowsFolder(f"{scratch},/elsewhere"), RowsFolder(str(scratch))

    assert found.path.parent == scratch
    assert found.path != other.path
    (found.path / "rows").write_text("some")
    found.remove()
    assert [*scratch.iterdir()] == [other.path]
    other.remove()


def test_a_run_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """And neither what another one that runs has, nor what is not theirs."""
    lives, killed = RowsFolder(str(tmp_path)), tmp_path / "ikebana-rows-killed"
    killed.mkdir()
    (killed / "rows").write_bytes(LARGE)
    (tmp_path / "blockmgr-1").mkdir()
    new = RowsFolder(str(tmp_path))
    # It might be one that has not been locked yet.
    assert killed.exists()
    for each in tmp_path.iterdir():
        os.utime(each, (1, 1))
    newer = RowsFolder(str(tmp_path))

    assert not killed.exists()
    assert {*tmp_path.iterdir()} == {
        tmp_path / "blockmgr-1",
        *(each.path for each in (lives, new, newer)),
    }
    for run in (lives, new, newer):
        run.remove()


def test_a_folder_that_cannot_be_made_is_told_with_the_remedy(tmp_path: Path) -> None:
    """A file lies in its place."""
    (tmp_path / "spark").write_text("")

    with pytest.raises(SparkStartError, match=r"for rows in .*: (Not a dir|File ex)") as no:
        RowsFolder(str(tmp_path / "spark" / "deeper"))
    assert "SPARK_LOCAL_DIRS" in str(no.value.hint)
