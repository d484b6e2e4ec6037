"""Points at which a fault test can kill the process; they do nothing by default.

The environment variable `IKEBANA_FAULT` names a point, the least batch, a shard or `*`, and a
file that is created first, so that the fault occurs only once: `after_commit:3:0:/tmp/once`.
`before_commit*2` lets the point pass once before it is fatal, and `before_commit>after_commit`
waits there until another shard has passed a second point in such a batch.  A further field names
other processes to kill: a process id, or `all` for every process with the same variable.  The
driver is among these, so that it cannot see the task fail.  `worker` and a number kill only the
worker, that many times in a row.
"""

import os
import signal
import time
from contextlib import suppress

_VARIABLE = "IKEBANA_FAULT"
_WAITS_S, _POLL_S = 60.0, 0.01
_BEGAN = time.time()


def point(name: str, batch: int, shard: int | None = None) -> None:
    """Kill this process if the environment asks for it at this point."""
    setting = os.environ.get(_VARIABLE)
    if not setting:
        return
    named, least, of, once, *others = setting.split(":")
    named, _, behind = named.partition(">")
    at, _, times = named.partition("*")
    if behind and name == behind and batch >= int(least):
        _create(f"{once}.{behind}")
    if at != name or batch < int(least) or (of != "*" and str(shard) != of):
        return
    if behind:
        _wait_for(f"{once}.{behind}")
    for passed in range(1, int(times or 1)):
        if _create(f"{once}.{passed}"):
            return
    if not any(_create(path) for path in _times(once, others)):
        if others == ["all"] and os.stat(once).st_mtime > _BEGAN:
            # Another process is about to kill this one, and looks for all of them first.
            time.sleep(_WAITS_S)
        return
    for pid in _targets(others):
        with suppress(ProcessLookupError):  # It has ended with one of those before it.
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for(path: str) -> None:
    ends = time.monotonic() + _WAITS_S
    while not os.path.exists(path) and time.monotonic() < ends:
        time.sleep(_POLL_S)


def _create(path: str) -> bool:
    """Create the file; return whether it did not exist before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _times(once: str, others: list[str]) -> list[str]:
    """Return the files that are created first, one for each occurrence of the fault."""
    if others[:1] != ["worker"]:
        return [once]
    return [once, *(f"{once}-{time}" for time in range(1, int(others[1])))]


def _targets(others: list[str]) -> list[int]:
    """Find the other processes to kill; `all` means all processes with the same variable."""
    if others[:1] == ["worker"]:
        return []
    if others != ["all"]:
        return [int(pid) for pid in others]
    variable = f"{_VARIABLE}={os.environ[_VARIABLE]}".encode()
    pids = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if variable in file.read().split(b"\0"):
                        pids.append(int(entry))
            except OSError:
                continue
    return pids
