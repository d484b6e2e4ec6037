"""Start Spark's Python processes as forks of one process, if they run on this machine."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ikebana.processor.ground import calls
from ikebana.processor.spark import stand_in
from ikebana.processor.spark.child_processes import kill_session, undisturbed
from ikebana.processor.spark.fork_server import END_OF_OWNERS_S
from ikebana.processor.spark.owners import Owners

# The modules that Spark's Python processes run, and those of ours that they load.
MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "ikebana.processor.spark.keyed_operator",
    "ikebana.processor.spark.batch_reader",
    "ikebana.processor.spark.owner",
    "ikebana.processor.spark.source",
)
_BACKLOG = 64


class Workers:
    """A fork server, and the program that Spark runs as its Python.

    `folder` gets the server's sockets and the program, `log` the output of the server.  The
    server imports `modules` beforehand.  `owners` is the number of processes that own shards,
    `readers` that of those that read batches, `rows` the folder in which these leave rows, and
    `max_batch_s` how long a batch may take.
    """

    def __init__(
        self,
        folder: Path,
        log: Path | None,
        modules: Sequence[str] = MODULES,
        owners: int = 0,
        readers: int = 0,
        rows: str = "",
        max_batch_s: float = 300.0,
    ) -> None:
        address = folder / "workers"
        self.python = folder / "python"
        self.owners = Owners(str(folder), owners, readers, rows) if owners else None
        addresses = [("", str(address))]
        if self.owners is not None:
            addresses += [("owner:", self.owners.address(number)) for number in range(owners)]
            addresses += [("batch_reader:", self.owners.reader(at)) for at in range(readers)]
        with ExitStack() as open_here:
            listeners = [
                (kind, open_here.enter_context(_listening(each))) for kind, each in addresses
            ]
            self._process = _served(listeners, log, modules)
        # A call that does not return is told here.
        told = calls.variables(max_batch_s, folder / "stuck").items()
        given = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told)
        program = [sys.executable, "-I", "-S", stand_in.__file__, str(address)]
        self.python.write_text(f'#!/bin/sh\n{given}exec {shlex.join(program)} "$@"\n')
        self.python.chmod(0o700)

    @property
    def server(self) -> int:
        """The process id of the fork server."""
        return self._process.pid

    def end(self, within_s: float = 0.0) -> None:
        """End the server and its forks; owners of shards may take some seconds to close them."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with undisturbed():
            if within_s and self.owners is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(within_s, END_OF_OWNERS_S))
            kill_session(self._process)


def _listening(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Requests that come before the imports are done wait in the backlog.
    listener.bind(stand_in.short(address))
    listener.listen(_BACKLOG)
    return listener


def _served(
    listeners: Sequence[tuple[str, socket.socket]], log: Path | None, modules: Sequence[str]
) -> "subprocess.Popen[bytes]":
    numbers = [listener.fileno() for _, listener in listeners]
    told_as = ",".join(f"{kind}{listener.fileno()}" for kind, listener in listeners)
    # Threads of a library would be missing in forks; Spark gives its Pythons this hash seed.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "ikebana.processor.spark.fork_server"]
    command += [told_as, *modules]
    with undisturbed(), open(log or os.devnull, "ab") as told:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=told if log else None,
            env=environment,
            pass_fds=numbers,
            start_new_session=True,
        )
