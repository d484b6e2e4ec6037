"""JSON in the framing of a schema registry, as serializers of JSON Schema write it.

The bytes before the JSON name a schema, which decoding does not need.  JSON never begins with a
zero byte, so a key without framing, from another serializer, is recognised.  Values must be
framed.

Source: confluent_kafka.schema_registry.json_schema; Apicurio's ids have eight bytes.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from ikebana.codecs.change import Change, Codec, Headers, Ignored, RowCodec
from ikebana.codecs.errors import DecodeError

Framing = Literal["confluent", "apicurio"]
FRAMINGS: tuple[str, ...] = get_args(Framing)
_LENGTHS = {"confluent": 5, "apicurio": 9}


class Framed:
    """Decodes framed messages with the codec of bare ones.

    >>> from ikebana.codecs.change import Needs
    >>> from ikebana.codecs.plain import Plain
    >>> codec = Framed(Plain("json", "json", Needs()), "confluent")
    >>> codec.changes(b"1", bytes(5) + b'{"n":2}', None)[0].after
    b'{"n":2}'
    """

    def __init__(self, codec: Codec, framing: str) -> None:
        self._codec, self._length = codec, _LENGTHS[framing]

    def key(self, key: bytes | None) -> bytes | None:
        return self._codec.key(self._bare_key(key))

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        key = self._bare_key(key)
        if value is None:
            return self._codec.changes(key, None, headers)
        try:
            bare = self._bare(value)
        except DecodeError as error:
            raise DecodeError(error.codec, error.reason, key=self._readable(key)) from None
        return self._codec.changes(key, bare, headers)

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key, if the codec decodes rows.  Raises: DecodeError."""
        codec: RowCodec = self._codec  # type: ignore[assignment]
        return codec.row(self._bare(value), headers)

    def _bare_key(self, key: bytes | None) -> bytes | None:
        return key[self._length :] if key and key[0] == 0 else key

    def _bare(self, value: bytes) -> bytes:
        if value[:1] != b"\0":
            raise DecodeError("value as JSON", "it does not begin with the byte of a schema id")
        if len(value) < self._length:
            raise DecodeError("value as JSON", "it is too short for a schema id")
        return value[self._length :]

    def _readable(self, key: bytes | None) -> bytes | None:
        try:
            return self._codec.key(key)
        except DecodeError:
            return None
