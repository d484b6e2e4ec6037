"""Folders of this machine."""

import tempfile
from pathlib import Path

# Enough for a log and a table of a small database.
_SOME = 16 << 20


def private_folder(path: Path) -> None:
    """Make a folder that only its owner may read; an existing one stays unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def has_space(folder: Path) -> bool:
    """Whether the disk of a folder has room for some megabytes; it is tried."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_SOME))
            file.flush()
    except OSError:
        return False
    return True
