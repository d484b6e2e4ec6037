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
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from ikebana.codecs.debezium_position import Boundary, SourcePosition
from ikebana.processor.base.rows import (
    FIRST,
    CountedChanges,
    Ended,
    InSource,
    TransactionsSeen,
)

# The number of passed transactions to remember because their END may still come.
_MOST_LATE = 100
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._\-]")


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
