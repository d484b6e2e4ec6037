"""`ikebana serve`, killed while it follows and is read: whole times only, never back."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import patient

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SOAK = Path(__file__).resolve().parents[2] / "bench" / "serve_soak.py"


@pytest.mark.parametrize(
    ("seconds", "every"), [(8, 4), pytest.param(12, 4, marks=pytest.mark.full)]
)
def test_readers_see_whole_times_through_kills(seconds: int, every: int) -> None:
    """Four processes read; what is served is what snapshots say, also as of earlier times."""
    done = subprocess.run(
        [sys.executable, SOAK, f"--seconds={seconds}", f"--every={every}", "--keys=50"],
        capture_output=True,
        text=True,
        timeout=patient(300),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) kills, (\d+) times, (\d+) rows as in snapshots", done.stdout)
    assert found is not None, done.stdout
    kills, times, rows = map(int, found.groups())
    assert kills >= 1
    assert times > kills
    assert rows == 50 * (kills + 3)
    assert len(re.findall(r"[1-9]\d* whole reads at", done.stdout)) == 4
