"""`ikebana.follow` over topics on a broker: every format, tokens, and topics created again."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ikebana
from ikebana.codecs import cdcv2, diff
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.kafka import client, following, topics
from ikebana.serving.aligned import AlignedBatch
from ikebana.serving.arrangement import USUAL
from ikebana.serving.service import Service, ServiceOptions
from support.docstring_examples import run_example
from support.waiting import wait_until
from support.written_topics import FIRST, SECOND, Row, Written

pytestmark = pytest.mark.kafka

SERVING = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


def _all(written: Written, *others: Written, resume: str | None = None) -> list[AlignedBatch]:
    names = [written.name, *(other.name for other in others)]
    servers = written.servers
    with ikebana.follow(names, bootstrap_servers=servers, resume=resume, wait=False) as found:
        return list(found)


def _rows(batches: list[AlignedBatch]) -> list[tuple[bytes | None, bytes, int, int]]:
    return sorted(
        (update[1], update[2], update[3], update[4])
        for batch in batches
        for update in batch.updates
    )


def _of(rows: list[Row]) -> list[tuple[bytes | None, bytes, int, int]]:
    return sorted(row[1:] for row in rows)


def test_closed_batches_come_once_with_their_frontier(written: Written) -> None:
    """Neither aborted records nor such that are not closed."""
    written.aborted([(0, b'"nobody"', b"1", 2, 1)])
    written.batch(FIRST, 10)
    written.batch(SECOND, 20)
    written.updates([(0, b'"grace"', b'"hopper"', 25, 1)])

    found = _all(written)

    assert [(batch.lower, batch.upper) for batch in found] == [(0, 10), (10, 20)]
    assert _rows(found) == _of(FIRST + SECOND)


def test_the_example_of_its_docstring_runs(written: Written) -> None:
    """On a topic of two batches."""
    written.batch(FIRST, 10)
    written.batch(SECOND, 20)
    names = {"whereabouts": written.name, "localhost:9092": written.servers}

    found = run_example(ikebana.follow, names, ikebana=ikebana)

    assert sorted(found["changes"]) == _of(FIRST + SECOND)


def test_a_token_goes_on_after_its_batch(written: Written) -> None:
    """With a repeated progress record behind it, too."""
    first = written.batch(FIRST, 10)
    token = _all(written)[-1].token
    assert _all(written, resume=token) == []
    written.publish(first)
    written.batch(SECOND, 20)

    found = _all(written, resume=token)

    assert [(batch.lower, batch.upper) for batch in found] == [(10, 20)]
    assert _rows(found) == _of(SECOND)


def test_two_topics_are_aligned(written: Written, topic_name: Callable[[str], str]) -> None:
    """The one that is ahead waits for the other, and a token keeps what it is ahead."""
    other = Written(written.servers, topic_name("others"))
    written.batch(FIRST, 10)
    other.batch([(0, b"1", b"2", 3, 1)], 6)

    found = _all(written, other)

    assert [batch.upper for batch in found] == [6]
    assert [update.time for update in found[0].updates] == [1, 3, 5, 5]
    other.batch([], 30)
    [rest] = _all(written, other, resume=found[0].token)
    assert (rest.lower, rest.upper) == (6, 10)
    assert [update.time for update in rest.updates] == [7]


def test_a_topic_made_anew_is_refused(written: Written) -> None:
    """A token of the old one says nothing of it."""
    written.batch(FIRST, 10)
    token = _all(written)[-1].token
    names = [written.name, written.name + ".progress"]
    for answer in written.admin.delete_topics(names).values():
        answer.result(30)
    anew = _made_anew(written)

    with pytest.raises(SourceError, match="was deleted and created again"):
        _all(anew, resume=token)


def _made_anew(written: Written) -> Written:
    wait_until(
        lambda: not topics.describe(written.admin, [written.name, written.name + ".progress"]),
        30,
        "the topics are deleted",
    )
    anew = Written(written.servers, written.name)
    anew.batch(SECOND, 30)
    return anew


def test_a_token_of_other_topics_and_a_format_without_tokens_are_refused(written: Written) -> None:
    """Each with its reason."""
    written.batch(FIRST, 10)
    token = _all(written)[-1].token
    servers = written.servers
    with pytest.raises(ConfigError, match="the old value of a key is in an earlier message"):
        ikebana.follow(written.name, bootstrap_servers=servers, format="upsert", resume=token)
    with pytest.raises(ConfigError, match=r"the token is of diffs-\w+ \(diff\)"):
        ikebana.follow(
            written.name, bootstrap_servers=servers, format="debezium-json", resume=token
        )
    with pytest.raises(ConfigError, match='a reader knows no format "dif"'):
        ikebana.follow(written.name, bootstrap_servers=servers, format="dif")


def test_the_join_of_the_docs_runs(
    written: Written,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each update meets what its key had at its own time in the folder of a server."""
    planes = Written(written.servers, topic_name("planes"))
    planes.batch([(0, b'"frank"', b"1", 1, 1)], 4)
    planes.batch([(0, b'"frank"', b"1", 4, -1), (0, b'"frank"', b"2", 4, 1)], 10)
    written.batch(FIRST, 10)
    blocks = re.findall(r"```python\n(.*?)```", SERVING.read_text(), re.DOTALL)
    [block] = [each for each in blocks if "as_of_join(batches" in each]
    block = block.replace('"whereabouts"', repr(written.name)).replace(
        '"planes"', repr(planes.name)
    )
    settings = {"bootstrap.servers": written.servers}
    wanted = ServiceOptions({planes.name: "diff"}, tmp_path / "served", USUAL)
    service = Service(wanted, functools.partial(following.follow, settings), print)
    service.start()
    try:
        wait_until(lambda: service.view(planes.name).meta.upper == 10, 30, "it is served")
        follow = functools.partial(ikebana.follow, bootstrap_servers=written.servers)
        monkeypatch.setattr(ikebana, "follow", follow)
        monkeypatch.chdir(tmp_path)
        exec(compile(block, "the join", "exec"), {})
    finally:
        service.close()

    found = capsys.readouterr().out.splitlines()
    assert sorted(line for line in found if "frank" in line) == [
        "1 b'\"frank\"' b'\"mcsherry\"' b'1' 1",
        "5 b'\"frank\"' b'\"mcsherry\"' b'2' -1",
        "5 b'\"frank\"' b'\"zappa\"' b'2' 1",
    ]


def test_upserts_are_followed_as_updates(written: Written) -> None:
    """The old value of a key is known of the messages before."""
    for value, time in ((b'"a"', 1), (b'"b"', 2), (None, 3)):
        written.producer.begin_transaction()
        written.producer.produce(
            written.name, value, b"7", partition=0, headers=diff.headers(time, 1)[:1]
        )
        written.producer.commit_transaction(30)
        written.progress(time + 1, 1)

    with ikebana.follow(
        written.name, bootstrap_servers=written.servers, format="upsert", until=4
    ) as found:
        batches = list(found)

    assert [[update[2:] for update in batch.updates] for batch in batches] == [
        [(b'"a"', 1, 1)],
        [(b'"a"', 2, -1), (b'"b"', 2, 1)],
        [(b'"b"', 3, -1)],
    ]


def test_facts_are_followed_and_resumed(
    settings: dict[str, str], topic_name: Callable[[str], str]
) -> None:
    """The place lies before facts of times that were not complete."""
    name = topic_name("facts")
    topics.create(client.admin(settings), name, 1, 1, {})
    producer = client.transactional_producer(settings, name, 60)

    def write(*messages: bytes) -> None:
        producer.begin_transaction()
        for message in messages:
            producer.produce(name, message, partition=0)
        producer.commit_transaction(30)

    def facts(*updates: tuple[bytes, bytes, int, int]) -> list[bytes]:
        return list(cdcv2.encode_updates(updates, 10**6))

    def progress(lower: int, upper: int, counts: dict[int, int]) -> list[bytes]:
        return list(cdcv2.encode_progress(lower, upper, counts, 10**6))

    def read(resume: str | None) -> list[AlignedBatch]:
        with ikebana.follow(
            name,
            format="cdcv2-json",
            resume=resume,
            wait=False,
            bootstrap_servers=settings["bootstrap.servers"],
        ) as found:
            return list(found)

    write(*facts((b"1", b'"a"', 3, 1), (b"2", b'"b"', 7, 1)), *progress(0, 5, {3: 1}))
    [first] = read(None)
    assert (first.lower, first.upper) == (0, 5)
    assert [update[1:] for update in first.updates] == [(b"1", b'"a"', 3, 1)]
    assert read(first.token) == []
    write(*progress(5, 9, {7: 1}), *facts((b"2", b'"b"', 7, 1)))
    [second] = read(first.token)
    assert (second.lower, second.upper) == (5, 9)
    assert [update[1:] for update in second.updates] == [(b"2", b'"b"', 7, 1)]
    write(*facts((b"1", b'"a"', 10, -1)), *progress(9, 11, {10: 1}))
    assert [update[3:] for batch in read(second.token) for update in batch.updates] == [(10, -1)]
