"""Where the threads of processes stand, written to a file when a pipeline stands still.

Python processes write their stacks themselves, on SIGUSR1, if they were started with
`environment`; those of Java are asked with `jstack`.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from support.process_trees import name_of
from support.waiting import wait_until

_SITE = Path(__file__).with_name("stacks")
_STACKS = "CHAOS_STACKS"
_JSTACK_S = 60.0


def environment(file: Path) -> dict[str, str]:
    """What processes have to be started with, so that they write their stacks to a file."""
    paths = [str(_SITE), os.environ.get("PYTHONPATH", "")]
    return {_STACKS: str(file), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def dump(processes: Iterable[psutil.Process], facts: Mapping[str, object], file: Path) -> None:
    """Write facts and the stacks of processes to the end of the file of `environment`."""
    _add(file, "\n".join(f"{name}: {value}" for name, value in facts.items()))
    for process in processes:
        with suppress(psutil.Error):
            _add(file, _described(process))
            if name_of(process) == "java":
                _add(file, _java_stacks(process))
            elif _writes_stacks(process):
                _ask(process, file)


def _add(file: Path, text: str) -> None:
    with file.open("a") as out:
        out.write(text + "\n")


def _described(process: psutil.Process) -> str:
    command = " ".join(process.cmdline())[:200]
    waits = Path(f"/proc/{process.pid}/wchan")
    with suppress(OSError):
        command += f"  in {waits.read_text()}"
    named = f"{process.pid} of {process.ppid()}, {process.status()}, {process.name()}"
    return f"\n=== {named}: {command}"


def _java_stacks(process: psutil.Process) -> str:
    if (program := shutil.which("jstack")) is None:
        return "there is no jstack"
    command = [program, str(process.pid)]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_JSTACK_S, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        return f"jstack had no answer within {_JSTACK_S:.0f} s"


def _writes_stacks(process: psutil.Process) -> bool:
    """Whether a process catches the signal, which would end it otherwise."""
    status = Path(f"/proc/{process.pid}/status")
    with suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def _ask(process: psutil.Process, file: Path) -> None:
    """Have a process write its stacks, and return when it has; one that is stopped cannot."""
    sizes = [file.stat().st_size]
    process.send_signal(signal.SIGUSR1)

    def written() -> bool:
        sizes.append(file.stat().st_size)
        return sizes[-1] > sizes[0] and len(sizes) > 10 and sizes[-1] == sizes[-10]

    with suppress(AssertionError):
        wait_until(written, 1, "the stacks of a process")
