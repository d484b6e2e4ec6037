"""Programs of peers in Java, compiled when they are needed."""

import os
import subprocess
from pathlib import Path

from ikebana.processor.base.machine import find_java


def compiled(source: Path, jars: Path, folder: Path) -> Path:
    """The folder of a program's classes, within a folder of the run's."""
    javac = find_java(os.environ).with_name("javac")
    classes = folder / "classes"
    subprocess.run([javac, "-d", classes, "-cp", f"{jars}/*", source], check=True, timeout=300)
    return classes
