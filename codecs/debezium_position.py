"""Read the positions of Debezium's changes in their source: commit time, LSN, transaction.

A change has its commit time (`source.ts_ms`, milliseconds), and in PostgreSQL its LSN
(`source.lsn`) and the *time of its transaction*: the LSN at which the transaction before
it ended.  That is the first entry of `source.sequence`.  Other candidates do not work.  The
LSN of the change differs within a transaction, and if transactions overlap, changes of
a later one have lower LSNs than those of an earlier one.  `transaction.id` is "txid:lsn" with
the same LSN.  Txids are assigned when transactions begin, not when they commit.  Commit times
tie.  The end of the transaction before is the same for all changes of a transaction, and
PostgreSQL sends transactions in the order in which they commit: a later one has a greater
time.  (A logical message outside of transactions counts as a separate commit, which only makes
the next time greater.)

The id in an END record has the LSN at which the transaction ends.  So the END of a transaction
gives the time of the next one, and all changes with a lesser time come before this END.

Before a connector has seen any commit it has no such LSN: the rows of an initial snapshot and
the first transaction after them all have time 0.  A connector that restarts continues with the
LSN that it has stored, and sends some changes again with the same times, transactions and
orders.  If it restarts within that first transaction, later changes have an LSN within the
transaction instead of 0, which is still before the time of the next one.

A change without a `transaction` block (a snapshot's row, or any change if the connector doesn't
provide transaction metadata) has a time like others, but no END counts it.  Tombstones,
heartbeats, schema changes and records of the transaction topic have no position.  Changes of
other databases than PostgreSQL have only the commit time.

Messages are bare, or wrapped as {"schema", "payload"}.
"""

# Decision (the time of PostgreSQL's transactions): It is the end of the transaction before, in
# `source.sequence`. The LSN in `transaction.id` is that of each change, and neither it nor the
# number follows the order of commits (seen on the real one).

import re
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ikebana.codecs import canonical
from ikebana.codecs.debezium_rows import Opening
from ikebana.codecs.errors import DecodeError

VALUE, BOUNDARY = "Debezium value", "Debezium transaction record"

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]

_POSTGRES = "postgresql"
_STREAMED = (None, False, "false")
# "txid:lsn" of PostgreSQL: the LSN of the change, or in an END that of the transaction's end.
_ID = re.compile(r"([0-9]{1,20}):([0-9]{1,19})")
# [last commit or null, this change], as a text of JSON.
_SEQUENCE = re.compile(r'\[(?:null|"([0-9]{1,19})"),"[0-9]{1,19}"\]')


class SourcePosition(msgspec.Struct, frozen=True, gc=False):
    """The position of a change in its source; fields that the source doesn't give are None.

    `time` is the time of its transaction.  `order` is its number among all changes of its
    transaction, from 1.  `collection` is spelled as in END records.
    """

    ts_ms: int | None
    lsn: int | None
    time: int | None
    collection: str
    transaction: str | None = None
    order: int | None = None
    snapshot: bool = False


class Boundary(msgspec.Struct, frozen=True):
    """The begin or the end of a transaction; `counts` is empty at its begin.

    `lsn` is the LSN of the begin or the end.  A collection's count has each message with a
    value: a changed key counts twice, its tombstone doesn't count.
    """

    status: Literal["BEGIN", "END"]
    transaction: str
    lsn: int
    ts_ms: int | None
    counts: dict[str, int]


class _Source(msgspec.Struct):
    """The fields of `source` with a position, of any database."""

    connector: str = ""
    ts_ms: Int64 | None = None
    lsn: Natural | None = None
    sequence: str | None = None
    snapshot: str | bool | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None


class _Block(msgspec.Struct):
    """The `transaction` block of a change, if the connector provides metadata."""

    id: str
    total_order: Natural | None = None


class _Event(msgspec.Struct):
    """An event without its rows, or any message without `source`."""

    source: _Source | None = None
    transaction: _Block | None = None


class _Count(msgspec.Struct):
    """The number of changes of a collection in a transaction."""

    data_collection: str
    event_count: Natural


class _Record(msgspec.Struct):
    """A record of the transaction topic."""

    status: Literal["BEGIN", "END"]
    id: str
    ts_ms: Int64 | None = None
    data_collections: list[_Count] | None = None


class PositionReader:
    """Reads the positions of changes; use one for all messages, because it caches their schema."""

    def __init__(self) -> None:
        self._opening = Opening(_Event | None, (), lambda _: ())

    def of(self, value: bytes | None) -> SourcePosition | None:
        """Read the position of a change; None for a message that is no change.

        Raises:
            DecodeError: it is not JSON, or a field of its position cannot be read.
        """
        if value is None:
            return None
        try:
            event: _Event | None = self._opening.open(value)[0]
        except canonical.REFUSALS as error:
            raise canonical.decode_error(VALUE, error) from None
        if event is None or (source := event.source) is None:
            return None
        time, transaction, order = None, None, None
        if (block := event.transaction) is not None:
            transaction, order = block.id, block.total_order
        if (postgres := source.connector == _POSTGRES) and source.sequence is not None:
            time = _time(source.sequence)
        if postgres and transaction is not None:
            transaction, _ = _split(VALUE, "transaction.id", transaction)
        return SourcePosition(
            source.ts_ms,
            source.lsn,
            time,
            _collection(
                None if postgres else source.db, source.schema, source.table or source.collection
            ),
            transaction,
            order,
            source.snapshot not in _STREAMED,
        )


class Boundaries:
    """Reads the records of PostgreSQL's transaction topic."""

    def __init__(self) -> None:
        self._opening = Opening(_Record | None, (), lambda _: ())

    def of(self, value: bytes | None) -> Boundary | None:
        """Read a BEGIN or an END; None for a null value.

        Raises:
            DecodeError: it is neither.
        """
        if value is None:
            return None
        try:
            record: _Record | None = self._opening.open(value)[0]
        except canonical.REFUSALS as error:
            raise canonical.decode_error(BOUNDARY, error) from None
        if record is None:
            return None
        transaction, lsn = _split(BOUNDARY, "id", record.id)
        counts: dict[str, int] = {}
        for each in record.data_collections or ():
            counts[each.data_collection] = counts.get(each.data_collection, 0) + each.event_count
        return Boundary(record.status, transaction, lsn, record.ts_ms, counts)


def _time(sequence: str) -> int:
    if (match := _SEQUENCE.fullmatch(sequence)) is None:
        raise DecodeError(VALUE, 'field "source.sequence" is not two LSNs')
    return int(match[1] or 0)


def _split(codec: str, name: str, identifier: str) -> tuple[str, int]:
    if (match := _ID.fullmatch(identifier)) is None:
        raise DecodeError(codec, f'field "{name}" is not txid:lsn, as PostgreSQL has it')
    return match[1], int(match[2])


@lru_cache(64)
def _collection(*parts: str | None) -> str:
    """Join the parts of a name as the connector's own identifiers do."""
    return ".".join(part for part in parts if part)
