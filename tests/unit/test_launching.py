"""Spark's JVM is started as spark-submit would start it, and faster where we know how."""

import gzip
from pathlib import Path

import pytest

from ikebana.processor.spark import class_archive, launching

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
    command, environment = launching.command(OPTIONS, JAVA, {"PATH": "/bin"})

    submit = command.index("org.apache.spark.deploy.SparkSubmit")
    assert command[0] == "/usr/bin/java"
    assert {"-Xmx700m", "-XX:+UseSerialGC", "-Dsaid=two words"} < set(command[:submit])
    assert "spark.app.name=a name" in command[submit:]
    assert command[-1] == "pyspark-shell"
    assert environment == {
        "PATH": "/bin",
        "SPARK_HOME": str(launching.HOME),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_SCALA_VERSION": "2.13",
        "PYTHONHASHSEED": "0",
    }


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param({}, {"SPARK_HOME": "/opt/spark"}, id="another Spark"),
        pytest.param({}, {"SPARK_CONF_DIR": "/etc/spark"}, id="a configuration folder"),
        pytest.param({}, {"SPARK_DIST_CLASSPATH": "/opt/object-store/*"}, id="more jars"),
        pytest.param({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, id="settings of Hadoop's"),
        pytest.param({}, {"PYSPARK_SUBMIT_ARGS": "--jars a.jar pyspark-shell"}, id="arguments"),
        pytest.param({"spark.master": "k8s://here"}, {}, id="a cluster"),
        pytest.param({"spark.driver.extraClassPath": "/a.jar"}, {}, id="a class path"),
    ],
)
def test_anything_else_is_left_to_spark_submit(
    options: dict[str, str], environment: dict[str, str]
) -> None:
    """It knows what to do with them."""
    command, _ = launching.command(OPTIONS | options, JAVA, environment)

    assert command[0] == f"{environment.get('SPARK_HOME', launching.HOME)}/bin/spark-submit"
    assert command[-1] == "pyspark-shell"
    assert ("a.jar" in command) is ("PYSPARK_SUBMIT_ARGS" in environment)


def test_an_archive_is_used_when_it_is_there(cache: Path) -> None:
    """Its name is of the Java, the jars and the list; it lies in the cache folder."""
    archive = class_archive.path_for(JAVA)
    assert class_archive.flags(JAVA) == []

    archive.parent.mkdir()
    archive.touch()

    assert archive.parent == cache / "ikebana"
    assert class_archive.flags(JAVA)[0] == f"-XX:SharedArchiveFile={archive}"
    assert class_archive.path_for(Path("/usr/bin/env")) != archive
    command, _ = launching.command(OPTIONS, JAVA, {})
    assert command[1] == f"-XX:SharedArchiveFile={archive}"


def test_the_list_is_of_classes_of_spark() -> None:
    """By their names in the JVM, with what a run always needs."""
    names = gzip.decompress(class_archive.CLASSES.read_bytes()).decode().splitlines()

    assert len(names) > 10_000
    assert any(name.startswith("org/apache/spark/sql/SparkSession") for name in names)
