"""Tables of files as targets of a delivery: Iceberg, Delta and Parquet."""

import json
from pathlib import Path

import pytest
import yaml

from ikebana.delivering import iceberg
from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.delivery import sink_plan
from ikebana.delivering.sink import MODES, TargetTable
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.deliver_section import DeliverSection, IcebergSection, Mode
from support.doc_blocks import blocks
from support.lake_targets import TARGETS, DeltaTarget, IcebergTarget, ParquetTarget
from support.served_topics import MemoryTopics
from support.sink_conformance import SinkConformance, Story, Target, delivered, judge, tables_of


class _Lake(SinkConformance):
    """What takes minutes here runs with the full tests; that of Parquet is of the same sink."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
    )
    def test_tables_are_the_collections_after_every_batch(
        self, target: Target, mode: Mode, seed: int
    ) -> None:
        """With retractions, nulls, equal rows and keys that come and go within a batch."""
        super().test_tables_are_the_collections_after_every_batch(target, mode, seed)

    @pytest.mark.full
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("mode", MODES)
    def test_a_death_at_any_point_loses_and_doubles_nothing(
        self, target: Target, mode: Mode
    ) -> None:
        """Every table is at the time of its own token then, and a new instance goes on."""
        super().test_a_death_at_any_point_loses_and_doubles_nothing(target, mode)


class TestIceberg(_Lake):
    """The suite over Iceberg tables."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> IcebergTarget:
        return IcebergTarget(tmp_path)


class TestDelta(_Lake):
    """The suite over Delta tables."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> DeltaTarget:
        return DeltaTarget(tmp_path)


class TestParquet(SinkConformance):
    """The suite over folders of files."""

    modes = ("changes",)

    @pytest.fixture
    def target(self, tmp_path: Path) -> ParquetTarget:
        return ParquetTarget(tmp_path)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_section_of_a_file_makes_the_sink(kind: str, tmp_path: Path) -> None:
    """By the target's settings as the documentation has them."""
    example, *_ = [
        section
        for block in blocks("yaml")
        if block.name.startswith("deliver-")
        for section in yaml.safe_load(block.text)["deliver"].values()
        if kind in section
    ]
    text = json.dumps(example).replace("/data", str(tmp_path))
    part = DeliverSection.model_validate_json(text)

    def types_of(_: str, __: str) -> dict[str, str]:
        raise AssertionError("columns are listed")

    found = sink_plan("lake", part, None, types_of)
    topics = MemoryTopics()
    topics.close("whereabouts", 5, (b"N1", b'{"at":"JFK"}', 3, 1))

    delivered(found.sink, found.tables, topics)

    assert found.sink.open(found.tables) is not None
    assert list(tmp_path.rglob("*.parquet"))


def test_a_catalog_that_cannot_be_is_refused() -> None:
    """By the name of the sink."""
    sink = iceberg.sink("lake", IcebergSection(catalog={"type": "none"}, namespace="shop"))

    with pytest.raises(ConfigError, match='catalog of sink "lake"'):
        sink.open(tables_of("current"))


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("mode", ["current", "history"])
def test_a_part_of_a_key_may_be_null(kind: str, mode: Mode, tmp_path: Path) -> None:
    """A row with one is replaced and deleted as others are; Delta refused to."""
    columns = tuple(TargetColumn.of(name, "VARCHAR") for name in ("a", "b", "c"))
    table = TargetTable("t", "nulls", mode, columns, ("a", "b"))
    target, topics = TARGETS[kind](tmp_path), MemoryTopics()
    one, other = b'{"a":"x","b":null,"c":"1"}', b'{"a":"x","b":null,"c":"2"}'
    told = Story(
        [
            ("t", 2, [(None, one, 1, 1)]),
            ("t", 4, [(None, one, 3, -1), (None, other, 3, 1)]),
            ("t", 6, [(None, other, 5, -1)]),
        ]
    )

    for topic, upper, updates in told.batches:
        topics.close(topic, upper, *updates)
        delivered(target.sink(), [table], topics)
        assert judge(target, [table], told) == upper


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("DATE", "infinity"),
        ("TIMESTAMP", "-0043-03-15T00:00:00"),
        ("TIMESTAMPTZ[]", ["+10000-01-01T00:00:00Z"]),
        ("STRUCT(at TIME)", {"at": "24:00:00"}),
        ("MAP(VARCHAR, DATE)", {"x": "-infinity"}),
    ],
)
def test_what_libraries_cannot_read_is_refused(
    kind: str, of: str, value: object, tmp_path: Path
) -> None:
    """By table and column: one of them wrote a text of no time, others failed by themselves."""
    table = TargetTable("t", "far", "changes", (TargetColumn.of("day", of),))
    target, topics = TARGETS[kind](tmp_path), MemoryTopics()
    topics.close("t", 5, (None, json.dumps({"day": value}).encode(), 1, 1))

    with pytest.raises(SourceError, match='table "far": a value of column "day"'):
        delivered(target.sink(), [table], topics)

    assert target.rows(table) == []
