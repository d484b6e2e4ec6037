"""Where a process stands is written down, whatever it waits for."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from chaos import dumps

_STANDS = """
import os
def stands_here():
    print(flush=True)
    os.read(0, 1)
if os.fork() == 0:
    stands_here()
else:
    os.wait()
"""


def test_the_stacks_of_a_fork_and_the_facts_are_in_the_file(tmp_path: Path) -> None:
    """A fork of a process that imports what asks for stacks has them, too."""
    file = tmp_path / "stacks"
    with subprocess.Popen(
        [sys.executable, "-c", _STANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **dumps.environment(file)},
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        process = psutil.Process(started.pid)
        dumps.dump([process, *process.children()], {"batches": [7, 8]}, file)
        assert process.is_running()
        started.communicate(b"x")

    text = file.read_text()
    assert "batches: [7, 8]" in text
    assert "in stands_here" in text
    assert started.returncode == 0


def test_a_process_that_would_end_of_the_signal_does_not_get_it(tmp_path: Path) -> None:
    """It is named without stacks."""
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        # Before it runs, a process that is made has no command line.
        started.stdin.write(b"x")
        assert started.stdout.read(1) == b"x"
        dumps.dump([psutil.Process(started.pid)], {}, tmp_path / "stacks")
        started.communicate()

    assert started.returncode == 0
    assert ": cat" in (tmp_path / "stacks").read_text()
