"""The report of a task about the transactions of a source that it has read."""

import msgspec

# The time of a change's transaction, and the number of the change in it: both grow in a partition.
InSource = tuple[int, int]
FIRST: InSource = 0, 0


class CountedChanges(msgspec.Struct, frozen=True):
    """The changes of one transaction that have been read.

    `changes` has their number by collection.  `furthest` has, by partition, the position
    within the transaction of the last change that was counted.
    """

    time: int
    changes: dict[str, int] = {}
    furthest: dict[str, int] = {}


class Ended(msgspec.Struct, frozen=True):
    """A transaction with an END that has been read.

    `counts` has the numbers of changes that the END states, for the collections that are read.
    `end` is the LSN at which the transaction ended.  While it waits for changes, `end` moves on
    over complete transactions that follow it: it is where the last of them ended.
    """

    transaction: str
    end: int
    counts: dict[str, int]


class TransactionsSeen(msgspec.Struct, frozen=True):
    """The changes of transactions, and the ENDs in order, that a task has read.

    Changes that the state at the start of the task has counted are not counted again.
    `furthest` is the place of the last change in the partition, as `InSource`.
    """

    changes: dict[str, CountedChanges] = {}
    ends: tuple[Ended, ...] = ()
    furthest: InSource | None = None
