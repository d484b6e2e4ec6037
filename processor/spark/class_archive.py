"""An archive of the classes of Spark's JVM, which halves the cost of its start.

Java calls this class data sharing: classes that are parsed and verified already are mapped into
memory.  An archive belongs to one Java and one set of jars, so its name has both.  It lies in
the cache folder.  A JVM that cannot use it starts without it.

`classes.txt.gz` lists the classes that a run loads; `bench/class_list.py` makes it.
"""

import contextlib
import functools
import gzip
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

from ikebana.processor.ground.cache import cache_folder

_JARS = Path(pyspark.__file__).parent / "jars"
CLASSES = Path(__file__).with_name("classes.txt.gz")
# The reasons why an archive cannot be used do not help the users of a pipeline.
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def class_path() -> str:
    """Return the class path of Spark's jars, in the same order for making and using archives."""
    return os.pathsep.join(str(jar) for jar in _jars())


def flags(java: Path) -> list[str]:
    """Return the flags with which a JVM uses the archive; none if there is no archive."""
    archive = path_for(java)
    return [f"-XX:SharedArchiveFile={archive}", *_SILENT] if archive.exists() else []


def path_for(java: Path) -> Path:
    """Return the path of the archive for this Java and these jars; it may not exist."""
    real = java.resolve()
    known = hashlib.sha256(CLASSES.read_bytes())
    for file in (real, real.parent.parent / "lib" / "modules", *_jars()):
        with contextlib.suppress(FileNotFoundError):
            found = file.stat()
            known.update(f"{file}:{found.st_size}:{found.st_mtime_ns}\n".encode())
    return cache_folder() / f"spark-{known.hexdigest()[:16]}.jsa"


def making(java: Path) -> "subprocess.Popen[bytes]":
    """Start a process that makes the archive; the archive exists if the process succeeds.

    It leads a session of its own, and takes half a minute of CPU time and 180 MB of disk.
    """
    archive = path_for(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="making-", dir=archive.parent)
    classes, unfinished = Path(folder) / "classes.txt", Path(folder) / archive.name
    classes.write_bytes(gzip.decompress(CLASSES.read_bytes()))
    dump = [
        str(java),
        "-Xshare:dump",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={unfinished}",
        "-XX:+UseSerialGC",
        *("-Xlog:disable", "-cp", class_path()),
    ]
    # Two processes at once make equal archives, and moving a file is atomic.
    script = '"$@" && mv "$MADE" "$ARCHIVE"; status=$?; rm -r "$FOLDER"; exit $status'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *dump],
        env={
            **os.environ,
            "MADE": str(unfinished),
            "ARCHIVE": str(archive),
            "FOLDER": folder,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@functools.cache
def _jars() -> tuple[Path, ...]:
    return tuple(sorted(_JARS.glob("*.jar")))
