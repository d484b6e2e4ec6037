"""A process that cannot outlive the one that started it.

PR_SET_PDEATHSIG would tie it to the thread that started it rather than to the process, and
exists on Linux only.  So a small process stands between: it holds the reading end of a pipe
whose writing end is ours, and kills the other at end of file, which the kernel delivers
however we die, also before it began to read.  Only this process reaps the other, in its only
thread, so the process id that it signals is always the right one.  It notices the other's
end by a second pipe that the other holds open.

A service manager may send SIGTERM to everything that we have started: the one between
outlives that, for the other to be reaped.  An answer of its own, unlike an ignored signal, is
not handed on to the other.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_LEASH = """
import os, select, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)
ended, held = os.pipe()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2, pass_fds=[held])
os.close(held)
os.write(1, b"%d\\n" % child.pid)
os.close(1)
while True:
    readable, _, _ = select.select([0, ended], [], [])
    if ended in readable:
        break
    if os.read(0, 1) == b"t":
        child.terminate()
    else:
        child.kill()
        break
status = child.wait()
os._exit(status if status >= 0 else 128 - status)
"""


def leashed(
    command: Sequence[str], folder: Path, log: IO[bytes]
) -> tuple["subprocess.Popen[bytes]", int | None]:
    """Start a command in a folder; the process between, and the command's process id.

    The one between ends when the command does, with its status.  `t` on its standard input
    asks the command to terminate, any other byte or the end of it kills it.  Without a process
    id the command could not be started.
    """
    between = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LEASH, *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        # Ctrl-C is for us; we stop the command when we no longer need it.
        start_new_session=True,
    )
    assert between.stdout is not None
    with between.stdout as stdout:
        pid = stdout.readline()
    return between, int(pid) if pid else None
