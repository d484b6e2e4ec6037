"""Small file systems in memory, which can be full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from chaos.runs import Wrong


@contextmanager
def small(folder: Path, megabytes: int) -> Iterator[None]:
    """Mount a small file system in memory at a folder, where this process may do that."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=False)


@contextmanager
def small_disks(folder: Path) -> Iterator[None]:
    """Small file systems for the checkpoint and the local databases in a folder."""
    with ExitStack() as stack:
        for name in ("checkpoint", "local"):
            stack.enter_context(small(folder / name, 96))
        yield


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Fill the file system of a folder to the last byte for the length of a `with` block."""
    if not os.path.ismount(folder):
        raise Wrong(f"{folder} is no file system of its own: mounting one needs root")
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
        yield
    finally:
        ballast.unlink()
