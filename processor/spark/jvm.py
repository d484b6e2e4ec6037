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
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from ikebana.errors import SparkStartError
from ikebana.processor.spark import launching
from ikebana.processor.spark.child_processes import kill_session, undisturbed

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

Made = TypeVar("Made")

_LOOK_EVERY_S = 0.05
# The time limit for Spark's own shutdown, which removes its folders.
END_WITHIN_S = 30.0
# A shell ignores the signals and then executes the program, which inherits that.
_IGNORING = ("/bin/sh", "-c", "trap '' INT TERM; exec \"$@\"", "sh")


class Jvm:
    """A JVM that runs Spark, and the context in it; used by one thread at a time."""

    def __init__(
        self, options: Mapping[str, str], java: Path, folder: Path, log: Path | None
    ) -> None:
        """Start a JVM; with `log` it writes to that file instead of our standard error."""
        self.options = options
        self._address = folder / "gateway"
        self._gateway: JavaGateway | None = None
        self._context: SparkContext | None = None
        self._process = _spawned(options, java, self._address, log)

    def context(self) -> SparkContext:
        """Wait until the JVM listens, and start Spark in it.

        Raises:
            SparkStartError: the JVM ended before that.
        """
        while not self._address.exists():
            if (status := self._process.poll()) is not None:
                raise SparkStartError(f"could not start Spark: its JVM ended with status {status}")
            time.sleep(_LOOK_EVERY_S)
        with self._address.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)
        with environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            self._gateway = launch_gateway()
        # In the main thread, pyspark would replace our handler of SIGINT by its own.
        conf = SparkConf().setAll(list(self.options.items()))
        self._context = _in_a_thread(lambda: SparkContext(conf=conf, gateway=self._gateway))
        # Its connection breaks whenever the JVM ends, so the error is not reported.
        self._context._accumulatorServer.handle_error = _ignored
        return self._context

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ends(self, within_s: float) -> bool:
        """Wait for the process to end by itself; return whether it did within a time."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, within_s: float = END_WITHIN_S) -> None:
        """End the JVM and all processes that it has started; kill them after a time."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.close()
            # Before it listens it cannot be asked to end, and has nothing to clean up.
            if self._gateway is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(within_s)
        finally:
            with undisturbed():
                kill_session(self._process)
                self._forget()

    def _forget(self) -> None:
        """Reset pyspark, so that it can start again in this process."""
        if self._context is not None:
            # The JVM in which pyspark would stop it is gone.
            self._context._jsc = None
            self._context.stop()
        if self._gateway is not None:
            with contextlib.suppress(Exception):
                self._gateway.shutdown()
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _spawned(
    options: Mapping[str, str], java: Path, address: Path, log: Path | None
) -> "subprocess.Popen[bytes]":
    """Start the JVM as pyspark does, but in a session of its own."""
    command, environment = launching.command(options, java, os.environ)
    environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(address)
    with contextlib.ExitStack() as files:
        told = files.enter_context(log.open("ab")) if log is not None else None
        # A child inherits the blocked signals, and no signal can come before we have its handle.
        with undisturbed():
            return subprocess.Popen(
                [*_IGNORING, *command],
                stdin=subprocess.PIPE,
                stderr=told,
                env=environment,
                start_new_session=True,
            )


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


def _ignored(request: object, client: object) -> None:
    """Ignore an error in a connection."""


def _in_a_thread(make: Callable[[], Made]) -> Made:
    """Run a function in another thread, and wait for its result; a signal ends the wait."""
    made: Future[Made] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except Exception as error:  # noqa: BLE001 -- passed to the waiting thread
            made.set_exception(error)

    Thread(target=run, name="starting Spark", daemon=True).start()
    return made.result()
