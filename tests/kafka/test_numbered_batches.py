"""Batches that Spark numbers are written into a topic once each."""

import time
from collections.abc import Callable
from contextlib import closing
from itertools import permutations
from math import nan
from statistics import median

import pytest
from confluent_kafka import KafkaException

from ikebana.codecs.output_messages import OutputMessage
from ikebana.errors import CheckpointError, SourceError
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.client import TRANSACTIONS, admin, enqueue
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.spark.topic_writer import (
    UpsertMessage,
    Written,
    digest_of,
    is_written,
    last_by_key,
    log_of,
    messages_of,
)
from ikebana.processor.spark.topic_writer import write_batch as write
from support.pipeline_processes import create


def _messages(*values: str) -> list[OutputMessage]:
    return [OutputMessage(value[:1].encode(), value.encode(), []) for value in values]


def _values(settings: dict[str, str], topic: str) -> list[bytes]:
    """All committed values of a topic of one partition."""
    [end] = topics.high_watermarks(admin(settings), {topic: 1})[topic].values()
    with closing(RangeReader(settings)) as reader:
        read = reader.read([Range(topic, 0, 0, end)])
        return [message.value() for _, messages in read for message in messages]


def test_a_reader_does_not_wait_for_the_first_record_of_another_topic(
    broker: Broker, topic_name: Callable[[str], str]
) -> None:
    """The client looks for leaders of what it is to read once a second; readers ask before."""
    settings, names = {"bootstrap.servers": broker.bootstrap_servers}, []
    for _ in range(6):
        names.append(topic_name("numbered"))
        create(broker.bootstrap_servers, names[-1], 1)
        write(settings, names[-1], "writer", 0, _messages("a1"))

    seconds = []
    with closing(RangeReader(settings)) as reader:
        for name in names:
            begun = time.monotonic()
            assert len([*reader.read([Range(name, 0, 0, 1)])]) == 1
            seconds.append(time.monotonic() - begun)

    # A busy machine may delay some of them.
    assert median(seconds) < 0.7


@pytest.mark.parametrize(
    ("orders", "last"),
    [((1, 1, 2), 2), ((None, None, 1), 2), ((1, 2, 2), None), ((1, 1.5, nan), None)],
)
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_only_rows_that_no_other_is_after_have_to_be_in_order(
    orders: tuple[float | None, ...], last: int | None, tasks: int
) -> None:
    """However they come, and whichever tasks have them."""
    rows = [UpsertMessage(b"1", b"%d" % at, order) for at, order in enumerate(orders)]
    for some in permutations(rows):
        by_task = [last_by_key(some[task::tasks]).values() for task in range(tasks)]
        passed_on = [row for task in by_task for each in task for row in each]
        if last is None:
            with pytest.raises(SourceError, match="nothing says which of them is the last"):
                messages_of(passed_on, "t")
        else:
            assert messages_of(passed_on, "t") == [OutputMessage(b"1", b"%d" % last, [])]


def test_a_digest_is_of_a_set_of_messages() -> None:
    """Their order is not told; keys, values and deletions are."""
    one, other = _messages("a1", "b2")

    assert digest_of([one, other]) == digest_of([other, one])
    assert digest_of([one]) != digest_of([one, one])
    assert digest_of([one._replace(value=None)]) != digest_of([one._replace(value=b"")])
    assert digest_of([OutputMessage(b"ab", b"c", [])]) != digest_of(
        [OutputMessage(b"a", b"bc", [])]
    )


@pytest.mark.parametrize(
    ("last", "batch", "written"),
    [(None, (0, "x"), False), ((3, "x"), (4, "x"), False), ((3, "x"), (3, "x"), True)],
)
def test_a_batch_is_written_once(
    last: tuple[int, str] | None, batch: tuple[int, str], *, written: bool
) -> None:
    """The last one may come again; a later one is new."""
    before = None if last is None else Written(last[0], 1, last[1])

    assert is_written("t", "w", before, Written(batch[0], 1, batch[1])) is written


@pytest.mark.parametrize(
    ("batch", "words"), [((3, "y"), "3 is there already, with other"), ((2, "x"), "and 3 after")]
)
def test_another_numbering_is_refused(batch: tuple[int, str], words: str) -> None:
    """A new checkpoint counts from zero: its batches are not left out."""
    with pytest.raises(CheckpointError, match=words):
        is_written("t", "w", Written(3, 1, "x"), Written(batch[0], 1, batch[1]))


@pytest.mark.kafka
def test_a_batch_whose_commit_is_in_doubt_is_there_once(
    broker: Broker, topic_name: Callable[[str], str]
) -> None:
    """Committed, left open, or never begun: writing it again makes it so."""
    settings, topic = {"bootstrap.servers": broker.bootstrap_servers}, topic_name("orders")
    with pytest.raises(SourceError, match="no such topic"):
        write(settings, topic, "w", 0, [])
    create(settings["bootstrap.servers"], topic, 1)
    assert write(settings, topic, "w", 0, _messages("a1", "b1"))

    assert not write(settings, topic, "w", 0, _messages("b1", "a1"))
    # An instance that was stopped before it committed.
    log = log_of(topic, "w")
    stopped = TransactionalProducer(settings, f"{TRANSACTIONS}{log}", 60)
    stopped._producer.begin_transaction()
    enqueue(stopped._producer, topic, key=b"a", value=b"a2")
    enqueue(stopped._producer, log, key=b"batch", value=b"{}", partition=0)
    stopped._producer.flush(30)
    assert write(settings, topic, "w", 1, _messages("a2"))
    assert write(settings, topic, "other", 0, _messages("c1"))

    assert sorted(_values(settings, topic)) == [b"a1", b"a2", b"b1", b"c1"]
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        stopped._producer.commit_transaction(30)
