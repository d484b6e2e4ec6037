"""A shard is exactly at its committed version, whatever happens to attempts and files.

The model is what Spark would keep: the committed manifest, and the dict that it stands
for.  Batches are attempted, crash between any two steps, are tried again, and go on in
the hands of workers that have been given up; local folders are lost, put back, damaged
and locked; state files are damaged.  None of it may show in what is read.

Set IKEBANA_HYPOTHESIS=thorough for many more examples.  All of it is syncing files: where
TMPDIR is in memory it runs many times faster.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyarrow import fs

from ikebana.arrangements import manifest as manifests
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabase, LocalDatabases
from ikebana.arrangements.shard import Shard, entries, opened, verify
from ikebana.arrangements.store import Store
from ikebana.errors import StateFileError

RETAINED = 3
MERGE_WIDTH = 3
SHARD = 7
KEYS = [b"", b"\x00", b"\xff", b"\xff\xff", *(b"key %d" % number for number in range(8))]
# The last host keeps its database open between batches.
HOSTS = 3
*CLOSING, KEEPING = range(HOSTS)
# Above this many files beside those that a restorable manifest names, some are forgotten.
FEW_ORPHANS = 60

Entries = dict[bytes, bytes]
Changes = dict[bytes, bytes | None]

_long = st.binary(min_size=1, max_size=2).map(lambda seed: seed * 2000)
_changes = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.binary(max_size=3) | _long, min_size=1, max_size=6
)
_hosts = st.integers(0, HOSTS - 1)
_crashes = st.integers(0, 12)
_batches = st.lists(_changes, min_size=1, max_size=5)


class CrashError(Exception):
    """The attempt ends here."""


class CrashingFolder:
    """A folder in which a step may be the last: before and after writes, pieces, deletes."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        # How many steps are left; None means that nothing crashes.
        self.left: int | None = None
        # A process that is killed cannot remove what it was about to write.
        self.killing = False

    def write(self, stem: str, suffix: str, pieces: Iterable[bytes]) -> tuple[str, int]:
        self._step()
        try:
            written = self._folder.write(stem, suffix, self._stepping(pieces))
        except CrashError:
            if self.killing:
                left_behind = Path(self._folder.path) / f".{stem}-{'0' * 32}{suffix}"
                left_behind.write_bytes(b"some of it")
            raise
        self._step()
        return written

    def read(self, name: str) -> Iterator[bytes]:
        self._step()
        return self._folder.read(name)

    def names(self) -> list[str]:
        return self._folder.names()

    def delete(self, name: str) -> None:
        self._step()
        self._folder.delete(name)
        self._step()

    def _stepping(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._step()
            yield piece

    def _step(self) -> None:
        if self.left is None:
            return
        if self.left == 0:
            raise CrashError
        self.left -= 1


@dataclass(frozen=True)
class Damage:
    """What is done to a file; the numbers are taken modulo what there is."""

    file: int
    place: int
    how: str

    def of(self, content: bytes) -> bytes:
        at = self.place % max(1, len(content))
        match self.how:
            case "emptied":
                return b""
            case "cut":
                return content[:at]
            case "cut at the end":
                return content[: -1 - self.place % 40]
            case _:
                damaged = bytearray(content)
                flips = 1 if self.how == "a bit" else 8
                # A set: what is flipped twice is whole again.
                for place in {(at + 97 * flip) % max(1, len(content)) for flip in range(flips)}:
                    damaged[place : place + 1] = bytes(
                        byte ^ 1 << self.place % 8 for byte in damaged[place : place + 1]
                    )
                return bytes(damaged)


_damages = st.builds(
    Damage,
    st.integers(0, 50),
    st.integers(0, 100_000),
    st.sampled_from(["a bit", "several bits", "cut", "cut at the end", "emptied"]),
)


@dataclass(frozen=True)
class Zombie:
    """A worker that was given up and does not know."""

    shard: Shard
    host: int
    batch: int
    expected: Entries


def change(store: Store, changes: Changes) -> None:
    for key, value in changes.items():
        if value is None:
            store.delete(key)
        else:
            store.put(key, value)


def weighty(batch: int) -> Changes:
    """Entries that are long, and as long when compressed."""
    return {key: hashlib.shake_256(b"%d %s" % (batch, key)).digest(2000) for key in KEYS}


def changed(before: Entries, changes: Changes) -> Entries:
    both: Changes = {**before, **changes}
    return {key: value for key, value in both.items() if value is not None}


def assert_reads_as(store: Store, expected: Entries) -> None:
    assert list(store.scan(b"")) == sorted(expected.items())
    assert store.get_many(KEYS) == [expected.get(key) for key in KEYS]


def copy_folder(source: Path, target: Path) -> None:
    """Copy what there is; a file that RocksDB removes meanwhile is not there."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in source.iterdir():
        try:
            shutil.copy(file, target / file.name)
        except FileNotFoundError:
            continue


class ShardProtocol(RuleBasedStateMachine):
    """Spark's side of the protocol, and everything that may happen to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(manifests, "MERGE_WIDTH", MERGE_WIDTH)
        self.root = Path(tempfile.mkdtemp(prefix="shard-protocol-"))
        self.folder = Folder(fs.LocalFileSystem(), str(self.root / "state"))
        self.files = CrashingFolder(self.folder)
        self.hosts = [LocalDatabases(self.root / f"host {host}", "checkpoint") for host in CLOSING]
        # Its folder is locked for as long as its database is open.
        self.keeping = LocalDatabases(self.root / f"host {KEEPING}", "checkpoint", 1)
        self.hosts.append(self.keeping)
        self.zombies: list[Zombie] = []
        self.locks: dict[int, LocalDatabase] = {}
        self.copies = 0
        self.batch = 1
        # The last batches' manifests, oldest first, each with what it stands for.
        self.retained: list[tuple[Manifest, Entries]] = [(Manifest("checkpoint", SHARD), {})]

    @property
    def manifest(self) -> Manifest:
        return self.retained[-1][0]

    @property
    def committed(self) -> Entries:
        return self.retained[-1][1]

    def local(self, host: int) -> Path:
        return self.root / f"host {host}" / "checkpoint" / f"{SHARD:04d}"

    def held(self, host: int) -> bool:
        return host in self.locks or any(zombie.host == host for zombie in self.zombies)

    def free(self, host: int) -> bool:
        """Whether nobody has the host's folder open, after closing what is kept open."""
        if host == KEEPING:
            self.keeping.close_all()
        return not self.held(host)

    def adopt(self, manifest: Manifest, changes: Changes, host: int) -> None:
        """Commit the batch, as Spark does, and see that all is as it should be."""
        was = {run.name for run in self.manifest.runs}
        for run in manifest.runs:
            if run.name not in was and "-delta-" not in run.name:
                event("merged into a base" if run.lower == 0 else "merged into a run")
        self.retained.append((manifest, changed(self.committed, changes)))
        del self.retained[:-RETAINED]
        self.batch += 1
        with opened(self.folder, self.hosts[host], manifest) as shard:
            shard.attempt(lambda store: assert_reads_as(store, self.committed))
        for kept, expected in self.retained:
            verify(self.folder, kept)
            assert list(entries(self.folder, kept)) == sorted(expected.items())
        named = {run.name for kept, _ in self.retained for run in kept.runs}
        assert len(set(self.folder.names()) - named) < FEW_ORPHANS

    def micro_batch(self, host: int, changes: Changes) -> None:
        with opened(self.files, self.hosts[host], self.manifest) as shard:
            shard.clean(self.batch, RETAINED)
            shard.attempt(lambda store: change(store, changes))
            after = shard.commit(self.batch, RETAINED)
        self.adopt(after, changes, host)

    @initialize(based=st.booleans(), batches=_batches)
    def some_batches(self, *, based: bool, batches: list[Changes]) -> None:
        """A base that weighs much is kept, so that the runs behind it are merged."""
        if based:
            self.micro_batch(0, weighty(0))
        for changes in batches:
            self.micro_batch(0, changes)

    @rule(host=_hosts, batches=_batches)
    def batches_succeed(self, host: int, batches: list[Changes]) -> None:
        for changes in batches:
            self.micro_batch(host, changes)

    @rule(host=_hosts, changes=_changes, steps=_crashes, killed=st.booleans())
    def batch_crashes_and_is_tried_again(
        self, host: int, changes: Changes, steps: int, *, killed: bool
    ) -> None:
        """Whether or not it gets to commit, its manifest is not adopted."""
        before = set(self.local(host).parent.glob("*"))
        if not self.held(host):
            before.discard(self.local(host))
        self.files.left, self.files.killing = steps, killed
        shard = None
        try:
            shard = Shard(self.files, self.hosts[host], self.manifest)
            shard.attempt(lambda store: change(store, changes))
            shard.commit(self.batch, RETAINED)
            shard.clean(self.batch, RETAINED)
        except CrashError:
            event("crashed")
        self.files.left = None
        if shard is not None:
            copies = []
            if killed:
                # What a killed process leaves is what lies on disk before it closes.
                for path in set(self.local(host).parent.glob("*")) - before:
                    copies.append((path, self.root / f"copy {path.name}"))
                    copy_folder(*copies[-1])
            shard.close()
            if killed and host == KEEPING:
                self.keeping.close_all()
            for path, copy in copies:
                shutil.rmtree(path, ignore_errors=True)
                copy.rename(path)
        self.micro_batch(host, changes)

    @rule(host=_hosts, changes=_changes, damage=_damages)
    def local_files_are_damaged_during_a_batch(
        self, host: int, changes: Changes, damage: Damage
    ) -> None:
        """An attempt that meets the damage starts again from the same state."""
        with opened(self.files, self.hosts[host], self.manifest) as shard:
            if not self.held(host):
                self.damage_local(host, damage, "*.sst")

            def step(store: Store) -> None:
                assert_reads_as(store, self.committed)
                change(store, changes)

            shard.attempt(step)
            after = shard.commit(self.batch, RETAINED)
        self.adopt(after, changes, host)

    @rule(host=_hosts)
    def files_are_cleaned(self, host: int) -> None:
        with opened(self.files, self.hosts[host], self.manifest) as shard:
            shard.clean(self.batch, RETAINED)

    @precondition(lambda self: len(self.zombies) < 3)
    @rule(host=_hosts, age=st.integers(0, RETAINED - 1))
    def worker_is_given_up(self, host: int, age: int) -> None:
        """It has opened the shard of this batch, or of one of the last."""
        age = min(age, len(self.retained) - 1)
        manifest, expected = self.retained[-1 - age]
        shard = Shard(self.folder, self.hosts[host], manifest)
        self.zombies.append(Zombie(shard, host, self.batch - age, expected))

    @precondition(lambda self: self.zombies)
    @rule(which=st.integers(0, 2), changes=_changes, cleans=st.booleans(), ends=st.booleans())
    def zombie_goes_on(self, which: int, changes: Changes, *, cleans: bool, ends: bool) -> None:
        """It reads what it began with, and nobody adopts what it commits."""
        zombie = self.zombies[which % len(self.zombies)]

        def step(store: Store) -> None:
            assert_reads_as(store, zombie.expected)
            change(store, changes)

        zombie.shard.attempt(step)
        try:
            zombie.shard.commit(zombie.batch, RETAINED)
        except StateFileError:
            # Runs that it would merge were dropped and deleted since it began.
            event("a zombie stumbled")
        if cleans:
            zombie.shard.clean(zombie.batch, RETAINED)
        if ends:
            self.zombies.remove(zombie)
            zombie.shard.close()

    @rule()
    def process_that_keeps_its_database_open_is_killed(self) -> None:
        """What it leaves is what lies on disk; the rest was in memory."""
        local, copy = self.local(KEEPING), self.root / "killed"
        if self.held(KEEPING) or not local.exists():
            return
        copy_folder(local, copy)
        self.keeping.close_all()
        copy_folder(copy, local)

    @rule(host=_hosts)
    def local_folder_is_lost(self, host: int) -> None:
        if self.free(host):
            shutil.rmtree(self.local(host), ignore_errors=True)

    @rule(host=_hosts)
    def local_folder_is_copied(self, host: int) -> None:
        if self.free(host) and self.local(host).exists():
            copy_folder(self.local(host), self.root / f"older {self.copies % 4}")
            self.copies += 1

    @precondition(lambda self: self.copies)
    @rule(host=_hosts, copy=st.integers(0, 3))
    def local_folder_is_put_back(self, host: int, copy: int) -> None:
        """An older copy of whichever host; its state may be none of the line."""
        if self.free(host):
            copy_folder(self.root / f"older {copy % min(4, self.copies)}", self.local(host))

    @rule(host=_hosts, damages=st.lists(_damages, min_size=1, max_size=3))
    def local_files_are_damaged(self, host: int, damages: list[Damage]) -> None:
        if self.free(host):
            for damage in damages:
                self.damage_local(host, damage, "*")

    def damage_local(self, host: int, damage: Damage, pattern: str) -> None:
        if found := sorted(self.local(host).glob(pattern)):
            file = found[damage.file % len(found)]
            # RocksDB may remove it at the same moment.
            with contextlib.suppress(FileNotFoundError):
                file.write_bytes(damage.of(file.read_bytes()))

    @rule(host=_hosts)
    def local_folder_is_locked(self, host: int) -> None:
        if self.free(host):
            self.locks[host] = self.hosts[host].open(SHARD)

    @precondition(lambda self: self.locks)
    @rule(host=_hosts)
    def local_folder_is_unlocked(self, host: int) -> None:
        if database := self.locks.pop(host, None):
            database.close()

    @precondition(lambda self: self.manifest.runs)
    @rule(host=_hosts, changes=_changes, damage=_damages, removed=st.booleans())
    def state_file_is_damaged_and_put_back(
        self, host: int, changes: Changes, damage: Damage, *, removed: bool
    ) -> None:
        """Either a local copy suffices, or the error names the file; never other entries."""
        name = self.manifest.runs[damage.file % len(self.manifest.runs)].name
        path = Path(self.folder.path) / name
        whole = path.read_bytes()
        if removed:
            path.unlink()
        else:
            path.write_bytes(damage.of(whole))

        def step(store: Store) -> None:
            assert_reads_as(store, self.committed)
            change(store, changes)

        missed = None
        try:
            with pytest.raises(StateFileError) as refused:
                verify(self.folder, self.manifest)
            assert name in refused.value.message
            with opened(self.files, self.hosts[host], self.manifest) as shard:
                shard.attempt(step)
                shard.commit(self.batch, RETAINED)
        except StateFileError as error:
            missed = error
        finally:
            path.write_bytes(whole)
        assert missed is None or name in missed.message
        event("a local copy sufficed" if missed is None else "a state file was missed")

    def teardown(self) -> None:
        self.files.left = None
        try:
            for zombie in self.zombies:
                zombie.shard.close()
            for database in self.locks.values():
                database.close()
            self.zombies.clear()
            self.locks.clear()
            self.keeping.close_all()
            self.orphans_are_removed_in_the_end()
            self.stand_ins_are_removed_in_the_end()
        finally:
            self.patch.undo()
            shutil.rmtree(self.root, ignore_errors=True)

    def orphans_are_removed_in_the_end(self) -> None:
        """Once the base has moved on, nothing of what lies there now is left."""
        old = set(self.folder.names())
        for number in range(8 * MERGE_WIDTH):
            if old.isdisjoint(self.folder.names()):
                return
            self.micro_batch(number % HOSTS, weighty(number))
        assert old.isdisjoint(self.folder.names())

    def stand_ins_are_removed_in_the_end(self) -> None:
        """Folders beside the shard's own go when it is next opened."""
        for host in range(HOSTS):
            with opened(self.folder, self.hosts[host], self.manifest):
                assert list(self.local(host).parent.glob("*")) == [self.local(host)]
        self.keeping.close_all()


_THOROUGH = os.environ.get("IKEBANA_HYPOTHESIS") == "thorough"

TestShardProtocol = pytest.mark.timeout(3600 if _THOROUGH else 300)(ShardProtocol.TestCase)
TestShardProtocol.settings = settings(
    max_examples=200 if _THOROUGH else 8,
    stateful_step_count=40 if _THOROUGH else 15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_merging_keeps_the_files_of_a_shard_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many batches runs and bases are made, and what they replace is deleted."""
    monkeypatch.setattr(manifests, "MERGE_WIDTH", MERGE_WIDTH)
    folder = Folder.at(str(tmp_path), "state")
    local = LocalDatabases(tmp_path / "local", "checkpoint")
    manifest, expected, kinds = Manifest("checkpoint", SHARD), Entries(), set[str]()
    for batch in range(1, 61):
        changes: Changes = weighty(batch) if batch % 20 == 1 else {KEYS[0]: b"%d" % batch}
        with opened(folder, local, manifest) as shard:
            shard.clean(batch, RETAINED)
            assert shard.attempt(lambda store: list(store.scan(b""))) == sorted(expected.items())
            shard.attempt(partial(change, changes=changes))
            manifest = shard.commit(batch, RETAINED)
        expected = changed(expected, changes)
        kinds |= {run.name.split("-")[2] for run in manifest.runs}
        verify(folder, manifest)
        assert list(entries(folder, manifest)) == sorted(expected.items())

    assert kinds == {"delta", "run", "base"}
    assert len(folder.names()) < 5 * MERGE_WIDTH


def test_a_damaged_local_database_is_built_again_in_its_own_folder(tmp_path: Path) -> None:
    """R12. What met the damage does not keep the folder locked: the copy serves the next batch."""
    folder = Folder.at(str(tmp_path), "state")
    local = LocalDatabases(tmp_path / "local", "checkpoint")
    with opened(folder, local, Manifest("checkpoint", SHARD)) as shard:
        shard.attempt(partial(change, changes=weighty(0)))
        manifest = shard.commit(1, RETAINED)
    with opened(folder, local, manifest):
        pass
    for file in (tmp_path / "local" / "checkpoint" / "0007").glob("*.sst"):
        file.write_bytes(Damage(0, 0, "a bit").of(file.read_bytes()))

    with opened(folder, local, manifest) as shard:
        read = shard.attempt(lambda store: list(store.scan(b"")))
        assert [path.name for path in (tmp_path / "local" / "checkpoint").iterdir()] == ["0007"]

    assert dict(read) == weighty(0)
