"""Formats of a shard's state: which manifests are read, and which are refused by name."""

from pathlib import Path

import pytest

from ikebana.arrangements.databases import LocalDatabases
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import FORMAT, READABLE, Manifest
from ikebana.arrangements.shard import opened
from ikebana.errors import StateFileError


def place(tmp_path: Path) -> tuple[Folder, LocalDatabases]:
    return Folder.at(str(tmp_path), "shards", "0000"), LocalDatabases(tmp_path / "local", "c")


@pytest.mark.parametrize("known", READABLE)
def test_state_of_a_known_format_is_read_and_goes_on_in_the_present_one(
    tmp_path: Path, known: int
) -> None:
    """A manifest of an older version is opened; what a batch changes makes one of this version."""
    with opened(*place(tmp_path), Manifest("c", 0, format=known)) as shard:
        shard.attempt(lambda store: store.put(b"k", b"v"))
        after = shard.commit(0, 10)

    assert after.format == FORMAT
    assert after.version == 1


def test_state_of_a_later_format_is_refused_by_its_number(tmp_path: Path) -> None:
    """What a later version has written is not guessed at."""
    later = Manifest("c", 0, format=FORMAT + 1)
    said = "its format is 4, this version reads 1 and 2 and 3"
    with pytest.raises(StateFileError, match=said), opened(*place(tmp_path), later):
        pass
