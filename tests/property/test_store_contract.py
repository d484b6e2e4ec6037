"""One contract for every store: a dict, read by keys or in key order."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.rocks import LocalDatabase, LocalDatabases
from ikebana.arrangements.run import EntryChange
from ikebana.arrangements.store import MemoryStore, Overlay, PrefixStore, Readable, Store

_keys = st.lists(st.sampled_from(b"\x00ae\xfe\xff"), max_size=3).map(bytes)
_values = st.binary(max_size=2)
_entries = st.dictionaries(_keys, _values, max_size=8)
_changes = st.dictionaries(_keys, st.none() | _values, max_size=8)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _keys, _values),
        st.tuples(st.just("delete"), _keys),
        st.tuples(st.just("change"), _changes),
        st.tuples(st.just("get_many"), st.lists(_keys, max_size=5)),
        st.tuples(st.just("scan"), _keys, _keys),
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDatabase]:
    """One local database for all examples; each sets its content anew."""
    opened = LocalDatabases(tmp_path_factory.mktemp("local"), "checkpoint").open(0)
    yield opened
    opened.close()


def _memory(entries: dict[bytes, bytes], _: LocalDatabase) -> Store:
    store = MemoryStore()
    for key, value in entries.items():
        store.put(key, value)
    return store


def _overlay_over_memory(entries: dict[bytes, bytes], database: LocalDatabase) -> Store:
    return Overlay(_memory(entries, database))


def _overlay_over_database(entries: dict[bytes, bytes], database: LocalDatabase) -> Store:
    _set(database, entries)
    return Overlay(database)


def _part(entries: dict[bytes, bytes], _: LocalDatabase) -> Store:
    whole = MemoryStore()
    for key in (b"", b"o\xff", b"p", b"q", b"q\x00", b"\xff\xff"):
        whole.put(key, b"of another")
    for key, value in entries.items():
        whole.put(b"p\xff" + key, value)
    return PrefixStore(whole, b"p\xff")


def _set(database: LocalDatabase, entries: dict[bytes, bytes]) -> None:
    changes: dict[bytes, bytes | None] = {key: None for key, _ in database.scan(b"")}
    database.apply([sorted((changes | entries).items())], "a state")


def _scanned(
    entries: dict[bytes, bytes], prefix: bytes, start: bytes = b""
) -> list[tuple[bytes, bytes]]:
    found = sorted(entry for entry in entries.items() if entry[0].startswith(prefix))
    return [entry for entry in found if entry[0] >= prefix + start]


def _reads_as(store: Readable, entries: dict[bytes, bytes]) -> None:
    asked = [*sorted(entries, reverse=True), b"absent", *entries]
    assert store.get_many(asked) == [entries.get(key) for key in asked]
    for prefix in (b"", b"\x00", b"a", b"e", b"\xfe\xff", b"\xff", b"\xff\xff"):
        for start in (b"", b"\x00", b"e", b"\xff\xff"):
            assert list(store.scan(prefix, start)) == _scanned(entries, prefix, start)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(_memory, id="memory"),
        pytest.param(_overlay_over_memory, id="overlay over memory"),
        pytest.param(_overlay_over_database, id="overlay over a local database"),
        pytest.param(_part, id="part of memory"),
    ],
)
@given(entries=_entries, steps=_steps)
def test_a_store_is_a_dict_read_in_key_order(
    made: Callable[[dict[bytes, bytes], LocalDatabase], Store],
    database: LocalDatabase,
    entries: dict[bytes, bytes],
    steps: list[tuple[Any, ...]],
) -> None:
    """Every read sees all writes and deletes before it, whatever lay there at first."""
    store, model = made(entries, database), dict(entries)
    for step in steps:
        match step:
            case ("put", key, value):
                store.put(key, value)
                model[key] = value
            case ("delete", key):
                store.delete(key)
                model.pop(key, None)
            case ("change", changes):
                store.change(changes)
                model |= {key: value for key, value in changes.items() if value is not None}
                for key in changes:
                    if changes[key] is None:
                        model.pop(key, None)
            case ("get_many", keys):
                assert store.get_many(keys) == [model.get(key) for key in keys]
            case ("scan", prefix, start):
                assert list(store.scan(prefix, start)) == _scanned(model, prefix, start)
    _reads_as(store, model)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(_memory, id="memory"),
        pytest.param(_overlay_over_memory, id="overlay over memory"),
        pytest.param(_overlay_over_database, id="overlay over a local database"),
        pytest.param(_part, id="part of memory"),
    ],
)
def test_a_store_takes_put_delete_and_put_of_one_key(
    made: Callable[[dict[bytes, bytes], LocalDatabase], Store], database: LocalDatabase
) -> None:
    """The last write counts, an empty value is a value, and an absent key may be deleted."""
    store = made({b"k": b"1", b"l": b"1"}, database)

    store.delete(b"absent")
    store.delete(b"k")
    assert store.get_many([b"k"]) == [None]
    assert list(store.scan(b"")) == [(b"l", b"1")]
    store.put(b"k", b"")
    assert store.get_many([b"k", b"l", b"k"]) == [b"", b"1", b""]
    assert list(store.scan(b"")) == [(b"k", b""), (b"l", b"1")]


def test_a_local_database_merges_its_files_however_short_batches_are(tmp_path: Path) -> None:
    """Merging 20 MB takes longer than one of these batches, and comes to its end all the same."""
    databases, draw = LocalDatabases(tmp_path, "checkpoint"), random.Random(1)
    loaded: list[EntryChange] = [(b"%09d" % at, draw.randbytes(200)) for at in range(100_000)]
    files = []
    for batch in range(40):
        database = databases.open(0)
        database.apply([loaded[batch::1_000] if batch else loaded], f"batch {batch}")
        databases.release(database)
        files.append(len(list(database.path.glob("*.sst"))))

    assert max(files) <= 20


@given(entries=_entries, changes=_changes)
def test_an_overlay_leaves_its_base_alone_and_holds_what_changes_it(
    database: LocalDatabase, entries: dict[bytes, bytes], changes: dict[bytes, bytes | None]
) -> None:
    """The base reads as before; with the changes applied it reads as the overlay did."""
    _set(database, entries)
    overlay = Overlay(database)
    for key, value in changes.items():
        if value is None:
            overlay.delete(key)
        else:
            overlay.put(key, value)
    read = list(overlay.scan(b""))

    _reads_as(database, entries)
    database.apply([sorted(overlay.changes.items())], "the next state")
    assert list(database.scan(b"")) == read


@given(batches=st.lists(st.lists(_changes, max_size=3), max_size=4))
def test_a_local_database_reads_as_what_was_applied_to_it(
    database: LocalDatabase, batches: list[list[dict[bytes, bytes | None]]]
) -> None:
    """Blocks count in the order given, and the state is that of the last application."""
    _set(database, {})
    model: dict[bytes, bytes] = {}
    for number, blocks in enumerate(batches):
        database.apply([sorted(block.items()) for block in blocks], f"state {number}")
        for block in blocks:
            for key, value in block.items():
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        assert database.state == f"state {number}"
        _reads_as(database, model)


def test_a_local_database_has_no_state_while_blocks_are_on_their_way(
    database: LocalDatabase,
) -> None:
    """What stopped between two blocks is not taken for any state."""

    def blocks() -> Iterator[list[tuple[bytes, bytes | None]]]:
        yield [(b"a", b"1")]
        yield [(b"b", b"1")]
        raise InterruptedError

    _set(database, {})
    with pytest.raises(InterruptedError):
        database.apply(blocks(), "never reached")
    assert database.state is None
