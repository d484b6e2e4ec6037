"""What a thread has opened to read a collection is closed when it ends, or with the reads."""

import http.client
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import ikebana
from ikebana.serving.reads import Reads
from ikebana.serving.view import UnknownCollectionError
from support.served_topics import MemoryTopics, answering, caught_up, serving
from support.waiting import patient, wait_until


@pytest.fixture(params=["open", "connect"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reads]:
    """Reads of a collection with one key."""
    topics = MemoryTopics()
    topics.close("things", 10, (b"k", b"v", 1, 1))
    with serving(topics, tmp_path, "things", start=False) as service, answering(service) as url:
        caught_up(service, topics, "things")
        if request.param == "open":
            with ikebana.open(tmp_path) as opened:
                yield opened
        else:
            with ikebana.connect(url) as connected:
                yield connected


@pytest.fixture
def held(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], int]:
    """Counts the readers and the connections that are open."""
    own = tmp_path_factory.mktemp("readers")
    monkeypatch.setattr("tempfile.tempdir", str(own))
    opened: list[http.client.HTTPConnection] = []

    class Listed(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            opened.append(self)

    monkeypatch.setattr(http.client, "HTTPConnection", Listed)
    return lambda: len([*own.iterdir()]) + sum(each.sock is not None for each in opened)


def test_a_thread_that_ends_leaves_nothing_open(held: Callable[[], int], served: Reads) -> None:
    """Who reads in a thread for each request would come to have no descriptors left."""
    assert served.newest("things") == 9
    found: list[object] = []

    def read() -> None:
        found.append(served.get("things", b"k"))
        try:
            served.get("nothing", b"k")
        except UnknownCollectionError as error:
            # As a future keeps errors, and these all variables of their frames.
            found.append(error)

    for _ in range(3):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        wait_until(lambda: held() == 1, 20, "what the thread had is closed")

    assert len(found) == 6
    assert served.get("things", b"k") == {b"v": 1}
    assert held() == 1


def test_what_threads_have_is_closed_with_the_reads(
    held: Callable[[], int], served: Reads
) -> None:
    """Also of those that go on."""
    both = threading.Barrier(2, timeout=patient(20))

    def read(_: int) -> int:
        both.wait()
        return served.newest("things")

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(read, range(2))] == [9, 9]
        assert held() == 2
        served.close()
        assert held() == 0
