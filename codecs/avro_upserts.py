"""Keyed upserts in Avro."""

from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_compiler import ALL, Fields
from ikebana.codecs.avro_program import Take
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.change import Change, Headers, Needs
from ikebana.codecs.column_encodings import encodings
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.framing import Framing, Part
from ikebana.codecs.keyed_upserts import KeyedUpserts
from ikebana.codecs.row_images import option


class AvroUpserts(KeyedUpserts):
    """Decodes keyed upserts with values in Avro; `needs.key` has the key columns.

    A key in Avro or JSON may be any data; a key in bytes is taken as it is.

    `needs.options` may have "framing", and "reader_schema", the JSON of the schema to pin for
    values.

    Raises:
        ConfigError: the framing is not known, or the reader schema is no Avro schema.
    """

    def __init__(
        self,
        schemas: Schemas,
        needs: Needs,
        key_format: Literal["avro", "json", "bytes"] = "avro",
    ) -> None:
        framing = framing_of(needs)
        self._key_format = key_format
        super().__init__(needs.key)
        self._columns = needs.columns
        names = None if self._columns is None else dict.fromkeys((*self._columns, *needs.key), ALL)
        declared = encodings(needs.encodings)
        key = Take((), needs.key, whole=True) if needs.key else Take()
        self._keys = AvroDecoder(
            schemas,
            None,
            framing,
            part="key",
            needs=Fields(encodings=declared),
            takes=[key],
        )
        self._values = AvroDecoder(
            schemas,
            needs.options.get("reader_schema"),
            framing,
            needs=Fields(names, declared, judges=needs.judges),
            takes=[Take((), self._columns), key if needs.key else None],
        )
        self._told_by_header = framing == "headers" and key_format == "avro"

    def key(self, key: bytes | None) -> bytes | None:
        # Headers, which may name the schema, are not available here.
        return None if self._key_columns or self._told_by_header else self._of_kafka(key, None)

    def _row(self, row_key: bytes | None, value: bytes, headers: Headers) -> Change:
        if (parts := self._values.parts(value, headers)) and (image := parts[0]) is not None:
            return Change("upsert", parts[1] if self._key_columns else row_key, image)
        try:
            row = self._values.decode(value, headers)
            if self._columns is not None or self._key_columns:
                if not isinstance(row, dict):
                    raise DecodeError("Avro value", "expected a record")
                if self._key_columns:
                    row_key = _key_of(row, self._key_columns, "value")
                    if self._columns is not None:
                        row = {name: row[name] for name in self._columns if name in row}
            return Change("upsert", row_key, canonical.write(row))
        except DecodeError as error:
            raise DecodeError(error.codec, error.reason, key=row_key) from None
        except canonical.REFUSALS as error:
            reason = canonical.refused("Avro value", error).reason
            raise DecodeError("Avro value", reason, key=row_key) from None

    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes:
        if key is None:
            raise DecodeError(_KEYS[self._key_format], "it is null")
        if self._key_format == "bytes":
            return key
        try:
            if self._key_format == "avro" and (parts := self._keys.parts(key, headers)):
                (text,) = parts
                if text is not None:
                    return text
            if self._key_format == "json":
                data = canonical.decoder(Any)(key)
            else:
                data = self._keys.decode(key, headers)
            return (
                _key_of(data, self._key_columns, "key")
                if self._key_columns
                else canonical.write(data)
            )
        except canonical.REFUSALS as error:
            raise canonical.refused(_KEYS[self._key_format], error) from None


_KEYS = {"avro": "Avro key", "json": "JSON key", "bytes": "key"}


def framing_of(needs: Needs) -> Framing:
    """Find the framing that the options name, `confluent` if they name none.

    Raises:
        ConfigError: the framing is not known.
    """
    return cast(Framing, option(needs, "framing", *get_args(Framing)))


def _key_of(row: Any, columns: Sequence[str], part: Part) -> bytes:
    if not isinstance(row, dict) or not all(name in row for name in columns):
        raise DecodeError(f"Avro {part}", "it lacks a column of the key")
    return canonical.key(row, columns)
