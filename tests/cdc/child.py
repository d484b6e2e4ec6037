"""A server as a child of the test run: it never outlives it, however that one ends."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import Signals

# As for the embedded broker, a small process stands between and holds the reading end of
# our pipe, whose end the kernel delivers also when we are killed.
_LEASH = """
import os, subprocess, sys, threading
order, user = int(sys.argv[1]), sys.argv[2]
groups = {"user": user, "group": int(sys.argv[3]), "extra_groups": []} if user else {}
child = subprocess.Popen(sys.argv[4:], stdin=subprocess.DEVNULL, stdout=2, **groups)
def end():
    os.read(0, 1)
    child.send_signal(order)
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
threading.Thread(target=end, daemon=True).start()
os._exit(child.wait() & 255)
"""


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    log_file: Path,
    *,
    end_by: Signals,
    user: tuple[str, int] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` in `folder`, as a user and group if told; `end_by` ends it."""
    name, group = user or ("", 0)
    leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(int(end_by)), name, str(group)]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*leash, *command],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
