"""The points at which fault tests kill processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def test_a_process_that_has_ended_does_not_keep_the_others_alive(tmp_path: Path) -> None:
    """Those that are killed first take others with them, which are on the list as well."""
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    program = "from ikebana.processor.base import processes; processes.fault_point('here', 1)"
    fault = f"here:1:*:{tmp_path / 'once'}:{ended.pid}"

    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "IKEBANA_FAULT": fault}, check=False
    )

    assert done.returncode == -signal.SIGKILL
