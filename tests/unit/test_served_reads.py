"""The reads of a folder and those over HTTP are the same, as a list of updates says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ikebana
from ikebana.arrangements.update import LARGEST, sums
from ikebana.errors import AccessError, AwayError, ConfigError, IkebanaError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.watching.guard import Access, AccessLimits
from ikebana.serving import client, reads
from ikebana.serving.arrangement import Retention
from ikebana.serving.reads import Reads, WaitedError
from ikebana.serving.service import Service
from ikebana.serving.view import Bounds, UnknownCollectionError, UnreadableTimeError
from support.docstring_examples import run_example
from support.served_topics import MemoryTopics, answering, caught_up, serving
from support.waiting import patient

ONE, TWO = "things", "others"
UPDATES = [
    (b'"a"', b"1", 3, 1),
    (b'"b"', b"1", 5, 2),
    (None, b"\xff\x00", 6, 1),
    (b'"a"', b"1", 11, -1),
    (b'"a"', b"2", 11, 1),
    (b"\x00", b"", 12, 1),
]


class Given:
    """A running service and its topics."""

    def __init__(self, service: Service, topics: MemoryTopics, folder: Path, url: str) -> None:
        self.service = service
        self.topics = topics
        self.folder = folder
        self.url = url


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Given]:
    """Two collections, one of which keeps ten times."""
    topics = MemoryTopics()
    topics.close(ONE, 10, *UPDATES[:3])
    topics.close(ONE, 20, *UPDATES[3:])
    topics.close(TWO, 15)
    keep = Retention(10, is_duration=False)
    with (
        serving(topics, tmp_path, ONE, TWO, retention=keep, start=False) as service,
        answering(service) as url,
    ):
        caught_up(service, topics, ONE, TWO)
        yield Given(service, topics, tmp_path, url)


@pytest.fixture(params=["open", "connect"])
def served(request: pytest.FixtureRequest, given: Given) -> Iterator[Reads]:
    """Reads of it."""
    if request.param == "open":
        with ikebana.open(given.folder, refresh_s=0) as opened:
            yield opened
    else:
        with ikebana.connect(given.url) as connected:
            yield connected


def test_the_collections_have_their_times_and_sizes(served: Reads) -> None:
    """By name."""
    others, things = served.collections()

    assert (things.name, things.since, things.upper) == (ONE, 9, 20)
    assert (things.keys, things.data, things.total) == (4, 4, 5)
    assert (others.since, others.upper, others.keys) == (4, 15, 0)
    assert served.newest() == served.newest(ONE, TWO) == 14
    assert served.newest(ONE) == 19


@pytest.mark.parametrize("read", [ikebana.open, ikebana.connect])
def test_the_examples_of_docstrings_run(given: Given, read: Callable[..., Reads]) -> None:
    """Over the folder, and over HTTP."""
    place = {'open("served")': f'open("{given.folder}")'}
    if read is ikebana.connect:
        place = {"http://127.0.0.1:8080": given.url}

    found = run_example(read, {**place, "whereabouts": ONE, "N12345": "a"}, ikebana=ikebana)

    assert found["newest"] == 19
    assert found["values"] == {b"2": 1}


def test_keys_are_read_as_of_a_time(served: Reads) -> None:
    """Of any bytes."""
    assert served.get(ONE, b'"a"') == {b"2": 1}
    assert served.get(ONE, b'"a"', as_of=10) == {b"1": 1}
    assert served.get(ONE, b"\x00") == {b"": 1}
    assert served.get(ONE, b"\xff") == {}
    assert served.get_many(ONE, [b'"b"', b"?", b'"a"'], as_of=10) == [{b"1": 2}, {}, {b"1": 1}]


def test_rows_are_read_in_order_within_bounds(served: Reads) -> None:
    """Page by page."""
    rows = list(reads.rows(served, ONE, limit=1))
    assert rows == [
        (None, {b"\xff\x00": 1}),
        (b"\x00", {b"": 1}),
        (b'"a"', {b"2": 1}),
        (b'"b"', {b"1": 2}),
    ]
    assert [row.key for row in reads.rows(served, ONE, Bounds(start=b'"b"'))] == [b'"b"']
    assert [row.key for row in reads.rows(served, ONE, Bounds(end=b'"'))] == [b"\x00"]
    assert [row.key for row in reads.rows(served, ONE, Bounds(prefix=b'"'), as_of=10)] == [
        b'"a"',
        b'"b"',
    ]
    assert served.count(ONE, Bounds(prefix=b'"')).keys == 2
    assert served.count(ONE, as_of=10).data == 3


def test_changes_are_read_page_by_page(served: Reads) -> None:
    """With exact bytes."""
    found = served.changes(ONE, 9)
    assert tuple(found) == (9, 19, [KeyedUpdate(*update) for update in UPDATES[3:]], None)
    first = served.changes(ONE, 9, 12, limit=1)
    rest = served.changes(ONE, 9, page=first.page)
    assert first.updates + rest.updates == found.updates


def test_counts_beyond_64_bits_are_read(tmp_path: Path) -> None:
    """A topic has pieces of them, which are followed, and added up."""
    topics = MemoryTopics()
    few = [(b"few", b"a", 3, LARGEST)] * 3
    many = [(b"many", b"%d" % number, 3, 1) for number in range(6)]
    topics.close(ONE, 10, *few, *many, *[(b"many", b"0", 4, LARGEST)] * 3)
    later = [(b"few", b"a", 12, -LARGEST)] * 4
    topics.close(ONE, 20, *later, (b"many", b"5", 15, LARGEST))
    with (
        serving(topics, tmp_path, ONE) as service,
        answering(service) as url,
        ikebana.open(tmp_path, refresh_s=0) as opened,
        ikebana.connect(url) as connected,
    ):
        caught_up(service, topics, ONE)
        reading: list[Reads] = [opened, connected]
        for served in reading:
            assert served.get(ONE, b"few", as_of=9) == {b"a": 3 * LARGEST}
            assert served.get(ONE, b"few") == {b"a": -LARGEST}
            once = {value: 1 for _, value, _, _ in many}
            assert served.get(ONE, b"many", as_of=3) == once
            assert served.get(ONE, b"many", as_of=9) == {**once, b"0": 3 * LARGEST + 1}
            assert served.page(ONE, as_of=9).rows[0] == (b"few", {b"a": 3 * LARGEST})
            assert served.count(ONE, as_of=9).total == 6 * LARGEST + 6
            assert served.count(ONE, Bounds(prefix=b"few"), as_of=9).total == 3 * LARGEST
            assert served.collections()[0].total == 3 * LARGEST + 6
            found = served.changes(ONE, 9).updates
            assert sums(found) == sums([*later, (b"many", b"5", 15, LARGEST)])
            assert all(abs(update.diff) <= LARGEST for update in found)


def test_collections_are_queried_in_sql(served: Reads) -> None:
    """As of one time."""
    text = "SELECT key, value FROM things WHERE key IS NOT NULL ORDER BY key DESC LIMIT 2"
    assert served.sql(text).to_pylist() == [{"key": "b", "value": "1"}] * 2
    assert served.sql("SELECT count(*) AS n FROM things", as_of=10).to_pylist() == [{"n": 4}]
    with pytest.raises(IkebanaError, match="it is no SELECT"):
        served.sql("DROP TABLE things")


def test_a_time_is_waited_for(served: Reads, given: Given) -> None:
    """Until a deadline."""
    assert served.wait(14, timeout=0) == 14
    with pytest.raises(WaitedError, match="time 29 to be closed: the frontier is 20"):
        served.wait(29, ONE, timeout=0)
    given.topics.close(ONE, 30, (b'"c"', b"1", 25, 1))
    assert served.wait(29, ONE, timeout=patient(10)) == 29
    assert served.get(ONE, b'"c"') == {b"1": 1}


def test_refusals_name_their_reason(served: Reads) -> None:
    """With the bounds of the times that there are."""
    for as_of, is_past in ((8, True), (20, False)):
        with pytest.raises(UnreadableTimeError, match="has the times from 9 to 19") as refusal:
            served.get(ONE, b'"a"', as_of=as_of)
        found = refusal.value
        assert (found.since, found.upper, found.is_past) == (9, 20, is_past)
    for name in ("thing", "..", "things/../others", ""):
        with pytest.raises(IkebanaError) as unknown:
            served.get(name, b"1")
        assert isinstance(unknown.value, UnknownCollectionError) or not name
    with pytest.raises(ConfigError, match="its token is none"):
        served.page(ONE, page="xyz")


def test_a_wrong_token_and_a_server_that_is_gone_are_told(tmp_path: Path) -> None:
    """As what they are."""
    topics = MemoryTopics()
    topics.close(ONE, 10)
    with serving(topics, tmp_path, ONE, start=False) as service:
        with answering(service, AccessLimits(Access.of_tokens(["secret"]))) as url:
            caught_up(service, topics, ONE)
            with ikebana.connect(url, token="secret") as good:
                assert good.newest() == 9
            with ikebana.connect(url) as bad, pytest.raises(AccessError, match="no token"):
                bad.newest()
        with ikebana.connect(url) as gone, pytest.raises(AwayError, match="does not answer"):
            gone.newest()
    with pytest.raises(ConfigError, match="it is no URL"):
        ikebana.connect("localhost:8080")


def test_a_copy_that_is_built_again_makes_a_server_away(given: Given) -> None:
    """Whoever asks again later, as of brokers that are away, has an answer then."""
    with ikebana.connect(given.url) as served:
        assert served.get(ONE, b'"a"') == {b"2": 1}
        given.service._followed[ONE]._let_go()
        with pytest.raises(AwayError, match="is being opened or built again") as refused:
            served.get(ONE, b'"a"')
        assert "Ask again soon" in (refused.value.hint or "")
        given.service._followed[ONE]._arrangement = given.service._followed[ONE]._opened()
        assert served.get(ONE, b'"a"') == {b"2": 1}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, ConfigError), (502, AwayError), (503, AwayError), (504, AwayError)],
)
def test_what_a_proxy_answers_is_told_by_its_status(status: int, kind: type[IkebanaError]) -> None:
    """Its body is none of ours."""
    with pytest.raises(IkebanaError, match=f"the server answers with status {status}") as refused:
        client._refuse(status, b"<html>")
    assert type(refused.value) is kind


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Nothing is made."""
    with pytest.raises(ConfigError, match="there is no such folder"):
        ikebana.open(tmp_path / "nothing")
    with ikebana.open(tmp_path) as empty:
        assert empty.collections() == []
        with pytest.raises(UnknownCollectionError, match="there is no collection here"):
            empty.newest()
        with pytest.raises(UnknownCollectionError, match="there is no collection here"):
            empty.wait(1, timeout=0)


def test_a_reader_does_not_go_back_when_a_collection_is_rebuilt(tmp_path: Path) -> None:
    """Until it has come as far again, it cannot be read."""
    topics = MemoryTopics()
    topics.close(ONE, 10, (b"1", b"a", 3, 1))
    with serving(topics, tmp_path, ONE) as service:
        caught_up(service, topics, ONE)
    shorter = MemoryTopics()
    shorter.close(ONE, 5, (b"1", b"a", 3, 1))
    with ikebana.open(tmp_path, refresh_s=0) as served:
        assert served.get(ONE, b"1") == {b"a": 1}
        for path in (tmp_path / ONE).iterdir():
            path.unlink()
        (tmp_path / ONE).rmdir()
        with serving(shorter, tmp_path, ONE) as service:
            caught_up(service, shorter, ONE)
            with pytest.raises(UnreadableTimeError, match="only times before 5 are closed"):
                served.get(ONE, b"1")
            shorter.close(ONE, 12, (b"1", b"b", 11, 1))
            caught_up(service, shorter, ONE)
            assert served.get(ONE, b"1") == {b"a": 1, b"b": 1}
