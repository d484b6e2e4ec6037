"""What ikebana's codecs make of the messages about a store, and what all of it comes to."""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal

from cdc.telling import Row, comparable
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Change, Codec, Headers, Ignored, Needs
from ikebana.codecs.debezium import Debezium
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.maxwell import Maxwell

# Key, value and headers, as Kafka has them.
Parts = tuple[bytes | None, bytes | None, Headers]


def codec_of(producer: str, table: str, schemas: Schemas) -> Codec:
    """What reads a producer's messages about a table; `schemas` are those of Avro."""
    tables = rf"store\.{table}"
    match producer:
        case "json":
            return Debezium(Needs(tables=tables, before=True))
        case "headers":
            framing = {"framing": "headers"}
            return DebeziumAvro(schemas, Needs(tables=tables, before=True, options=framing))
        case "confluent":
            return DebeziumAvro(schemas, Needs(tables=tables, before=True))
        case "maxwell":
            return Maxwell(Needs(tables=tables, before=True))
        case "canal":
            return Canal(Needs(tables=tables, before=True))
    raise AssertionError(producer)


def changes(codec: Codec, messages: Iterable[Parts]) -> Iterator[Change]:
    """What all messages say."""
    for message in messages:
        found = codec.changes(*message)
        if not isinstance(found, Ignored):
            yield from found


def folded(changes: Iterable[Change], added: Iterable[str] = ()) -> dict[bytes, Row]:
    """The rows in the end, by their keys; an old image is the row that was there.

    It may have columns that were added since, with their defaults.
    """
    rows: dict[bytes, Row] = {}
    for change in changes:
        assert not change.absent
        if change.kind == "truncate":
            rows.clear()
            continue
        assert change.key is not None
        there = rows.pop(change.key, None)
        if change.before is not None:
            assert there is not None
            image = row(change.before)
            assert there | {name: image[name] for name in added if name in image} == image
        if change.kind == "upsert":
            assert change.after is not None
            rows[change.key] = row(change.after)
    return rows


def row(data: bytes) -> Row:
    """A row as it can be compared."""
    return comparable(json.loads(data, parse_float=Decimal))
