"""The demo, as a newcomer runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import patient

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_the_demo_checks_its_own_result_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """It says that the result was checked, and its temporary folders are gone."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ikebana")), "demo", "--flights", "3000"],
        capture_output=True,
        text=True,
        timeout=patient(240),
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert done.returncode == 0, done.stderr
    assert "3,000 flights of 2013" in done.stdout
    assert "frontier 3,000" in done.stdout
    assert "checked: at the end" in done.stdout
    left = [path.name for path in tmp_path.iterdir() if path.name.startswith("ikebana-demo")]
    assert left == []
