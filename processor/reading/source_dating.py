"""Times of a source's own log, and its transactions, taken from Debezium's envelopes.

A task sums up what it reads of transactions for the markers, so that the frontier passes a
transaction only when all of its changes have been read.
"""

from collections.abc import Iterator, Sequence

from ikebana.codecs.debezium_position import Boundaries, Position, Positions
from ikebana.codecs.error_record import error_record
from ikebana.codecs.errors import DecodeError
from ikebana.processor.planning.plan import SOURCE_CLOCKS, Input, Plan
from ikebana.processor.planning.transaction_topics import collections_of
from ikebana.processor.reading.messages import Message
from ikebana.processor.rows.envelope import pack
from ikebana.processor.rows.rows import Errors, Seen
from ikebana.processor.timing.input_times import topic_key
from ikebana.processor.timing.transactions import Transactions, Watch


class SourceDating:
    """Gives the messages of one partition the times of their source."""

    def __init__(self, source: Input, watch: Watch | None, where: tuple[str, int]) -> None:
        assert source.event_time is not None
        self._clock = source.event_time.clock
        self._key = topic_key(source.transaction_topic or "")
        self._watch = watch
        self._where = where
        self._positions = Positions()

    def dated(self, messages: Sequence[Message]) -> list[Message]:
        """Replace the timestamps of messages by their times in the source, or by None."""
        return [message._replace(timestamp=self._time(message)) for message in messages]

    def seen(self) -> Seen | None:
        """Report the transactions that were read; None if nobody counts them here."""
        if self._watch is None:
            return None
        return Seen(self._key, *self._where, transactions=self._watch.seen())

    def _time(self, message: Message) -> int | None:
        try:
            position = self._positions.of(message.value or b"")
        except DecodeError:
            return None  # decoding makes the error record
        if position is None:
            return None
        if self._watch is not None:
            self._watch.change(position)
        return self._of(position)

    def _of(self, position: Position) -> int | None:
        match self._clock:
            case "source":
                return position.ts_ms
            case "lsn":
                return position.lsn
            case _:
                return position.time


class BoundaryReading:
    """Reads a transaction topic, which makes no updates, only error records at time `lower`."""

    def __init__(self, watch: Watch, where: tuple[str, int], lower: int) -> None:
        self._watch = watch
        self._where = where
        self._lower = lower
        self._boundaries = Boundaries()

    def add(self, messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
        """Take messages; yield (shard, packed chunk) of error records for undecodable ones."""
        records = []
        for message in messages:
            if message.value is None:
                continue
            try:
                boundary = self._boundaries.of(message.value)
            except DecodeError as error:
                place = (*self._where, message.offset)
                records.append(error_record(str(error), place, message.key, message.value))
            else:
                if boundary is not None:
                    self._watch.boundary(boundary)
        if records:
            yield 0, pack(Errors(records, self._lower))

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the report on transactions, after the last message."""
        seen = Seen(topic_key(self._where[0]), *self._where, transactions=self._watch.seen())
        yield 0, pack(seen)


def watch_of(plan: Plan, topic: str, where: tuple[str, int], known: Transactions | None) -> Watch:
    """Make the watch of one partition, for a connector that reports transactions in `topic`."""
    read = [t for s in plan.inputs if s.transaction_topic == topic for t in s.topics]
    return Watch(known or Transactions(), f"{where[0]}[{where[1]}]", collections_of(read, topic))


def dating_of(
    plan: Plan, source: Input, where: tuple[str, int], known: Transactions | None
) -> SourceDating | None:
    """Make what dates the messages of one partition; None if their times are not the source's.

    Of the inputs that read a topic, the first one with transactions counts their changes.
    """
    event = source.event_time
    if event is None or event.clock not in SOURCE_CLOCKS:
        return None
    topic = event.transactions
    counting = [each for each in plan.readers(where[0]) if each.transaction_topic is not None]
    if topic is None or counting[0] != source:
        return SourceDating(source, None, where)
    return SourceDating(source, watch_of(plan, topic, where, known), where)
