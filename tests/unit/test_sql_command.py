"""`ikebana sql` over local copies that are damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import DatabaseReader, Scans, SharedDatabase
from ikebana.errors import ConfigError
from ikebana.processor.cli import snapshot
from ikebana.processor.cli.connection import NOW, time_or_now
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka import following, reading_rights
from ikebana.processor.kafka.following import Following, Resume
from ikebana.serving.service import CopyError
from support.served_topics import MemoryTopics, caught_up, serving

NAME = "things"
QUERY = f"SELECT count(*) AS n FROM {NAME}"


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> MemoryTopics:
    """A topic with two keys, which the command reads."""
    made = MemoryTopics()
    made.close(NAME, 10, (b"1", b"a", 3, 1), (b"2", b"a", 4, 1))

    def follow(
        _: object, topic: str, form: str, resume: Resume | None = None, **__: object
    ) -> Following:
        return made.follow(topic, form, resume)

    monkeypatch.setattr(following, "follow", follow)
    monkeypatch.setattr(reading_rights, "reach", lambda *_: None)
    return made


def damage(monkeypatch: pytest.MonkeyPatch, database: type[Any], times: int) -> None:
    """Let so many of the next scans of databases meet a damage."""
    whole: Callable[..., Scans] = database.scans
    left = [times]

    def scans(self: Any, *ranges: Any) -> Scans:
        if left[0]:
            left[0] -= 1
            if isinstance(self, SharedDatabase):
                self.note("Corruption: a bit")
            raise LocalDamageError("Corruption: a bit")
        return whole(self, *ranges)

    monkeypatch.setattr(database, "scans", scans)


def asked(*where: str) -> Result:
    """Run the query."""
    return CliRunner().invoke(cli, ["sql", QUERY, *where, "--output", "json"])


@pytest.mark.usefixtures("topics")
def test_a_copy_of_a_topic_that_is_damaged_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback."""
    damage(monkeypatch, SharedDatabase, 1)
    done = asked(NAME)

    assert (done.exit_code, done.stdout) == (0, '{"n":2}\n')
    assert "is damaged: Corruption: a bit; the topics are read again\n" in done.stderr


@pytest.mark.usefixtures("topics")
def test_topics_are_those_that_from_names_unless_others_are_given() -> None:
    """It says which; a query that names none is told what to give."""
    done = asked()
    assert (done.exit_code, done.stdout) == (0, '{"n":2}\n')
    assert f"reading the topics that FROM names: {NAME}\n" in done.stderr

    none = CliRunner().invoke(cli, ["sql", "SELECT 1 AS n"])
    assert isinstance(none.exception, ConfigError)
    assert none.exception.message == (
        "cannot run the query: give one of --url, --data, and topics"
    )


def test_a_topic_that_is_behind_is_named(topics: MemoryTopics) -> None:
    """For the others are read as of its time, at which they may have had nothing."""
    topics.close("later", 30, (b"1", b"a", 20, 1))
    both = f"SELECT (SELECT count(*) FROM later) AS l, (SELECT count(*) FROM {NAME}) AS n"
    words = "all are read as of 9, the newest time of things; later may have newer rows\n"

    done = CliRunner().invoke(cli, ["sql", both, "--output", "json"])
    assert (done.exit_code, done.stdout) == (0, '{"l":0,"n":2}\n')
    assert words in done.stderr

    # Nothing is said of one alone, as of a time that was asked for, and of those that are as far.
    assert "newest time" not in asked().stderr
    at = CliRunner().invoke(cli, ["sql", both, "--as-of", "8", "--output", "json"])
    assert (at.stdout, "newest time" in at.stderr) == ('{"l":0,"n":2}\n', False)
    topics.close(NAME, 30)
    even = CliRunner().invoke(cli, ["sql", both, "--output", "json"])
    assert (even.stdout, "newest time" in even.stderr) == ('{"l":1,"n":2}\n', False)


@pytest.mark.usefixtures("topics")
def test_copies_that_are_all_damaged_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names the damage, and what may be wrong."""
    damage(monkeypatch, SharedDatabase, 99)
    done = asked(NAME)

    assert isinstance(done.exception, CopyError)
    assert "copies of the topics are damaged: Corruption: a bit" in done.exception.message
    assert "TMPDIR" in (done.exception.hint or "")


def test_a_damaged_copy_of_a_server_is_an_error(
    monkeypatch: pytest.MonkeyPatch, topics: MemoryTopics, tmp_path: Path
) -> None:
    """Only its server can build it again."""
    with serving(topics, tmp_path, NAME) as service:
        caught_up(service, topics, NAME)
    assert asked("--data", str(tmp_path)).stdout == '{"n":2}\n'
    damage(monkeypatch, DatabaseReader, 1)
    done = asked("--data", str(tmp_path))

    assert isinstance(done.exception, CopyError)
    assert f"a local copy in {tmp_path} cannot be read" in done.exception.message
    assert "--rebuild" in (done.exception.hint or "")


def test_a_snapshot_may_be_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """As the answers of queries are."""
    snapshot._write_table({(b"1", b'{"a":2}'): 3}, "table", {})

    printed = capsys.readouterr().out
    assert [word for word in printed.split() if word.isalnum()] == [
        "key",
        "a",
        "count",
        "1",
        "2",
        "3",
    ]


def test_a_reader_may_end_with_what_is_closed_now() -> None:
    """Which is no time that an output could have."""
    assert time_or_now("now") == NOW
    assert [time_or_now(text) for text in ("-1", "5")] == [-1, 5]
