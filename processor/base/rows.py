"""The rows that kernels take and give: upserts in, updates out, as columns of bytes.

An upsert is the statement of a message about one key: its new value, or that the key is gone.
Upserts are kept in columns because a micro-batch has hundreds of thousands of them, and most
never need a Python object of their own.

A row is `counted` if its records are in the batch's counts already: a row from an exchange, or a
row of an input if an earlier input reads the same topic.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from ikebana.processor.base.noted import Noted

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


class Judged(msgspec.Struct, array_like=True, frozen=True):
    """The bounds by which a batch judged the offsets `first` to `last` of a partition.

    Records with earlier times than `lower`, and records without a time, counted at `lower`.
    Records with later times than `latest` were too far ahead of the clock; None: no record was.
    """

    first: int
    last: int
    lower: int
    latest: int | None = None


# Updates without a key get this one where a key is needed, so they all meet in one shard.
NO_KEY = b"null"
# The key of all upserts with a null key.  It has an error, or nothing, and never a value.  It is
# no JSON, and no real key of bytes is equal to it.
NULL_KEY = b"\x00null key 6f1c1d4e9a7b42d0\x00"


class Partial(msgspec.Struct, array_like=True, frozen=True):
    """A value without the columns that its message leaves unchanged; `absent` names these.

    `record` is the error record to emit if the key has no value to take these columns from.
    """

    value: bytes
    absent: tuple[str, ...]
    record: bytes


class Upserts(msgspec.Struct, array_like=True, tag="upserts"):
    """The upserts of consecutive records of one partition, for the operators of one input.

    `keys`, `values` and `offsets` have the same length.  `times` is one time for all upserts,
    or a list with a time for each.  A value is None for a tombstone.

    Five dicts describe some of the upserts, by index.  With an entry in one of the first three,
    the upsert's value is None.

    * `bad`: the error record of a value that could not be decoded.
    * `failed`: the error record of a value that was decoded, but on which a pushed step failed.
    * `partial`: a value that lacks columns.
    * `before`: the checksum of the old image, if the message has one.
    * `sequences`: where the source has the change in its order, as bytes that sort so.
    """

    input: str
    input_order: int
    partition: int
    times: int | list[int]
    keys: list[bytes]
    values: list[bytes | None]
    offsets: list[int]
    bad: dict[int, bytes] = {}
    failed: dict[int, bytes] = {}
    partial: dict[int, Partial] = {}
    before: dict[int, int] = {}
    counted: bool = False
    sequences: dict[int, bytes] = {}


class Truncate(msgspec.Struct, array_like=True, tag="truncate"):
    """An input has lost all of its rows at this point of the order; sent to every shard."""

    input: str
    input_order: int
    partition: int
    time: int
    offset: int
    counted: bool = False


class Updates(msgspec.Struct, array_like=True, tag="updates"):
    """Updates from a branch of an input in `mode: diffs`, or from an exchange.

    They go to `outputs`, and by key to the operators that `inlets` names.  With a `root`, they
    are the updates of that input itself, and its branches have not been applied yet.
    """

    outputs: list[str]
    keys: list[bytes | None]
    values: list[bytes]
    times: list[int]
    diffs: list[int]
    root: str = ""
    inlets: list[str] = []
    counted: bool = False


class Errors(msgspec.Struct, array_like=True, tag="errors"):
    """Error records without a key; without `diffs`, none of them is ever retracted."""

    records: list[bytes]
    times: int | list[int]
    diffs: list[int] | None = None
    counted: bool = False


class IgnoredMessages(msgspec.Struct, array_like=True, tag="ignored"):
    """The numbers of messages that say nothing about a row of the relation, by kind.

    Late records are counted here, too; `noted` has the last of them.
    """

    counts: dict[str, int]
    counted: bool = False
    noted: list[Noted] = []


class Facts(msgspec.Struct, array_like=True, tag="facts"):
    """Updates of an input in CDCv2, which may come in any order, and repeatedly.

    Updates of times before `since` are repetitions; None: before the batch's interval.
    """

    input: str
    keys: list[bytes | None]
    values: list[bytes]
    times: list[int]
    diffs: list[int]
    since: int | None = None


class Seen(msgspec.Struct, array_like=True, tag="seen"):
    """A report of a batch on the times of a partition, for the minting of later batches.

    `greatest` is the greatest event time.  `statements` are progress statements: lower, upper,
    and counts by time as `progress.pack_times` packs them.  `transactions` is the report on the
    source's transactions.  `judged` are the records that do not count at their own times.
    """

    input: str
    topic: str
    partition: int
    greatest: int | None = None
    statements: list[tuple[int, int, list[int]]] = []
    transactions: TransactionsSeen | None = None
    judged: Judged | None = None


class KeyedUpdate(NamedTuple):
    """The multiplicity of (key, value) changes by `diff` at `time`."""

    key: bytes | None
    value: bytes
    time: int
    diff: int


def add(row: Updates | Facts, update: KeyedUpdate) -> None:
    """Append an update to the columns of a row."""
    key, value, time, diff = update
    row.keys.append(key)
    row.values.append(value)
    row.times.append(time)
    row.diffs.append(diff)


def updates_of(row: Updates | Facts) -> Iterator[KeyedUpdate]:
    """Iterate over the updates in the columns of a row."""
    return updates_from(row.keys, row.values, row.times, row.diffs)


def updates_from(
    keys: Iterable[bytes | None],
    values: Iterable[bytes],
    times: Iterable[int],
    diffs: Iterable[int],
) -> Iterator[KeyedUpdate]:
    """Iterate over updates from columns of one length.

    It is `map(KeyedUpdate, ...)` without a Python call for each update.
    """
    return map(tuple.__new__, repeat(KeyedUpdate), zip(keys, values, times, diffs, strict=True))


def in_columns(
    updates: Sequence[KeyedUpdate],
) -> tuple[list[bytes | None], list[bytes], list[int], list[int]]:
    """The columns of updates, of which there is at least one."""
    keys, values, times, diffs = map(list, zip(*updates, strict=True))
    return keys, values, times, diffs


def keyed(updates: Sequence[KeyedUpdate]) -> list[KeyedUpdate]:
    """Give updates without a key the key `NO_KEY`, so that a reduction groups them together."""
    return [u._replace(key=NO_KEY) if u.key is None else u for u in updates]


def size_of(row: Upserts | Truncate | Updates | Errors | IgnoredMessages | Facts | Seen) -> int:
    """The number that a row adds to the batch's count of records; 0 if it is `counted` already.

    For `Updates` and `Facts` it is the number of updates instead of records.
    """
    match row:
        case Upserts() | Truncate() | Updates() | Errors() | IgnoredMessages() if row.counted:
            return 0
        case Upserts() | Updates() | Facts():
            return len(row.keys)
        case Errors():
            return len(row.records)
        case Truncate():
            return 1
        case Seen():
            return 0
        case IgnoredMessages():
            return sum(row.counts.values())


def times_of(times: int | list[int], count: int) -> list[int]:
    """Expand `times` to a list with one time for each of `count` records."""
    return [times] * count if isinstance(times, int) else times
