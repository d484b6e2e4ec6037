"""What a task has read of a source's transactions."""

import msgspec


class Counted(msgspec.Struct, frozen=True):
    """What has been read of a transaction.

    `changes` are counted by collection.  `furthest` is by partition how far in its
    transaction the last counted change stands.
    """

    time: int
    changes: dict[str, int] = {}
    furthest: dict[str, int] = {}


class Ended(msgspec.Struct, frozen=True):
    """A transaction of which changes are missing.

    `counts` are what its END says, of the collections that are read.  `end` is where the
    last one ended of those after it that are complete, or else it itself.
    """

    transaction: str
    end: int
    counts: dict[str, int]


class TransactionsSeen(msgspec.Struct, frozen=True):
    """What a task has read: of transactions the changes, and ENDs in order.

    It counts what was not counted in the state that the task started from.
    """

    changes: dict[str, Counted] = {}
    ends: tuple[Ended, ...] = ()
