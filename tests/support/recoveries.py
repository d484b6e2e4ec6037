"""`ikebana recover`, as a process of its own."""

import os
import subprocess
import sys

from support.pipeline_processes import Pipeline
from support.waiting import patient

_ENDS_S = 120.0


def recover(pipeline: Pipeline, *options: str, status: int = 0, fault: str | None = None) -> str:
    """Run `ikebana recover`; return what it has printed."""
    environment = dict(os.environ)
    if fault is not None:
        environment["IKEBANA_FAULT"] = fault
    found = subprocess.run(
        [sys.executable, "-m", "ikebana", "recover", str(pipeline.file()), *options],
        capture_output=True,
        text=True,
        timeout=patient(_ENDS_S),
        check=False,
        env=environment,
    )
    told = found.stdout + found.stderr
    assert found.returncode == status, told
    return told
