"""Which Java is used, and what is said when there is none that will do."""

from pathlib import Path

import pytest

from ikebana.errors import JavaError
from ikebana.processor.base.machine import find_java, java_version


def printing(text: str) -> str:
    """A script that prints this on stderr, as Java prints its version."""
    return f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{text}\nEND\n"


def fake_java(folder: Path, script: str) -> Path:
    """Write a `java` that is this script."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(script)
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        pytest.param('openjdk version "17.0.15" 2025-04-15', 17, id="openjdk"),
        pytest.param('java version "21" 2023-09-19 LTS', 21, id="one number"),
        pytest.param('openjdk version "25-ea" 2025-09-16', 25, id="early access"),
        pytest.param('java version "1.8.0_402"', 8, id="up to 8 the second number counts"),
        pytest.param('openjdk version "11.0.22" 2024-01-16', 11, id="too old"),
        pytest.param(
            'Picked up JAVA_TOOL_OPTIONS: -Da="1"\nopenjdk version "17.0.1"', 17, id="options"
        ),
        pytest.param("Unable to locate a Java Runtime.", None, id="stub of macOS"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_java_version_is_the_major_version(printed: str, expected: int | None) -> None:
    """The major version is read from all the forms that Javas have printed."""
    assert java_version(printed) == expected


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    """JAVA_HOME names the Java even when PATH has another one."""
    expected = fake_java(tmp_path / "home" / "bin", printing('openjdk version "21.0.1"'))
    fake_java(tmp_path / "path", printing('openjdk version "17.0.1"'))
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")}

    assert find_java(environ) == expected


def test_path_is_searched_without_java_home(tmp_path: Path) -> None:
    """Without JAVA_HOME, or with an empty one, the first java of PATH is used."""
    expected = fake_java(tmp_path / "path", printing('openjdk version "17.0.1"'))

    assert find_java({"PATH": str(tmp_path / "path")}) == expected
    assert find_java({"JAVA_HOME": "", "PATH": str(tmp_path / "path")}) == expected


def test_missing_java_says_what_to_install(tmp_path: Path) -> None:
    """Without any Java the message names both places and the version to install."""
    with pytest.raises(JavaError) as raised:
        find_java({"PATH": str(tmp_path)})

    assert str(raised.value) == (
        "cannot find Java: JAVA_HOME is not set and PATH has no java\n"
        "Hint: Install Java 17 or newer and point JAVA_HOME to it."
    )


def test_java_home_without_java_is_refused(tmp_path: Path) -> None:
    """A JAVA_HOME that holds no java is named, not passed over."""
    fake_java(tmp_path / "path", printing('openjdk version "17.0.1"'))
    environ = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path / "path")}

    with pytest.raises(JavaError) as raised:
        find_java(environ)

    assert f'JAVA_HOME "{tmp_path / "gone"}" has no bin/java' in str(raised.value)
    assert raised.value.hint is not None


@pytest.mark.parametrize(
    ("script", "refusal"),
    [
        pytest.param(
            printing('java version "1.8.0_402"'),
            'cannot use Java "{java}": it is version 8, and Kafka and Spark need 17\n'
            "Hint: Install Java 17 or newer and point JAVA_HOME to it.",
            id="too old: by its version and the one that is needed",
        ),
        pytest.param(
            printing("Unable to locate a Java Runtime."),
            'cannot tell the version of Java "{java}": '
            "it printed 'Unable to locate a Java Runtime.'\n"
            "Hint: Install Java 17 or newer and point JAVA_HOME to it.",
            id="no version: with what it printed",
        ),
        pytest.param(
            "#!/bin/sh\nkill -9 $$\n",
            'cannot tell the version of Java "{java}": it was killed by signal 9\n'
            "Hint: Start again.",
            id="killed: it is not told to be a Java that will not do",
        ),
    ],
)
def test_a_java_that_cannot_be_used_is_refused(tmp_path: Path, script: str, refusal: str) -> None:
    """By its path."""
    java = fake_java(tmp_path, script)

    with pytest.raises(JavaError) as raised:
        find_java({"PATH": str(tmp_path)})

    assert str(raised.value) == refusal.format(java=java)
