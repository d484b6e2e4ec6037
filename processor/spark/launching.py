"""Build the command that starts Spark's JVM.

`spark-submit` runs two shell scripts, and a JVM that prints this command.  For pyspark's own
Spark as a client we know the command, and start the JVM ourselves, with an archive of its
classes if there is one.  With another Spark, or a configuration that changes the command, we run
`spark-submit`.
"""

# Decision (the JVM is started directly): `spark-submit` is two shell scripts and a JVM that
# prints the command. A test compares both commands.

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ikebana.processor.spark import class_archive
from ikebana.processor.spark.installed import HOME
from ikebana.processor.spark.workers import network

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
    if _home(environ).resolve() != HOME.resolve():
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
    return Path(environ.get("SPARK_HOME") or HOME)
