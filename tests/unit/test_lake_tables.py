"""What tables of files have beside what every target of a delivery has."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from ikebana.delivering import delta, iceberg, parquet
from ikebana.delivering.lake import ConflictError, LakeSink, LakeTable, Mark, TableChanges
from ikebana.delivering.sink import MODES, Batch, TargetTable
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.deliver_section import Mode, ParquetSection
from support.lake_targets import NAMESPACE, TARGETS, DeltaTarget, IcebergTarget, ParquetTarget
from support.served_topics import MemoryTopics
from support.sink_conformance import ORDERS, delivered, tables_of

LakeTarget = IcebergTarget | DeltaTarget
TABLE = tables_of("current")[0]


@pytest.fixture(params=["iceberg", "delta"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTarget:
    """A target in each format that changes rows."""
    found = TARGETS[request.param](tmp_path)
    assert not isinstance(found, ParquetTarget)
    return found


def _order(number: object, name: str, time: int, diff: int) -> tuple[bytes, bytes, int, int]:
    key = b"{}" if number is None else f'{{"id":{number}}}'.encode()
    return key, f'{{"name":"{name}","price":1}}'.encode(), time, diff


def _names(target: LakeTarget, table: TargetTable = TABLE) -> list[tuple[Any, ...]]:
    return sorted((row["id"] or 0, row["name"]) for row in target.rows(table))


def _files(target: LakeTarget, table: TargetTable) -> int:
    """How many files the table has now."""
    if isinstance(target, DeltaTarget):
        return len(target.load(table).file_uris())
    return len(list(target.load(table).scan().plan_files()))


def test_a_key_may_be_null(target: LakeTarget) -> None:
    """A row with a null key is replaced and deleted like any other."""
    topics = MemoryTopics()
    topics.close(ORDERS, 2, _order(None, "a", 1, 1), _order(5, "b", 1, 1))
    delivered(target.sink(), [TABLE], topics)
    topics.close(ORDERS, 4, _order(None, "a", 3, -1), _order(None, "c", 3, 1))
    delivered(target.sink(), [TABLE], topics)
    assert _names(target) == [(0, "c"), (5, "b")]
    topics.close(ORDERS, 6, _order(None, "c", 5, -1))

    delivered(target.sink(), [TABLE], topics)

    assert _names(target) == [(5, "b")]


def test_a_key_may_have_several_columns(target: LakeTarget) -> None:
    """All of them tell rows apart."""
    table = replace(TABLE, key=("name", "id"))
    topics = MemoryTopics()
    topics.close(ORDERS, 2, *(_order(1, name, 1, 1) for name in "abé"), _order(2, "a", 1, 1))
    delivered(target.sink(), [table], topics)
    topics.close(ORDERS, 4, _order(1, "a", 3, -1), _order(1, "é", 3, -1), _order(1, "é", 3, 1))

    delivered(target.sink(), [table], topics)

    assert _names(target) == [(1, "b"), (1, "é"), (2, "a")]


@pytest.mark.parametrize("kind", TARGETS)
def test_rows_of_others_are_refused(kind: str, tmp_path: Path) -> None:
    """A table that the sink has not begun is not gone on with, nor one of another sink."""
    target, [table, _] = TARGETS[kind](tmp_path), tables_of("changes")
    topics = MemoryTopics()
    topics.close(ORDERS, 2, _order(1, "a", 1, 1))
    delivered(target.sink(), [table], topics)
    other = target.sink()
    other.name = "other"

    with pytest.raises(ConfigError, match="has rows that this sink has not written"):
        other.open([table])


class _Meeting:
    """A batch during which somebody else commits to the table."""

    def __init__(self, sink: LakeSink, commit: Callable[[], None]) -> None:
        self.name = sink.name
        self._sink, self._commit = sink, commit
        self.open, self.close = sink.open, sink.close

    def apply(self, batch: Batch) -> None:
        self._commit()
        self._sink.apply(batch)


def test_a_commit_of_somebody_else_is_met(target: LakeTarget) -> None:
    """Such as a compaction: the batch is applied to the table as it is then."""
    topics = MemoryTopics()
    topics.close(ORDERS, 2, _order(1, "a", 1, 1))
    delivered(target.sink(), [TABLE], topics)
    topics.close(ORDERS, 4, _order(2, "b", 3, 1))
    delivered(target.sink(), [TABLE], topics)
    topics.close(ORDERS, 6, _order(1, "a", 5, -1), _order(1, "c", 5, 1))

    def compact() -> None:
        if isinstance(target, DeltaTarget):
            assert target.load(TABLE).optimize.compact()["numFilesRemoved"] == 2
        else:
            table = target.load(TABLE)
            table.overwrite(table.scan().to_arrow())

    delivered(_Meeting(target.sink(), compact), [TABLE], topics)

    assert _names(target) == [(1, "c"), (2, "b")]


class _LostAnswer:
    """A table whose second commit is made, but looks like one that met another."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self._commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def commit(self, changes: TableChanges | None, mark: Mark) -> None:
        self._table.commit(changes, mark)
        self._commits += 1
        if self._commits == 2:
            raise ConflictError("there is such a version")


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_whose_answer_is_lost_is_not_made_again(target: LakeTarget, mode: Mode) -> None:
    """A client of an object store asks again after a broken connection, and meets its own file."""
    table = replace(TABLE, mode=mode, key=() if mode == "changes" else TABLE.key)
    topics = MemoryTopics()
    topics.close(ORDERS, 2, _order(1, "a", 1, 1), _order(2, "b", 1, 1))
    sink = target.sink()
    open_table = sink._open_table
    sink._open_table = lambda *each: cast("LakeTable", _LostAnswer(open_table(*each)))

    delivered(sink, [table], topics)

    assert _names(target, table) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("mode", MODES)
def test_a_table_has_few_files(
    target: LakeTarget, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many batches it had; and files that no version needs are deleted."""
    [table, _] = tables_of(mode)
    monkeypatch.setattr(iceberg, "_SMALL_FILES", 4)
    monkeypatch.setattr(iceberg, "_SNAPSHOTS", 3)
    monkeypatch.setattr(delta, "_HOUSEKEEPING", 4)
    topics = MemoryTopics()
    for number in range(12):
        topics.close(ORDERS, 2 * number + 2, _order(number, "a", 2 * number + 1, 1))
        delivered(target.sink(), [table], topics)

    assert _names(target, table) == [(number, "a") for number in range(12)]
    assert _files(target, table) < 5
    if isinstance(target, IcebergTarget):
        assert len(target.load(table).metadata.snapshots) < 6
        stored = list((target.folder / "warehouse").rglob("*.parquet"))
        assert len(stored) < 12


@pytest.mark.parametrize("mode", ["current", "history"])
def test_a_count_beyond_64_bits_is_refused_by_its_table(target: LakeTarget, mode: Mode) -> None:
    """With a remedy; nothing of the batch is in the table."""
    table = TargetTable(ORDERS, "orders", mode, TABLE.columns)
    topics = MemoryTopics()
    topics.close(ORDERS, 2, _order(1, "a", 1, 2**63 - 1))
    delivered(target.sink(), [table], topics)
    topics.close(ORDERS, 4, _order(1, "a", 3, 1))

    with pytest.raises(SourceError, match='table "orders": a count is beyond 64 bits') as raised:
        delivered(target.sink(), [table], topics)

    assert "mode changes" in str(raised.value)


def test_the_token_is_where_the_format_has_a_place_for_it(target: LakeTarget) -> None:
    """The summary of a snapshot, or a `txn` action with the frontier as its version."""
    topics = MemoryTopics()
    topics.close(ORDERS, 7, _order(1, "a", 1, 1))
    delivered(target.sink(), [TABLE], topics)

    if isinstance(target, DeltaTarget):
        assert target.load(TABLE).transaction_version("ikebana.lake") == 7
    else:
        summary = target.load(TABLE).current_snapshot().summary.additional_properties
        assert summary["ikebana.lake.upper"] == "7"


def test_files_of_a_day_lie_together(tmp_path: Path) -> None:
    """Readers see only those of batches that were applied."""
    [table, _] = tables_of("changes")
    sink = parquet.sink("files", ParquetSection(folder=str(tmp_path), by_day=True))
    day = 1_709_164_800_000
    topics = MemoryTopics()
    topics.close(ORDERS, day, _order(1, "a", day - 1, 1))
    delivered(sink, [table], topics)
    topics.close(ORDERS, day + 2, _order(2, "b", day, 1))
    left = tmp_path / table.name / "0-0.writing"
    left.write_text("of a batch that was never applied")

    delivered(sink, [table], topics)

    folders = sorted(path.parent.name for path in (tmp_path / table.name).rglob("*.parquet"))
    assert folders == ["day=2024-02-28", "day=2024-02-29"]
    assert not left.exists()
    with pytest.raises(ConfigError, match="the mode current"):
        sink.open([TABLE])


def test_an_iceberg_table_with_partitions_is_written(tmp_path: Path) -> None:
    """One that was there before, made by its owner."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.transforms import IdentityTransform

    target = IcebergTarget(tmp_path)
    catalog = load_catalog("lake", **target.catalog)
    catalog.create_namespace(NAMESPACE)
    kinds = [("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2))]
    made = catalog.create_table(f"{NAMESPACE}.{TABLE.name}", pa.schema(kinds))
    with made.update_spec() as update:
        update.add_field("name", IdentityTransform(), "name_part")
    topics = MemoryTopics()
    topics.close(ORDERS, 2, *(_order(number, name, 1, 1) for number, name in enumerate("aab")))
    delivered(target.sink(), [TABLE], topics)
    topics.close(ORDERS, 4, _order(1, "a", 3, -1), _order(1, "b", 3, 1))

    delivered(target.sink(), [TABLE], topics)

    assert _names(target) == [(0, "a"), (1, "b"), (2, "b")]
