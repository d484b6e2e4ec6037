"""The place of a change in the order of its source, by fields of its message.

The option `sequence` names the fields, with commas between them: the second is compared if the
first is equal, and so on.  A field may be followed by the kind of its values:

* `number`, which is the default: numbers, also as texts;
* `timestamp`: texts of dates or timestamps; without a zone they are in UTC;
* `text`: texts, compared by their UTF-8.

A field is looked up in the message, then in the row in it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from ikebana.codecs.counts_of_time import instant_of
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError

Part = int | float | Decimal | str
_NUMBER = re.compile(r"[+-]?\d{1,80}(?:\.\d{1,80})?", re.ASCII)
_nanos = instant_of(9)


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


_KINDS: Mapping[str, Callable[[Any], Part]] = {
    "number": _number,
    "timestamp": _timestamp,
    "text": _text,
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

    def of(self, *images: Mapping[str, Any] | None) -> tuple[Part, ...]:
        """The sequence of a message; its fields are in one of the images.

        Raises:
            DecodeError: a field is missing or null, or its value is not of its kind.
        """
        return tuple(self._part(field, images) for field in self._fields)

    def _part(self, field: _Field, images: Iterable[Mapping[str, Any] | None]) -> Part:
        name = ".".join(field.path)
        values = (at(image, field.path) for image in images)
        value = next((value for value in values if value is not None), None)
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
