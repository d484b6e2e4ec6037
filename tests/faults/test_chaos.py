"""A few rounds of `python -m chaos rounds`, which is worth running longer by hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import patient

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


def test_after_random_kills_everything_is_exact() -> None:
    """A seed fixes what is done, not when it hits: each run is another one."""
    command = [sys.executable, "-m", "chaos", "rounds", "--rounds", "4", "--records", "12000"]
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=patient(540),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: exact" in done.stdout
