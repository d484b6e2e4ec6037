"""Start a process that cannot outlive the one that started it.

PR_SET_PDEATHSIG would tie the child to the thread that started it rather than to the process,
and exists on Linux only.  So a small guard process runs between us and the child.  It reads
from a pipe whose writing end is ours, and kills the child at end of file, which the kernel
delivers however we die, even before the guard began to read.  Only the guard reaps the child,
in its only thread, so the process id that it signals is always the right one.  It notices the
child's end by a second pipe, which the child holds open.

A service manager may send SIGTERM to all processes that we have started.  The guard survives
that, so that it can reap the child.  It has a signal handler for this: unlike an ignored
signal, a handler is not inherited by the child.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
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
    command: Sequence[str],
    folder: Path,
    log: IO[bytes],
    environ: Mapping[str, str] | None = None,
) -> tuple["subprocess.Popen[bytes]", int | None]:
    """Start a command in a folder; return the guard process and the command's process id.

    Its environment is ours unless there is `environ`, and what it writes goes to `log`.

    The guard ends when the command does, with the same status.  `t` on its standard input asks
    the command to terminate; any other byte, or end of file, kills it.  The process id is None
    if the command could not be started.
    """
    between = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LEASH, *command],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        # Ctrl-C goes to us alone; we stop the command when we no longer need it.
        start_new_session=True,
    )
    assert between.stdout is not None
    with between.stdout as stdout:
        pid = stdout.readline()
    return between, int(pid) if pid else None
