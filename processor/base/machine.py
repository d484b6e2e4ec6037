"""What ikebana needs of its machine: a cache folder, whole and private files, packages, a Java."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ikebana.errors import JavaError

_OTHERS = 0o077


def cache_folder() -> Path:
    """Return this user's folder of broker jars and class archives, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "ikebana"


def write_whole(file: Path, content: bytes) -> None:
    """Write a file atomically: readers see a whole file or none, also with several writers."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def private_files() -> Iterator[None]:
    """Let only the owner access new files of this process and its children.

    An existing folder may be open to others; our files in it are not.  Other restrictions of the
    process's umask stay.
    """
    before = os.umask(_OTHERS)
    os.umask(before | _OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def folder_of(package: str) -> Path | None:
    """Find the folder of a package; None if it is not installed.

    The package is not imported, which may take a second.
    """
    spec = find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


_OLDEST_JAVA = 17


def find_java(environ: Mapping[str, str]) -> Path:
    """Find the `java` of JAVA_HOME, or else of PATH, and check its version, as `java_of` does."""
    return java_of(environ)[0]


def java_of(environ: Mapping[str, str]) -> tuple[Path, int]:
    """Find the `java` of JAVA_HOME, or else of PATH, and its version.

    A JAVA_HOME without a `java` is an error, because Spark would fail on it as well.

    Raises:
        JavaError: there is none, or it is older than Java 17.
    """
    hint = f"Install Java {_OLDEST_JAVA} or newer and point JAVA_HOME to it."
    if home := environ.get("JAVA_HOME"):
        command = shutil.which("java", path=str(Path(home) / "bin"))
        if command is None:
            raise JavaError(f'cannot find Java: JAVA_HOME "{home}" has no bin/java', hint=hint)
    else:
        command = shutil.which("java", path=environ.get("PATH", ""))
        if command is None:
            raise JavaError(
                "cannot find Java: JAVA_HOME is not set and PATH has no java", hint=hint
            )
    java = Path(command).absolute()
    return java, _version_of(java, environ, hint)


def _version_of(java: Path, environ: Mapping[str, str], hint: str) -> int:
    try:
        asked = subprocess.run(
            [java, "-version"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise JavaError(f'cannot run Java "{java}": {err}', hint=hint) from err
    printed = asked.stdout.decode(errors="replace")
    version = java_version(printed)
    if version is None and asked.returncode < 0:
        raise JavaError(
            f'cannot tell the version of Java "{java}": it was killed by signal '
            f"{-asked.returncode}",
            hint="Start again.",
        )
    if version is None:
        raise JavaError(
            f'cannot tell the version of Java "{java}": it printed {printed.strip()[:300]!r}',
            hint=hint,
        )
    if version < _OLDEST_JAVA:
        raise JavaError(
            f'cannot use Java "{java}": it is version {version}, and Kafka and Spark need '
            f"{_OLDEST_JAVA}",
            hint=hint,
        )
    return version


def java_version(printed: str) -> int | None:
    """Read the major version from the output of `java -version`; None if it has none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> java_version('java version "1.8.0_402"')
    8
    """
    # Up to Java 8 the major version was the second number.
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(match[1]) if match else None
