"""The daemon that Spark runs for its Python workers, as `spark.python.daemon.module` names it.

Spark's own daemon forks workers that each import everything again, and no process keeps a shard
open between batches.  This one makes sure that there is a host, and then becomes Spark's daemon.
On the machine of a driver the run has started the host; on an executor the daemon imports, forks
the host, and names it in the environment that workers inherit.  The host ends with the daemon, and
the daemon with the executor's JVM.
"""

# Decision (executors have a host, too): `spark.python.daemon.module` (Spark has it since 2.4,
# undocumented) imports, forks the host, and becomes Spark's own daemon, whose code runs
# unchanged. The host ends with the daemon, workers with the host.

import ctypes
import functools
import itertools
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NoReturn

from ikebana.processor.base import calls, processes
from ikebana.processor.spark.workers import host, left_rows, network
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE, HostAddress

MODULE = "ikebana.processor.spark.workers.daemon"
"""The name of this module, for Spark's setting."""
OWNERS_VARIABLE = "IKEBANA_OWNERS"
"""The environment variable with the number of owners that a host has."""
PORT_VARIABLE = "IKEBANA_PORT"
"""The environment variable with the first port of a host; by default the system chooses them."""
_FREED_WITHIN_S = 2 * host.END_OF_OWNERS_S
_LOOK_EVERY_S = 0.05
_NAME = "pyspark.daemon"
_HOSTS_NAME = "ikebana-host"
# The daemon's process, for its workers.
_VARIABLE = "IKEBANA_DAEMON"
# See prctl(2).
_SET_SIGNAL_OF_PARENTS_DEATH = 1


def main() -> None:
    """Make sure that there is a host, and become Spark's daemon."""
    # Threads of a library would be missing in forks.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    processes.named(_NAME)
    present = HostAddress.here()
    life = _fork_host() if present is None or not present.are_there() else None
    os.environ[_VARIABLE] = str(os.getpid())
    os.register_at_fork(after_in_child=functools.partial(_bind, os.getpid(), [life]))
    # It looks at the command line when it is imported.
    from pyspark import daemon

    daemon.manager()


def end_worker() -> NoReturn:
    """End this worker, which cannot reach its host, and its daemon: Spark starts new ones."""
    print("the host of this machine's Python processes is gone", file=sys.stderr, flush=True)
    if os.environ.get(_VARIABLE) == str(os.getppid()):
        with suppress(OSError):
            os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)


def _fork_host() -> int:
    """Fork a host, and name it in the environment; it ends when the returned descriptor does."""
    host.prepare(host.EVERYWHERE)
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    folder = Path(tempfile.mkdtemp(prefix="ikebana-host-", dir=scratch))
    (folder / "rows").mkdir()
    os.environ[left_rows.VARIABLE] = str(folder / "rows")
    os.environ.setdefault(calls.REPORT_VARIABLE, str(folder / "stuck"))
    count = int(os.environ.get(OWNERS_VARIABLE) or os.cpu_count() or 1)
    address, listeners = _listening(folder, count)
    os.environ.update(address.variable)
    lifeline, life = os.pipe()
    if os.fork() == 0:
        os.close(life)
        host.become_host(listeners, lifeline, folder, _HOSTS_NAME)
    os.close(lifeline)
    for each in listeners:
        each.close()
    return life


def _listening(folder: Path, count: int) -> tuple[HostAddress, dict[socket.socket, str]]:
    """Open the sockets of a host: ports for other machines, if the run has a secret."""
    if network.VARIABLE not in os.environ:
        address = HostAddress(str(folder), count, 0)
        return address, address.listening(forks=False)
    readers = max(1, count // 2)
    kinds = [*["owner"] * count, *["reader"] * readers]
    opened = _opened(int(os.environ.get(PORT_VARIABLE) or 0), len(kinds))
    listeners = dict(zip(opened, kinds, strict=True))
    ports = tuple(listener.getsockname()[1] for listener in listeners)
    executor, machine = _executor()
    os.environ[EXECUTOR_VARIABLE] = executor
    return HostAddress(machine, count, readers, ports), listeners


def _opened(first: int, count: int) -> list[socket.socket]:
    """Listen at `count` ports from the first on, or at any others if these do not become free.

    The host of a lost daemon may still hold the ports while it closes its databases.
    """
    deadline = time.monotonic() + _FREED_WITHIN_S
    while first:
        with ExitStack() as opened:
            try:
                listeners = [
                    opened.enter_context(network.listening(("", first + at)))
                    for at in range(count)
                ]
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_EVERY_S)
                continue
            opened.pop_all()
            return listeners
    return [network.listening(("", 0)) for _ in range(count)]


def _executor() -> tuple[str, str]:
    """Return the id of this executor, and the name by which Spark reaches its machine."""
    command: list[str] = []
    with suppress(OSError):
        text = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace")
        command = text.split("\0")
    options = dict(itertools.pairwise(command))
    machine = (options.get("--hostname") or socket.gethostname()).strip("[]")
    return options.get("--executor-id") or f"{machine}-{os.getpid()}", machine


def _bind(daemon: int, life: list[int | None]) -> None:
    """Let a worker that was just forked end with the daemon, and not keep the host alive.

    Spark would otherwise go on with the workers of a lost daemon, after their host has ended.
    """
    if not life:
        return  # a fork of a worker
    descriptor = life.pop()
    if descriptor is not None:
        os.close(descriptor)
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SET_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != daemon:
        os._exit(1)


if __name__ == "__main__":
    # Run the module that others import by its name, not this copy.
    from ikebana.processor.spark.workers.daemon import main as run

    run()
