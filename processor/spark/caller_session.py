"""Run a pipeline on a Spark session that the user has started."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ikebana.errors import ConfigError, LostError, SparkStartError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.fast_paths import OWNERS, FastPath, compiled_code
from ikebana.processor.base.processes import Closes
from ikebana.processor.linear.functions import FOLDER_VARIABLE
from ikebana.processor.spark.child_processes import is_this_python
from ikebana.processor.spark.connection import is_stopped
from ikebana.processor.spark.session import OWNED, RunFolder, spark_settings
from ikebana.processor.spark.workers import daemon

_MODULE = "spark.python.daemon.module"


class CallerSpark(Closes):
    """A stand-in for `session.Spark`, on a session that continues after the run.

    The run has its own session beside the given one, in the same JVM, so that our settings
    do not affect the user's queries.
    """

    # The session's Python workers may open the shards themselves, and its executors are anywhere.
    tasks = 0
    rows = ""
    places = False

    def __init__(self, session: SparkSession, settings: Settings, name: str) -> None:
        """Check a session and keep it.

        Raises:
            ConfigError: it is a session of Spark Connect, has another value of a setting that
                ikebana controls, or its Python workers on this machine cannot import ikebana.
            LostError: it has been stopped.
        """
        self._name, self._callers = name, session
        if not hasattr(session, "_jsparkSession"):
            raise ConfigError(
                f'cannot run pipeline "{name}" on a session of Spark Connect',
                hint="Give a session of a SparkContext in this process, or none.",
            )
        self.begin()
        conf = session.sparkContext.getConf()
        for key, value in OWNED.items():
            if not key.startswith("spark.sql.") and conf.get(key, value) != value:
                raise ConfigError(
                    f'cannot run pipeline "{name}" on this Spark session: it has {key}='
                    f"{conf.get(key)}",
                    hint=f"Start Spark with {key}={value}, or give no session.",
                )
        context = session.sparkContext
        if context.master.startswith("local") and not _can_import_us(context.pythonExec):
            raise ConfigError(
                f'cannot run pipeline "{name}" on this Spark session: its Python workers run '
                f"{context.pythonExec}, which cannot import ikebana",
                hint=f"Set PYSPARK_PYTHON={sys.executable} before the session is started.",
            )
        if folder := os.environ.get(FOLDER_VARIABLE):
            # Workers get these variables even if Spark was started before.
            session.sparkContext.environment[FOLDER_VARIABLE] = folder
        self._options = spark_settings(settings, name)
        has_owners = conf.get(_MODULE, "") == daemon.MODULE
        self.fast_paths = (
            FastPath(OWNERS, "" if has_owners else f"the Spark session has no {_MODULE} of ours"),
            FastPath("class archive", "the Spark session was given"),
            compiled_code(),
        )
        self._session: SparkSession | None = None
        self._folder = RunFolder()

    def close(self) -> None:
        """Forget the session of the run, and remove its folder; the given one stays."""
        self._session = None
        self._folder.remove()

    @property
    def folder(self) -> Path:
        """The temporary folder of this run."""
        return self._folder.path

    def has_ended(self) -> bool:
        """Whether somebody has stopped the given session's Spark."""
        return is_stopped(self._callers)

    def survives(self, error: Exception) -> bool:
        """Return True: a JVM that is not ours is never restarted.

        Raises:
            LostError: the given session has been stopped, which is then the cause of the error.
        """
        self.begin()
        return True

    def give_up(self) -> None:
        """Leave the session as it is."""

    def begin(self) -> None:
        """Start nothing: Spark runs already.

        Raises:
            LostError: the given session has been stopped.
        """
        try:
            has_ended = self._callers._jsc.sc().isStopped()
        except (Py4JError, OSError):
            # Its JVM has ended.
            has_ended = True
        if has_ended:
            raise LostError(
                f'cannot go on with pipeline "{self._name}": '
                "the Spark session that it was given has been stopped",
                hint="Stop runs before their session. The checkpoint is as the last batch left "
                "it: start again with a session that runs, or with none.",
            )

    def session(self) -> SparkSession:
        """Return the run's own session.

        Raises:
            SparkStartError: the given session has been stopped.
        """
        if self._session is None:
            try:
                session: Any = self._callers.newSession()
                for key, value in self._options.items():
                    if key.startswith("spark.sql.") and session.conf.isModifiable(key):
                        session.conf.set(key, value)
            except Exception as error:
                raise SparkStartError(
                    f"could not use the Spark session: {str(error).splitlines()[0]}"
                ) from error
            self._session = session
        return self._session


def _can_import_us(python: str) -> bool:
    """Whether Spark's Python is this one, or has ikebana installed."""
    if is_this_python(python):
        return True
    try:
        asked = subprocess.run(
            [python, "-c", "import ikebana"], capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
