"""Every format that is stored or sent is written as its stored bytes say, and these are read.

`tests/golden/formats` has a file for each format.  Where one gets a field, give the sample in
`support.kept_formats` a value of it, and let `IKEBANA_GOLDEN=write pytest` with this file write
it anew; docs/recovery.md has the table of formats and of what refuses a newer one.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields, replace

from ikebana.arrangements.files import Folder
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import Shard
from ikebana.codecs.errors import DecodeError
from ikebana.errors import IkebanaError
from support.doc_blocks import ROOT
from support.kept_formats import HEAD, KEPT, MANIFEST, METADATA, PROGRESS, SNAPSHOT, Kept

GOLDEN = ROOT / "tests" / "golden" / "formats"
_IDS = [kept.name for kept in KEPT]
# What is compressed: other versions of the library may find fewer bytes.
COMPRESSED = {"run"}
# What is not read as it is written: messages of several kinds, and a record that nobody decodes.
READ_OTHERWISE = {
    "error-record": {
        "key": "TjE=",
        "offset": 7,
        "partition": 0,
        "reason": "the value is no JSON",
        "topic": "orders",
        "value": "ew==",
    },
}


@pytest.mark.parametrize("kept", KEPT, ids=_IDS)
def test_it_is_written_as_it_was(kept: Kept) -> None:
    """Byte for byte: whoever reads it may be of another version."""
    stored, written = GOLDEN / kept.name, kept.write(kept.sample)
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        stored.write_bytes(written)
    if kept.name in COMPRESSED:
        # The mark of the format, and what is read, are the same.
        assert written[:8] == stored.read_bytes()[:8]
    else:
        assert written == stored.read_bytes()


@pytest.mark.parametrize("kept", KEPT, ids=_IDS)
def test_it_is_read_as_what_was_written(kept: Kept) -> None:
    """Nothing is lost on the way."""
    expected = READ_OTHERWISE.get(kept.name, kept.sample)
    assert kept.read((GOLDEN / kept.name).read_bytes()) == expected


def _whole(value: Any, path: str) -> list[str]:
    """The fields of a sample that have their defaults, and so would not be noticed."""
    missing = []
    for field in fields(value):
        found = getattr(value, field.name)
        if field.default is not msgspec.NODEFAULT and found == field.default:
            missing.append(f"{path}.{field.name}")
        if field.default_factory is not msgspec.NODEFAULT and found == field.default_factory():
            missing.append(f"{path}.{field.name}")
    return missing


@pytest.mark.parametrize("kept", KEPT, ids=_IDS)
def test_the_sample_has_a_value_of_each_field(kept: Kept) -> None:
    """So that a field that is added makes this fail, until it is stored."""
    if isinstance(kept.sample, msgspec.Struct):
        # These say which form it is.
        missing = [path for path in _whole(kept.sample, "") if path not in (".version", ".format")]
        assert missing == []


NEWER: list[tuple[str, Callable[[Path], object], str]] = [
    (
        "metadata",
        lambda _: _kept("metadata").read(_kept("metadata").write(replace(METADATA, format=9))),
        r"has format 9, this version of ikebana reads 1\n",
    ),
    (
        # Of which nothing else is known.
        "metadata of another kind",
        lambda _: _kept("metadata").read(b'{"format":9,"plan":"compiled"}'),
        r"has format 9, this version of ikebana reads 1\n",
    ),
    (
        "manifest",
        lambda folder: Shard(
            Folder.at(str(folder), "shards"),
            LocalDatabases(folder, "ours"),
            replace(MANIFEST, format=9),
        ),
        r"cannot read shard 1 of checkpoint c0ffee: its format is 9, this version reads 1\n",
    ),
    (
        "run",
        lambda _: _kept("run").read(b"ikebana\x09" + _kept("run").write((HEAD, []))[8:]),
        r"it does not begin as a run of this format",
    ),
    (
        "progress-record",
        lambda _: _kept("progress-record").read(replace(PROGRESS, version=9).encode()),
        r"version 9 is not 1",
    ),
    (
        "snapshot-record",
        lambda _: _kept("snapshot-record").read(replace(SNAPSHOT, version=9).encode()),
        r"version 9 is not 1",
    ),
]


def _kept(name: str) -> Kept:
    return next(kept for kept in KEPT if kept.name == name)


@pytest.mark.parametrize(("name", "read", "told"), NEWER, ids=[name for name, *_ in NEWER])
def test_a_newer_form_is_refused_by_its_name(
    name: str, read: Callable[[Path], object], told: str, tmp_path: Path
) -> None:
    """Before anything of it is used; each message says what was found and what is read."""
    with pytest.raises((IkebanaError, DecodeError)) as refused:
        read(tmp_path)
    assert re.search(told, str(refused.value)), name


def test_a_local_database_is_a_cache_under_keys_of_its_own(tmp_path: Path) -> None:
    """`e` before each entry's key, and the state's id beside them."""
    databases = LocalDatabases(tmp_path, "ours")
    opened = databases.open(0)
    opened.apply([[(b"k", b"v")]], "state-1")
    try:
        found = {key: opened._database.get(key) for key in (b"ek", b"\x00state")}
        assert found == {b"ek": b"v", b"\x00state": b"state-1"}
    finally:
        opened.close()


def test_each_format_is_in_the_table_of_the_documentation() -> None:
    """With where its form is named, and what becomes of a newer one."""
    text = (ROOT / "docs" / "recovery.md").read_text()
    section = text.split("\n### Formats and their versions\n")[1].split("\n## ")[0]
    told = set(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE))
    assert {kept.name for kept in KEPT} - told == set()
