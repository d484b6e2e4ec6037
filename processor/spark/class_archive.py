"""An archive of the classes of Spark's JVM, which halves the cost of its start.

Java calls this class data sharing: classes that are parsed and verified already are mapped into
memory.  An archive belongs to one Java and one set of jars, so its name depends on both.  It is in
the cache folder of a user, or of the installation.  A JVM that cannot use it starts without it.

The first run on a machine makes it when Spark has ended, in a process of the lowest priority
that outlives the run by about a minute; `ikebana prepare` makes it at once, and with `--shared`
for all users of the installation, as when an image is built.

`classes.txt.gz` lists the classes that a run loads; `bench/class_list.py` makes it.

    python -m ikebana.processor.spark.class_archive JAVA

prints the class path, and then a line for each flag, with which an executor's JVM uses it.
"""

# Decision (an archive of classes): The first run makes it when Spark has ended, so it takes no
# processor from the run. Scala's lambdas are not in it: Java 17 archives only those that
# `metafactory` makes.

import contextlib
import functools
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ikebana.processor.base.machine import cache_folder, folder_of

_folder = folder_of("pyspark")
assert _folder is not None, "pyspark is installed with ikebana"
HOME = _folder
"""The folder of the Spark within pyspark."""
_JARS = HOME / "jars"
SHARED = Path(sys.prefix) / "share" / "ikebana"
"""The folder of the installation, for all its users; it may not exist."""
CLASSES = Path(__file__).with_name("classes.txt.gz")
# The reasons why an archive cannot be used do not help the users of a pipeline.
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
# The environment variable that keeps runs from making an archive: "off".
VARIABLE = "IKEBANA_CLASS_ARCHIVE"
_ROOM = 500_000_000
_FORGOTTEN_AFTER_S = 90 * 86_400.0
# After this time an unfinished attempt to make an archive counts as failed, and is repeated.
_FAILED_AFTER_S = 86_400.0


def class_path() -> str:
    """Return the class path of Spark's jars, in the same order for making and using archives."""
    return os.pathsep.join(str(jar) for jar in _jars())


def flags(java: Path) -> list[str]:
    """Return the flags with which a JVM uses the archive; none if there is no archive."""
    archive = existing(java)
    if archive is None:
        return []
    with contextlib.suppress(OSError):
        # Archives that were not used for long are removed by this time.
        os.utime(archive)
    return [f"-XX:SharedArchiveFile={archive}", *_SILENT]


def existing(java: Path) -> Path | None:
    """Return the archive for this Java and these jars, if there is one."""
    paths = (path_for(java, SHARED), path_for(java))
    return next((path for path in paths if path.exists()), None)


def why_not(java: Path) -> str:
    """Return why a run starts without an archive; an empty text if it has one."""
    return "" if existing(java) else "there is none yet: `ikebana prepare` makes it"


def path_for(java: Path, folder: Path | None = None) -> Path:
    """Return the path of the archive for this Java and these jars; it may not exist.

    It is one in `folder`, by default the user's cache folder.
    """
    real = java.resolve()
    digest = hashlib.sha256(CLASSES.read_bytes())
    for file in (real, real.parent.parent / "lib" / "modules", *_jars()):
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            # Java compares whole seconds too: an image's layers have no others.
            digest.update(f"{file}:{status.st_size}:{int(status.st_mtime)}\n".encode())
    return (folder or cache_folder()) / f"spark-{digest.hexdigest()[:16]}.jsa"


def start_making_if_missing(
    java: Path, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes] | None":
    """Start a process of low priority that makes the archive, if there is none.

    One process makes it, even if several runs end at the same time.  A failure is silent, and the
    next attempt is made a day later.
    """
    if environ.get(VARIABLE) == "off":
        return None
    archive = path_for(java)
    claimed = archive.with_suffix(".making")
    try:
        if existing(java) or not _claimed(claimed):
            return None
        _remove_forgotten(archive.parent)
        if shutil.disk_usage(archive.parent).free < _ROOM:
            return None
        return _making(java, archive, claimed, ("nice", "-n", "19"))
    except OSError:
        return None


def start_making(java: Path, archive: Path) -> "subprocess.Popen[bytes]":
    """Start a process that makes an archive; the archive exists if the process succeeds.

    It leads a session of its own, and takes half a minute of CPU time and 180 MB of disk.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    _remove_forgotten(archive.parent)
    folder = tempfile.mkdtemp(prefix="making-", dir=archive.parent)
    return _making(java, archive, Path(folder), ())


def _claimed(folder: Path) -> bool:
    """Make the folder that marks an attempt; return whether no other process has made it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if time.time() - folder.stat().st_mtime > _FAILED_AFTER_S:
            shutil.rmtree(folder)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _remove_forgotten(cache: Path) -> None:
    """Remove the archives that no run has used for three months: of an earlier Java or Spark."""
    for old in cache.glob("spark-*.jsa"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _FORGOTTEN_AFTER_S:
                old.unlink()


def _making(
    java: Path, archive: Path, folder: Path, before: tuple[str, ...]
) -> "subprocess.Popen[bytes]":
    """Start making an archive in `folder`, by a command that begins with `before`."""
    classes, unfinished = folder / "classes.txt", folder / archive.name
    classes.write_bytes(gzip.decompress(CLASSES.read_bytes()))
    dump = [
        *before,
        str(java),
        "-Xshare:dump",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={unfinished}",
        "-XX:+UseSerialGC",
        *("-Xlog:disable", "-cp", class_path()),
    ]
    # Two processes at once make equal archives, and moving a file is atomic.  A failure in the
    # background leaves the folder, which marks the attempt.
    script = '"$@" && mv "$MADE" "$ARCHIVE"; status=$?; rm -f "$MADE" "$CLASSES"; '
    script += '[ $status != 0 ] && [ -n "$KEPT" ] || rm -rf "$FOLDER"; exit $status'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *dump],
        env={
            **os.environ,
            "MADE": str(unfinished),
            "ARCHIVE": str(archive),
            "CLASSES": str(classes),
            "FOLDER": str(folder),
            "KEPT": "yes" if before else "",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@functools.cache
def _jars() -> tuple[Path, ...]:
    return tuple(sorted(_JARS.glob("*.jar")))


if __name__ == "__main__":
    print(class_path(), *flags(Path(sys.argv[1])), sep="\n")
