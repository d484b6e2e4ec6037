"""Files of a shard and of its local database, damaged in any way: healed or named, never wrong."""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabase, LocalDatabases
from ikebana.arrangements.shard import Shard, entries, opened, verify
from ikebana.errors import StateFileError

BATCHES = 40
KEYS = 30
Content = dict[bytes, bytes]


def _halved(content: bytes, _: Random) -> bytes:
    return content[: len(content) // 2]


def _shortened(content: bytes, choice: Random) -> bytes:
    return content[: choice.randrange(len(content) + 1)]


def _zeroed(content: bytes, choice: Random) -> bytes:
    """The end is of zeros, as where a file's length is durable and its content is not."""
    kept = choice.randrange(len(content) + 1)
    return content[:kept] + bytes(len(content) - kept)


def _flipped(content: bytes, choice: Random) -> bytes:
    if not content:
        return b"\x01"
    changed = bytearray(content)
    changed[choice.randrange(len(changed))] ^= 1 << choice.randrange(8)
    return bytes(changed)


def _lengthened(content: bytes, choice: Random) -> bytes:
    return content + choice.randbytes(40)


def _deleted(_content: bytes, _choice: Random) -> None:
    return None


DAMAGES: list[Callable[[bytes, Random], bytes | None]] = [
    *(_halved, _shortened, _zeroed, _flipped, _lengthened, _deleted)
]


class Life:
    """A shard that has run many batches; `old` has its local folder after some of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = Folder.at(str(folder), "shards")
        self.local = folder / "local"
        self.manifest = Manifest("ours", 0)
        self.content: Content = {}
        self.old: list[Path] = []
        kept = LocalDatabases(self.local, "ours", 4)
        choice = Random(1)
        for batch in range(BATCHES):
            with opened(self.files, kept, self.manifest) as shard:
                self._change(shard, batch, choice)
                self.manifest = shard.commit(batch, 5)
            if batch % 3 == 0:
                kept.close_all()
                if batch % 4 == 0:
                    self.old.append(folder / f"old-{batch}")
                    shutil.copytree(self.local, self.old[-1])
        kept.close_all()

    def _change(self, shard: Shard, batch: int, choice: Random) -> None:
        for _ in range(6):
            key = b"k%d" % choice.randrange(KEYS)
            if choice.random() < 0.2:
                self.content.pop(key, None)
                shard.attempt(lambda store, key=key: store.delete(key))  # type: ignore[misc]
        changed = {b"k%d" % choice.randrange(KEYS): b"%d" % batch + os.urandom(50)}
        self.content.update(changed)
        dropped = {k for k in (b"k%d" % n for n in range(KEYS)) if k not in self.content}

        def step(store: object) -> None:
            for key in dropped:
                store.delete(key)  # type: ignore[attr-defined]
            for key, value in changed.items():
                store.put(key, value)  # type: ignore[attr-defined]

        shard.attempt(step)

    def copied(self, folder: Path) -> "Life":
        """The same in another folder."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        copy = object.__new__(Life)
        copy.__dict__.update(self.__dict__)
        copy.folder, copy.local = folder, folder / "local"
        copy.files = Folder.at(str(folder), "shards")
        return copy

    def read(self) -> Content:
        """What the shard has at its manifest, read as a batch reads it."""
        with opened(self.files, LocalDatabases(self.local, "ours"), self.manifest) as shard:
            return shard.attempt(lambda store: dict(store.scan(b"")))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    made = Life(tmp_path_factory.mktemp("life"))
    assert made.read() == made.content
    return made


def damaged(path: Path, choice: Random) -> None:
    content = choice.choice(DAMAGES)(path.read_bytes(), choice)
    path.unlink()
    if content is not None:
        path.write_bytes(content)


@given(seed=st.integers(0, 2**32))
def test_whatever_happens_to_the_local_database_it_is_a_cache(life: Life, seed: int) -> None:
    """R12. Files of RocksDB that are damaged, lost or of another time cost time alone."""
    choice = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = life.copied(Path(folder))
        found = sorted(path for path in copy.local.rglob("*") if path.is_file())
        for path in choice.sample(found, choice.randrange(1, 4)):
            damaged(path, choice)
        if choice.random() < 0.3:
            old = choice.choice(life.old)
            for path in sorted(path for path in old.rglob("*") if path.is_file()):
                if choice.random() < 0.5:
                    shutil.copy(path, copy.local / path.relative_to(old))
        assert copy.read() == life.content
        assert copy.read() == life.content


@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_of_a_shard_is_named(life: Life, seed: int) -> None:
    """R12. Without a local copy the files are read, and what is not as written is an error."""
    choice = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = life.copied(Path(folder))
        shutil.rmtree(copy.local)
        path = Path(copy.files.path) / choice.choice(copy.manifest.runs).name
        before = path.read_bytes()
        damaged(path, choice)
        whole = path.exists() and path.read_bytes() == before
        for read in (copy.read, lambda: dict(entries(copy.files, copy.manifest))):
            if whole:
                assert read() == life.content
                continue
            with pytest.raises(StateFileError, match="state file"):
                read()
        if not whole:
            with pytest.raises(StateFileError, match="state file"):
                verify(copy.files, copy.manifest)
            # Put back, it is read, and the attempts have left nothing that counts.
            path.write_bytes(before)
        assert copy.read() == life.content


@given(seed=st.integers(0, 2**32))
def test_damage_beneath_an_open_database_is_healed_by_the_next_batch(
    life: Life, seed: int
) -> None:
    """R12. What a process has open may be damaged while it goes on."""
    choice = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        copy = life.copied(Path(folder))
        kept = LocalDatabases(copy.local, "ours", 4)
        manifest, content = copy.manifest, dict(life.content)
        for batch in range(BATCHES, BATCHES + 12):
            found = sorted(path for path in copy.local.rglob("*") if path.is_file())
            if choice.random() < 0.5:
                # RocksDB merges files meanwhile, and removes those that it has merged.
                with suppress(FileNotFoundError):
                    damaged(choice.choice(found), choice)
            if choice.random() < 0.3:
                kept.close_all()
            with opened(copy.files, kept, manifest) as shard:
                key, value = b"k%d" % choice.randrange(KEYS), b"%d" % batch
                assert shard.attempt(lambda store: dict(store.scan(b""))) == content
                shard.attempt(lambda store: store.put(key, value))  # noqa: B023
                content[key] = value
                manifest = shard.commit(batch, 5)
        kept.close_all()
        assert dict(entries(copy.files, manifest)) == content


def test_a_locked_folder_is_no_damage(tmp_path: Path) -> None:
    """What another process holds is left to it."""
    databases = LocalDatabases(tmp_path, "ours")
    first = databases.open(0)
    second = databases.open(0)
    assert isinstance(first, LocalDatabase)
    assert first.path != second.path
    databases.release(second)
    assert not second.path.exists()
    databases.release(first)
    assert first.path.exists()
