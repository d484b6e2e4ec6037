"""Rows that go to the shards by files: they are there while a batch runs, and no longer."""

from pathlib import Path
from random import Random

import pytest

from support.pipeline_processes import PipelineOver, upserts
from support.waiting import wait_until


@pytest.mark.long
def test_a_run_that_is_killed_leaves_rows_and_the_next_one_needs_none_of_them(
    pipeline_over: PipelineOver, tmp_path: Path
) -> None:
    """All processes die when a shard has read its rows; the batch then begins anew."""
    pipeline = pipeline_over(2, upserts(20_000, 2_000, Random(1)), limit=20_000)
    with pipeline.start(fault="before_commit:0:*:all") as run:
        run.wait_for_fault()
        run.wait(30)
    left = [*(tmp_path / "spark").glob("ikebana-rows-*/tmp*")]
    assert left
    assert min(path.stat().st_size for path in left) > 8_000
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in left)

    with pipeline.start() as run:
        pipeline.wait_until_read()
        now = {*(tmp_path / "spark").glob("ikebana-rows-*")} - {path.parent for path in left}
        (own,) = now
        wait_until(lambda: not [*own.iterdir()], 30, "an empty folder")
        assert run.stop() == 0
    assert pipeline.judged() == {}
    assert not own.exists()
