"""The keys of rows: from the Kafka key, or from columns, in formats that may have both."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.canonical import FAULTS
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import RowImage


class DataDecoder(NamedTuple):
    """Decodes keys, or values, of an encoding into JSON data with canonical numbers.

    `parts` gives the canonical bytes of parts of a usual message, each None for a null; it gives
    None if the message has to be decoded.  Both may raise `FAULTS`.
    """

    decode: Callable[[bytes, Headers], Any]
    parts: Callable[[bytes, Headers], Sequence[bytes | None] | None] = lambda _, __: None


class KeyDecoder:
    """Makes the keys of rows from the Kafka key, or from the columns that the input names.

    `keys` decodes Kafka keys; its `parts` begins with the key, None for a null.  `codec` is the
    name of the format in errors.
    """

    def __init__(self, codec: str, needs: Needs, keys: DataDecoder) -> None:
        self.columns = needs.key
        self._may_lack = needs.diffs
        self._key, self._value = f"{codec} key", f"{codec} value"
        self._parts, self._decode = keys.parts, keys.decode

    def of_kafka(self, key: bytes | None, headers: Headers = None) -> bytes | None:
        """Decode the row's key from the Kafka key; None if that lacks it."""
        if key is None:
            return None
        try:
            if (usual := self._parts(key, headers)) is not None:
                return usual[0]
            data = self._decode(key, headers)
            if data is None:
                return None
            if not self.columns:
                return canonical.write(data)
            # Other writers than Debezium write a key of one column as a value without its
            # name.
            row = data if isinstance(data, dict) else {}
            return self.of_row(row) if self.columns_in(row) else None
        except FAULTS as error:
            raise DecodeError(self._key, canonical.decode_error(self._key, error).reason) from None

    def of_row(self, row: RowImage) -> bytes:
        """Make the key from the columns of a row."""
        try:
            return canonical.key(row, self.columns)
        except KeyError as error:
            raise DecodeError(self._value, f'key column "{error.args[0]}" is missing') from None

    def columns_in(self, row: RowImage) -> bool:
        """Whether a row has all columns of the key."""
        return all(name in row for name in self.columns)

    def of_deleted(
        self, row: RowImage | None, key: bytes | None, headers: Headers = None
    ) -> bytes | None:
        """Make the key of a deleted row, from the Kafka key if the row lacks the key's columns."""
        if self.columns and row and self.columns_in(row):
            return self.of_row(row)
        return self.needed(key, headers)

    def needed(self, key: bytes | None, headers: Headers = None) -> bytes | None:
        """Decode the row's key from the Kafka key, which must have it if rows need a key."""
        row_key = self.of_kafka(key, headers)
        if row_key is None and (self.columns or not self._may_lack):
            lacks = "is null, or lacks the key's columns" if self.columns else "is null"
            raise DecodeError(self._key, f"the Kafka key {lacks}")
        return row_key

    def refused(
        self,
        codec: str,
        error: Exception,
        rows: Iterable[RowImage],
        key: bytes | None,
        headers: Headers = None,
    ) -> DecodeError:
        """Make the error of a message; it has the key of one of these rows, or the Kafka key.

        To iterate over the rows may raise `FAULTS`.
        """
        fault, row_key = canonical.decode_error(codec, error), None
        with suppress(*FAULTS):
            row_key = self.of_kafka(key, headers)
        with suppress(*FAULTS):
            for row in rows if self.columns else ():
                row_key = self.of_row(row)
                break
        return DecodeError(fault.codec, fault.reason, key=row_key)

    def tombstone(self, key: bytes | None, headers: Headers = None) -> Sequence[Change] | Ignored:
        """Decode a null value: a delete of its key, or ignored if the key is not known."""
        row_key = self.of_kafka(key, headers)
        return Ignored("tombstone") if row_key is None else [Change("delete", row_key)]

    def repeated(self, key: bytes | None, headers: Headers = None) -> Sequence[Change] | Ignored:
        """Decode a null value behind a message that has reported the delete, with the row.

        If rows have the key, no Kafka key is needed: it may be the text of a StringConverter.
        """
        try:
            return self.tombstone(key, headers)
        except DecodeError:
            if self.columns:
                return Ignored("tombstone")
            raise
