"""What commands write into a checkpoint nobody but its owner may read."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata
from ikebana.processor.cli.main import cli
from ikebana.processor.topics.source_offset import SourceOffset


@pytest.fixture
def usual_mask() -> Iterator[int]:
    """The mask of most machines, by which others may read new files."""
    mask = 0o022
    before = os.umask(mask)
    yield mask
    os.umask(before)


def test_metadata_that_are_relocated_stay_private(usual_mask: int, tmp_path: Path) -> None:
    """Metadata have the plan; a moved checkpoint may lie in a folder that others look into."""
    file = tmp_path / "ikebana.json"
    Checkpoint(str(tmp_path)).write(
        CheckpointMetadata("c", "elsewhere", 1, {}, SourceOffset(-1, 0, 0, {}, ""))
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~usual_mask

    done = CliRunner().invoke(cli, ["state", str(tmp_path), "--relocate"])

    assert done.exit_code == 0, done.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # The program's own mask is as it was.
    assert os.umask(usual_mask) == usual_mask
