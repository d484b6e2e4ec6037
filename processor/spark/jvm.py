"""Spark's JVM: a child process in a session of its own, which ends when we end.

Signals to our process group, such as Ctrl-C in a terminal, are for us to answer: a JVM that
ended by itself would interrupt a batch.  So the JVM has a session of its own.  A service manager
may still send signals to every process that we have started, so the JVM ignores SIGINT and
SIGTERM, and Python's workers block them.

The JVM ends at the end of its standard input, which the kernel closes however we die, and
the workers end with the JVM in the same way.  `Jvm.end` does not rely on that: when it
returns, the session has no process left.
"""

import contextlib
import os
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ikebana.processor.spark import launching
from ikebana.processor.spark.child_processes import kill_session, undisturbed

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ikebana.processor.spark.connection import JvmConnection

_LOOK_EVERY_S = 0.05
# The time limit for Spark's own shutdown, which removes its folders.
END_WITHIN_S = 30.0
# A shell ignores the signals and then executes the program, which inherits that.
_IGNORING = ("/bin/sh", "-c", "trap '' INT TERM; exec \"$@\"", "sh")


# The beginnings of lines of a JVM's log that do not say why it has ended.
_NO_REASON = ("WARNING: ", "NOTE: ", "Using Spark's ", "Setting default ", "To adjust ")


class Jvm:
    """A JVM that runs Spark, and the context in it; used by one thread at a time."""

    def __init__(
        self, options: Mapping[str, str], java: Path, folder: Path, log: Path | None
    ) -> None:
        """Start a JVM; with `log` it writes to that file instead of our standard error."""
        self.options = options
        self._log = log
        self._address = folder / "gateway"
        self._connection: JvmConnection | None = None
        self._process = _spawned(options, java, self._address, log)

    def context(self) -> "SparkContext":
        """Wait until the JVM listens, and start Spark in it.

        Raises:
            ChildProcessError: the JVM ended before that.
        """
        # Not at the top: the JVM comes up while pyspark is imported.
        from ikebana.processor.spark.connection import JvmConnection

        while not self._address.exists():
            if self.status is not None:
                raise ChildProcessError("the JVM ended before it listened")
            time.sleep(_LOOK_EVERY_S)
        self._connection = JvmConnection(self._address)
        return self._connection.context(self.options)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The status with which the process has ended, below 0 for a signal; None if it runs."""
        return self._process.poll()

    def ends(self, within_s: float) -> bool:
        """Wait for the process to end by itself; return whether it did within a time."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """Return the first reason in the log why the JVM has ended, after a colon."""
        lines = [line.strip() for line in self._logged().splitlines()]
        reasons = [line for line in lines if line and not line.startswith(_NO_REASON)]
        return f": {reasons[0][:300]}" if reasons else ""

    def kept_log(self, error: Exception) -> str:
        """Save an error and the JVM's log in a file that outlives the run; say where."""
        descriptor, path = tempfile.mkstemp(prefix="ikebana-spark-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self._logged())
            file.writelines(traceback.format_exception(error))
        return f"The whole of it is in {path}."

    def _logged(self) -> str:
        if self._log is None or not self._log.exists():
            return ""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def end(self, within_s: float = END_WITHIN_S) -> None:
        """End the JVM and all processes that it has started; kill them after a time."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            # Before it listens it cannot be asked to end, and has nothing to clean up.
            if self._connection is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(within_s)
        finally:
            with undisturbed():
                kill_session(self._process)
                if self._connection is not None:
                    self._connection.forget()


def _spawned(
    options: Mapping[str, str], java: Path, address: Path, log: Path | None
) -> "subprocess.Popen[bytes]":
    """Start the JVM as pyspark does, but in a session of its own."""
    command, environment = launching.command(options, java, os.environ)
    environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(address)
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("ab")) if log is not None else None
        # A child inherits the blocked signals, and no signal can come before we have its handle.
        with undisturbed():
            return subprocess.Popen(
                [*_IGNORING, *command],
                stdin=subprocess.PIPE,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
