"""Keyed upserts whose keys and values are decoded with the headers of their message."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ikebana.codecs.change import Change, Headers


class KeyedUpserts(ABC):
    """Decodes keyed upserts: the Kafka key is the row's key, the value the row.

    A null value is a delete.  If there are key columns, the key is in the row, and only the key
    of a delete is taken from the Kafka key.
    """

    def __init__(self, key_columns: Sequence[str]) -> None:
        self._key_columns = key_columns

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change]:
        """Decode a message into one upsert or one delete.  Raises: DecodeError."""
        headers = list(headers) if headers else None
        row_key = None if self._key_columns and value is not None else self._of_kafka(key, headers)
        if value is None:
            return [Change("delete", row_key)]
        return [self._row(row_key, value, headers)]

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key, except one from its columns.  Raises: DecodeError."""
        return self._row(None, value, list(headers) if headers else None)

    @abstractmethod
    def _row(self, row_key: bytes | None, value: bytes, headers: Headers) -> Change:
        """Decode a row with the key of its message, unless its columns have the key."""

    @abstractmethod
    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes:
        """Decode a Kafka key to the key of a row."""
