"""Sinks are killed ten times each; `python -m chaos` does it often."""

from pathlib import Path

import pytest

from chaos.lives import results


@pytest.mark.full
@pytest.mark.timeout(900)
def test_sinks_into_files_are_killed(tmp_path: Path) -> None:
    """At every token the tables are the collections."""
    names = ("parquet-kill", "iceberg-kill", "delta-kill")
    for result in results("sink-files", tmp_path, range(1), *names):
        assert result.outcome == "exact", result
