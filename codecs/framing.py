"""Find the id of the schema that a message was written with, and the start of its Avro body.

`confluent`: a zero byte and the id in four bytes, big-endian; or a byte of 1 and the schema's
GUID in 16 bytes.  `apicurio`: a zero byte and the id in eight bytes.  `headers`: the message is
only the body.  With each framing an id in the headers takes precedence: Confluent's header has
the same bytes as the prefix above, Apicurio's has eight bytes.  Of several headers with one name
the last counts.

Apicurio numbers schemas twice, by content and globally, and its Confluent-compatible API answers
to only one kind: content ids, unless `legacy-id-mode` is on.  Therefore a global id in a header
is used only with `apicurio`: otherwise it could be the id of another schema.

Sources: confluent_kafka.schema_registry (dual_schema_id_deserializer), Apicurio's
KafkaSerdeHeaders, Default4ByteIdHandler and Legacy8ByteIdHandler.
"""

from typing import Literal

from ikebana.codecs.change import Headers
from ikebana.codecs.errors import DecodeError

Framing = Literal["confluent", "apicurio", "headers"]
Part = Literal["key", "value"]

_ID, _GUID = 0, 1
_GUID_LENGTH = 17


def locate(
    framing: Framing, part: Part, message: bytes, headers: Headers = None
) -> tuple[int | str, int]:
    """Find the schema's id (a GUID as text), and the index at which the body begins.

    >>> locate("confluent", "value", bytes.fromhex("00 0000002a 02"))
    (42, 5)

    Raises:
        DecodeError: the framing has an id, and the message has none there.
    """
    if headers and (schema := _of_headers(framing, part, headers)) is not None:
        return schema, 0
    if framing == "headers":
        raise DecodeError(f"Avro {part}", "no header names its schema")
    if not message:
        raise DecodeError(f"Avro {part}", "it is empty")
    first = message[0]
    if first == _ID:
        length = 9 if framing == "apicurio" else 5
        if len(message) >= length:
            return int.from_bytes(message[1:length], "big"), length
    elif first == _GUID and framing == "confluent":
        if len(message) >= _GUID_LENGTH:
            return _guid(message[1:_GUID_LENGTH]), _GUID_LENGTH
    else:
        raise DecodeError(f"Avro {part}", "it does not begin with the byte of a schema id")
    raise DecodeError(f"Avro {part}", "it is too short for a schema id")


def _of_headers(framing: Framing, part: Part, headers: Headers) -> int | str | None:
    ids: dict[str, bytes | str | None] = {}
    for name, value in headers or ():
        if name.startswith(("__", "apicurio.")):
            ids[name] = value
    if not ids:
        return None
    if (name := f"__{part}_schema_id") in ids:
        value = ids[name]
        if isinstance(value, bytes):
            if len(value) == _GUID_LENGTH and value[0] == _GUID:
                return _guid(value[1:])
            if len(value) == 5 and value[0] == _ID:
                return int.from_bytes(value[1:], "big")
        raise DecodeError(f"Avro {part}", f'header "{name}" is no schema id')
    for kind in ("contentId", "globalId"):
        if (name := f"apicurio.{part}.{kind}") in ids:
            value = ids[name]
            if not isinstance(value, bytes) or len(value) != 8:
                raise DecodeError(f"Avro {part}", f'header "{name}" is no schema id')
            if kind == "globalId" and framing != "apicurio":
                raise DecodeError(
                    f"Avro {part}", f'header "{name}" is a global id: it needs framing apicurio'
                )
            return int.from_bytes(value, "big")
    return None


def _guid(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
