"""CDCv2 as Avro: the facts of `cdcv2`, in the schema that Materialize documents.

A message is in Avro's single-object encoding: two marker bytes, the schema's CRC-64-AVRO
fingerprint in little-endian order, and the body.  No registry is needed: a reader who knows
`SCHEMA` may skip ten bytes and decode the rest.  `data` holds canonical JSON as bytes, because
columns have no types here.

Schema: https://materialize.com/docs/connect/materialize-cdc/; encoding:
https://avro.apache.org/docs/1.12.0/specification/#single-object-encoding.
"""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from ikebana.codecs import cdcv2
from ikebana.codecs.cdcv2 import END, LARGEST_STATEMENT, Cdcv2Message, Fact
from ikebana.codecs.errors import DecodeError

_LONGS = {"type": "array", "items": "long"}
# The writer's schema; readers have copies of it.
SCHEMA: list[dict[str, Any]] = [
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "update",
            "namespace": "com.materialize.cdc",
            "fields": [
                {
                    "name": "data",
                    "type": {
                        "type": "record",
                        "name": "data",
                        "fields": [
                            {"name": "key", "type": ["null", "bytes"]},
                            {"name": "value", "type": "bytes"},
                        ],
                    },
                },
                {"name": "time", "type": "long"},
                {"name": "diff", "type": "long"},
            ],
        },
    },
    {
        "type": "record",
        "name": "progress",
        "namespace": "com.materialize.cdc",
        "fields": [
            {"name": "lower", "type": _LONGS},
            {"name": "upper", "type": _LONGS},
            {
                "name": "counts",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "counts",
                        "fields": [
                            {"name": "time", "type": "long"},
                            {"name": "count", "type": "long"},
                        ],
                    },
                },
            },
        ],
    },
]

_PARSED = fastavro.parse_schema(SCHEMA)
# The marker and the fingerprint, with which every message begins.
HEAD = b"\xc3\x01" + bytes.fromhex(fingerprint(to_parsing_canonical_form(SCHEMA), "CRC-64-AVRO"))


def encode_updates(updates: Iterable[Fact], max_bytes: int = LARGEST_STATEMENT) -> Iterator[bytes]:
    """Write updates, consolidated, as messages of at most `max_bytes` each.

    All updates of a time must come in one call.  A single update that is longer than
    `max_bytes` gets a separate message.
    """
    # Encoded by hand: to split messages, the length of each update must be known.
    parts = [
        b"".join(
            (
                b"\x00" if key is None else b"\x02" + _long(len(key)) + key,
                _long(len(value)),
                value,
                _long(time),
                _long(diff),
            )
        )
        for key, value, time, diff in cdcv2.consolidate(updates)
    ]
    for group in cdcv2.packed(parts, max_bytes - _AROUND_UPDATES, len):
        yield HEAD + b"\x00" + _array(group)


def encode_progress(
    lower: int,
    upper: int,
    counts: Mapping[int, int],
    max_bytes: int = LARGEST_STATEMENT,
) -> Iterator[bytes]:
    """Write the counts of the times in [lower, upper) as messages of at most `max_bytes`.

    If there are several messages, they are statements about consecutive intervals.
    """
    room = max_bytes - _AROUND_COUNTS
    for one in cdcv2.statements(lower, upper, counts, room, lambda count: len(_count(count))):
        yield b"".join(
            (
                HEAD,
                b"\x02",
                _array([_long(one.lower)]),
                _array([] if one.upper == END else [_long(one.upper)]),
                _array([_count(count) for count in one.counts.items()]),
            )
        )


# A long takes up to 10 bytes, and so does an array's number of items.
_AROUND_UPDATES = len(HEAD) + 1 + 11
_AROUND_COUNTS = len(HEAD) + 1 + 2 * 12 + 11


def _count(count: tuple[int, int]) -> bytes:
    return _long(count[0]) + _long(count[1])


def _array(items: list[bytes]) -> bytes:
    return _long(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


@lru_cache(maxsize=4096)
def _long(number: int) -> bytes:
    """Encode Avro's long: zigzag, then seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def decode(message: bytes | None) -> Cdcv2Message:
    """Decode a message; key and value are the bytes in it.

    Raises:
        DecodeError: it has another schema, is cut off, or contradicts itself.
    """
    if message is None or not message.startswith(HEAD):
        raise DecodeError("CDCv2", "it does not begin with the mark of this Avro schema")
    body = io.BytesIO(message)
    body.seek(len(HEAD))
    try:
        data: Any = fastavro.schemaless_reader(body, _PARSED, None)
    except _REFUSALS:
        raise DecodeError("CDCv2", "the Avro body cannot be read") from None
    if body.tell() != len(message):
        raise DecodeError("CDCv2", "the Avro body is followed by something")
    if isinstance(data, list):
        return cdcv2.checked_updates(
            (update["data"]["key"], update["data"]["value"], update["time"], update["diff"])
            for update in data
        )
    counts = [(count["time"], count["count"]) for count in data["counts"]]
    return cdcv2.checked_progress(data["lower"], data["upper"], counts)


# The exceptions that fastavro raises at damaged bytes: cut off, an unknown branch, a length that
# is negative or too large for memory.
_REFUSALS = (
    EOFError,
    IndexError,
    MemoryError,
    OverflowError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
)
