"""The rows that kernels take and give: upserts in, updates out, in columns, packed for Spark.

An upsert is the statement of a message about one key: its new value, or that the key is gone.
Upserts and updates are kept in columns because a micro-batch has hundreds of thousands of them,
and most never need a Python object of their own; they become rows when they are iterated over.

A row is `counted` if its records are in the batch's counts already: a row from an exchange, or a
row of an input if an earlier input reads the same topic.

A Spark row costs microseconds each time it crosses between the JVM and Python; a record inside a
packed row costs nothing there.  So a row is `(group, shard, chunk)`.  The group is the one that
Spark runs the shard in.  The chunk is msgpack: the shard's tick, or some of its records.

A datum is key and value together, as arrangements store them: the length of the key in 4 bytes,
big-endian, or -1 if there is no key; then the key; then the value.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ikebana.arrangements.update import Interval
from ikebana.processor.base.transition import NO_TRANSITION, Transition

try:
    from ikebana.compiled import _data as compiled_data
except ImportError:
    compiled_data = None  # type: ignore[assignment]


_LENGTH = struct.Struct(">i")
_START = _LENGTH.size
_NO_KEY = _LENGTH.pack(-1)
_pack, _unpack = _LENGTH.pack, _LENGTH.unpack_from


def datum_of(key: bytes | None, value: bytes) -> bytes:
    """Join a key and a value into a datum.

    >>> parts_of(datum_of(b"1", b"{}")), parts_of(datum_of(None, b"{}"))
    ((b'1', b'{}'), (None, b'{}'))
    """
    return _NO_KEY + value if key is None else _pack(len(key)) + key + value


def data_of(keys: Sequence[bytes | None], values: Sequence[bytes]) -> list[bytes]:
    """Join each key and its value into a datum.

    >>> data_of([b"1", None], [b"{}", b"[]"]) == [datum_of(b"1", b"{}"), datum_of(None, b"[]")]
    True
    """
    if compiled_data is not None:
        return compiled_data.data_of([*keys], [*values])
    return [
        _NO_KEY + value if key is None else _pack(len(key)) + key + value
        for key, value in zip(keys, values, strict=True)
    ]


def values_of(data: Iterable[bytes | None], nothing: bytes) -> list[bytes]:
    """The values of data, and `nothing` for each that is None.

    >>> values_of([datum_of(b"1", b"{}"), datum_of(None, b"[]"), None], b"0")
    [b'{}', b'[]', b'0']
    """
    if compiled_data is not None:
        return compiled_data.values_of([*data], nothing)
    return [
        nothing if datum is None else datum[_START + max(_unpack(datum)[0], 0) :] for datum in data
    ]


def keys_of(data: Iterable[bytes | None]) -> list[bytes | None]:
    """The keys of data, and None for each that is None.

    >>> keys_of([datum_of(b"1", b"{}"), datum_of(None, b"[]"), None])
    [b'1', None, None]
    """
    if compiled_data is not None:
        return compiled_data.keys_of([*data])
    return [None if datum is None else parts_of(datum)[0] for datum in data]


def parts_of(datum: bytes) -> tuple[bytes | None, bytes]:
    """Split a datum into its key and its value."""
    (length,) = _unpack(datum)
    if length < 0:
        return None, datum[_START:]
    return datum[_START : _START + length], datum[_START + length :]


Kind = TypeVar("Kind", bound=tuple[Any, ...])


def maker(kind: type[Kind]) -> Callable[[tuple[Any, ...]], Kind]:
    """Return a function that makes a named tuple from a tuple of its fields, like `kind._make`.

    It takes a third of the time, and does not check the number of fields.
    """
    return partial(tuple.__new__, kind)


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


SOME_ROW = -1
"""In place of a checksum of an old image: any row."""


class Upserts(msgspec.Struct, array_like=True, tag="upserts"):
    """The upserts of consecutive records of one partition, for the operators of one input.

    `keys`, `values` and `offsets` have the same length.  `times` is one time for all upserts,
    or a list with a time for each.  A value is None for a tombstone.

    Five dicts describe some of the upserts, by index.  With an entry in one of the first three,
    the upsert's value is None.

    * `bad`: the error record of a value that could not be decoded.
    * `failed`: the error record of a value that was decoded, but on which a pushed step failed.
    * `partial`: a value that lacks columns.
    * `before`: the checksum of the old image, if the message has one, or `SOME_ROW` if it says
      only that the key had a row.
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


# The places of a few records that a batch has counted, so that people can look at them: `late`
# records, `drift` (an old image that differs from the state), records that are `outdated` by their
# sequence, and records that made an `error`.  A note has no data of records.

MOST_NOTED = 5
"""The number of records of a kind and input that a batch notes."""
_REASON = 200

NotedKind = Literal["late", "drift", "outdated", "error"]
# A topic, a partition and an offset.
MessagePlace = tuple[str, int, int]


class NotedRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record by its place.

    `late_by` is how far its time is behind the frontier, in units of time; None if it is not late.
    `reason` is the reason of an error, without any of the record's data.
    """

    topic: str
    partition: int
    offset: int
    late_by: int | None = None
    reason: str = ""

    @property
    def place(self) -> MessagePlace:
        """The place of the record."""
        return self.topic, self.partition, self.offset


class Noted(msgspec.Struct, array_like=True, frozen=True):
    """How many records of a kind a batch has read of an input, and the last of them.

    `input` is empty for errors: their records have the input themselves.
    """

    kind: NotedKind
    input: str
    count: int
    records: tuple[NotedRecord, ...] = ()


def notes_added_up(noted: Iterable[Noted]) -> list[Noted]:
    """Add up the notes of each kind and input, and keep the last records of each.

    >>> one = Noted("late", "orders", 2, (NotedRecord("o", 0, 7, 40),))
    >>> [both] = notes_added_up([one, Noted("late", "orders", 1)])
    >>> both.count, [record.offset for record in both.records]
    (3, [7])
    """
    by_kind: dict[tuple[NotedKind, str], Noted] = {}
    for each in noted:
        name = each.kind, each.input
        before = by_kind.get(name, Noted(*name, 0))
        records = (*before.records, *each.records)[-MOST_NOTED:]
        by_kind[name] = Noted(*name, before.count + each.count, records)
    return list(by_kind.values())


def errors_noted(count: int, last: Sequence[tuple[MessagePlace | None, str]]) -> Noted:
    """Note errors; `last` has the places of the last ones, if they are known, and reasons."""
    records = tuple(
        NotedRecord(*place, reason=reason[:_REASON]) for place, reason in last if place is not None
    )
    return Noted("error", "", count, records)


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


class TimesReport(msgspec.Struct, array_like=True, tag="seen"):
    """A report of a batch on the times of a partition, for the minting of later batches.

    `greatest` is the greatest event time.  `statements` are progress statements: lower, upper,
    and counts by time as `diff.pack_times` packs them.  `transactions` is the report on the
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


def size_of(
    row: Upserts | Truncate | Updates | Errors | IgnoredMessages | Facts | TimesReport,
) -> int:
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
        case TimesReport():
            return 0
        case IgnoredMessages():
            return sum(row.counts.values())


def times_of(times: int | list[int], count: int) -> list[int]:
    """Expand `times` to a list with one time for each of `count` records."""
    return [times] * count if isinstance(times, int) else times


# Decision (updates stay in columns): They do from the exchange to the stages of joins; rows are
# made only where somebody iterates. Loops of joins take and give columns.


try:
    from ikebana.compiled import _joins as compiled
except ImportError:
    compiled = None  # type: ignore[assignment]

_AT_ONCE = 10_000

Item = TypeVar("Item")
# Keys, values, times and diffs.
InColumns = tuple[list[bytes | None], list[bytes], list[int], list[int]]


class Columned(Collection[KeyedUpdate]):
    """Updates that can be read in columns."""

    @abstractmethod
    def in_columns(self, most: int) -> Iterator["Columns"]:
        """All updates in order, at most `most` at a time."""

    def __contains__(self, update: object) -> bool:
        return any(update == each for each in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columned | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        more = ", ..." if len(self) > 10 else ""
        return f"{type(self).__name__}({list(islice(self, 10))}{more})"


class Columns(Columned):
    """Updates in columns of one length; only the owner may change them.

    >>> [*Columns([b"1"], [b"{}"], [3], [1])]
    [KeyedUpdate(key=b'1', value=b'{}', time=3, diff=1)]
    """

    __slots__ = ("diffs", "keys", "times", "values")

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes],
        times: list[int],
        diffs: list[int],
    ) -> None:
        self.keys, self.values, self.times, self.diffs = keys, values, times, diffs

    @staticmethod
    def of(updates: Sequence[KeyedUpdate]) -> "Columns":
        """The columns of rows."""
        return Columns(*columns_of(updates)) if updates else Columns([], [], [], [])

    def extend(self, other: "Columns") -> None:
        """Add the updates of other columns."""
        self.keys += other.keys
        self.values += other.values
        self.times += other.times
        self.diffs += other.diffs

    def part(self, begin: int, end: int) -> "Columns":
        """The updates at the positions from `begin` up to `end`."""
        if begin == 0 and end >= len(self.times):
            return self
        columns = self.keys, self.values, self.times, self.diffs
        return Columns(*(column[begin:end] for column in columns))  # type: ignore[arg-type]

    def in_columns(self, most: int) -> Iterator["Columns"]:
        for begin in range(0, len(self.times), most):
            yield self.part(begin, begin + most)

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[KeyedUpdate]:
        for some in self.in_columns(_AT_ONCE):
            yield from rows_of(some.keys, some.values, some.times, some.diffs)


def in_columns_of(updates: Iterable[KeyedUpdate], most: int) -> Iterator[Columns]:
    """Updates in order, at most `most` at a time."""
    if isinstance(updates, Columned):
        yield from updates.in_columns(most)
        return
    rest = iter(updates)
    while some := list(islice(rest, most)):
        yield Columns.of(some)


def columns_of(
    updates: Sequence[KeyedUpdate] | Columns,
) -> InColumns:
    """The columns of updates, of which there is at least one."""
    if isinstance(updates, Columns):
        return updates.keys, updates.values, updates.times, updates.diffs
    columns = None if compiled is None else compiled.columns_of([*updates])
    return in_columns(updates) if columns is None else columns


def rows_of(
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    times: Sequence[int],
    diffs: Sequence[int],
) -> list[KeyedUpdate]:
    """Updates from their columns.

    >>> rows_of(*columns_of([KeyedUpdate(b"1", b"{}", 3, 1)]))
    [KeyedUpdate(key=b'1', value=b'{}', time=3, diff=1)]
    """
    if compiled is None:
        return list(updates_from(keys, values, times, diffs))
    columns: Iterable[list[Any]] = map(_listed, (keys, values, times, diffs))
    return compiled.rows_from(KeyedUpdate, *columns)


def pick(column: Sequence[Item], places: list[int]) -> list[Item]:
    """The items of a column at these positions.

    >>> pick([b"1", b"2", b"3"], [2, 0])
    [b'3', b'1']
    """
    if compiled is None:
        return [column[at] for at in places]
    return compiled.taken(_listed(column), places)


def _listed(column: Sequence[Any]) -> list[Any]:
    return column if type(column) is list else [*column]


# Decision (packed rows): Spark pays for each row and column that crosses between the JVM and
# Python. With thousands of records in one row, the JVM only moves blobs.


class Tick(msgspec.Struct, array_like=True, tag="tick"):
    """The description of a batch, sent once to every shard.

    All of it follows from the offset that Spark logged before the batch ran, so a replay gets
    the same tick.

    * `adopted`: all shards have committed this batch already, so its records are not read again.
    * `exchanges_from`: the offset, by shard, at which the batch begins to read the exchange topic.
    * `released`: the parts of the state that no operator owns any more.
    * `transition`: the transition that the batch belongs to.
    """

    batch: int
    lower: int
    upper: int
    offset: str
    plan: str
    intervals: dict[str, tuple[int, int]]
    behind: int
    adopted: bool
    exchanges_from: dict[int, int] = {}
    released: tuple[str, ...] = ()
    transition: Transition = NO_TRANSITION

    def interval_of(self) -> dict[str, Interval]:
        """The interval of each operator."""
        return {name: Interval(*bounds) for name, bounds in self.intervals.items()}


Records = Upserts | Truncate | Updates | Errors | IgnoredMessages | Facts | TimesReport
Chunk = Tick | Records

_encoder = msgspec.msgpack.Encoder()
_decoder: "msgspec.msgpack.Decoder[Any]" = msgspec.msgpack.Decoder(Chunk)


def pack(chunk: Chunk) -> bytes:
    """Write a chunk as the bytes of one row."""
    return _encoder.encode(chunk)


def unpack(row: bytes) -> Chunk:
    """Read the bytes of one row."""
    chunk: Chunk = _decoder.decode(row)
    return chunk
