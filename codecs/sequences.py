"""Read the place of a change in the order of its source.

The option `sequence` names the fields of a message that have it, with commas between them: the
second is compared if the first is equal, and so on.  A field may be followed by the kind of its
values:

* `number`, which is the default: numbers, also as texts;
* `timestamp`: texts of dates or timestamps; without a zone they are in UTC;
* `text`: texts, compared by their UTF-8;
* `log`: texts with several numbers or words, such as a position in a log, which are compared one
  after the other, and the longer one is greater: mysql-bin.000009:4 is before mysql-bin.000010:4.

`changes` looks for a field in the message, then in the row in it.  `Sequenced` looks in the
message, for codecs that do not decode it as a whole.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder, framing_of
from ikebana.codecs.avro_compiler import TOLERANT, Fields
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.canonical import FAULTS, decode_error, object_of
from ikebana.codecs.change import Change, Codec, Headers, Ignored, Needs
from ikebana.codecs.encodings import instant_of
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError

Part = int | float | Decimal | str
_NUMBER = re.compile(r"[+-]?\d{1,80}(?:\.\d{1,80})?", re.ASCII)
_nanos = instant_of(9)
_WORDS = re.compile("[0-9A-Za-z]{1,999}")
# Before all numbers and texts.
_MISSING = False


def _number(value: Any) -> Part:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return Decimal(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    raise ValueError


def _timestamp(value: Any) -> Part:
    if isinstance(value, str):
        return _nanos(value)
    raise ValueError


def _text(value: Any) -> Part:
    if isinstance(value, str):
        return value
    raise ValueError


def _log(value: Any) -> Part:
    if isinstance(value, str):
        return "".join(f"{len(word):03}{word}" for word in _WORDS.findall(value))
    raise ValueError


_KINDS: Mapping[str, Callable[[Any], Part]] = {
    "number": _number,
    "timestamp": _timestamp,
    "text": _text,
    "log": _log,
}


class _Field(NamedTuple):
    path: tuple[str, ...]
    kind: str


class SourceSequence:
    """Reads the sequence of messages by the text of the option.

    Raises:
        ConfigError: the text names no field.
    """

    def __init__(self, codec: str, option: str) -> None:
        self._codec = codec
        self._fields = [_field(part.strip()) for part in option.split(",")]
        self.paths = [field.path for field in self._fields]

    def of(self, *images: Mapping[str, Any] | None, may_lack: bool = False) -> tuple[Part, ...]:
        """The sequence of a message; its fields are in one of the images.

        With `may_lack`, a field that is missing or null is before all values.

        Raises:
            DecodeError: a field is missing or null, or its value is not of its kind.
        """
        return tuple(self._part(field, images, may_lack=may_lack) for field in self._fields)

    def _part(
        self, field: _Field, images: Iterable[Mapping[str, Any] | None], *, may_lack: bool
    ) -> Part:
        name = ".".join(field.path)
        values = (at(image, field.path) for image in images)
        value = next((value for value in values if value is not None), None)
        if value is None and may_lack:
            return _MISSING
        if value is None:
            raise DecodeError(self._codec, f"field `{name}` of the sequence is null or missing")
        try:
            return _KINDS[field.kind](value)
        except ValueError:
            reason = f"field `{name}` of the sequence is no {field.kind}"
            raise DecodeError(self._codec, reason) from None


def _field(text: str) -> _Field:
    name, _, kind = text.rpartition(" ")
    if kind not in _KINDS or not name:
        name, kind = text, "number"
    if not all(path := path_of(name.strip())):
        raise ConfigError(
            f'option "sequence" has "{text}", which names no field',
            hint='Name fields, with commas between them, as in "changed timestamp, number".',
        )
    return _Field(path, kind)


def path_of(name: str) -> tuple[str, ...]:
    """The names of a field and of those around it, from the outermost on.

    >>> path_of("meta.op")
    ('meta', 'op')
    """
    return tuple(name.split("."))


def at(message: Any, path: Iterable[str], otherwise: Any = None) -> Any:
    """The value of a message at a path."""
    for name in path:
        if not isinstance(message, dict) or name not in message:
            return otherwise
        message = message[name]
    return message


class Sequenced:
    """Gives the changes of another codec the sequences of their messages.

    Messages that only insert may lack it, as rows of a snapshot do: these are before all others.
    A tombstone only repeats a delete, so it is ignored.  `schemas` is the registry if messages are
    in Avro.

    >>> from ikebana.codecs.maxwell import Maxwell
    >>> needs = Needs(key=("id",), options={"sequence": "position log"})
    >>> codec = Sequenced(Maxwell(needs), needs)
    >>> message = b'{"type": "insert", "data": {"id": 1}, "position": "bin.09:4"}'
    >>> codec.changes(None, message, None)[0].sequence
    ('003bin002090014',)

    Raises:
        ConfigError: the option names no field, or nothing keeps the order of changes.
    """

    def __init__(self, codec: Codec, needs: Needs, schemas: Schemas | None = None) -> None:
        require_state(needs)
        self._name, self._codec = type(codec).__name__, codec
        self._sequence = SourceSequence(self._name, needs.options["sequence"])
        # Kafka Connect may put a message into a payload.
        fields = {"payload", *(path[0] for path in self._sequence.paths)}
        self._read = _decoder(fields, needs, schemas)

    def key(self, key: bytes | None) -> bytes | None:
        return self._codec.key(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        if value is None:
            return Ignored("tombstone")
        headers = list(headers) if headers else None
        changes = self._codec.changes(key, value, headers)
        if isinstance(changes, Ignored):
            return changes
        if changes[0].kind == "delete" and not changes[0].replaces:
            # A null that has bytes, as that of a converter which adds a schema.
            return Ignored("tombstone")
        try:
            return self._placed(changes, self._read(value, headers))
        except FAULTS as error:
            reason = decode_error(self._name, error).reason
            raise DecodeError(self._name, reason, key=changes[-1].key) from None

    def _placed(self, changes: Sequence[Change], message: Mapping[str, Any]) -> list[Change]:
        if changes[0].kind == "truncate":
            raise DecodeError(self._name, "a truncate has no place in a sequence")
        if any(change.absent for change in changes):
            # A message that is outdated may have a column that no other has.
            reason = "the row lacks columns that did not change, and a sequence needs whole rows"
            raise DecodeError(self._name, reason)
        may_lack = not any(change.replaces for change in changes)
        sequence = self._sequence.of(message, message.get("payload"), may_lack=may_lack)
        return [change._replace(sequence=sequence) for change in changes]


def _decoder(
    names: Iterable[str], needs: Needs, schemas: Schemas | None
) -> Callable[[bytes, Headers], Any]:
    """Make a decoder of these fields of messages."""
    if schemas is not None:
        fields = Fields(dict.fromkeys(names, TOLERANT))
        reader_schema = needs.options.get("reader_schema")
        return AvroDecoder(schemas, reader_schema, framing_of(needs), needs=fields).decode
    read = canonical.decoder(object_of(dict.fromkeys(names, Any)))
    return lambda value, _: read(value)


def require_state(needs: Needs) -> None:
    """Refuse a sequence where no state has the sequences of keys.  Raises: ConfigError."""
    if needs.diffs:
        raise ConfigError(
            'option "sequence" needs a state, and the mode is "diffs"',
            hint='Read the input in mode "upsert".',
        )
