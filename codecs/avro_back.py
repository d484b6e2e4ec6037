"""Read messages of outputs in Avro back, as the messages in JSON that they were encoded from.

They are read by the schemas that they were written with, which are those of `avro_out`.  A column
that a row lacked is null afterwards.

When the columns of an output change, its earlier rows are retracted by messages with the new
columns.  `InsertedRows` finds the row that is meant.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.encodings import Convert
from ikebana.codecs.framing import Framing, Part, locate

_JSON = "io.debezium.data.Json"
_FRAMING: Framing = "confluent"
_decode = canonical.decoder(Any)


class InJson:
    """Keys or values of an output's topic as canonical JSON."""

    def __init__(self, schemas: Schemas, part: Part) -> None:
        self._schemas, self._part = schemas, part
        self._decoder = AvroDecoder(schemas, framing=_FRAMING, part=part)
        self._converts: dict[int | str, Convert | None] = {}

    def of(self, message: bytes | None) -> bytes | None:
        """The JSON of a message; None for None.

        Raises:
            DecodeError: the message cannot be decoded.
        """
        if message is None:
            return None
        data = self._decoder.decode(message)
        schema, _ = locate(_FRAMING, self._part, message)
        if schema not in self._converts:
            self._converts[schema] = _with_json(self._schemas.parsed(schema), {})
        convert = self._converts[schema]
        return canonical.write(data if convert is None else convert(data))


def _with_json(schema: Any, by_name: dict[str, Convert | None]) -> Convert | None:
    """A conversion of texts that have JSON to that JSON, at any depth; None if there are none."""
    if isinstance(schema, str):
        return by_name.get(schema)
    if isinstance(schema, list):
        # A union for a column, which may be null.
        parts = [_with_json(branch, by_name) for branch in schema if branch != "null"]
        return _of_null(parts[0]) if len(parts) == 1 and parts[0] is not None else None
    if schema.get("connect.name") == _JSON:
        return _decode
    match schema["type"]:
        case "array":
            return _of_items(_with_json(schema["items"], by_name))
        case "map":
            return _of_values(_with_json(schema["values"], by_name))
        case "record":
            converts = {f["name"]: _with_json(f["type"], by_name) for f in schema["fields"]}
            fields = {name: convert for name, convert in converts.items() if convert}
            by_name[schema["name"]] = _of_fields(fields) if fields else None
            return by_name[schema["name"]]
    return None


def _of_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of_items(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda items: [convert(item) for item in items]


def _of_values(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: {name: convert(value) for name, value in values.items()}


def _of_fields(converts: Mapping[str, Convert]) -> Convert:
    def converted(row: dict[str, Any]) -> dict[str, Any]:
        return row | {name: convert(row[name]) for name, convert in converts.items()}

    return converted


class InsertedRows:
    """The rows of each key, to find rows that are retracted with other columns.

    >>> rows = InsertedRows()
    >>> rows.change(b"1", b'{"a":1,"b":2}', 1), rows.change(b"1", b'{"a":1,"c":null}', -1)
    ((b'{"a":1,"b":2}', 1), (b'{"a":1,"b":2}', -1))
    """

    def __init__(self) -> None:
        self._rows: dict[bytes | None, Counter[bytes]] = {}

    def change(self, key: bytes | None, row: bytes, count: int) -> tuple[bytes, int]:
        """Insert or retract a row; return the row as it was inserted."""
        rows = self._rows.setdefault(key, Counter())
        if count < 0 and row not in rows:
            image = _decode(row)
            row = next((each for each in sorted(rows) if _agree(_decode(each), image)), row)
        rows[row] += count
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._rows[key]
        return row, count


def _agree(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows are equal in the columns of both; others are null where `row` has none."""
    return all(row.get(name) == value for name, value in other.items())
