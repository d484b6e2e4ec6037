"""The types of an output's messages, for formats with schemas in a registry.

A `WrittenCodec` makes schemas of them, and encodes messages in JSON by these schemas.  `encoded`
is common to all formats: a message that does not fit its schema is a violation, so it is left out,
and its reason names the column.  A body has no prefix: `framed` adds the ids that a registry gives
to the schemas.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ikebana.codecs.sql_type import Array, List, Map, Scalar, SqlType, Struct
from ikebana.codecs.upsert_out import OutputMessage, Violation

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Matches names of records and fields, in Avro and in Protobuf."""


class MisfitError(Exception):
    """A value is not of the type of its column; `path` names the field."""

    def __init__(self, path: str, kind: SqlType | str) -> None:
        super().__init__(f'column "{path}" is not of type {kind}')


class OutputShape(NamedTuple):
    """The types of an output's messages: its key, and the columns of its rows.

    `space` is the namespace of the records.  A key of unknown type is JSON.  With
    `envelope`, values are Debezium's.
    """

    space: str
    key_type: SqlType
    columns: tuple[tuple[str, SqlType], ...]
    envelope: bool = False


class Writers(NamedTuple):
    """Encode the JSON of keys and of values as messages.  They raise: MisfitError."""

    key: Callable[[bytes], bytes]
    value: Callable[[bytes], bytes]


def encoded(
    writers: Writers, messages: Iterable[OutputMessage]
) -> tuple[list[OutputMessage], list[Violation]]:
    """Encode messages in JSON; a message without a key keeps none."""
    done: list[OutputMessage] = []
    violations: list[Violation] = []
    for key, value, headers in messages:
        try:
            body = None if value is None else writers.value(value)
            done.append(OutputMessage(None if key is None else writers.key(key), body, headers))
        except MisfitError as error:
            time = int(next(of for name, of in headers if name == "time") or 0)
            violations.append(Violation(key, time, str(error)))
    return done, violations


class Ids(NamedTuple):
    """The ids that a registry has given to the schemas of an output's keys and values."""

    key: int
    value: int


def framed(messages: Sequence[OutputMessage], ids: Ids) -> list[OutputMessage]:
    """Add Confluent's prefix: a byte of 0, and the id of the schema in four bytes.

    >>> framed([OutputMessage(b"k", None, [])], Ids(1, 2))
    [OutputMessage(key=b'\\x00\\x00\\x00\\x00\\x01k', value=None, headers=[])]
    """
    of_key, of_value = (b"\0" + number.to_bytes(4, "big") for number in ids)
    return [
        OutputMessage(
            None if key is None else of_key + key,
            None if value is None else of_value + value,
            headers,
        )
        for key, value, headers in messages
    ]


def namespace_of(topic: str) -> str:
    """A namespace of Avro or Protobuf for the messages of a topic.

    >>> namespace_of("shop.orders-by-day.2024")
    'shop.orders_by_day._2024'
    """
    return ".".join(map(_as_name, topic.split(".")))


def _as_name(part: str) -> str:
    text = "".join(c if NAME.fullmatch(c) or c.isdigit() else "_" for c in part)
    return text if NAME.fullmatch(text) else f"_{text}"


def has_names(kind: SqlType) -> bool:
    """Whether all fields within a type have valid names of Avro, and maps have texts as keys."""
    match kind:
        case Struct(fields):
            return all(NAME.fullmatch(name) and has_names(of) for name, of in fields)
        case List(of) | Array(of) | Map(Scalar("VARCHAR"), of):
            return has_names(of)
        case Map(_, of):
            # Keys of JSON objects are texts.
            return has_names(of)
    return True
