"""Times of different kinds, of a clock and offsets, are not read together; nor is nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ikebana
from ikebana import EventTime, Input, Output, Plan, Upsert
from ikebana.codecs.diff import Times
from ikebana.errors import AwayError, IkebanaError
from ikebana.processor.base import log_lines
from ikebana.processor.base.diff_reader import MixedTimesError, kind_of
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka.following import Resume
from ikebana.serving.aligned import Follower, InMemory
from ikebana.serving.service import Service
from ikebana.serving.view import UnreadableTimeError
from support.http_answers import ask_json
from support.served_topics import MemoryTopics, answering, caught_up, serving

CITIES, PLACES = "cities", "whereabouts"
MS = 1_795_712_375_709
WORDS = (
    'times of offset and of clock cannot be read together: offset of "whereabouts", clock of '
    '"cities"'
)


@pytest.fixture(params=["told", "not told"])
def topics(request: pytest.FixtureRequest) -> MemoryTopics:
    """One topic in milliseconds and one in offsets, which versions of before did not tell."""
    made = MemoryTopics()
    made.close(CITIES, MS, (b"1", b"{}", MS - 9, 1))
    made.close(PLACES, 4, (b"1", b"{}", 3, 1))
    if request.param == "told":
        made.times = {CITIES: "clock", PLACES: "offset"}
    return made


@pytest.fixture
def service(topics: MemoryTopics, tmp_path: Path) -> Iterator[Service]:
    with serving(topics, tmp_path, CITIES, PLACES) as found:
        caught_up(found, topics, CITIES, PLACES)
        yield found


@pytest.mark.parametrize("reader", ["open", "connect"])
def test_a_query_of_both_is_refused_by_the_names_of_both(
    service: Service, tmp_path: Path, reader: str
) -> None:
    """Whatever time is asked for; each by itself is answered."""
    with answering(service) as url:
        opened = ikebana.open(tmp_path) if reader == "open" else ikebana.connect(url)
        with opened as served:
            both = f"SELECT (SELECT count(*) FROM {CITIES}), (SELECT count(*) FROM {PLACES})"
            refused: list[Callable[[], object]] = [
                lambda: served.sql(both),
                lambda: served.sql(both, as_of=3),
                lambda: served.newest(CITIES, PLACES),
                lambda: served.wait(3, CITIES, PLACES, timeout=0),
            ]
            for read in refused:
                with pytest.raises(IkebanaError) as error:
                    read()
                assert error.value.message == WORDS
                assert "Read the ones and the others by themselves" in (error.value.hint or "")
            for name in (CITIES, PLACES):
                assert served.sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 1}]
            kinds = {each.name: each.times for each in served.collections()}
            assert kinds == {CITIES: "clock", PLACES: "offset"}


def test_the_list_of_collections_says_why_they_have_no_newest_time(service: Service) -> None:
    """And a subscription to both is refused before it begins."""
    with answering(service) as url:
        status, found = ask_json(f"{url}/v1/collections")
        assert (status, found["newest"], found["why"]) == (200, None, WORDS)
        for asked in ("", "?as_of=3", f"?collection={CITIES}&collection={PLACES}"):
            status, found = ask_json(f"{url}/v1/subscribe{asked}")
            assert (status, found["error"]) == (400, WORDS)
        assert ask_json(f"{url}/v1/newest?collection={CITIES}")[1]["newest"] == MS - 1


def test_following_both_is_refused(topics: MemoryTopics) -> None:
    """It would wait for a frontier that never comes."""

    def open_topic(topic: str, form: str, resume: Resume | None) -> Any:
        return topics.follow(topic, form, resume)

    formats = {CITIES: "diff", PLACES: "diff"}
    with (
        Follower(open_topic, formats, InMemory, resume=None, wait=False) as follower,
        pytest.raises(MixedTimesError, match='offset of "whereabouts", clock of "cities"'),
    ):
        list(follower)


def test_what_is_told_counts_more_than_how_great_times_are() -> None:
    """Positions in a log may be as great as milliseconds."""
    assert kind_of("offset", MS) == "offset"
    assert [kind_of(None, upper) for upper in (MS, 4, 0, -(2**63), 10**11)] == [
        "clock",
        "offset",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("source", "time", "expected"),
    [
        (Input("i", ("t",)), "ingest", "clock"),
        (Input("i", ("t",)), "offset", "offset"),
        (Input("i", ("t",), event_time=EventTime("value")), "ingest", "clock"),
        (Input("i", ("t",), event_time=EventTime(clock="source")), "offset", "clock"),
        (Input("i", ("t",), event_time=EventTime(clock="lsn")), "ingest", "offset"),
        (Input("i", ("t",), event_time=EventTime(clock="transaction")), "ingest", "offset"),
        (Input("i", ("t",), "diff"), "ingest", None),
    ],
)
def test_a_plan_tells_the_kind_of_its_times(
    source: Input, time: Any, expected: Times | None
) -> None:
    """Of those that it takes from topics of updates it knows nothing."""
    plan = Plan("p", (source,), (Upsert("u", "i"),), (Output("o", "u", "o"),), time=time)

    assert plan.times == expected


def test_before_the_first_closed_time_there_are_no_bounds(tmp_path: Path) -> None:
    """The answer says how far the collection is, and nothing else."""
    topics = MemoryTopics()
    topics.close(CITIES, 10, (b"1", b"{}", 3, 1))
    topics.failure = AwayError("the brokers do not answer")
    with serving(topics, tmp_path, CITIES, "empty") as service, answering(service) as url:
        status, found = ask_json(f"{url}/v1/collections/{CITIES}/get?key=1")
        assert (status, sorted(found)) == (409, ["error", "hint"])
        assert found["error"].startswith(
            f'cannot read "{CITIES}": no time of it is closed yet; catching up: it is being '
            "read from its topic"
        )
        listed = ask_json(f"{url}/v1/collections")[1]
        assert listed["why"] == found["error"]
        one = listed["collections"][0]["collection"]
        assert (one["since"], one["upper"], one["times"]) == (None, None, None)
        ready = ask_json(f"{url}/ready")[1]["collections"][CITIES]
        assert (ready["since"], ready["upper"]) == (None, None)
        with ikebana.connect(url) as served, pytest.raises(UnreadableTimeError) as error:
            served.get(CITIES, b"1")
        assert (error.value.since, error.value.upper) == (None, None)

        topics.failure = None
        caught_up(service, topics, CITIES)
        # The other topic has been read, and nothing of it is closed.
        read = f"{url}/v1/collections/empty/get?key=1"
        words = "all of its topic was read, and none is closed there"
        while words not in ask_json(read)[1]["error"]:
            service.pause(0.05)


def test_a_query_from_the_shell_waits_for_the_first_closed_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says so, once: whoever has just started a server need not ask again."""
    topics = MemoryTopics()
    topics.close(CITIES, 10, (b"1", b"{}", 3, 1))
    topics.failure = AwayError("the brokers do not answer")
    said: list[str] = []
    with serving(topics, tmp_path, CITIES) as service, answering(service) as url:

        def note(text: str) -> None:
            said.append(text)
            topics.failure = None

        monkeypatch.setattr(log_lines, "note", note)
        query = f"SELECT count(*) AS n FROM {CITIES}"
        result = CliRunner().invoke(cli, ["sql", query, "--url", url, "--output", "json"])

        assert (result.exit_code, result.stdout) == (0, '{"n":1}\n'), result.output
        (words,) = said
        assert "no time of it is closed yet; catching up" in words
        assert words.endswith("; waiting for 20 s at most")
