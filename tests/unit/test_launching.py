"""Spark's JVM is started as spark-submit would start it, and faster where we know how."""

import gzip
import os
import time
from pathlib import Path

import pytest

from ikebana.processor.spark import class_archive, jvm
from ikebana.processor.spark.class_archive import HOME
from ikebana.processor.spark.session import encrypts

OPTIONS = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dsaid='two words'",
    "spark.app.name": "a name",
}
JAVA = Path("/usr/bin/java")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with nothing in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_our_own_spark_is_started_by_java_itself() -> None:
    """Memory and options are the JVM's, all settings are SparkSubmit's."""
    command, environment = jvm.command(OPTIONS, JAVA, {"PATH": "/bin"})

    submit = command.index("org.apache.spark.deploy.SparkSubmit")
    assert command[0] == "/usr/bin/java"
    assert {"-Xmx700m", "-XX:+UseSerialGC", "-Dsaid=two words"} < set(command[:submit])
    assert "spark.app.name=a name" in command[submit:]
    assert command[-1] == "pyspark-shell"
    assert environment == {
        "PATH": "/bin",
        "SPARK_HOME": str(HOME),
        "SPARK_CONNECT_MODE": "0",
        "MALLOC_ARENA_MAX": "2",
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONHASHSEED": "0",
    }


def test_the_secret_of_a_run_is_in_no_command_line() -> None:
    """Other users of the machine see these; Spark's context has it from its settings."""
    options = {**OPTIONS, "spark.executorEnv.IKEBANA_SECRET": "of this run"}
    for environ in ({}, {"SPARK_HOME": "/opt/spark"}):
        command, environment = jvm.command(options, JAVA, environ)

        assert not [part for part in command if "of this run" in part]
        assert "of this run" not in environment.values()


def test_what_the_environment_says_of_memory_stays() -> None:
    """Whoever runs it may know better."""
    _, environment = jvm.command(OPTIONS, JAVA, {"MALLOC_ARENA_MAX": "8"})

    assert environment["MALLOC_ARENA_MAX"] == "8"


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param({}, {"SPARK_HOME": "/opt/spark"}, id="another Spark"),
        pytest.param({}, {"SPARK_DIST_CLASSPATH": "/opt/object-store/*"}, id="more jars"),
        pytest.param({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, id="settings of Hadoop's"),
        pytest.param({}, {"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"}, id="arguments"),
        pytest.param({"spark.master": "yarn"}, {}, id="a cluster that configures clients"),
        pytest.param({"spark.submit.deployMode": "cluster"}, {}, id="no client"),
        pytest.param({"spark.driver.extraClassPath": "/a.jar"}, {}, id="a class path"),
    ],
)
def test_anything_else_is_left_to_spark_submit(
    options: dict[str, str], environment: dict[str, str]
) -> None:
    """It knows what to do with them."""
    command, _ = jvm.command(OPTIONS | options, JAVA, environment)

    assert command[0] == f"{environment.get('SPARK_HOME', HOME)}/bin/spark-submit"
    assert command[-1] == "pyspark-shell"
    assert ("a.jar" in command) is ("PYSPARK_SUBMIT_ARGS" in environment)
    assert jvm.why_indirect(OPTIONS | options, environment)


@pytest.mark.parametrize("master", ["k8s://https://here", "spark://here:7077", "local"])
def test_a_client_of_a_cluster_is_started_by_java_too(master: str) -> None:
    """The class and its arguments are the same."""
    command, _ = jvm.command(OPTIONS | {"spark.master": master}, JAVA, {})

    assert command[0] == "/usr/bin/java"
    assert f"spark.master={master}" in command


def test_a_configuration_folder_stands_behind_the_jars(tmp_path: Path) -> None:
    """As in the image: an archive needs the jars first."""
    (tmp_path / "spark-defaults.conf").write_text("spark.executor.extraJavaOptions -Xint\n")

    command, environment = jvm.command(OPTIONS, JAVA, {"SPARK_CONF_DIR": str(tmp_path)})

    places = command[command.index("-cp") + 1]
    assert places == f"{class_archive.class_path()}:{tmp_path}"
    assert environment["SPARK_CONF_DIR"] == str(tmp_path)


def test_settings_are_read_from_a_configuration_folder(tmp_path: Path) -> None:
    """As Java reads properties: by spaces, `=` or `:`; what is encrypted may stand there only."""
    environ = {"SPARK_CONF_DIR": str(tmp_path)}
    assert jvm.defaults(environ) == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.a 1\n\n  spark.network.crypto.enabled   true  \nspark.b=x y\n"
        "spark.c : z\nspark.d\n"
    )

    settings = jvm.defaults(environ)

    assert settings == {
        "spark.network.crypto.enabled": "true",
        "spark.b": "x y",
        "spark.c": "z",
        "spark.d": "",
    }
    assert encrypts(settings)
    assert not encrypts({**settings, "spark.network.crypto.enabled": "false"})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("spark-env.sh", "export SPARK_DRIVER_MEMORY=9g"),
        ("java-opts", "-Xint"),
        ("spark-defaults.conf", "spark.driver.extraClassPath=/a.jar"),
        ("spark-defaults.conf", "a b\n spark.driver.defaultJavaOptions  -Xint"),
    ],
)
def test_a_configuration_of_the_drivers_command_is_left_to_spark_submit(
    tmp_path: Path, file: str, text: str
) -> None:
    """Spark's scripts read it."""
    (tmp_path / file).write_text(text)
    environ = {"SPARK_CONF_DIR": str(tmp_path)}

    command, _ = jvm.command(OPTIONS, JAVA, environ)

    assert command[0].endswith("spark-submit")
    assert str(tmp_path) in (jvm.why_indirect(OPTIONS, environ) or "")


def test_an_archive_is_used_when_it_is_there(cache: Path) -> None:
    """Its name is of the Java, the jars and the list; it lies in the cache folder."""
    archive = class_archive.path_for(JAVA)
    assert class_archive.flags(JAVA) == []

    archive.parent.mkdir()
    archive.touch()

    assert archive.parent == cache / "ikebana"
    assert class_archive.flags(JAVA)[0] == f"-XX:SharedArchiveFile={archive}"
    assert class_archive.path_for(Path("/usr/bin/env")) != archive
    command, _ = jvm.command(OPTIONS, JAVA, {})
    assert command[1] == f"-XX:SharedArchiveFile={archive}"
    assert class_archive.why_not(JAVA) == ""
    assert class_archive.why_not(Path("/usr/bin/env"))


def test_an_archive_of_the_installation_comes_first(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was made with an image serves all of its users, whatever they may write."""
    shared = tmp_path / "shared"
    monkeypatch.setattr(class_archive, "SHARED", shared)
    for archive in (class_archive.path_for(JAVA), class_archive.path_for(JAVA, shared)):
        archive.parent.mkdir()
        archive.touch()

    assert class_archive.existing(JAVA) == class_archive.path_for(JAVA, shared)
    assert class_archive.start_making_if_missing(JAVA, {}) is None


def test_fractions_of_seconds_make_no_other_archive(tmp_path: Path) -> None:
    """The layers of an image have whole seconds, and Java compares these."""
    java = java_that("exit 0", tmp_path)
    os.utime(java, ns=(0, 7_000_000_001))
    path = class_archive.path_for(java)

    os.utime(java, ns=(0, 7_000_000_000))

    assert class_archive.path_for(java) == path


def test_the_first_run_makes_it_once_for_all_that_end_at_a_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of the lowest priority writes it; the second run and the next one start none."""
    java = java_that(
        'for part in "$@"; do case $part in -XX:SharedArchiveFile=*) '
        'nice > "${part#*=}";; esac; done',
        tmp_path,
    )

    made = class_archive.start_making_if_missing(java, {})
    assert made is not None
    assert class_archive.start_making_if_missing(java, {}) is None
    assert made.wait(30) == 0

    assert class_archive.path_for(java).read_text() == f"{min(19, os.nice(0) + 19)}\n"
    assert class_archive.start_making_if_missing(java, {}) is None
    assert [file.name for file in (cache / "ikebana").iterdir()] == [
        class_archive.path_for(java).name
    ]


def test_what_cannot_be_made_is_tried_again_the_next_day(cache: Path, tmp_path: Path) -> None:
    """A failure is not told, and does not come with each run."""
    java = java_that("exit 3", tmp_path)

    made = class_archive.start_making_if_missing(java, {})
    assert made is not None
    assert made.wait(30) == 3
    assert class_archive.start_making_if_missing(java, {}) is None
    claimed = class_archive.path_for(java).with_suffix(".making")
    yesterday = time.time() - 25 * 3600
    os.utime(claimed, (yesterday, yesterday))

    again = class_archive.start_making_if_missing(java, {})
    assert again is not None
    assert again.wait(30) == 3


def test_it_can_be_forbidden_and_needs_a_cache_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment says so; a folder that cannot be made is no error."""
    java = java_that("exit 0", tmp_path)
    assert class_archive.start_making_if_missing(java, {class_archive.VARIABLE: "off"}) is None
    assert not (cache / "ikebana").exists()

    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert class_archive.start_making_if_missing(java, {}) is None


def test_an_archive_that_no_run_has_used_for_long_is_removed(cache: Path, tmp_path: Path) -> None:
    """A run marks the one that it uses."""
    java = java_that("exit 0", tmp_path)
    old = cache / "ikebana" / "spark-0123456789abcdef.jsa"
    used = class_archive.path_for(JAVA)
    used.parent.mkdir(parents=True)
    for file in (old, used):
        file.touch()
        os.utime(file, (0, 0))
    assert class_archive.flags(JAVA)

    made = class_archive.start_making_if_missing(java, {})
    assert made is not None
    made.wait(30)

    assert used.exists()
    assert not old.exists()


def java_that(does: str, folder: Path) -> Path:
    """A program in the place of Java."""
    program = folder / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    return program


def test_the_list_is_of_classes_of_spark() -> None:
    """By their names in the JVM, with what a run always needs."""
    names = gzip.decompress(class_archive.CLASSES.read_bytes()).decode().splitlines()

    assert len(names) > 10_000
    assert any(name.startswith("org/apache/spark/sql/SparkSession") for name in names)
