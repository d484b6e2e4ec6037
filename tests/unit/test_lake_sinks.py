"""Tables of files as targets of a delivery: Iceberg, Delta and Parquet."""

from pathlib import Path

import pytest

from ikebana.delivering.sink import MODES, Mode
from support.lake_child import killed
from support.lake_targets import TARGETS, DeltaTarget, IcebergTarget, ParquetTarget
from support.sink_conformance import SinkConformance, Target


class _Lake(SinkConformance):
    """What takes minutes here runs with the full tests; that of Parquet is of the same sink."""

    adds_columns = True

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

    adds_columns = True
    modes = ("changes",)

    @pytest.fixture
    def target(self, tmp_path: Path) -> ParquetTarget:
        return ParquetTarget(tmp_path)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", TARGETS)
def test_a_sink_that_is_killed_goes_on_exactly(kind: str, tmp_path: Path) -> None:
    """By kill -9 at random moments; at every token the tables are the collections."""
    mode: Mode = "changes" if kind == "parquet" else "current"

    assert killed(kind, tmp_path, mode, seed=1, kills=4) > 0
