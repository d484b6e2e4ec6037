#!/opt/ikebana/bin/python
"""Tell the executor of this container to take no more tasks, and wait for its end.

Kubernetes runs it before it ends an executor's container (preStop), as when a node is drained.
The executor ends when it runs no task; one that takes longer is ended with its grace period.
"""

import os
import signal
import sys
import time
from pathlib import Path

_LOOK_EVERY_S = 0.1


def executors(processes: Path) -> list[int]:
    """Return the ids of the JVMs of executors."""
    found = []
    for folder in processes.glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if line[0].endswith(b"/java") and any(b"ExecutorBackend" in part for part in line):
            found.append(int(folder.name))
    return found


def main(processes: Path) -> None:
    """Signal them, and return when they are gone."""
    for pid in executors(processes):
        os.kill(pid, signal.SIGPWR)
    while executors(processes):
        time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "/proc"))
