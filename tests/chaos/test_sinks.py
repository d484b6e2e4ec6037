"""Sinks are killed three times each; `python -m chaos` does it often."""

from pathlib import Path

import pytest

from chaos.lives import results


def test_a_sink_into_files_is_killed(tmp_path: Path) -> None:
    """At every token the files have the updates before its frontier."""
    for result in results("sink-files", tmp_path, range(3), "parquet-kill"):
        assert result.outcome == "exact", result


@pytest.mark.full
@pytest.mark.timeout(900)
def test_sinks_into_lakes_are_killed(tmp_path: Path) -> None:
    """At every token the tables are the collections."""
    for result in results("sink-files", tmp_path, range(3), "iceberg-kill", "delta-kill"):
        assert result.outcome == "exact", result
