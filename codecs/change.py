"""The common form to which all formats of keyed upserts and change data capture are decoded.

A codec turns one Kafka message into changes of rows.  It keeps no state and knows neither
topics nor times.  The keys and rows that it returns are canonical bytes (`codecs.canonical`),
so that equal data are equal bytes.  `Needs` says in advance which columns of a row are read;
the codec converts no others.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple, Protocol

import msgspec

from ikebana.codecs.sql_type import TAKE_ALL

Headers = Iterable[tuple[str, bytes | str | None]] | None


class Column(msgspec.Struct, frozen=True):
    """A column that the pipeline file declares.

    `type` is its SQL type.  `encoding` names the form of its values in messages without a
    schema, if the JSON alone does not show it: see `codecs.encodings`.

    >>> Column("price", "DECIMAL(10,2)", encoding="decimal:2")
    Column(name='price', type='DECIMAL(10,2)', encoding='decimal:2')
    """

    name: str
    type: str
    encoding: str | None = None


class DeclaredColumns:
    """The columns of a table that the pipeline file declares, with their types.

    They alone determine which columns an image lacks, and which are null.  The columns that are
    read must not matter for this, or a result would depend on who else reads the input.
    Therefore this is not a sequence of names, which could be mistaken for the columns to decode.
    """

    __slots__ = ("_types",)

    def __init__(self, types: Mapping[str, str] | None = None) -> None:
        self._types = dict(types or {})

    def __bool__(self) -> bool:
        return bool(self._types)

    def absent(self, image: Container[str]) -> tuple[str, ...]:
        """List the declared columns that an image lacks."""
        return tuple(name for name in self._types if name not in image)

    def nulls(self, columns: Container[str] | None) -> dict[str, None]:
        """Nulls for the declared ones of these columns, None for all."""
        return dict.fromkeys(name for name in self._types if columns is None or name in columns)

    def shows_key_alone(self, names: Collection[str], key: Collection[str]) -> bool:
        """Whether an image has only columns of the key, in a table with more columns."""
        return {*names} <= {*key} and bool(self.absent(key))

    def type_of(self, name: str) -> str | None:
        """The SQL type of a column; None if it is not declared."""
        return self._types.get(name)

    def refuses(self, name: str) -> bool:
        """Whether a column is declared with a type that does not take every value."""
        return self._types.get(name, TAKE_ALL[0]) not in TAKE_ALL

    def to_look_for(self) -> tuple[str, ...]:
        """List the names, for decoders that have to see which columns an image has."""
        return tuple(self._types)


class Needs(msgspec.Struct, frozen=True):
    """What a codec must decode of each message; it does not change during a run.

    * `columns`: the columns of a row to decode, None for all.  They matter for nothing else.
    * `declared`: the columns that a row has.
    * `key`: the names of the key's columns; empty if the Kafka key is the row's key.
    * `before`: whether to decode old images.
    * `diffs`: whether retractions are made from old images alone.  Then each old image has to be
      complete, and rows need no key.
    * `tables`: a regular expression that must match the whole name of a table, which is
      "database.schema.table", "database.table" or "table", depending on the format.
    * `encodings`: the encodings of columns, if their values do not show them.
    * `options`: the options of the format.
    """

    columns: tuple[str, ...] | None = None
    key: tuple[str, ...] = ()
    before: bool = False
    tables: str | None = None
    encodings: Mapping[str, str] = {}
    options: Mapping[str, str] = {}
    declared: DeclaredColumns = DeclaredColumns()
    diffs: bool = False

    def judges(self, name: str) -> bool:
        """Whether a value of a column that contradicts its message's schema is an error.

        It is an error if the column is decoded in any case, and converted by a declaration, or to
        make a key.  In all other columns such a value stays as it is in the message, since a
        result must not depend on who else reads the input.
        """
        return name in self.key or name in self.encodings or self.declared.refuses(name)

    def nulls(self) -> dict[str, None]:
        """Nulls for the columns that each row must have: with `diffs`, the declared ones.

        The table may have got a column after a row was written.  An old image of the row has null
        there, and retracts the row only if the two are equal.
        """
        return self.declared.nulls(self.columns) if self.diffs else {}

    def read(self, names: Iterable[str] = ()) -> tuple[str, ...] | None:
        """List the columns to decode, together with `names`; None for all."""
        return None if self.columns is None else tuple(dict.fromkeys((*self.columns, *names)))


class Change(NamedTuple):
    """A change of one row, or of all rows of the relation.

    * `kind`: "upsert" (the row is now `after`), "delete" (the row is gone), or "truncate" (all
      rows are gone; there is neither key nor image).
    * `key`: the row's key.  If a message changes a key, the codec returns a delete of the old
      key, then an upsert of the new one.  It is None in a truncate, and for a table without a
      key that is read with `Needs.diffs`.
    * `after`: the new image, with the columns that are read.
    * `before`: the old image, with the columns that are read.  It is None if the message has no
      old image, or if that lacks any column, read or not.
    * `absent`: all columns that the message leaves unchanged, read or not; `after` lacks them.
    * `replaces`: whether, by the message, a row of this key existed before.  It is true of
      updates and deletes.  Inserts, snapshots, tombstones and soft deletes do not say.
    * `sequence`: where its source has the change in its order: numbers or texts, which are
      compared one after the other; empty if the message does not say.
    """

    kind: Literal["upsert", "delete", "truncate"]
    key: bytes | None = None
    after: bytes | None = None
    before: bytes | None = None
    absent: tuple[str, ...] = ()
    replaces: bool = False
    sequence: tuple[int | float | Decimal | str, ...] = ()


class Ignored(NamedTuple):
    """A message that says nothing about a row of the relation; it is counted as `what`.

    A dropped table is counted by itself, because its rows stay.
    """

    what: Literal[
        "heartbeat",
        "transaction",
        "ddl",
        "dropped table",
        "message",
        "table",
        "snapshot",
        "tombstone",
    ]


class RowCodec(Protocol):
    """A codec of rows that are only inserted, each independent of the others."""

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key.  Raises: DecodeError."""
        ...


class Codec(Protocol):
    """Decodes the messages of one input."""

    def key(self, key: bytes | None) -> bytes | None:
        """Decode the row's key from the Kafka key; None if the key is in the value.

        Raises:
            DecodeError: the Kafka key cannot be read.
        """
        ...

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message, with Kafka's `key` and `value`, into changes of rows.

        Raises:
            DecodeError: the message cannot be decoded; the error's `key` is the key of the row
                if that can still be read.
        """
        ...
