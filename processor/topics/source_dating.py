"""Times of a source's own log, and its transactions, taken from Debezium's envelopes.

A task sums up what it reads of transactions for the markers, so that the frontier passes a
transaction only when all of its changes have been read.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from ikebana.codecs.debezium_position import Boundaries, Positions, SourcePosition
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.processor.base.rows import FIRST, Errors, InSource, Seen, pack
from ikebana.processor.planning.input_rows import collections_of
from ikebana.processor.planning.plan import SOURCE_CLOCKS, Input, Plan
from ikebana.processor.topics.input_times import topic_key
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.transactions import Repeats, Transactions, Watch


class SourceDating:
    """Gives the messages of one partition the times of their source.

    With `repeats`, messages that the connector has sent before are left out; `ignored` counts
    them.
    """

    def __init__(
        self,
        source: Input,
        watch: Watch | None,
        where: tuple[str, int],
        repeats: Repeats | None = None,
    ) -> None:
        assert source.event_time is not None
        self._clock = source.event_time.clock
        self._key = topic_key(source.transaction_topic or "")
        self._watch = watch
        self._where = where
        self._repeats = repeats
        self._positions = Positions()
        self.ignored: Counter[str] = Counter()

    def dated(self, messages: Sequence[Message]) -> list[Message]:
        """Replace the timestamps of messages by their times in the source, or by None."""
        result = []
        for message in messages:
            position = self._position(message)
            if position is None:
                result.append(message._replace(timestamp=None))
            elif self._repeats is not None and self._repeats.has(position):
                self.ignored["repeated"] += 1
            else:
                if self._watch is not None:
                    self._watch.change(position)
                result.append(message._replace(timestamp=self._of(position)))
        return result

    def seen(self) -> Seen | None:
        """Report the transactions that were read; None if nobody counts them here."""
        if self._watch is None:
            return None
        seen = self._watch.seen()
        if self._repeats is not None:
            seen = msgspec.structs.replace(seen, furthest=self._repeats.furthest)
        return Seen(self._key, *self._where, transactions=seen)

    def _position(self, message: Message) -> SourcePosition | None:
        try:
            return self._positions.of(message.value or b"")
        except DecodeError:
            return None  # decoding makes the error record

    def _of(self, position: SourcePosition) -> int | None:
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


def watch_of(plan: Plan, topic: str, where: tuple[str, int], state: Transactions | None) -> Watch:
    """Make the watch of one partition, for a connector that reports transactions in `topic`."""
    read = [t for s in plan.inputs if s.transaction_topic == topic for t in s.topics]
    return Watch(state or Transactions(), f"{where[0]}[{where[1]}]", collections_of(read, topic))


def dating_of(
    plan: Plan,
    source: Input,
    where: tuple[str, int],
    state: Transactions | None,
    furthest: InSource = FIRST,
) -> SourceDating | None:
    """Make what dates the messages of one partition; None if their times are not the source's.

    Changes of transactions up to `furthest` were sent before.  Of the inputs that read a topic,
    the first one with transactions counts their changes.
    """
    event = source.event_time
    if event is None or event.clock not in SOURCE_CLOCKS:
        return None
    topic = event.transactions
    counting = [each for each in plan.readers(where[0]) if each.transaction_topic is not None]
    if topic is None:
        return SourceDating(source, None, where)
    watch = watch_of(plan, topic, where, state) if counting[0] == source else None
    return SourceDating(source, watch, where, Repeats(furthest))
