"""Read exactly the committed records in ranges of offsets.

Aborted records and Kafka's transaction markers take offsets, but no reader gets them.  So the
number of records does not show that a range is read completely.  It is, when a record comes from
at or beyond its end, or when the partition ends there.  If the partition ends before the range
does, the reader waits, because the last stable offset moves only after a commit.
"""

import contextlib
import functools
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ikebana.codecs.diff import ProgressRecord, decode_progress
from ikebana.codecs.errors import DecodeError
from ikebana.errors import AwayError, IkebanaError, SourceError
from ikebana.processor.kafka import client
from ikebana.processor.kafka.client import PATIENCE_S, REQUEST_S

try:
    from ikebana.compiled._kafka_records import runs as compiled_runs
except ImportError:
    compiled_runs = None  # type: ignore[assignment]

_BATCH = 10_000
# If fewer records come, consume() waits for its whole time-out; then poll() is better.
_FEW = 200
_WAIT_S = 0.02


class DeletedError(SourceError):
    """The broker no longer has records that were to be read."""


class Range(NamedTuple):
    """The offsets `start <= offset < end` of a partition."""

    topic: str
    partition: int
    start: int
    end: int


class RangeReader:
    """A consumer that reads ranges one after another, and keeps no position between them."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._consumer: Consumer = client.consumer(settings)
        self._asked: set[str] = set()

    def read(
        self, ranges: Sequence[Range], patience_s: float = PATIENCE_S
    ) -> Generator[tuple[Range, list[Message]], None, None]:
        """Yield the records of several ranges, interleaved, but in order within each range.

        Several ranges of one partition are read one after the other.

        Raises:
            SourceError: a range does not exist, or no longer, or did not come in time.
        """
        consumer = self._consumer
        self._ask_for_leaders(ranges, patience_s)
        for left in _rounds(ranges):
            consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in left.values()])
            try:
                yield from self._polled(left, patience_s)
            finally:
                consumer.unassign()

    def _ask_for_leaders(self, ranges: Sequence[Range], patience_s: float) -> None:
        """Ask for the leaders of topics that are read for the first time.

        The client would do so by itself, but only a second after it is told to read them.
        """
        for topic in {each.topic for each in ranges} - self._asked:
            # What is wrong with a topic is an error of its reading.
            with contextlib.suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=min(patience_s, REQUEST_S))
                self._asked.add(topic)

    def _polled(
        self, left: dict[tuple[str, int], Range], patience_s: float
    ) -> Iterator[tuple[Range, list[Message]]]:
        consumer = self._consumer
        remaining = sum(r.end - r.start for r in left.values())
        deadline = time.monotonic() + patience_s
        while left:
            if remaining > _FEW:
                messages = consumer.consume(min(remaining, _BATCH), _WAIT_S)
            else:
                message = consumer.poll(_WAIT_S)
                messages = [] if message is None else [message]
            arrived: dict[tuple[str, int], list[Message]] = {}
            finished = set()
            for at, records, events in runs(messages):
                span = left.get(at)
                for event in events:
                    if _at_the_end(event.error(), span, event.offset()):
                        finished.add(at)
                if span is None or not records:
                    continue
                last = records[-1].offset()
                if last >= span.end - 1:
                    finished.add(at)
                if last >= span.end:
                    records = [each for each in records if each.offset() < span.end]
                if at in arrived:
                    arrived[at].extend(records)
                elif records:
                    arrived[at] = records
            for at, held in arrived.items():
                yield left[at], held
                remaining -= len(held)
            for at in finished:
                del left[at]
            if finished and left:
                # No records of a finished partition are prefetched in vain.
                consumer.incremental_unassign([TopicPartition(*at) for at in finished])
            if arrived or finished:
                deadline = time.monotonic() + patience_s
            elif time.monotonic() > deadline:
                raise _too_late(left, patience_s)

    def tail(self, topic: str, partition: int, low: int, high: int) -> list[Message]:
        """Read the last committed records before `high`: at least one, if there is any.

        The search goes backwards from the end, so the cost does not grow with the topic.
        """
        # A record and Kafka's marker of its transaction take two offsets.
        back = 4
        while high > low:
            start = max(low, high - back)
            messages = [
                m for _, ms in self.read([Range(topic, partition, start, high)]) for m in ms
            ]
            if messages or start == low:
                return messages
            back *= 8
        return []

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Read the first offset of a partition and the one after its last, committed or not."""

        def ask(which: int) -> int:
            [answer] = self._consumer.offsets_for_times(
                [TopicPartition(topic, partition, which)], REQUEST_S
            )
            if answer.error is not None:
                raise KafkaException(answer.error)
            if answer.offset < 0:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return int(answer.offset)

        def both() -> tuple[int, int]:
            return ask(OFFSET_BEGINNING), ask(OFFSET_END)

        return client.patiently(
            lambda: client.with_leaders(both, self._consumer, [topic]), f"{topic}[{partition}]"
        )

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def connected(settings: Mapping[str, str]) -> RangeReader:
    """Return the process's reader for these settings of Kafka's client."""
    return _connected(frozenset(settings.items()))


@functools.lru_cache(maxsize=4)
def _connected(settings: frozenset[tuple[str, str]]) -> RangeReader:
    # A worker lives through many batches, and to connect takes longer than to ask or to read.
    return RangeReader(dict(settings))


def runs_of(
    messages: Iterable[Message],
) -> list[tuple[tuple[str, int], list[Message], list[Message]]]:
    """Group consecutive messages of one partition, and divide them into records and events."""
    result: list[tuple[tuple[str, int], list[Message], list[Message]]] = []
    for at, run in groupby(messages, lambda message: (message.topic(), message.partition())):
        records: list[Message] = []
        events: list[Message] = []
        for message in run:
            (records if message.error() is None else events).append(message)
        result.append((at, records, events))
    return result


runs = runs_of if compiled_runs is None else compiled_runs


def _rounds(ranges: Sequence[Range]) -> list[dict[tuple[str, int], Range]]:
    """Divide ranges into rounds with one range a partition: a consumer has one position in it."""
    rounds: list[dict[tuple[str, int], Range]] = []
    for each in ranges:
        if each.start < each.end:
            at = each.topic, each.partition
            into = next((one for one in rounds if at not in one), None)
            if into is None:
                rounds.append(into := {})
            into[at] = each
    return rounds


def timestamp_of(message: Message) -> int | None:
    """Return the timestamp of a record, in milliseconds; None if it has none."""
    kind, timestamp = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else int(timestamp)


def progress_record(message: Message, refusal: type[IkebanaError]) -> ProgressRecord:
    """Decode a record of a progress topic; raise a `refusal` for any other message."""
    try:
        return decode_progress(message.value())
    except DecodeError as error:
        raise refusal(
            f"cannot use {message.topic()}[0]@{message.offset()}: {error.reason}",
            hint="Another version of ikebana, or another program, has written to the topic.",
        ) from None


def range_deleted(missing: Range) -> DeletedError:
    """Make the error for a range if the broker no longer has its beginning."""
    return DeletedError(
        f"cannot read {missing.topic}[{missing.partition}]@{missing.start}: the broker no "
        "longer has this offset; the records up to the first one that it has are lost",
        hint="Raise the topic's retention. If an edit reads the topic again, start with the file "
        "of before, which withdraws the edit. Otherwise, to go on without the lost records, "
        "start with a new checkpoint and new output topics.",
    )


def _at_the_end(error: KafkaError, span: Range | None, offset: int) -> bool:
    """Return whether an event means that the range is read; raise any other error."""
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        return span is not None and offset >= span.end
    if code == KafkaError._AUTO_OFFSET_RESET:
        # An event of an abandoned range may come while others are read.
        if span is None:
            return False
        raise range_deleted(span)
    if not client.may_pass(error):
        raise SourceError(f"could not read {span or 'a topic'}: {error.str()}")
    return False


def _too_late(left: Mapping[tuple[str, int], Range], patience_s: float) -> AwayError:
    named = ", ".join(f"{r.topic}[{r.partition}]@{r.end}" for r in left.values())
    return AwayError(
        f"could not read up to {named} in {patience_s:.0f} s",
        hint="A transaction of another producer that stays open holds readers back; its "
        "transaction.timeout.ms ends it. Otherwise check the brokers.",
    )
