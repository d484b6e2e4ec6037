"""Folders of this machine."""

from pathlib import Path


def private_folder(path: Path) -> None:
    """Make a folder into which nobody but its owner may look; one that is there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
