"""Build the command that starts Spark's JVM.

`spark-submit` runs two shell scripts, and a JVM that prints this command.  For pyspark's own
Spark with a local master we know the command, and start the JVM ourselves, with an archive of
its classes if there is one.  With another Spark or a configuration folder, we run `spark-submit`.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from ikebana.processor.spark import class_archive
from ikebana.processor.spark.installed import HOME

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
    "SPARK_CONF_DIR",
    "SPARK_SUBMIT_OPTS",
    "SPARK_DRIVER_MEMORY",
    "SPARK_PREPEND_CLASSES",
    # Additions to the class path, such as the jars for an object store.
    "SPARK_DIST_CLASSPATH",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)
_OWN_OPTIONS = ("spark.driver.extraClassPath", "spark.driver.extraLibraryPath")

# Hundreds of short threads of Spark's would each leave their part of glibc's memory as it is.
_ARENAS = "2"


def command(
    options: Mapping[str, str], java: Path, environ: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command for Spark's settings, and its environment."""
    home = _home(environ)
    submit = [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
    submit += shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    environment = {**environ, "SPARK_HOME": str(home), "SPARK_CONNECT_MODE": "0"}
    environment.setdefault("MALLOC_ARENA_MAX", _ARENAS)
    if not is_direct(options, environ):
        return [str(home / "bin" / "spark-submit"), *submit], environment
    environment |= {"SPARK_SCALA_VERSION": "2.13", "PYTHONHASHSEED": "0"}
    started = [
        str(java),
        *class_archive.flags(java),
        "-cp",
        class_archive.class_path(),
        f"-Xmx{options['spark.driver.memory']}",
        *shlex.split(options.get("spark.driver.extraJavaOptions", "")),
        *shlex.split(options.get("spark.driver.defaultJavaOptions", "")),
        *_JAVA_OPTIONS,
        _MAIN,
    ]
    return [*started, *submit], environment


def is_direct(options: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether the JVM is started without `spark-submit`, and from an archive if there is one."""
    home = _home(environ)
    return (
        options["spark.master"].startswith("local")
        and home.resolve() == HOME.resolve()
        and not (home / "conf").exists()
        and "PYSPARK_SUBMIT_ARGS" not in environ
        and not any(name in environ for name in _OWN_SPARK)
        and not any(name in options for name in _OWN_OPTIONS)
    )


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SPARK_HOME") or HOME)
