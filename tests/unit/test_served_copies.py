"""The local copies of a service: damage that readers meet, topics created again, folders."""

import errno
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from ikebana.arrangements import shared_rocks
from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import ClosedError, HeldError, SharedDatabase
from ikebana.errors import AwayError, ConfigError, SpaceError
from ikebana.serving.service import Service
from ikebana.serving.subscriptions import Position
from ikebana.serving.view import Bounds
from support.http_answers import ask_json
from support.served_topics import MemoryTopics, answering, caught_up, serving
from support.waiting import patient, wait_until

NAME = "things"
READ = f"/v1/collections/{NAME}"
# So many that the first third of the file has nothing else.
MANY = 3_000


@contextmanager
def _subscribed(url: str) -> Iterator[Iterator[tuple[str, str, Any]]]:
    """Yield the events of a subscription: name, id, data."""
    with urllib.request.urlopen(f"{url}/v1/subscribe", timeout=patient(20)) as answer:
        yield _events(answer)


def _events(answer: HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, text = line.partition(": ")
            fields[name] = fields.get(name, "") + text
        elif "event" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields.clear()


@pytest.fixture
def topics() -> MemoryTopics:
    """A topic with many keys."""
    made = MemoryTopics()
    rows = ((b'"%06d"' % n, b'"%s"' % os.urandom(60).hex().encode(), 1, 1) for n in range(MANY))
    made.close(NAME, 10, *rows)
    return made


def _damaged(topics: MemoryTopics, folder: Path) -> None:
    """Make a local copy whose present rows cannot be read, although it can be opened."""
    for _ in range(2):
        # RocksDB writes its log into a file when it opens the database again.
        with serving(topics, folder, NAME) as service:
            caught_up(service, topics, NAME)
    [path] = (each for each in (folder / NAME).glob("*.sst") if each.stat().st_size > 100_000)
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 20, len(content) // 3):
        content[at] ^= 0x5A
    path.write_bytes(content)


@pytest.mark.parametrize("read", ["get", "get_many", "scan", "sql"])
def test_a_damage_that_a_reader_meets_is_told_and_repaired(
    topics: MemoryTopics, tmp_path: Path, read: str
) -> None:
    """No batch has to come for it."""
    _damaged(topics, tmp_path)
    said = list[str]()
    key = f'"{MANY // 3:06d}"'
    path, body = {
        "get": (f"{READ}/get?key={urllib.parse.quote(key)}", None),
        "get_many": (f"{READ}/get", {"keys": [f"{n:06d}" for n in range(MANY)]}),
        "scan": (f"{READ}/scan?limit={MANY}", None),
        "sql": ("/v1/sql", {"query": f"SELECT count(*) FROM {NAME}"}),
    }[read]
    with serving(topics, tmp_path, NAME, say=said.append) as service:
        caught_up(service, topics, NAME)
        with answering(service) as url:
            status, told = ask_json(url + path, body)
            assert (status, "a local copy cannot be read now" in told["error"]) == (503, True)
            wait_until(lambda: bool(said), 20, "word of the damage")
            # The view of the damaged copy has not this time.
            topics.close(NAME, 20)
            caught_up(service, topics, NAME)
            assert ask_json(url + path, body)[0] == 200
            assert service.failure is None
    assert len(said) == 1
    assert f'the local copy of "{NAME}" is damaged: Corruption' in said[0]


def test_a_subscription_tells_a_damage(topics: MemoryTopics, tmp_path: Path) -> None:
    """In its last event."""
    _damaged(topics, tmp_path)
    said = list[str]()
    with serving(topics, tmp_path, NAME, say=said.append) as service:
        caught_up(service, topics, NAME)
        with answering(service) as url:
            with _subscribed(url) as events:
                name, _, data = list(events)[-1]
            assert (name, "a local copy cannot be read now" in data["error"]) == ("error", True)
            wait_until(lambda: bool(said), 20, "word of the damage")
            # The view of the damaged copy has not this time.
            topics.close(NAME, 20)
            caught_up(service, topics, NAME)
            with _subscribed(url) as events:
                assert next(events)[0] == "snapshot"


def test_reads_between_two_copies_are_refused_by_name(
    topics: MemoryTopics, tmp_path: Path
) -> None:
    """What needs no copy is answered."""
    with serving(topics, tmp_path, NAME) as service:
        caught_up(service, topics, NAME)
        with answering(service) as url:
            before = ask_json(f"{url}{READ}")[1]["disk_bytes"]
            service._followed[NAME]._let_go()
            for path in (f"{READ}/get?key=1", f"{READ}/scan?limit=1", f"{READ}/scan?limit=900"):
                status, told = ask_json(url + path)
                assert (status, "being opened" in told["error"]) == (503, True)
            assert ask_json(f"{url}{READ}")[1]["disk_bytes"] == before
            assert ask_json(f"{url}/ready")[0] == 200


def test_a_copy_is_built_again_when_no_read_holds_it(topics: MemoryTopics, tmp_path: Path) -> None:
    """A scan that is under way locks the folder, and that ends nothing."""
    said = list[str]()
    with serving(topics, tmp_path, NAME, say=said.append) as service:
        caught_up(service, topics, NAME)
        scan = service.view(NAME).rows(Bounds(), 9)
        next(scan)
        _note(service, "a bit")
        wait_until(lambda: bool(said), 20, "word of the damage")
        with pytest.raises(HeldError):
            SharedDatabase(tmp_path / NAME)
        assert service.failure is None
        scan.close()  # type: ignore[attr-defined]
        topics.close(NAME, 20)
        caught_up(service, topics, NAME)
        assert sum(1 for _ in service.view(NAME).rows(Bounds(), 19)) == MANY


def test_what_a_process_lacks_is_no_damage(topics: MemoryTopics, tmp_path: Path) -> None:
    """All that was followed would be read again for it."""
    with serving(topics, tmp_path, NAME) as service:
        _note(service, "IO error: While open a file for random read: 9.sst: Too many open files")
        assert service._followed[NAME].damage is None


def _note(service: Service, damage: str) -> None:
    service._followed[NAME]._database.note(damage)


def _things(topics: MemoryTopics, upper: int) -> None:
    topics.close(NAME, upper, *((b"%d" % n, b"1", n, 1) for n in range(1, 5)))


def _topic_with_id() -> MemoryTopics:
    topics = MemoryTopics()
    topics.ids[NAME] = "one"
    _things(topics, 10)
    return topics


def test_a_token_is_refused_when_its_topic_was_made_anew(tmp_path: Path) -> None:
    """The times of another topic are other times."""
    topics = _topic_with_id()
    with serving(topics, tmp_path, NAME) as service, answering(service) as url:
        caught_up(service, topics, NAME)
        with _subscribed(url) as events:
            tokens = {f"/v1/subscribe?resume={next(events)[1]}"}
        for path in (f"{READ}/scan?limit=1", f"{READ}/changes?above=0&limit=1"):
            page = ask_json(url + path)[1]["page"]
            tokens.add(f"{path}&page={page}")
            assert ask_json(f"{url}{path}&page={page}")[0] == 200
    topics.make_anew(NAME, "two")
    _things(topics, 12)
    with serving(topics, tmp_path, NAME) as service, answering(service) as url:
        caught_up(service, topics, NAME)
        for path in tokens:
            status, told = ask_json(url + path)
            assert status == 410, path
            assert "deleted and created again since" in told["error"]
            assert "Begin again" in told["hint"]
            assert (told["since"], told["upper"]) == (0, 12)
        # Those of versions that did not tell topics go on.
        old = Position([NAME], 9, 1).token()
        request = f"{url}/v1/subscribe?resume={old}"
        with urllib.request.urlopen(request, timeout=patient(20)) as answer:
            assert next(_events(answer))[2]["lower"] == 10


def test_a_subscription_ends_when_its_topic_is_made_anew(tmp_path: Path) -> None:
    """What was sent does not go on in another topic."""
    topics = _topic_with_id()
    with serving(topics, tmp_path, NAME) as service, answering(service) as url:
        caught_up(service, topics, NAME)
        with _subscribed(url) as events:
            assert next(events)[0] == "snapshot"
            topics.make_anew(NAME, "two")
            _things(topics, 12)
            # Then the topic is opened again.
            topics.failure = AwayError("the brokers do not answer")
            wait_until(lambda: service._followed[NAME]._following is None, 20, "it is closed")
            topics.failure = None
            name, _, data = next(events)
        assert (name, "deleted and created again since" in data["error"]) == ("error", True)


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is to be done."""
    file = tmp_path / "file"
    file.write_text("")
    with (
        pytest.raises(ConfigError, match=f"cannot make the folder {file}.*\n.*--data"),
        serving(MemoryTopics(), file, NAME),
    ):
        pass

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shared_rocks, "private_folder", full)
    with pytest.raises(SpaceError, match=r"cannot make the folder .* a disk is full"):
        SharedDatabase(tmp_path / "data")


def test_only_a_lock_is_taken_for_a_lock(tmp_path: Path) -> None:
    """Whatever the folder is called."""
    path = tmp_path / "BLOCKS"
    made = SharedDatabase(path)
    with pytest.raises(HeldError, match="another process writes it"):
        SharedDatabase(path)
    made.close()
    (path / "CURRENT").write_text("MANIFEST-000999\n")
    with pytest.raises(LocalDamageError, match="BLOCKS"):
        SharedDatabase(path)


def test_a_database_that_another_thread_closes_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics are asked for at any moment, also while a copy is built again."""

    class Closing:
        def property_int_value(self, _: str) -> int:
            raise RuntimeError("Already mutably borrowed")

    made = SharedDatabase(tmp_path / "data")
    with monkeypatch.context() as patched:
        patched.setattr(made, "_database", Closing())
        with pytest.raises(ClosedError, match="is being closed"):
            made.size()
    made.close()


def test_a_topic_that_the_first_run_makes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so; a server and a pipeline may start in any order."""
    monkeypatch.setattr("ikebana.serving.service._LOOK_S", 0.05)
    topics, said = MemoryTopics(), list[str]()
    topics.missing = {"out"}
    with serving(topics, tmp_path, "out", say=said.append) as service:
        wait_until(lambda: bool(said), 20, "the service says that it waits")
        topics.close("out", 5, (b"1", b"2", 3, 1))
        topics.missing.clear()
        caught_up(service, topics, "out")

    assert said == [
        'waiting up to 120 s for topic "out", which the first run of its pipeline makes'
    ]


def test_a_topic_that_does_not_come_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may be wrong."""
    monkeypatch.setattr("ikebana.serving.service._LOOK_S", 0.05)
    monkeypatch.setattr("ikebana.serving.service._FIRST_RUN_S", 0.2)
    topics = MemoryTopics()
    topics.missing = {"out"}
    with serving(topics, tmp_path, "out") as service:
        wait_until(lambda: service.failure is not None, 20, "the service fails")

        assert 'cannot read topic "out": it does not exist' in str(service.failure)
