"""A server as a child of the test run: it never outlives it, however that one ends."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals

from ikebana.processor.kafka.broker import end_of_log

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


@dataclass(frozen=True)
class Child:
    """A server that has been started, and the file that it writes its log to."""

    name: str
    process: subprocess.Popen[bytes]
    log_file: Path

    def check(self) -> None:
        """Fail, with the end of its log, if it has ended."""
        assert self.process.poll() is None, f"{self.name} has ended:\n{self.end_of_log()}"

    def end_of_log(self) -> str:
        """The last lines of its log."""
        return end_of_log(self.log_file)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Make a folder for the files of a server; it is removed at the end with all of them."""
    folder = Path(tempfile.mkdtemp(prefix=f"ikebana-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def java_options(megabytes: int, *others: str) -> tuple[str, ...]:
    """Options of a JVM that starts fast and takes little."""
    return (f"-Xmx{megabytes}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *others)


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    folder: Path,
    *,
    end_by: Signals = SIGKILL,
    user: tuple[str, int] | None = None,
) -> Iterator[Child]:
    """Run `command` in `folder`, as a user and group if told; `end_by` ends it.

    What is temporary may be killed: nobody needs what it has not flushed.
    """
    user_name, group = user or ("", 0)
    leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(int(end_by)), user_name, str(group)]
    log_file = folder / "server.log"
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
        yield Child(name, process, log_file)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
