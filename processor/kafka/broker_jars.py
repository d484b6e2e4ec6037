"""Fetch the jars of the embedded broker once, into a cache folder.

Ivy, which pyspark bundles, fetches them; pyspark itself is not imported.
"""

import fcntl
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ikebana.errors import BrokerError
from ikebana.processor.base.machine import cache_folder, folder_of

KAFKA_VERSION = "4.2.1"
_FETCH_TIMEOUT_S = 900

# Kafka logs through slf4j, whose binding is part of Kafka's archive but not of its
# published dependencies.
_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ikebana" module="broker"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"
                conf="default"/>
  </dependencies>
</ivy-module>
"""


def jars_folder() -> Path:
    """Return the cache folder of the broker's jars."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def jars_fetched() -> bool:
    """Return whether the jars of the broker are in the cache already."""
    return jars_folder().is_dir()


def jars(java: Path) -> Path:
    """Return the folder of Kafka's jars; the first call fetches them.

    The fetch takes half a minute and 44 MB.

    Raises:
        BrokerError: the jars could not be fetched; the message names Ivy's log.
    """
    return fetched_once(jars_folder(), lambda private, log_file: _fetch(java, private, log_file))


def fetched_once(folder: Path, fetch: Callable[[Path, Path], None]) -> Path:
    """Return `folder`; if it does not exist yet, `fetch` makes its content.

    `fetch(private, log_file)` puts the content into `lib` in a private folder.  `folder` appears
    complete or not at all.  If two processes call this at once, one fetches and the other waits.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(
                dir=folder.parent, prefix=f"{folder.name}-", ignore_cleanup_errors=True
            ) as private:
                fetch(Path(private), folder.with_name(f"{folder.name}-ivy.log"))
                (Path(private) / "lib").rename(folder)
    return folder


def retrieve(
    java: Path,
    ivy_file: str,
    folder: Path,
    log_file: Path,
    timeout_s: float,
    *,
    # "bundle" is what Maven calls a jar with OSGi headers, such as scala-logging.
    types: Sequence[str] = ("jar", "bundle"),
) -> int | None:
    """Run Ivy on a file, into `lib`; return its exit status, or None after a timeout."""
    (folder / "ivy.xml").write_text(ivy_file)
    command = [
        *(str(java), "-cp", str(ivy()), "org.apache.ivy.Main"),
        *("-ivy", "ivy.xml", "-confs", "default"),
        *("-types", *types),
        *("-retrieve", "lib/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with log_file.open("wb") as log:
        try:
            return subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=timeout_s,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def _fetch(java: Path, folder: Path, log_file: Path) -> None:
    status = retrieve(java, _IVY_FILE, folder, log_file, _FETCH_TIMEOUT_S)
    if status != 0 or not (folder / "lib" / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        fact = (
            f"Ivy did not end within {_FETCH_TIMEOUT_S} s"
            if status is None
            else f"Ivy ended with status {status}"
        )
        raise BrokerError(
            f"could not fetch the jars of Kafka {KAFKA_VERSION}: {fact}; "
            f"the end of {log_file}:\n{end_of_log(log_file)}",
            hint="Check that Maven Central can be reached, then try again; "
            "this is needed only once.",
        )


def ivy() -> Path:
    """Return the path of Ivy's jar, which is bundled with pyspark."""
    pyspark = folder_of("pyspark")
    if pyspark is None:
        raise BrokerError("cannot find Ivy: pyspark is not installed", hint="Install pyspark.")
    folder = pyspark / "jars"
    matching = sorted(folder.glob("ivy-*.jar"))
    if not matching:
        raise BrokerError(f'cannot find Ivy: no ivy-*.jar in "{folder}"', hint="Install pyspark.")
    return matching[-1]


def end_of_log(log_file: Path) -> str:
    """Return the last informative lines of a log, indented."""
    # Frames of Java stack traces would push out the informative lines.
    lines = [
        line
        for line in log_file.read_text(errors="replace").splitlines()
        if line.strip() and not re.match(r"\s+(at |\.\.\. )", line)
    ]
    return "\n".join(f"  {line}" for line in lines[-8:]) or "  (empty)"
