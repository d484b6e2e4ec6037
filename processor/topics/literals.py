"""Literal records, as `evaluate` takes them: checked, and written as the messages of a topic.

A record that cannot be written raises a `ConfigError` with its input and its number, from 1.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ikebana.codecs import canonical, diff
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.topics.messages import Message

LiteralRecord = tuple[Any, Any] | tuple[Any, Any, int] | tuple[Any, Any, int, int] | bytes
"""(key, value[, time]); of an input of updates (key, value, time, diff); a message of CDCv2."""

_LARGEST = 1 << 63


def messages(
    source: Input, records: Iterable[LiteralRecord], lower: int, first_offset: int, *, each: bool
) -> list[Message]:
    """Records as messages at consecutive offsets, each with its time as the timestamp.

    A record without a time has that of the record before it, or with `each` the time after it;
    the first one has `lower`.
    An update's diff is in its headers.  No time is before `lower`, unless the input has
    event time.  Raises: ConfigError.
    """
    fields = 4 if source.traits.is_updates else 3
    result: list[Message] = []
    time = lower
    for number, record in enumerate(listed(source.name, records), 1):
        where = f'record {number} of input "{source.name}"'
        if isinstance(record, bytes) and source.traits.kind == "facts":
            result.append(Message(first_offset + number - 1, None, record))
            continue
        before = time + (each and number > 1)
        key, value, time, *rest = _fields(source, record, fields, before, where)
        _require_integer(time, "time", where)
        if source.event_time is None and time < lower:
            raise ConfigError(
                f"cannot evaluate {where}: time {time} lies before {lower}, which is closed",
                hint="Give records of earlier times before their time is closed.",
            )
        headers = None
        for change in rest:
            _require_integer(change, "diff", where)
            if change == 0:
                raise ConfigError(f"cannot evaluate {where}: its diff is 0")
            headers = diff.headers(time, change)
        raw_key = as_message(source, "key", key, where)
        raw_value = as_message(source, "value", value, where)
        if rest and raw_value is None:
            raw_value = b"null"
        result.append(Message(first_offset + number - 1, raw_key, raw_value, headers, time))
    return result


def listed(name: str, records: Iterable[LiteralRecord]) -> list[LiteralRecord]:
    """The records of an input.  Raises: ConfigError, if there is nothing to iterate over."""
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise ConfigError(
            f'cannot evaluate input "{name}": its records are of type {type(records).__name__}',
            hint="Give a list of records.",
        )
    return list(records)


def greatest_time(records: Iterable[Any]) -> int:
    """The greatest time of records, of those that have one; -1 if none has."""
    sized = (each for each in records if isinstance(each, tuple | list) and len(each) > 2)
    return max((each[2] for each in sized if isinstance(each[2], int)), default=-1)


def require_readable(source: Input, schemas: object) -> None:
    """Refuse an input whose schemas nobody has given.  Raises: ConfigError."""
    if schemas is None and needs_registry(source):
        raise ConfigError(
            f'cannot evaluate input "{source.name}": its messages are in Avro, and there are no '
            "schemas",
            hint="Give them by their ids: schemas={1: {...}}.",
        )


def as_message(
    source: Input, part: Literal["key", "value"], data: Any, where: str
) -> bytes | None:
    """A key or value as a topic holds it; data other than bytes are written as JSON."""
    if data is None or isinstance(data, bytes):
        return data
    traits = source.traits
    by_value = part == "value" or traits.keys_alike
    # Literal updates are JSON data, whatever encoding their topics have.
    of_value = "json" if traits.is_updates else traits.encoding
    if (of_value if by_value else source.key_format) != "json":
        raise ConfigError(
            f"cannot evaluate {where}: its {part} is of type {type(data).__name__}",
            hint="Give bytes: only JSON data are written for you.",
        )
    try:
        return canonical.encode(data)
    except (ArithmeticError, RecursionError, TypeError, ValueError, DecodeError) as error:
        problem = str(error) or type(error).__name__
        raise ConfigError(
            f"cannot evaluate {where}: its {part} cannot be written as JSON: {problem}",
            hint="Give what a message could hold, or its bytes.",
        ) from error


def _fields(
    source: Input, record: LiteralRecord, fields: int, before: int, where: str
) -> tuple[Any, ...]:
    shape = "(key, value, time, diff)" if fields == 4 else "(key, value) or (key, value, time)"
    if not isinstance(record, tuple | list):
        raise ConfigError(
            f"cannot evaluate {where}: it is of type {type(record).__name__}",
            hint=f"Records of {source.value_format} are {shape}.",
        )
    if fields == 3 and len(record) == 2:
        return (*record, before)
    if len(record) != fields:
        problem = "it has a diff" if len(record) == 4 else f"it has {len(record)} fields"
        raise ConfigError(
            f"cannot evaluate {where}: {problem}",
            hint=f"Records of {source.value_format} are {shape}."
            + (" Only updates have diffs: a diff input takes them." if len(record) == 4 else ""),
        )
    return tuple(record)


def _require_integer(number: object, what: str, where: str) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(
            f"cannot evaluate {where}: its {what} is of type {type(number).__name__}",
            hint=f"A {what} is a whole number.",
        )
    least = 0 if what == "time" else -_LARGEST
    if not least <= number < _LARGEST:
        raise ConfigError(
            f"cannot evaluate {where}: its {what} is {number}",
            hint="Times are whole numbers from 0 on, below 2^63."
            if what == "time"
            else "A diff has 64 bits.",
        )
