"""The few lines of Java that these tests need, compiled where there is a JDK."""

import os
import shutil
import subprocess
from pathlib import Path

from cdc.fetched import Unavailable, java

_SOURCES = Path(__file__).parent / "java"


def compiler() -> Path:
    """Raises: Unavailable, if there is no JDK."""
    beside = java().resolve().with_name("javac")
    if beside.exists():
        return beside
    if found := shutil.which("javac"):
        return Path(found)
    raise Unavailable("there is no JDK: no javac beside java or on PATH")


def compiled(name: str, folder: Path, class_path: str = "") -> Path:
    """The folder of the classes of a source file, in `folder`."""
    classes = folder / "classes"
    command = [str(compiler()), "--release", "17", "-nowarn", "-d", str(classes)]
    command += ["-cp", class_path or os.curdir, str(_SOURCES / f"{name}.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return classes
