"""What a local database keeps in memory never shows in what is read from it."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import currently_in_test_context, event, given
from hypothesis import strategies as st

from ikebana.arrangements.rocks import (
    STATES_TO_FLUSH,
    LocalDatabase,
    LocalDatabases,
    RecentEntries,
    size_of,
)
from ikebana.arrangements.run import EntryChange

KEYS = [b"", b"\x00", b"\xff", *(b"key %d" % number for number in range(12))]
_keys = st.lists(st.sampled_from(KEYS), max_size=8)
_changes = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.binary(max_size=3) | st.just(b"v" * 400), max_size=8
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("go on"), _changes),
        st.tuples(st.just("go on elsewhere"), _changes),
        st.tuples(st.just("apply"), _changes),
        st.tuples(st.just("get"), _keys),
        st.tuples(st.just("scan"), st.sampled_from([b"", b"k", b"\xff"])),
        st.tuples(st.sampled_from(["flush", "release", "close", "kill"])),
    ),
    max_size=30,
)


def went_on() -> None:
    """Count it where Hypothesis does."""
    if currently_in_test_context():
        event("went on")


class Copy:
    """A database that goes from state to state, and what it should have."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        self._databases = LocalDatabases(folder, "checkpoint", 2, most)
        self.database: LocalDatabase = self._databases.open(0)
        self.held: dict[bytes, bytes] = {}
        self._states: dict[str | None, dict[bytes, bytes]] = {None: {}}
        self._number = 0

    def step(self, name: str, given: Any = None) -> None:
        database = self.database
        match name:
            case "go on":
                after, before = self._new_state(), database.state
                database.recent.follow(before, after, sorted(given.items()))
                if database.go_on(after):
                    went_on()
                else:
                    assert database.state == before
                    database.apply([sorted(given.items())], after)
                self._changed(after, given)
            case "go on elsewhere":
                before = database.state
                database.recent.follow(before, "one", sorted(given.items()))
                assert not database.go_on("another")
                database.recent.follow("another", "one", sorted(given.items()))
                assert not database.go_on("one")
                assert not database.go_on("one")
                assert database.state == before
            case "apply":
                after = self._new_state()
                database.apply([sorted(given.items())], after)
                self._changed(after, given)
            case "get":
                assert database.get_many(given) == [self.held.get(key) for key in given]
            case "scan":
                expected = sorted(e for e in self.held.items() if e[0].startswith(given))
                assert [*database.scan(given)] == expected
            case "flush":
                database.flush()
            case "release":
                self._databases.release(database)
                self.database = self._databases.open(0)
            case "close":
                self._databases.release(database)
                self._databases.close_all()
                self.database = self._databases.open(0)
            case "kill":
                self._kill()

    def _kill(self) -> None:
        """End the process with what RocksDB has in memory, and what is not there yet."""
        database = self.database
        # As it would be on disk: closing does not write what only our memory has.
        database._database.close()
        self._databases = LocalDatabases(self._folder, "checkpoint", 2, self._most)
        self.database = self._databases.open(0)
        # It is at some state of before, as a whole.
        self.held = dict(self._states[self.database.state])

    def _new_state(self) -> str:
        self._number += 1
        return f"state {self._number}"

    def _changed(self, state: str, changes: dict[bytes, bytes | None]) -> None:
        both: dict[bytes, bytes | None] = {**self.held, **changes}
        self.held = {key: value for key, value in both.items() if value is not None}
        self._states[state] = dict(self.held)
        assert self.database.state == state

    def end(self) -> None:
        self.step("get", KEYS)
        self.step("scan", b"")
        self.step("close")
        self.step("scan", b"")
        self.step("get", KEYS * 2)
        self._databases.release(self.database)
        self._databases.close_all()


@given(steps=_steps, most=st.sampled_from([0, 300, 900, 3_000, 32 << 20]))
def test_a_database_reads_as_its_state_says(steps: list[tuple[Any, ...]], most: int) -> None:
    """Whatever is in memory, and however much of it there may be."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), most)
        for step in steps:
            copy.step(*step)
        copy.end()


def test_a_killed_process_has_little_to_catch_up_with(tmp_path: Path) -> None:
    """However small its batches are, the database on disk is not many states behind."""
    copy = Copy(tmp_path, 32 << 20)
    states = 3 * STATES_TO_FLUSH + 5
    for _ in range(states):
        copy.step("go on", {b"key": b"value"})
        copy.step("release")
    copy.step("kill")

    assert copy.database.state == f"state {3 * STATES_TO_FLUSH}"
    copy.end()


def test_what_is_recent_is_read_once() -> None:
    """Keys that have been written or read are not looked up, those that are absent are."""
    asked: list[bytes] = []

    def read(keys: Any) -> list[bytes | None]:
        asked.extend(keys)
        return [b"of " + key if key != b"absent" else None for key in keys]

    recent = RecentEntries(1 << 20)
    recent.write([(b"a", b"1"), (b"b", None)])

    assert recent.get_many([b"a", b"c", b"b", b"absent"], read) == [b"1", b"of c", None, None]
    assert recent.get_many([b"c", b"absent", b"a", b"c"], read) == [b"of c", None, b"1", b"of c"]
    assert asked == [b"c", b"absent", b"absent"]


def test_what_is_kept_is_bounded() -> None:
    """Old entries are forgotten, but for those that are asked for."""
    entries: list[EntryChange] = [(b"%05d" % number, b"v" * 100) for number in range(1_000)]
    recent = RecentEntries(size_of(entries) // 2)
    for entry in entries:
        recent.write([entry])
        recent.get_many([b"00000"], lambda _: pytest.fail("it is asked for all the time"))
        if recent.is_full:
            recent.unwritten = {}
            recent.age()

    asked: list[bytes] = []

    def read(keys: Any) -> list[bytes | None]:
        asked.extend(keys)
        return [None for _ in keys]

    recent.get_many([key for key, _ in entries], read)
    assert 500 <= len(asked) <= 760
    assert asked[0] == b"00001"


def test_a_database_that_was_discarded_is_not_kept(tmp_path: Path) -> None:
    """It says nothing of its state any more, may be closed, and another one takes its place."""
    databases = LocalDatabases(tmp_path, "checkpoint", 2)
    database = databases.open(0)
    database.apply([[(b"a", b"1")]], "one")
    database.flush()
    database.recent.follow("one", "two", [(b"a", b"2")])
    assert database.go_on("two")
    assert database.state == "two"

    database.discard()
    databases.release(database)
    database.close()

    again = databases.open(0)
    assert again is not database
    assert again.state is None
    databases.release(again)
    databases.close_all()


def test_changes_that_are_too_many_are_not_kept(tmp_path: Path) -> None:
    """They come from their file, as in another process."""
    databases = LocalDatabases(tmp_path, "checkpoint", 2, 1_000)
    database = databases.open(0)
    database.recent.follow(None, "one", [(b"a", b"v" * 2_000)])

    assert not database.go_on("one")
    databases.release(database)
    databases.close_all()
