"""Start and end child processes that lead sessions of their own; their environment and Python."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LOOK_EVERY_S = 0.005
# A process that has not ended by then is stuck in the kernel.
_KILLED_WITHIN_S = 10.0
_SHIELDED = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals in a `with` block; processes that are started in it have them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SHIELDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill_session(leader: "subprocess.Popen[bytes]") -> None:
    """Kill all processes of the session that a process leads, and return when they have ended.

    Without /proc only the leader's process group is killed; its children end with it.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while left := [pid for pid in _processes() if _session(pid) == leader.pid]:
        if time.monotonic() > deadline:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)
    leader.wait()


def _processes() -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _session(pid: int) -> int | None:
    """Return the session of a process; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, _, _, session = file.read().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(session)


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for the length of a `with` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def is_this_python(command: str) -> bool:
    """Return whether a command runs the same Python as this process, with the same packages.

    An environment has several names for its Python, such as `python` and `python3.11`, and
    shares the interpreter behind these links with other environments.  So the environment's
    folder and the interpreter are compared, not the names.
    """
    path = shutil.which(command)
    if path is None:
        return False
    interpreter = os.path.realpath(path)
    # Python looks for its environment beside the link by which it was called.
    environment = Path(path).absolute().parent.parent
    if not (environment / "pyvenv.cfg").exists():
        environment = Path(interpreter).parent.parent
    return interpreter == os.path.realpath(sys.executable) and (
        os.path.realpath(environment) == os.path.realpath(sys.prefix)
    )
