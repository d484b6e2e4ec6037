"""What is released for pip: wheel and source distribution, each in an empty environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.charts import ROOT
from support.waiting import patient


@pytest.mark.full
@pytest.mark.timeout(patient(1800))
def test_wheel_and_source_distribution_can_be_installed_and_used(tmp_path: Path) -> None:
    """As the script says, which a release runs."""
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "distributions.py", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    source, wheel = done.stdout.splitlines()[-2:]
    assert source.startswith("ikebana-0.1.0.tar.gz: ikebana 0.1.0, with compiled code")
    assert wheel.startswith("ikebana-0.1.0-cp3")
