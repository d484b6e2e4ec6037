"""State files and the local database: what a crash, a late deletion or an old copy may not do."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Dropped, Manifest
from ikebana.arrangements.rocks import LocalDamageError, LocalDatabases
from ikebana.arrangements.run import EntryChange, Head, RunEntry
from ikebana.arrangements.shard import Shard, entries, opened
from ikebana.arrangements.store import Store
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder that has a file already, so that it is not made any more."""
    made = Folder.at(str(tmp_path), "checkpoint", "shards")
    made.write("first", ".run", [b"first"])
    return made


def test_a_file_is_durable_before_its_name_is_told(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R12. Written aside, synced, renamed, and then its folder is synced."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def synced(opened: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{opened}")))
        sync(opened)

    def renamed(source: str, target: str) -> None:
        done.append(("rename", target))
        rename(source, target)

    def pieces() -> Iterator[bytes]:
        yield b"half"
        # What is not whole has none of the names that anybody looks for.
        assert [name for name in folder.names() if not name.startswith(".")] == before
        yield b"whole"

    before = folder.names()
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    name, _ = folder.write("second", ".run", pieces())

    (first, aside), *rest = done
    assert first == "sync"
    assert os.path.basename(aside).startswith(".second-")
    assert rest == [("rename", f"{folder.path}/{name}"), ("sync", folder.path)]


def test_a_new_folder_is_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12. A synced file in a folder that a crash takes back is gone as well."""
    done = set()
    sync = os.fsync

    def synced(opened: int) -> None:
        done.add(os.readlink(f"/proc/self/fd/{opened}"))
        sync(opened)

    monkeypatch.setattr(os, "fsync", synced)
    folder = Folder.at(str(tmp_path), "a", "b")
    folder.write("first", ".run", [b"first"])

    assert {folder.path, str(tmp_path / "a"), str(tmp_path)} <= done


def long(key: int) -> EntryChange:
    """An entry that does not compress."""
    return key.to_bytes(4, "big"), os.urandom(1_000)


def test_fields_of_a_later_version_are_passed_over() -> None:
    """Of manifests and of the heads of runs, as long as the format is the same."""
    manifest = Manifest(
        "ours", 1, 2, [RunEntry("a.run", 0, 2, "s", 3, 4, 5, 6)], [Dropped(5, "b.run")]
    )
    plain = msgspec.to_builtins(manifest)
    plain["runs"][0]["later"] = plain["later"] = 7
    head = Head("ours", 1, 0, 2, ["r", "s"])
    later = msgspec.msgpack.encode({**msgspec.to_builtins(head), "later": 7})

    assert msgspec.convert(plain, Manifest) == manifest
    assert msgspec.msgpack.decode(later, type=Head) == head


def test_the_local_database_has_no_log(tmp_path: Path) -> None:
    """R12. A log that a crash has cut could be replayed onto a state that it does not follow."""
    database = LocalDatabases(tmp_path, "ours").open(0)
    database.apply([[long(at) for at in range(100)]], "state")

    logs = list(database.path.glob("*.log"))
    assert logs
    assert sum(log.stat().st_size for log in logs) == 0
    database.close()


def test_a_scan_of_a_damaged_block_does_not_end_early(tmp_path: Path) -> None:
    """Entries that cannot be read are no end of the entries."""
    databases = LocalDatabases(tmp_path, "ours")
    database = databases.open(0)
    database.apply([[long(at) for at in range(200)]], "state")
    database.close()
    (file,) = database.path.glob("*.sst")
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 16] = bytes(16)
    file.write_bytes(content)

    damaged = databases.open(0)
    read: list[tuple[bytes, bytes]] = []
    with pytest.raises(LocalDamageError):
        read.extend(damaged.scan(b""))
    assert len(read) < 200
    damaged.discard()


class Kept:
    """A shard that has run three batches, and files beside it."""

    def __init__(self, tmp_path: Path) -> None:
        self.files = Folder.at(str(tmp_path), "shards")
        self.local = LocalDatabases(tmp_path / "local", "ours")
        self.manifest = Manifest("ours", 0)
        for batch in range(3):
            self.manifest = self.committed(self.manifest, batch)

    def committed(self, manifest: Manifest, batch: int, retained: int = 3) -> Manifest:
        with opened(self.files, self.local, manifest) as shard:
            shard.attempt(lambda store: store.put(b"k", b"%d" % batch))
            return shard.commit(batch, retained)

    def put(self, upper: int, kind: str = "delta") -> str:
        stem = f"{upper:012d}-{upper - 1:012d}-{kind}"
        return self.files.write(stem, ".run", [b"a file"])[0]

    def cleaned(self, manifest: Manifest, batch: int, retained: int) -> set[str]:
        """What goes in a batch."""
        before = {*self.files.names()}
        with opened(self.files, self.local, manifest) as shard:
            shard.clean(batch, retained)
        return before - {*self.files.names()}


def test_a_file_goes_when_no_restorable_manifest_names_it(tmp_path: Path) -> None:
    """R12. Dropped in batch 5, it is named by manifests up to 4: batch 8 may not go back there."""
    kept = Kept(tmp_path)
    name = kept.put(1)
    manifest = replace(kept.manifest, dropped=[Dropped(5, name)])

    assert kept.cleaned(manifest, batch=7, retained=3) == set()
    assert kept.cleaned(manifest, batch=8, retained=3) == {name}


def test_a_drop_is_remembered_until_its_file_is_gone(tmp_path: Path) -> None:
    """R12. A manifest that forgot it earlier would leave the file for ever."""
    kept = Kept(tmp_path)
    manifest = replace(kept.manifest, dropped=[Dropped(5, kept.put(1))])

    remembered = [bool(kept.committed(manifest, batch, retained=3).dropped) for batch in (7, 8)]

    assert remembered == [True, False]


def test_orphans_go_that_end_before_the_base(tmp_path: Path) -> None:
    """R12. What ends at the base may be a rival's that is committed next."""
    kept = Kept(tmp_path)
    base = runs.write(kept.files, Head("ours", 0, 0, 5, ["state"]), [(b"k", b"1")], "base")
    before, at, behind = kept.put(4), kept.put(5), kept.put(9)
    due = kept.put(4, "run")
    manifest = Manifest("ours", 0, 5, [base], [Dropped(0, due)])

    gone = kept.cleaned(manifest, batch=9, retained=3)

    assert {before, due} <= gone
    assert {at, behind} <= {*kept.files.names()}


def test_a_base_brings_no_older_copy_up_to_date(tmp_path: Path) -> None:
    """A base names no deletions: what it lacks would stay in a copy from before."""
    files = Folder.at(str(tmp_path), "shards")
    local = LocalDatabases(tmp_path / "local", "ours")
    old = runs.write(files, Head("ours", 0, 0, 1, ["old"]), [(b"gone", b"1")], "delta")
    with opened(files, local, Manifest("ours", 0, 1, [old])):
        pass
    base = runs.write(files, Head("ours", 0, 0, 2, ["old", "new"]), [(b"k", b"2")], "base")

    with opened(files, local, Manifest("ours", 0, 2, [base])) as shard:
        assert scanned(shard) == [(b"k", b"2")]


def test_a_copy_that_another_process_gave_back_is_not_built_upon(tmp_path: Path) -> None:
    """R12. A stand-in is damaged while the shard's own folder is free, with an older state."""
    files = Folder.at(str(tmp_path), "shards")
    theirs = LocalDatabases(tmp_path / "local", "ours")
    ours = LocalDatabases(tmp_path / "local", "ours", 1)
    old = runs.write(files, Head("ours", 0, 0, 1, ["old"]), [(b"gone", b"1")], "delta")
    base = runs.write(files, Head("ours", 0, 0, 2, ["old", "new"]), [(b"k", b"2")], "base")
    # They hold the folder meanwhile, so we have one beside it.
    with (
        opened(files, theirs, Manifest("ours", 0, 1, [old])),
        opened(files, ours, Manifest("ours", 0, 2, [base])),
    ):
        pass

    def damaged_once(store: Store) -> list[tuple[bytes, bytes]]:
        if not met:
            met.append(True)
            raise LocalDamageError("a bit")
        return list(store.scan(b""))

    met: list[bool] = []
    with opened(files, ours, Manifest("ours", 0, 2, [base])) as shard:
        assert shard.attempt(damaged_once) == [(b"k", b"2")]


def scanned(shard: Shard) -> list[tuple[bytes, bytes]]:
    return shard.attempt(lambda store: list(store.scan(b"")))


def test_a_base_has_what_is_there_and_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    manifest = kept.manifest
    for batch in range(3, 10):
        with opened(kept.files, kept.local, manifest) as shard:
            shard.attempt(partial(_one_in_one_out, at=batch))
            manifest = shard.commit(batch, 3)

    assert [(run.lower, run.entries) for run in manifest.runs] == [(0, 2), (9, 2)]
    assert list(entries(kept.files, manifest)) == [(b"9", b"in"), (b"k", b"2")]


def _one_in_one_out(store: Store, at: int) -> None:
    store.put(b"%d" % at, b"in")
    store.delete(b"%d" % (at - 1))


def test_a_base_is_written_though_a_file_was_damaged_since_it_was_applied(tmp_path: Path) -> None:
    """The local database has what the file said."""
    kept = Kept(tmp_path)
    manifest = kept.manifest
    for batch in range(3, 9):
        manifest = kept.committed(manifest, batch)
    path = Path(kept.files.path) / manifest.runs[0].name
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    manifest = kept.committed(manifest, 9)

    assert [run.lower for run in manifest.runs] == [0, 9]
    assert list(entries(kept.files, manifest)) == [(b"k", b"9")]


def test_what_has_waited_does_not_stay_in_the_files(tmp_path: Path) -> None:
    """A hold that is emptied in the next batch: files are merged as soon as half of it is gone."""
    kept = Kept(tmp_path)
    manifest = kept.manifest
    draw = Random(3).randbytes
    for batch in range(4):
        rows = [KeyedUpdate(draw(8), draw(300), batch + 2, 1) for _ in range(1_000)]
        with opened(kept.files, kept.local, manifest) as shard:
            shard.attempt(partial(hold.step, updates=rows, upper=batch + 2))
            manifest = shard.commit(batch, 1)
    waiting = manifest.runs[-1].size

    assert manifest.size < 2.5 * waiting
