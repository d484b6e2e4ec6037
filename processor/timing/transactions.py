"""The frontier of a source's transactions: up to where all of their changes have been read.

Times are LSNs as in `codecs.debezium_position`: the time of a transaction is the LSN at
which the one before it ended.  The frontier is the LSN at which the last transaction ended
that is complete, as are all before it.  The next one has no lesser time, so a transaction
is not passed before it is complete, and all that has a time before the frontier has been
read.  It is complete when, of each collection that the pipeline reads, as many changes have
been read as its END counts.

It takes the transaction topic to be one partition, so that ENDs come in the order in which
transactions committed and their LSNs grow.  An END that does not lie beyond the last one is
a repeat.  A source whose LSNs begin anew (another server, an older backup) is another
source: nothing of it would ever lie beyond.

* Repeats: a connector that restarts sends a run of changes again, each to the partition
  that it went to before.  Of one partition only changes are counted that lie further in
  their transaction than those counted before.  More than counted is complete too.
* A change whose transaction the frontier has passed is late.  It waits for nothing and
  nothing waits for it; what becomes of its row is not decided here.  It is counted all the
  same, in case its END is still to come after all: a connector that has lost its LSNs gives
  a new transaction the time 0, and its END counts changes that all are late.
* A missing END holds nothing up.  ENDs come in order: once a later one is complete, the
  frontier is there, and the transaction without an END has been passed, complete or not.
* A missing change holds the frontier for ever, since an END has promised it.  So a topic
  must not be compacted, nor read from where changes are gone already whose END is there.
  `Transactions.missing` says what is waited for.
* What is in no transaction that an END counts, as the rows of a snapshot, is late if it is
  read after the frontier has passed its time.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from ikebana.codecs.debezium_position import Boundary, Position
from ikebana.processor.rows.transactions_seen import Counted, Ended, TransactionsSeen

# Of transactions that are passed, so many are remembered whose END may still come.
_MOST_LATE = 100
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._\-]")


class Transactions(msgspec.Struct, frozen=True):
    """What is known when a batch is minted; only of transactions that are not over.

    `counted` is by transaction, `ended` in the order in which they committed.
    """

    frontier: int = 0
    counted: dict[str, Counted] = {}
    ended: tuple[Ended, ...] = ()

    @property
    def last_end(self) -> int:
        """Where the last transaction has ended of which an END is known."""
        return self.ended[-1].end if self.ended else self.frontier

    def missing(self) -> dict[str, int]:
        """How many changes the frontier waits for, by collection: those of one transaction."""
        return _missing(self.ended[0], self.counted) if self.ended else {}


class Watch:
    """Sums up what is read of one partition, in the order of its offsets.

    `partition` is any name that no other partition has.  `state` is the one that the
    batch was minted with, `collections` those that the pipeline reads, as `collections_of`
    tells them.  ENDs count others too, also logical messages, whose name is an accident.
    """

    def __init__(self, state: Transactions, partition: str, collections: frozenset[str]) -> None:
        self._state = state
        self._partition = partition
        self._collections = collections
        # By transaction: time, furthest, counts.
        self._changes: dict[str, tuple[int, list[int], dict[str, int]]] = {}
        self._ends: list[Ended] = []

    def change(self, position: Position) -> None:
        """A change was read; one without a transaction is in none that an END counts."""
        transaction = position.transaction
        if transaction is None:
            return
        found = self._changes.get(transaction)
        if found is None:
            known = self._state.counted.get(transaction)
            furthest = known.furthest.get(self._partition, 0) if known else 0
            found = (position.time or 0, [furthest], {})
            self._changes[transaction] = found
        _, furthest_of, counts = found
        if position.order is not None:
            if position.order <= furthest_of[0]:
                return
            furthest_of[0] = position.order
        counts[position.collection] = counts.get(position.collection, 0) + 1

    def boundary(self, boundary: Boundary) -> None:
        """A record of the transaction topic was read.  Only ENDs tell anything."""
        if boundary.status == "END":
            counts = {
                collection: count
                for collection, count in boundary.counts.items()
                if count and _topic_part(collection) in self._collections
            }
            self._ends.append(Ended(boundary.transaction, boundary.lsn, counts))

    def seen(self) -> TransactionsSeen:
        """The sum."""
        changes = {
            transaction: Counted(time, dict(counts), {self._partition: furthest})
            for transaction, (time, [furthest], counts) in self._changes.items()
        }
        return TransactionsSeen(changes, tuple(self._ends))


def advanced(state: Transactions, seen: Iterable[TransactionsSeen]) -> Transactions:
    """The state after a batch whose tasks have seen this, in any order."""
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
    """A collection as the names of topics spell it: what cannot be in one is "_" there."""
    return _NOT_IN_TOPICS.sub("_", collection)


def _missing(end: Ended, counted: Mapping[str, Counted]) -> dict[str, int]:
    known = counted.get(end.transaction)
    changes = known.changes if known else {}
    left = {name: count - changes.get(name, 0) for name, count in end.counts.items()}
    return {name: count for name, count in left.items() if count > 0}


def _sum(known: Counted | None, more: Counted) -> Counted:
    if known is None:
        return more
    changes = dict(known.changes)
    for collection, count in more.changes.items():
        changes[collection] = changes.get(collection, 0) + count
    furthest = dict(known.furthest)
    for partition, order in more.furthest.items():
        furthest[partition] = max(order, furthest.get(partition, 0))
    return Counted(max(known.time, more.time), changes, furthest)


def _without_old(
    counted: Mapping[str, Counted], ended: Iterable[Ended], frontier: int
) -> dict[str, Counted]:
    """All but the oldest of those that the frontier has passed."""
    awaited = {end.transaction for end in ended}
    late = [name for name, one in counted.items() if one.time < frontier and name not in awaited]
    old = set(sorted(late, key=lambda name: counted[name].time)[:-_MOST_LATE])
    return {name: one for name, one in counted.items() if name not in old}
