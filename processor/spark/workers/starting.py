"""Start the host of a driver, beside the JVM."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ikebana.processor.base import calls
from ikebana.processor.spark.child_processes import kill_session, signals_blocked
from ikebana.processor.spark.workers.host import END_OF_OWNERS_S, MODULES
from ikebana.processor.spark.workers.owners import HostAddress

PROGRAM = Path(__file__).with_name("python")
"""The program that Spark runs as its Python, on each machine with this installation."""
PYTHON_VARIABLE = "IKEBANA_PYTHON"
"""The environment variable with the Python that the program stands in for."""


class Workers:
    """The host of a driver, and the environment by which processes find it.

    `folder` gets the host's sockets, `log` its output.  It imports `modules` beforehand.  `owners`
    and `readers` are the numbers of these processes; `max_batch_s` is how long a batch may take.
    """

    def __init__(
        self,
        folder: Path,
        log: Path | None,
        modules: Sequence[str] = MODULES,
        owners: int = 0,
        readers: int = 0,
        max_batch_s: float = 300.0,
    ) -> None:
        self.address = HostAddress(str(folder), owners, readers)
        # A call that does not return is reported in the file.
        self.environment = {
            **self.address.variable,
            **calls.variables(max_batch_s, folder / "stuck"),
            PYTHON_VARIABLE: sys.executable,
        }
        with ExitStack() as open_here:
            listeners = self.address.listening(forks=True)
            for each in listeners:
                open_here.enter_context(each)
            kinds = ",".join(f"{kind}:{each.fileno()}" for each, kind in listeners.items())
            command = [sys.executable, "-m", "ikebana.processor.spark.workers.host"]
            descriptors = [each.fileno() for each in listeners]
            self._process = _started([*command, kinds, *modules], descriptors, log)

    @property
    def server(self) -> int:
        """The process id of the host."""
        return self._process.pid

    def end(self, within_s: float = 0.0) -> None:
        """End the host and its forks; owners of shards may take some seconds to close them."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with signals_blocked():
            if within_s:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(within_s, END_OF_OWNERS_S))
            kill_session(self._process)


def _started(
    command: Sequence[str], descriptors: Sequence[int], log: Path | None
) -> "subprocess.Popen[bytes]":
    # Threads of a library would be missing in forks; Spark gives its Pythons this hash seed.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with signals_blocked(), open(log or os.devnull, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=output if log else None,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
        )
