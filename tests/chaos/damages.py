"""Damage of files, and old copies of folders in the place of new ones."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol


class Chooses(Protocol):
    """What decides which damage is done, and remembers it."""

    folder: Path
    choice: Random
    did: list[str]


def _halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _emptied(_: bytes) -> bytes:
    return b""


def _torn(content: bytes) -> bytes:
    """The end is of zeros, as where a file's length is durable and its content is not."""
    keep = len(content) // 2
    return content[:keep] + bytes(len(content) - keep)


# How a file may be changed; None means that it is gone.
_DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "truncated": _halved,
    "emptied": _emptied,
    "torn": _torn,
    "flipped": None,
    "deleted": None,
}


class Damage:
    """Damages one file; `mend` puts back what nobody has written anew since."""

    def __init__(self, life: Chooses, path: Path) -> None:
        how = life.choice.choice(list(_DAMAGES))
        self._path = path
        self._before = path.read_bytes()
        self._after: bytes | None = None
        if how == "flipped" and self._before:
            bit = life.choice.randrange(len(self._before) * 8)
            changed = bytearray(self._before)
            changed[bit // 8] ^= 1 << bit % 8
            self._after = bytes(changed)
            how = f"bit {bit} flipped"
        elif (change := _DAMAGES[how]) is not None:
            self._after = change(self._before)
        if self._after is None:
            path.unlink()
        else:
            path.write_bytes(self._after)
        life.did.append(f"{path.relative_to(life.folder)} {how}")

    def mend(self) -> None:
        now = self._path.read_bytes() if self._path.exists() else None
        if now == self._after and self._path.parent.is_dir():
            self._path.write_bytes(self._before)


def empty(place: Path) -> None:
    """Remove what a folder holds; the folder itself may be where a file system begins."""
    for path in place.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def put(copy: Path, place: Path) -> None:
    """Replace what a folder holds."""
    empty(place)
    shutil.copytree(copy, place, dirs_exist_ok=True)
    shutil.rmtree(copy)
