"""The one form that every format of keyed upserts and of change data capture decodes to.

A codec turns one Kafka message into the changes of rows that it tells of.  It keeps no
state and knows neither topics nor times.  Keys and rows are canonical bytes
(`codecs.canonical`) as soon as they leave a codec, so that equal data are equal bytes.
Which columns of a row are wanted is said in advance, so that the others are never made
into anything.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

Headers = Iterable[tuple[str, bytes | str | None]] | None


class Column(msgspec.Struct, frozen=True):
    """A column that the pipeline file declares.

    `type` is its SQL type.  `encoding` says how a message without a schema writes it,
    where that cannot be told from its JSON: see `codecs.encodings`.
    """

    name: str
    type: str
    encoding: str | None = None


class Declared:
    """The columns that the pipeline file declares, with their types: what a table has.

    They alone say what an image lacks and which columns are null.  Which columns anybody
    reads never does: else a result would depend on who else reads the input.  This is why
    they are no sequence of names, which could be taken for the columns to decode.
    """

    __slots__ = ("_types",)

    def __init__(self, types: Mapping[str, str] | None = None) -> None:
        self._types = dict(types or {})

    def __bool__(self) -> bool:
        return bool(self._types)

    def absent(self, image: Container[str]) -> tuple[str, ...]:
        """Those that an image lacks."""
        return tuple(name for name in self._types if name not in image)

    def with_nulls(self, image: Mapping[str, Any]) -> dict[str, Any]:
        """An image in which those that it lacks are null."""
        return {**dict.fromkeys(self._types), **image}

    def type_of(self, name: str) -> str | None:
        """The SQL type of a column; None if it is not declared."""
        return self._types.get(name)

    def to_look_for(self) -> tuple[str, ...]:
        """Their names, for decoders that have to see which of them there are."""
        return tuple(self._types)


class Wanted(msgspec.Struct, frozen=True):
    """What is wanted of a message; it is planned once and never changes in a run.

    `columns` are the columns of a row that anybody reads, None for all: they say what is
    decoded, and nothing else.  `declared` says what there is.  `key` are the key's columns;
    empty where the Kafka key tells.  `before` says whether rows' old images are read at
    all; with `diffs` they alone tell what is gone, so that each has to be whole, and rows
    need no key.  `tables` is a regular expression that a table's full name
    ("database.schema.table", "database.table" or "table": whatever the format has) has
    to match as a whole.  `encodings` are those of columns that the messages leave open,
    `options` whatever else a format can be told.
    """

    columns: tuple[str, ...] | None = None
    key: tuple[str, ...] = ()
    before: bool = False
    tables: str | None = None
    encodings: Mapping[str, str] = {}
    options: Mapping[str, str] = {}
    declared: Declared = Declared()
    diffs: bool = False

    def read(self, names: Iterable[str] = ()) -> tuple[str, ...] | None:
        """The columns to decode, with these further ones; None for all."""
        return None if self.columns is None else tuple(dict.fromkeys((*self.columns, *names)))


class Change(NamedTuple):
    """What a message says of one row, or of all rows of the relation.

    upsert: the row is `after`.  delete: there is no such row.  truncate: there is no row
    at all; it has neither key nor images.

    `key` is the row's key.  Where a row's key has changed, the codec gives a delete of
    the old key, then an upsert of the new one.  It is None in a truncate, and in `diffs`
    where a table has no key.  Of images, `after` and `before` have the columns that are
    read.  `absent` are all columns that the message leaves as they are, read or not: `after`
    is then partial.  `before` is None if the message has no old image, or lacks any of its
    columns, read or not.  `replaces` says that
    according to the message there was a row of this key: an update's or a delete's, not an
    insert's, a snapshot's or a tombstone's, which say nothing of it.
    """

    kind: Literal["upsert", "delete", "truncate"]
    key: bytes | None = None
    after: bytes | None = None
    before: bytes | None = None
    absent: tuple[str, ...] = ()
    replaces: bool = False


class Ignored(NamedTuple):
    """A message that tells of no row of this relation; it is counted as `what`."""

    what: Literal["heartbeat", "transaction", "ddl", "message", "table", "snapshot", "tombstone"]


class Codec(Protocol):
    """Decodes the messages of one input."""

    def key(self, key: bytes | None) -> bytes | None:
        """The row's key as the Kafka key tells it; None if only the value does.

        Raises:
            DecodeError: the Kafka key cannot be read.
        """
        ...

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """What a message says; `key` and `value` are Kafka's, as they are.

        Raises:
            DecodeError: it cannot be used; its `key` is that of the row where it could
                still be read.
        """
        ...
