"""The Spark session of a run, the processes that it needs, and the temporary folder of the run.

This module does not import pyspark, so that these processes can start while it is imported.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ikebana.arrangements.files import is_local
from ikebana.errors import IkebanaError, LostError, SparkStartError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import log_lines
from ikebana.processor.base.fast_paths import OWNERS, FastPath, compiled_code
from ikebana.processor.base.machine import find_java
from ikebana.processor.base.processes import Stopped
from ikebana.processor.spark import class_archive, jvm
from ikebana.processor.spark.child_processes import environment, is_this_python
from ikebana.processor.spark.jvm import END_WITHIN_S, Jvm
from ikebana.processor.spark.options import (
    EXECUTORS_JAVA_OPTIONS,
    encrypts,
    logs_itself,
    owners,
    slots,
    spark_settings,
)
from ikebana.processor.spark.workers import daemon, left_rows, network
from ikebana.processor.spark.workers.starting import PROGRAM, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Decision (socket files): Over TCP Nagle's algorithm and delayed acknowledgements hold the last
# part of each message. Spark has socket files since 4.1, off by default and without a check of
# the path's length: where that is too long it stays TCP.

# How long the end of a JVM's process may take after the end of its connections.
_DYING_S = 10.0
_SOCKETS = "spark.python.unix.domain.socket"
# Systems accept addresses of 103 bytes; Spark's names are a UUID with 6 more bytes.
_LONGEST_SOCKET_FOLDER = 103 - 1 - 36 - 6
# Py4J logs this text and a traceback when the end of the JVM interrupts a call.  The same error
# is raised to the caller, who reports it, or is ending the JVM.
_CUT_OFF = "Exception while sending command."


class Spark:
    """Spark for one run: started on demand, and again after its JVM has died.

    `folder` is a temporary folder of the run, which is removed at the end.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._jvm: Jvm | None = None
        self._workers: Workers | None = None
        self._session: SparkSession | None = None
        self._log: Path | None = None
        # The Java that starts from an archive of classes, if it can.
        self._archived_for: Path | None = None
        self.fast_paths: list[FastPath] = []
        """The fast paths, and which of them are on; empty before `begin`."""
        self._no_owners = ""
        self._rows: left_rows.RowsFolder | None = None
        self._folder = RunFolder()
        self._secret = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        # A BaseException that is no Exception comes from a second signal.
        hurried = error is not None and not isinstance(error, Exception | Stopped)
        begun = self._session is not None
        try:
            self._end(within_s=0.0 if hurried else END_WITHIN_S)
        finally:
            self._folder.remove()
        if begun and not hurried and self._archived_for is not None:
            # For the next run: this one should not share its processors.
            class_archive.make_later(self._archived_for, os.environ)

    @property
    def folder(self) -> Path:
        """The temporary folder of this run."""
        return self._folder.path

    @property
    def tasks(self) -> int:
        """The number of tasks for all shards of a new checkpoint; 0 for one a shard.

        Only owners run the shards of one task side by side.
        """
        return 0 if self._no_owners else 1

    @property
    def places(self) -> bool:
        """Whether shards have to be placed on the hosts of executors."""
        return self.tasks == 1 and not self._settings.is_local

    @property
    def rows(self) -> str:
        """The folder for large rows that owners read; empty if owners may be on other machines."""
        return "" if self._rows is None else str(self._rows.path)

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._jvm is not None and self._jvm.alive

    def has_ended(self) -> bool:
        """Whether Spark has ended in a JVM that runs."""
        if self._session is None:
            return False
        from ikebana.processor.spark.connection import is_stopped

        return is_stopped(self._session)

    def survives(self, error: Exception) -> bool:
        """Return whether Spark still runs in spite of an error."""
        from ikebana.processor.spark.failures import is_cut_off

        if self._jvm is None or self._jvm.ends(_DYING_S if is_cut_off(error) else 0.0):
            return False
        return not self.has_ended()

    def give_up(self) -> None:
        """End Spark at once, and all that waits for it; `session` starts it again."""
        self._end(within_s=0.0)

    def begin(self) -> None:
        """Start Spark's processes if there are none; `session` waits for them.

        Raises:
            JavaError: there is no Java for it.
        """
        if self.alive and not self.has_ended():
            return
        self._end(within_s=0.0)
        logging.getLogger().addFilter(is_news)
        java = find_java(os.environ)
        settings = self._settings
        options = spark_settings(settings, self._name)
        why_indirect = jvm.why_indirect(options, os.environ)
        self._archived_for = java if why_indirect is None else None
        # A user who configures the JVM's log wants to see it.
        if not log_lines.is_json() and not logs_itself(settings):
            self._log = self.folder / "spark.log"
        if settings.is_local:
            if not os.environ.get("SPARK_LOCAL_DIRS"):
                options.setdefault("spark.local.dir", str(self.folder / "spark"))
            extra = sockets(self.folder)
        else:
            # The sockets of executors are in their temporary folders.
            extra = {f"{_SOCKETS}.enabled": "true"}
            # The configuration file of Spark may ask for encryption, too.
            every = {**jvm.defaults(os.environ), **options}
            self._secret = network.new_secret(encrypts=encrypts(every))
            # Spark hides the values of settings with such names.
            extra[f"spark.executorEnv.{network.VARIABLE}"] = self._secret
            # In the image, executors look for their archive themselves.
            if settings.master.startswith("spark:") and (flags := class_archive.flags(java)):
                extra["spark.executor.extraClassPath"] = class_archive.class_path()
                options[EXECUTORS_JAVA_OPTIONS] += "".join(f" {flag}" for flag in flags)
        for name, value in extra.items():
            options.setdefault(name, value)
        self._start_host()
        self._no_owners = self._why_no_owners(options)
        no_archive = why_indirect or class_archive.why_not(java)
        self.fast_paths = [
            FastPath(OWNERS, self._no_owners),
            FastPath("class archive", no_archive),
            compiled_code(),
            FastPath("forks", _why_no_forks()),
        ]
        with self._environment():
            self._jvm = Jvm(options, java, Path(tempfile.mkdtemp(dir=self.folder)), self._log)

    def _start_host(self) -> None:
        """Start the host, which forks Spark's Pythons, readers, and in a local run owners."""
        settings = self._settings
        if settings.is_local:
            self._rows = left_rows.RowsFolder(
                os.environ.get("SPARK_LOCAL_DIRS")
                or settings.spark.get("spark.local.dir", tempfile.gettempdir())
            )
        self._workers = Workers(
            Path(tempfile.mkdtemp(dir=self.folder)),
            self._log,
            # Another Python has packages of its own, and so its own host, by Spark's daemon.
            owners=owners(settings) if settings.is_local and is_this_python(_python()) else 0,
            readers=slots(settings),
            max_batch_s=settings.max_batch_s,
        )

    def _why_no_owners(self, options: Mapping[str, str]) -> str:
        """Return why shards have no owners; an empty text if they have."""
        assert self._workers is not None
        module = options["spark.python.daemon.module"]
        if self._workers.owners.processes:
            return ""
        if module != daemon.MODULE:
            return f"spark.python.daemon.module is {module}"
        if options.get("spark.python.use.daemon", "true") != "true":
            return "spark.python.use.daemon is false"
        return ""

    def session(self) -> "SparkSession":
        """Return the session; start it if there is none.

        Raises:
            SparkStartError: Spark did not start.
            LostError: its JVM was killed while it started.
            JavaError: there is no Java for it.
        """
        if self._session is None or not self.alive:
            self.begin()
            self._session = self._started()
        return self._session

    def _started(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        from ikebana.processor.spark.connection import write_no_checksums

        assert self._jvm is not None
        builder = SparkSession.builder
        try:
            with self._environment():
                self._jvm.context()
            for key, value in self._jvm.options.items():
                builder = builder.config(key, value)
            session: SparkSession = builder.getOrCreate()
            if is_local(self._settings.checkpoint):
                write_no_checksums(session)
        except Exception as error:
            raise _not_started(self._jvm, error) from error
        return session

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Set the environment of Spark in a `with` block: its Python, and how to find the host.

        The driver and executors share one setting for Python.  For this Python it is a program
        that asks the host of its machine; the `python3` that Spark would run may be another one.
        """
        python = _python() if _why_no_forks() else str(PROGRAM)
        variables = {} if self._workers is None else self._workers.environment
        if not self._settings.is_local:
            variables = {**variables, network.VARIABLE: self._secret}
        with environment(PYSPARK_PYTHON=python, **variables):
            yield

    def _end(self, within_s: float) -> None:
        jvm, self._jvm, self._session = self._jvm, None, None
        workers, self._workers = self._workers, None
        rows, self._rows = self._rows, None
        try:
            if jvm is not None:
                jvm.end(within_s)
        finally:
            if workers is not None:
                workers.end(within_s)
            if rows is not None:
                rows.remove()


def _python() -> str:
    """Return the Python that Spark is to run."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable)


def _why_no_forks() -> str:
    """Return why Spark runs a Python itself rather than a fork; an empty text if it forks."""
    if not is_this_python(_python()):
        return f"PYSPARK_PYTHON {_python()} is another Python than {sys.executable}"
    return "" if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} may not be executed"


def sockets(folder: Path) -> dict[str, str]:
    """Return settings by which the JVM and Python talk over socket files in a run's folder.

    Over TCP each task waits for 40 ms: the last part of a message is held until the other side has
    acknowledged the part before (Nagle's algorithm), which it does late.
    """
    folder = folder / "sockets"
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {}
    folder.mkdir(mode=0o700, exist_ok=True)
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}


def _not_started(jvm: Jvm, error: Exception) -> IkebanaError:
    """Return the error for a failed start of Spark.

    A JVM that was killed is lost, and may be started again: that is no mistake of the user's.
    """
    from ikebana.processor.spark.failures import gist, is_cut_off

    why = gist(str(error).strip() or type(error).__name__)
    if jvm.ends(_DYING_S if is_cut_off(error) else 0.0) and jvm.status is not None:
        if jvm.status < 0:
            return LostError(f"Spark's JVM was killed by signal {-jvm.status} while it started")
        why = f"its JVM ended with status {jvm.status}{jvm.last_words()}"
    return SparkStartError(f"could not start Spark: {why}", hint=jvm.kept_log(error))


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger says more than the exceptions do."""
    return record.msg != _CUT_OFF


class RunFolder:
    """A temporary folder that is created when its path is first read."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """The path of the folder."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="ikebana-run-"))
        return self._path

    def remove(self) -> None:
        """Remove the folder and its content, if it has been created."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
