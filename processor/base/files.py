"""Files of this machine: the cache folder, whole and private files, folders of packages."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

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
