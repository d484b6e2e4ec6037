"""The frontier of a source's transactions: the LSN up to which all changes have been read.

Times are LSNs as in `codecs.debezium_position`: the time of a transaction is the LSN at which
the transaction before it ended.  A transaction is complete when, of each collection that the
pipeline reads, as many changes have been read as its END counts.  The frontier is the LSN at
which the last transaction ended that is complete, together with all before it.  The next
transaction has no lesser time.  So the frontier passes a transaction only when that is
complete, and everything with a time before the frontier has been read.

The transaction topic must have one partition, so that ENDs come in the order in which
transactions committed, and their LSNs grow.  An END whose LSN is not greater than the last one
is a repeat.  A source whose LSNs begin anew (another server, an older backup) must be read as
another source: all of its ENDs would count as repeats.

* Repeats: a connector that restarts sends a run of changes again, each to the same partition
  as before.  A change that is not beyond the furthest one of its partition is left out: it would
  be late, and show an old value until the run has been read to its end (`Repeats`).  The place of
  a transaction with the time 0 is not known: its rows are taken again, but a change of it is
  counted only if its position in the transaction is beyond those counted before.  A transaction
  with more changes than its END counts is complete.
* A change is late if the frontier has passed its transaction.  Nothing waits for it; what
  happens to its row is not decided here.  It is counted nevertheless, because its END may still
  come: a connector that has lost its LSNs gives a new transaction the time 0, and its END
  counts changes that all are late.
* A missing END does not hold the frontier: when a later transaction is complete, the frontier
  passes the one without an END, complete or not.
* A missing change holds the frontier for ever, because an END counts it.  So a topic must not
  be compacted, nor read from an offset after changes whose END is read.
  `Transactions.missing` says which changes are missing.
* A row outside all transactions that an END counts, such as a row of a snapshot, is late if it
  is read after the frontier has passed its time.

A task dates changes by Debezium's envelopes (`SourceDating`) and sums up what it reads of
transactions for the commit records.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ikebana.codecs.debezium_position import Boundaries, Boundary, PositionReader, SourcePosition
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.processor.base.rows import (
    FIRST,
    CountedChanges,
    Ended,
    Errors,
    InSource,
    TimesReport,
    TransactionsSeen,
    pack,
)
from ikebana.processor.planning.input_rows import collections_of
from ikebana.processor.planning.plan import SOURCE_CLOCKS, Input, Plan
from ikebana.processor.topics.messages import Message

# The number of passed transactions to remember because their END may still come.
_MOST_LATE = 100
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._\-]")


def topic_key(topic: str) -> str:
    """Make the key for knowledge about a transaction topic; no input name has a space."""
    return f"transactions {topic}"


class Transactions(msgspec.Struct, frozen=True):
    """The state of transactions when a batch is minted, without complete ones.

    `counted` has the changes that were read, by transaction.  `ended` has the transactions with
    an END but with missing changes, in the order in which they committed.
    """

    frontier: int = 0
    counted: dict[str, CountedChanges] = {}
    ended: tuple[Ended, ...] = ()

    @property
    def last_end(self) -> int:
        """The LSN of the last END that was read."""
        return self.ended[-1].end if self.ended else self.frontier

    def missing(self) -> dict[str, int]:
        """Count the changes that the frontier waits for, by collection, of one transaction."""
        return _missing(self.ended[0], self.counted) if self.ended else {}


class Watch:
    """Sums up the transactions in one partition, in the order of its offsets.

    `partition` is a unique name of the partition.  `state` is from when the batch was minted.
    `collections` are the ones that the pipeline reads, from `collections_of`: ENDs also count
    other collections, and logical messages under arbitrary names.
    """

    def __init__(self, state: Transactions, partition: str, collections: frozenset[str]) -> None:
        self._state = state
        self._partition = partition
        self._collections = collections
        # By transaction: time, furthest, counts.
        self._changes: dict[str, tuple[int, list[int], dict[str, int]]] = {}
        self._ends: list[Ended] = []

    def change(self, position: SourcePosition) -> None:
        """Count a change that was read, unless it has no transaction."""
        transaction = position.transaction
        if transaction is None:
            return
        of_transaction = self._changes.get(transaction)
        if of_transaction is None:
            counted = self._state.counted.get(transaction)
            furthest = counted.furthest.get(self._partition, 0) if counted else 0
            of_transaction = (position.time or 0, [furthest], {})
            self._changes[transaction] = of_transaction
        _, furthest_of, counts = of_transaction
        if position.order is not None:
            if position.order <= furthest_of[0]:
                return
            furthest_of[0] = position.order
        counts[position.collection] = counts.get(position.collection, 0) + 1

    def boundary(self, boundary: Boundary) -> None:
        """Take a record of the transaction topic; only an END matters."""
        if boundary.status == "END":
            counts = {
                collection: count
                for collection, count in boundary.counts.items()
                if count and _topic_part(collection) in self._collections
            }
            self._ends.append(Ended(boundary.transaction, boundary.lsn, counts))

    def seen(self) -> TransactionsSeen:
        """Report all changes and ENDs that were read."""
        changes = {
            transaction: CountedChanges(time, dict(counts), {self._partition: furthest})
            for transaction, (time, [furthest], counts) in self._changes.items()
        }
        return TransactionsSeen(changes, tuple(self._ends))


class Repeats:
    """Recognizes the changes of one partition that a connector has sent before.

    `furthest` is the place of the last change that was read.
    """

    def __init__(self, furthest: InSource = FIRST) -> None:
        self.furthest = furthest

    def has(self, position: SourcePosition) -> bool:
        """Whether a change was sent before; if not, it is the furthest one now."""
        if position.transaction is None or position.order is None or position.snapshot:
            return False
        if not position.time:
            # The first transaction, or any of a connector that has lost its LSNs.
            return False
        place = position.time, position.order
        if place <= self.furthest:
            return True
        self.furthest = place
        return False


def advanced(state: Transactions, seen: Iterable[TransactionsSeen]) -> Transactions:
    """Compute the state after a batch from the reports of its tasks, in any order."""
    counted = dict(state.counted)
    ends: dict[int, Ended] = {}
    repeated: set[str] = set()
    for one in seen:
        for transaction, more in one.changes.items():
            counted[transaction] = _sum(counted.get(transaction), more)
        for end in one.ends:
            if end.end > state.last_end:
                ends[end.end] = end
            else:
                repeated.add(end.transaction)
    for transaction in repeated - {end.transaction for end in (*state.ended, *ends.values())}:
        counted.pop(transaction, None)
    frontier = state.frontier
    ended: list[Ended] = []
    for end in (*state.ended, *(ends[at] for at in sorted(ends))):
        if _missing(end, counted):
            ended.append(end)
            continue
        counted.pop(end.transaction, None)
        if ended:
            ended[-1] = msgspec.structs.replace(ended[-1], end=end.end)
        else:
            frontier = end.end
    return Transactions(frontier, _without_old(counted, ended, frontier), tuple(ended))


def _topic_part(collection: str) -> str:
    """Spell a collection as a topic name does, with "_" for each other character."""
    return _NOT_IN_TOPICS.sub("_", collection)


def _missing(end: Ended, counted: Mapping[str, CountedChanges]) -> dict[str, int]:
    read = counted.get(end.transaction)
    changes = read.changes if read else {}
    left = {name: count - changes.get(name, 0) for name, count in end.counts.items()}
    return {name: count for name, count in left.items() if count > 0}


def _sum(before: CountedChanges | None, more: CountedChanges) -> CountedChanges:
    if before is None:
        return more
    changes = dict(before.changes)
    for collection, count in more.changes.items():
        changes[collection] = changes.get(collection, 0) + count
    furthest = dict(before.furthest)
    for partition, order in more.furthest.items():
        furthest[partition] = max(order, furthest.get(partition, 0))
    return CountedChanges(max(before.time, more.time), changes, furthest)


def _without_old(
    counted: Mapping[str, CountedChanges], ended: Iterable[Ended], frontier: int
) -> dict[str, CountedChanges]:
    """Drop the oldest transactions that the frontier has passed."""
    awaited = {end.transaction for end in ended}
    late = [name for name, one in counted.items() if one.time < frontier and name not in awaited]
    old = set(sorted(late, key=lambda name: counted[name].time)[:-_MOST_LATE])
    return {name: one for name, one in counted.items() if name not in old}


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
        self._positions = PositionReader()
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

    def seen(self) -> TimesReport | None:
        """Report the transactions that were read; None if nobody counts them here."""
        if self._watch is None:
            return None
        seen = self._watch.seen()
        if self._repeats is not None:
            seen = msgspec.structs.replace(seen, furthest=self._repeats.furthest)
        return TimesReport(self._key, *self._where, transactions=seen)

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
        seen = TimesReport(
            topic_key(self._where[0]), *self._where, transactions=self._watch.seen()
        )
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
