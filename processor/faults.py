"""Points at which a fault test ends the process; nothing happens unless it asks.

The environment variable `IKEBANA_FAULT` names a point, the least batch, the shard or
`*`, and a file that is made first, so that the fault occurs once:
`after_commit:3:0:/tmp/once`.  `before_commit*2` lets the point pass once before it is
fatal.  A further field names what else is killed: a process id, or `session` for
everything in our session, the driver among it, which must not see the task fail.
"""

import os
import signal

_VARIABLE = "IKEBANA_FAULT"


def point(name: str, batch: int, shard: int | None = None) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get(_VARIABLE)
    if not wanted:
        return
    named, least, of, once, *others = wanted.split(":")
    at, _, times = named.partition("*")
    if at != name or batch < int(least) or (of != "*" and str(shard) != of):
        return
    for passed in range(1, int(times or 1)):
        if _made(f"{once}.{passed}"):
            return
    if not _made(once):
        return
    for pid in _targets(others):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _made(path: str) -> bool:
    """Whether we were the first to make the file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _targets(others: list[str]) -> list[int]:
    """`session`: every process of our session but us, the driver among them."""
    if others != ["session"]:
        return [int(pid) for pid in others]
    own = os.getsid(0)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if os.getsid(int(entry)) == own:
                    found.append(int(entry))
            except ProcessLookupError:
                continue
    return found
