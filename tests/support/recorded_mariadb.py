"""What the real producers said of a MariaDB, word for word, and what its tables were.

`make test-cdc` compares it with what they say, IKEBANA_GOLDEN=write records it anew.  A
line is a message; Avro is written in hexadecimal.
"""

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
from confluent_kafka import Message

from support.avro_messages import KnownSchemas

FOLDER = Path(__file__).parents[1] / "golden" / "mariadb_captured"

# What each file of messages is of: Debezium's by what it writes, and the other producers.
CONNECTORS = ("json", "headers", "confluent")
AVRO = ("headers", "confluent")
PRODUCERS = (*CONNECTORS, "maxwell", "canal")

Headers = Sequence[tuple[str, bytes]]
_ABSENT = msgspec.Raw(b"null")


class Recorded(msgspec.Struct, frozen=True):
    """A message of a producer, as it stands in a file."""

    topic: str
    key: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT
    headers: dict[str, str] = {}

    @classmethod
    def of(cls, message: Message, *, avro: bool) -> "Recorded":
        """What a message of Kafka is recorded as."""
        # Headers may be bytes of any kind.
        headers = {name: (data or b"").hex() for name, data in message.headers() or ()}
        key, value = (_written(data, avro=avro) for data in (message.key(), message.value()))
        return cls(message.topic(), key, value, headers)

    def parts(self, *, avro: bool) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers as a codec gets them."""
        key, value = (_read(data, avro=avro) for data in (self.key, self.value))
        return key, value, [(name, bytes.fromhex(data)) for name, data in self.headers.items()]


class Schemas(KnownSchemas):
    """Writers' schemas by their ids."""

    def plain(self, recorded: Recorded) -> tuple[Any, Any]:
        """Key and value read by fastavro, and by what the registry has of their schemas."""
        key, value, headers = recorded.parts(avro=True)
        named = dict(headers)
        return (
            self._plain(key, named.get("apicurio.key.contentId")),
            self._plain(value, named.get("apicurio.value.contentId")),
        )

    def _plain(self, data: bytes | None, number: bytes | None) -> Any:
        if data is None:
            return None
        if number is None:
            number, data = data[1:5], data[5:]
        schema = self.schemas[int.from_bytes(number, "big")]
        return fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None)


def _written(data: bytes | None, *, avro: bool) -> msgspec.Raw:
    if data is None:
        return _ABSENT
    if avro:
        return msgspec.Raw(json.dumps(data.hex()).encode())
    # Maxwell's key of a DDL statement is no JSON.
    return msgspec.Raw(data if data.startswith(b"{") else json.dumps(data.decode()).encode())


def _read(data: msgspec.Raw, *, avro: bool) -> bytes | None:
    if bytes(data) == b"null":
        return None
    if avro:
        return bytes.fromhex(json.loads(bytes(data)))
    text = bytes(data)
    return text if text.startswith(b"{") else str(json.loads(text)).encode()


def messages_of(name: str) -> list[Recorded]:
    """The messages of a file."""
    decoder = msgspec.json.Decoder(Recorded)
    return [decoder.decode(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


def record(name: str, messages: Iterable[Recorded]) -> None:
    """Write a file anew."""
    FOLDER.mkdir(exist_ok=True)
    lines = (msgspec.json.encode(message) + b"\n" for message in messages)
    (FOLDER / f"{name}.jsonl").write_bytes(b"".join(lines))


def tables() -> dict[str, list[dict[str, Any]]]:
    """The tables in the end, as MariaDB writes their rows."""
    found: dict[str, list[dict[str, Any]]] = json.loads(
        (FOLDER / "tables.json").read_text(), parse_float=Decimal
    )
    return found


def schemas() -> Schemas:
    """The schemas of the recorded messages."""
    told = json.loads((FOLDER / "schemas.json").read_text())
    return Schemas({int(number): schema for number, schema in told.items()})


def record_tables(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Write the tables anew."""
    text = json.dumps(tables, ensure_ascii=False, indent=1, default=float)
    (FOLDER / "tables.json").write_text(text + "\n")


def record_schemas(schemas: Schemas) -> None:
    """Write the schemas anew."""
    lines = [f'"{number}": {json.dumps(schemas.schemas[number])}' for number in schemas.schemas]
    (FOLDER / "schemas.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def schema_ids(message: Recorded) -> list[int]:
    """The ids of the schemas of a message in Avro, in its headers or its bytes."""
    key, value, headers = message.parts(avro=True)
    if found := [data for name, data in headers if name.endswith(".contentId")]:
        return [int.from_bytes(data, "big") for data in found]
    return [int.from_bytes(data[1:5], "big") for data in (key, value) if data is not None]
