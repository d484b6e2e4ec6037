"""Spark's JVM: a child process in a session of its own, which ends when we end.

Signals to our process group, such as Ctrl-C in a terminal, are for us to answer: a JVM that
ended by itself would interrupt a batch.  So the JVM has a session of its own.  A service manager
may still send signals to every process that we have started, so the JVM ignores SIGINT and
SIGTERM, and Python's workers block them.

The JVM ends at the end of its standard input, which the kernel closes however we die, and
the workers end with the JVM in the same way.  `Jvm.end` does not rely on that: when it
returns, the session has no process left.

`spark-submit` runs two shell scripts, and a JVM that prints the command of Spark's JVM.  For
pyspark's own Spark as a client we know this command, and start the JVM ourselves, with an archive
of its classes if there is one.  With another Spark, or a configuration that changes the command,
we run `spark-submit`.
"""

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ikebana.processor.spark import class_archive
from ikebana.processor.spark.child_processes import kill_session, signals_blocked
from ikebana.processor.spark.workers import network

if TYPE_CHECKING:
    from pyspark import SparkContext

    from ikebana.processor.spark.connection import JvmConnection


# Decision (the JVM is started directly): `spark-submit` is two shell scripts and a JVM that
# prints the command. A test compares both commands.

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

    def saved_log(self, error: Exception) -> str:
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
            with signals_blocked():
                kill_session(self._process)
                if self._connection is not None:
                    self._connection.forget()


def _spawned(
    options: Mapping[str, str], java: Path, address: Path, log: Path | None
) -> "subprocess.Popen[bytes]":
    """Start the JVM as pyspark does, but in a session of its own."""
    words, environment = command(options, java, os.environ)
    environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(address)
    with contextlib.ExitStack() as files:
        output = files.enter_context(log.open("ab")) if log is not None else None
        # A child inherits the blocked signals, and no signal can come before we have its handle.
        with signals_blocked():
            return subprocess.Popen(
                [*_IGNORING, *words],
                stdin=subprocess.PIPE,
                stderr=output,
                env=environment,
                start_new_session=True,
            )


# The packages of the JDK that pyspark 4.3.0 opens (its JavaModuleOptions), except those for
# vectors (jdk.incubator.vector), which only linear algebra uses.
_OPENED = {
    "java.base": (
        "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util "
        "java.util.concurrent java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs "
        "sun.security.action sun.util.calendar"
    ),
    "java.security.jgss": "sun.security.krb5",
}
_JAVA_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={module}/{package}=ALL-UNNAMED"
        for module, packages in _OPENED.items()
        for package in packages.split()
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
_MAIN = "org.apache.spark.deploy.SparkSubmit"
# Environment variables that change the JVM's command in ways that only spark-submit knows.
_OWN_SPARK = (
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DRIVER_MEMORY",
    "SPARK_PREPEND_CLASSES",
    # Additions to the class path, such as the jars for an object store.
    "SPARK_DIST_CLASSPATH",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
_OWN_OPTIONS = (
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.defaultJavaOptions",
)
# Files of a configuration folder that change the command too.
_OWN_FILES = ("spark-env.sh", "java-opts")
_DEFAULTS = "spark-defaults.conf"
_SETTING = re.compile(r"^[ \t]*([^#!\s=:][^\s=:]*)[ \t]*[=:]?[ \t]*(.*?)\s*$", re.MULTILINE)

# Without this limit, hundreds of short threads of Spark would each keep an arena of glibc.
_ARENAS = "2"


def command(
    options: Mapping[str, str], java: Path, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command for Spark's settings, and its environment."""
    home = _home(environ)
    # Other users of the machine see command lines; the secret comes with the context's settings.
    shown = {key: value for key, value in options.items() if not key.endswith(network.VARIABLE)}
    submit = [part for key, value in shown.items() for part in ("--conf", f"{key}={value}")]
    submit += shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environment = {**environ, "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0"}
    environment.setdefault("MALLOC_ARENA_MAX", _ARENAS)
    if why_indirect(options, environ) is not None:
        return [str(home / "bin" / "spark-submit"), *submit], environment
    environment |= {"SPARK_SCALA_VERSION": "2.13", "PYTHONHASHSEED": "0"}
    # An archive needs the jars first and in its own order.
    configuration = _configuration(environ)
    places = [class_archive.class_path(), *([str(configuration)] if configuration else [])]
    started = [
        str(java),
        *class_archive.flags(java),
        "-cp",
        os.pathsep.join(places),
        f"-Xmx{options['spark.driver.memory']}",
        *shlex.split(options.get("spark.driver.extraJavaOptions", "")),
        *_JAVA_OPTIONS,
        _MAIN,
    ]
    return [*started, *submit], environment


def why_indirect(options: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return why `spark-submit` has to start the JVM, without an archive; None if it need not.

    Memory and Java options of the driver in `spark-defaults.conf` do not matter: `options`
    override them.
    """
    if options["spark.master"].startswith("yarn"):
        return "the master is YARN"
    if options.get("spark.submit.deployMode", "client") != "client":
        return "spark.submit.deployMode is not client"
    if _home(environ).resolve() != class_archive.HOME.resolve():
        return "SPARK_HOME is another Spark than pyspark's"
    for name in _OWN_SPARK:
        if name in environ:
            return f"{name} is set"
    for name in _OWN_OPTIONS:
        if name in options:
            return f"{name} is set"
    folder = _configuration(environ)
    if folder is None:
        return None
    for name in _OWN_FILES:
        if (folder / name).exists():
            return f"{folder} has {name}"
    configured = defaults(environ)
    for name in _OWN_OPTIONS:
        if name in configured:
            return f"{folder / _DEFAULTS} sets {name}"
    return None


def defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of `spark-defaults.conf`, if Spark has a configuration folder."""
    folder = _configuration(environ)
    file = None if folder is None else folder / _DEFAULTS
    text = file.read_text() if file is not None and file.exists() else ""
    return dict(_SETTING.findall(text))


def _configuration(environ: Mapping[str, str]) -> Path | None:
    """Return Spark's configuration folder, if it exists."""
    folder = Path(environ.get("SPARK_CONF_DIR") or _home(environ) / "conf")
    return folder if folder.is_dir() else None


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SPARK_HOME") or class_archive.HOME)
