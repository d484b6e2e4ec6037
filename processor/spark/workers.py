"""Start Spark's Python processes as forks of one process, if they run on this machine."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ikebana.processor.spark import stand_in
from ikebana.processor.spark.child_processes import kill_session, undisturbed

# The modules that Spark's Python processes run, and those of ours that they load.
MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "ikebana.processor.spark.keyed_operator",
    "ikebana.processor.spark.source",
)
_BACKLOG = 64


class Workers:
    """A fork server, and the program that Spark runs as its Python.

    `folder` gets the server's socket and the program, `log` the output of the server.  The
    server imports `modules` beforehand.
    """

    def __init__(self, folder: Path, log: Path | None, modules: Sequence[str] = MODULES) -> None:
        address = folder / "workers"
        self.python = folder / "python"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # Requests that come before the imports are done wait in the backlog.
            listener.bind(stand_in.short(str(address)))
            listener.listen(_BACKLOG)
            self._process = _served(listener, log, modules)
        program = [sys.executable, "-I", "-S", stand_in.__file__, str(address)]
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
        self.python.chmod(0o700)

    def end(self) -> None:
        """End the server and its forks."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with undisturbed():
            kill_session(self._process)


def _served(
    listener: socket.socket, log: Path | None, modules: Sequence[str]
) -> "subprocess.Popen[bytes]":
    number = listener.fileno()
    # Threads of a library would be missing in forks; Spark gives its Pythons this hash seed.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "ikebana.processor.spark.fork_server"]
    command += [str(number), *modules]
    with undisturbed(), open(log or os.devnull, "ab") as told:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=told if log else None,
            env=environment,
            pass_fds=[number],
            start_new_session=True,
        )
