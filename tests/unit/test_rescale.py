"""Rescaling a checkpoint that was written by hand: every entry in its new shard."""

import heapq
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import Shard, entries, verify
from ikebana.arrangements.store import MemoryStore
from ikebana.errors import CheckpointError, StateFileError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.checkpoint.checkpoint import Checkpoint, metadata_of
from ikebana.processor.checkpoint.parts import to_new_shards
from ikebana.processor.kernels import hold
from ikebana.processor.kernels.layout import operator_part
from support.rescaled_states import LAST, PLAN, SHARDS, START, Entry, Written, log, written


@pytest.fixture
def old(tmp_path: Path) -> Written:
    """Four shards after two batches; the second has removed something again."""
    return written(tmp_path / "old", keys=100)


def found(location: Path, manifests: list[Manifest]) -> list[tuple[int, Entry]]:
    """Every entry of a rescaled checkpoint with the shard that it is in."""
    return [
        (manifest.shard, entry)
        for manifest in manifests
        for entry in entries(Folder.at(str(location), "shards", f"{manifest.shard:04d}"), manifest)
    ]


@pytest.mark.parametrize(
    ("diffs", "expected"),
    [
        pytest.param((1, 2), [KeyedUpdate(b"k", b"v", 9, 3)], id="same"),
        pytest.param((1, -1), [], id="opposite"),
    ],
)
def test_what_two_shards_hold_of_one_datum_becomes_one(
    diffs: tuple[int, int], expected: list[KeyedUpdate]
) -> None:
    """Equal updates of the future may lie in two shards; in one there is their sum."""
    shards = []
    for diff in diffs:
        store = MemoryStore()
        hold.step(operator_part(store, "hold out"), [KeyedUpdate(b"k", b"v", 9, diff)], 5)
        shards.append(list(store.scan(b"")))
    store = MemoryStore()

    for _, entry in to_new_shards(heapq.merge(*shards), lambda _: 0):
        store.put(*entry)

    assert hold.step(operator_part(store, "hold out"), [], 10) == expected


def test_where_a_shard_looks_for_what_is_due_does_not_go_to_another() -> None:
    """One shard may hold what is earlier than all that another holds: it is found."""
    shards = []
    for key, time in ((b"k", 90), (b"l", 9)):
        store = MemoryStore()
        hold.step(operator_part(store, "hold out"), [KeyedUpdate(key, b"v", time, 1)], 5)
        shards.append(list(store.scan(b"")))
    late, (early, begins_at) = shards
    assert list(to_new_shards([begins_at], lambda _: 0)) == []
    store = MemoryStore()

    for _, entry in to_new_shards(heapq.merge(late, [early]), lambda _: 0):
        store.put(*entry)

    expected = [KeyedUpdate(b"l", b"v", 9, 1)]
    assert hold.step(operator_part(store, "hold out"), [], 10) == expected


@pytest.mark.parametrize("shards", [1, 3, 4, 7])
def test_every_entry_is_in_the_shard_of_its_key_and_none_is_lost_or_doubled(
    old: Written, tmp_path: Path, shards: int
) -> None:
    """Values, error slots and waiting upserts of every operator go with their key."""
    _, manifests = old.rescaled(tmp_path / "new", shards)
    placed = found(tmp_path / "new", manifests)

    assert len(old.entries) == 300
    assert Counter(entry for _, entry in placed) == Counter(old.entries)
    at = partial(shard_of, shards=shards)
    assert all(list(to_new_shards([entry], at)) == [(shard, entry)] for shard, entry in placed)
    for manifest in manifests:
        verify(Folder.at(str(tmp_path / "new"), "shards", f"{manifest.shard:04d}"), manifest)


def test_more_entries_than_are_held_at_once_are_all_placed(tmp_path: Path) -> None:
    """Entries are spooled in blocks; each shard's come out in key order."""
    old = written(tmp_path / "old", keys=4_000)
    _, manifests = old.rescaled(tmp_path / "new", 1)

    assert [entry for _, entry in found(tmp_path / "new", manifests)] == sorted(old.entries)


def test_the_new_checkpoint_goes_on_where_the_old_one_ended(old: Written, tmp_path: Path) -> None:
    """It has the same id and plan, the next epoch and batch, and the same offsets."""
    reborn, manifests = old.rescaled(tmp_path / "new", 3)

    assert Checkpoint(str(tmp_path / "new")).metadata() == reborn
    assert (reborn.id, reborn.plan) == (old.metadata.id, old.metadata.plan)
    assert (reborn.shards, reborn.epoch, reborn.first_batch) == (3, 1, 2)
    assert reborn.start == msgspec.structs.replace(LAST, begins={})
    assert {(m.checkpoint, m.version) for m in manifests} == {(old.metadata.id, 2)}
    assert len({m.state for m in manifests}) == 3


def test_the_old_checkpoint_stays_as_it_was(old: Written, tmp_path: Path) -> None:
    """Until the new one has started it is the way back."""
    location = Path(old.checkpoint.location)
    before = {path: path.read_bytes() for path in location.rglob("*") if path.is_file()}
    old.rescaled(tmp_path / "new", 3)

    assert before == {path: path.read_bytes() for path in location.rglob("*") if path.is_file()}


def test_a_checkpoint_that_never_ran_is_rescaled_from_its_metadata(tmp_path: Path) -> None:
    """With nothing logged, reading starts where it would have started."""
    metadata = metadata_of(str(tmp_path / "old"), PLAN, SHARDS, START)
    checkpoint = Checkpoint(str(tmp_path / "old"))
    checkpoint.write(metadata)
    manifests = [Manifest(metadata.id, shard) for shard in range(SHARDS)]
    reborn, _ = Written(checkpoint, metadata, manifests, []).rescaled(tmp_path / "new", 2)

    assert (reborn.first_batch, reborn.start) == (0, START)


def test_a_rescaled_checkpoint_is_rescaled_again(old: Written, tmp_path: Path) -> None:
    """Its batches are numbered on, its epoch counts, and the entries are the same."""
    reborn, manifests = old.rescaled(tmp_path / "new", 7)
    log(tmp_path / "new", "offsets", 0, msgspec.structs.replace(LAST, batch=2))
    log(tmp_path / "new", "commits", 0)
    again = Written(Checkpoint(str(tmp_path / "new")), reborn, manifests, old.entries)
    third, seeds = again.rescaled(tmp_path / "newer", 3)

    assert (third.id, third.epoch, third.first_batch) == (old.metadata.id, 2, 3)
    assert Counter(e for _, e in found(tmp_path / "newer", seeds)) == Counter(old.entries)


def test_a_shard_that_was_empty_when_rescaled_is_in_line_afterwards(tmp_path: Path) -> None:
    """What is committed on top of nothing is read like any other shard."""
    old = written(tmp_path / "old", keys=0)
    _, manifests = old.rescaled(tmp_path / "new", 2)
    files = Folder.at(str(tmp_path / "new"), "shards", "0000")
    shard = Shard(files, LocalDatabases(tmp_path / "local", "c"), manifests[0])
    shard.attempt(lambda store: store.put(b"of_a\0kx", b"v"))
    after = shard.commit(2, 10)
    shard.close()

    assert list(entries(files, after)) == [(b"of_a\0kx", b"v")]
    verify(files, after)


@pytest.mark.parametrize("batch", [1, 2])
def test_an_unfinished_batch_is_refused(old: Written, tmp_path: Path, batch: int) -> None:
    """What is logged as read but not committed would be read by neither."""
    location = Path(old.checkpoint.location)
    if batch == 1:
        (location / "commits" / "1").unlink()
    else:
        log(location, "offsets", 2, msgspec.structs.replace(LAST, batch=2))

    with pytest.raises(CheckpointError, match=f"batch {batch} is unfinished"):
        old.rescaled(tmp_path / "new", 3)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("inside", ["ikebana.json", "offsets/0", "shards/0000"])
def test_a_target_that_holds_a_checkpoint_is_refused(
    old: Written, tmp_path: Path, inside: str
) -> None:
    """Another checkpoint, or a part of one, is never written over."""
    target = tmp_path / "new"
    if inside == "ikebana.json":
        Checkpoint(str(target)).write(metadata_of(str(target), PLAN, 1, START))
    else:
        (target / inside).parent.mkdir(parents=True)
        (target / inside).write_bytes(b"")

    with pytest.raises(CheckpointError, match="holds a checkpoint"):
        old.rescaled(target, 3)


def test_a_checkpoint_is_not_rescaled_onto_itself(old: Written) -> None:
    """The old one must stay whole."""
    with pytest.raises(CheckpointError, match="holds a checkpoint already"):
        old.rescaled(Path(old.checkpoint.location), 3)


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_state_file_that_cannot_be_read_is_named(
    old: Written, tmp_path: Path, harm: str
) -> None:
    """Nothing is written from state that is not whole."""
    name = old.manifests[2].runs[0].name
    path = Path(old.checkpoint.location) / "shards" / "0002" / name
    if harm == "damaged":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
    else:
        path.unlink()

    with pytest.raises(StateFileError, match=f"{name}.*{harm}"):
        old.rescaled(tmp_path / "new", 3)
    assert Checkpoint(str(tmp_path / "new")).metadata() is None
