"""Merges beside batches: whenever they end or fail, a shard is what was committed."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from ikebana.arrangements import manifest as manifests
from ikebana.arrangements import run, shard
from ikebana.arrangements import run as runs
from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.run import RunEntry
from ikebana.arrangements.shard import entries, opened, verify
from ikebana.arrangements.store import Store

KEYS = [b"%d" % number for number in range(12)]
RETAINED = 2
Changes = dict[bytes, bytes | None]
_changes = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.binary(max_size=3), min_size=1, max_size=4
)
# What comes after a batch: the merge that goes on ends, the process does, or its attempt fails.
_then = st.sampled_from(["goes on", "goes on", "ends", "dies", "fails", "is lost"])


@contextmanager
def merging_everything() -> Iterator[None]:
    """Merge in the background whatever is due, by few runs."""
    large, width, chunk = shard.LARGE, manifests.MERGE_WIDTH, run._CHUNK
    shard.LARGE, manifests.MERGE_WIDTH, run._CHUNK = 0, 2, 1
    try:
        yield
    finally:
        shard.LARGE, manifests.MERGE_WIDTH, run._CHUNK = large, width, chunk


@given(st.lists(st.tuples(_changes, _then), min_size=4, max_size=25))
def test_a_shard_has_what_was_committed(
    steps: list[tuple[dict[bytes, bytes | None], str]],
) -> None:
    """With the files that its manifest names, on this host and on one that has only these."""
    with tempfile.TemporaryDirectory() as path, merging_everything():
        files = Folder(fs.LocalFileSystem(), f"{path}/files")
        local = LocalDatabases(Path(path) / "local", "ours", 2)
        manifest, model = Manifest("ours", 0), dict[bytes, bytes]()
        for number, (changes, then) in enumerate(steps):
            after = committed(files, local, manifest, number, changes)
            if then == "fails":
                # Nothing of the attempt counts, whatever it has merged.
                local.close(0)
                continue
            manifest = after
            for key, value in changes.items():
                if value is None:
                    model.pop(key, None)
                else:
                    model[key] = value
            database = local.open(0)
            if then == "ends" and database.merge is not None:
                assert database.merge._done.wait(30)
            local.release(database)
            if then == "dies":
                local.close_all()
            if then == "is lost":
                local.close_all()
                local = LocalDatabases(Path(path) / f"local {number}", "ours", 2)
            verify(files, manifest)
            assert dict(entries(files, manifest)) == model
            with opened(files, local, manifest) as found:
                assert found.attempt(lambda store: dict(store.scan(b""))) == model
        local.close_all()


def test_a_merge_waits_while_a_batch_runs(tmp_path: Path) -> None:
    """It reads its first entries at once, and the rest between batches."""
    with merging_everything():
        files = Folder(fs.LocalFileSystem(), f"{tmp_path}/files")
        local = LocalDatabases(tmp_path / "local", "ours", 2)
        manifest = Manifest("ours", 0)
        number = 0
        while (database := local.open(0)).merge is None:
            local.release(database)
            manifest = committed(
                files, local, manifest, number, dict.fromkeys(KEYS, b"%d" % number)
            )
            number += 1
        merge = database.merge
        local.release(database)
        with run.merges_waiting():
            running = committed(files, local, manifest, number, {b"0": b"new"})
            assert merge._thread.is_alive()
            assert len(running.runs) == len(manifest.runs) + 1
        assert merge._done.wait(30)
        merged = committed(files, local, running, number + 1, {b"1": b"new"})
        assert len(merged.runs) < len(running.runs)
        assert merged.dropped
        local.close_all()


def test_a_merge_that_fails_is_done_again_by_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which raises what is wrong, if it still is."""
    write, failed = runs.write, 0

    def fails_beside_batches(*given: Any) -> RunEntry:
        nonlocal failed
        if threading.current_thread().name == "ikebana-merge":
            failed += 1
            raise OSError("no space")
        return write(*given)

    monkeypatch.setattr(runs, "write", fails_beside_batches)
    with merging_everything():
        files = Folder(fs.LocalFileSystem(), f"{tmp_path}/files")
        local = LocalDatabases(tmp_path / "local", "ours", 2)
        manifest = Manifest("ours", 0)
        for number in range(12):
            manifest = committed(files, local, manifest, number, {b"0": b"%d" % number})
        assert failed
        assert len(manifest.runs) < 6
        verify(files, manifest)
        local.close_all()


def test_a_database_that_is_closed_after_each_batch_merges_at_once(tmp_path: Path) -> None:
    """There would be nobody to go on."""
    with merging_everything():
        files = Folder(fs.LocalFileSystem(), f"{tmp_path}/files")
        local = LocalDatabases(tmp_path / "local", "ours")
        manifest = Manifest("ours", 0)
        for number in range(9):
            manifest = committed(files, local, manifest, number, {b"0": b"%d" % number})
        assert len(manifest.runs) < 5


def committed(
    files: Folder,
    local: LocalDatabases,
    manifest: Manifest,
    batch: int,
    changes: Changes,
) -> Manifest:
    """Run a batch that makes some changes."""
    with opened(files, local, manifest) as found:
        found.clean(batch, RETAINED)

        def step(store: Store) -> None:
            for key, value in changes.items():
                if value is None:
                    store.delete(key)
                else:
                    store.put(key, value)

        found.attempt(step)
        return found.commit(batch, RETAINED)
