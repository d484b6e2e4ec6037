"""What kernels take and give: symbols in, updates out, as columns of bytes.

Rows are `counted` if their records have been: those of a hop, and what an input makes of a
topic that another input before it reads as well.

Symbols are kept in columns because a micro-batch holds hundreds of thousands of them
and most never need a Python object of their own.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ikebana.processor.rows.transactions_seen import TransactionsSeen

# The key of what has none where one is needed: it is all of one key, in one shard.
NO_KEY = b"null"


class Rank(NamedTuple):
    """Where a record stands among those of its time: the later one wins."""

    input: int
    partition: int
    offset: int


class Partial(msgspec.Struct, array_like=True, frozen=True):
    """A value of which a message leaves some columns as they are.

    `record` is the error record for the case that there is nothing to leave.
    """

    value: bytes
    absent: tuple[str, ...]
    record: bytes


class Symbols(msgspec.Struct, array_like=True, tag="symbols"):
    """Consecutive records of one partition, addressed to the operators of one input.

    `keys`, `values` and `offsets` are of one length.  `times` is one time for all, or
    a list with one for each.  A value is None for a tombstone.  By index: `bad` holds
    the error record of each value that could not be decoded, `failed` that of each value
    that was decoded and of which nothing can be made, `partial` each value that is not
    whole; the value itself is then None.  `before` has the checksum of the old image, by
    index, where the message has one.
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


class Truncate(msgspec.Struct, array_like=True, tag="truncate"):
    """All of an input's rows are gone, at this place in the order; sent to every shard."""

    input: str
    input_order: int
    partition: int
    time: int
    offset: int
    counted: bool = False


class Updates(msgspec.Struct, array_like=True, tag="updates"):
    """Updates: what one branch of an input in `mode: diffs` has made, or a hop brings.

    They go to outputs, and to operators by key, which are the `inlets`.  With a `root` they
    are that input's own, and its branches are still to be run.
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
    """Error records that no key leads to; without `diffs`, each stands for ever."""

    records: list[bytes]
    times: int | list[int]
    diffs: list[int] | None = None
    counted: bool = False


class Ignored(msgspec.Struct, array_like=True, tag="ignored"):
    """How many messages said nothing of the relation, by kind."""

    counts: dict[str, int]
    counted: bool = False


class Facts(msgspec.Struct, array_like=True, tag="facts"):
    """Updates of an input in CDCv2, which may come in any order and any number of times."""

    input: str
    keys: list[bytes | None]
    values: list[bytes]
    times: list[int]
    diffs: list[int]


class Seen(msgspec.Struct, array_like=True, tag="seen"):
    """What a batch has learned of an input's times, to be known when the next is minted.

    `greatest` is the greatest event time of a partition, `statements` are progress
    statements (lower, upper, counts by time as `formatting.pack_times` packs them),
    `transactions` what was read of a source's transactions.
    """

    input: str
    topic: str
    partition: int
    greatest: int | None = None
    statements: list[tuple[int, int, list[int]]] = []
    transactions: TransactionsSeen | None = None


class KeyedUpdate(NamedTuple):
    """The multiplicity of (key, value) changes by `diff` at `time`."""

    key: bytes | None
    value: bytes
    time: int
    diff: int


def add(row: Updates | Facts, update: KeyedUpdate) -> None:
    """Add an update to the columns of a row."""
    key, value, time, diff = update
    row.keys.append(key)
    row.values.append(value)
    row.times.append(time)
    row.diffs.append(diff)


def updates_of(row: Updates | Facts) -> Iterator[KeyedUpdate]:
    """The updates in the columns of a row."""
    return map(KeyedUpdate, row.keys, row.values, row.times, row.diffs)


def keyed(updates: Sequence[KeyedUpdate]) -> list[KeyedUpdate]:
    """The updates as a reduction takes them: what has no key is all of one."""
    return [u._replace(key=NO_KEY) if u.key is None else u for u in updates]


def size_of(row: Symbols | Truncate | Updates | Errors | Ignored | Facts | Seen) -> int:
    """How many records a row comes of, or the updates that were made of them.

    What comes of records that have been counted comes of none.
    """
    match row:
        case Symbols() | Truncate() | Updates() | Errors() | Ignored() if row.counted:
            return 0
        case Symbols() | Updates() | Facts():
            return len(row.keys)
        case Errors():
            return len(row.records)
        case Truncate():
            return 1
        case Seen():
            return 0
        case Ignored():
            return sum(row.counts.values())


def times_of(times: int | list[int], count: int) -> list[int]:
    """One time for each of `count` records."""
    return [times] * count if isinstance(times, int) else times
