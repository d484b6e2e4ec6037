"""Decode some messages of an input: the columns of their rows, and the reasons of errors.

The input's decoder reads them, but with all columns, whatever the pipeline needs.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, DeclaredColumns
from ikebana.codecs.errors import DecodeError
from ikebana.processor.planning.input_rows import dating_query
from ikebana.processor.planning.plan import Input
from ikebana.processor.planning.planner import Reading
from ikebana.processor.topics.event_time import EventTimes, TimeBounds
from ikebana.processor.topics.input_codec import (
    ColumnTypes,
    codec_of,
    takes_empty_for_null,
    wanted_of,
)
from ikebana.processor.topics.messages import (
    Message,
    MessageOrigin,
    MessageReader,
    Undecodable,
    untold,
)

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas

_NOWHERE = MessageOrigin("", 0, "")
_ALL = Reading()


class _AsTheyAre(DeclaredColumns):
    """Declared columns that may be absent: images are neither refused nor filled with nulls."""

    __slots__ = ()

    def __init__(self, declared: DeclaredColumns) -> None:
        names = declared.to_look_for()
        super().__init__({name: declared.type_of(name) or "" for name in names})

    def absent(self, image: Container[str]) -> tuple[str, ...]:
        return ()

    def with_nulls(self, image: Mapping[str, Any]) -> dict[str, Any]:
        return dict(image)


class Look(NamedTuple):
    """The result of a look at messages.

    `read` is the number of messages with (part of) a row or with an error; `reasons` counts errors
    by reason.  `rows` are the new and old rows of `with_rows` messages, with the columns that the
    messages have.
    """

    read: int
    reasons: Counter[str]
    with_rows: int
    rows: list[dict[str, Any]]


def look(source: Input, messages: Sequence[Message], schemas: "Schemas | None" = None) -> Look:
    """Look at messages of an input; `schemas` is the registry, for the formats that need one.

    Messages of CDCv2 are not looked at.
    """
    kind = source.traits.kind
    if kind == "facts":
        return Look(0, Counter(), 0, [])
    if kind == "updates":
        rows = [_object(message.value) for message in messages if message.value is not None]
        return Look(len(rows), Counter(), *_of_objects([[row] for row in rows]))
    if takes_empty_for_null(source):
        messages = [each if each.value else each._replace(value=None) for each in messages]
    results = _changes_of(source, messages, schemas)
    bad = {at: _reason(each.record) for at, each in results if isinstance(each, Undecodable)}
    good = [
        (at, each)
        for at, changes in results
        if not isinstance(changes, Undecodable)
        for each in changes
    ]
    writes = [(at, change) for at, change in good if change.after is not None]
    images = [change.after for _, change in writes]
    if source.mode == "diffs":
        for at, change in good:
            if (lacking := untold(change)) is not None:
                bad.setdefault(at, str(DecodeError(*lacking)))
    for index, reason in ColumnTypes(source).wrong(images).items():
        bad.setdefault(writes[index][0], reason)
    if source.event_time is not None:
        of = EventTimes(dating_query(source))
        clocks = [messages[at].timestamp for at, _ in writes]
        dated = of.of_rows(
            [c.key for _, c in writes], images, clocks, [TimeBounds(0, None)] * len(writes)
        )
        for (at, _), time in zip(writes, dated.times, strict=True):
            if isinstance(time, str):
                bad.setdefault(at, time)
    # A delete by key alone has no row that could be wrong.
    read = {*bad, *(at for at, each in good if (each.after or each.before) is not None)}
    return Look(len(read), Counter(bad.values()), *_rows(source, messages, schemas))


def _changes_of(
    source: Input, messages: Sequence[Message], schemas: "Schemas | None"
) -> list[tuple[int, Sequence[Change] | Undecodable]]:
    reader = MessageReader(source, codec_of(source, _ALL, schemas), _ALL)
    return list(reader.decode(messages, _NOWHERE, Counter()))


def _rows(
    source: Input, messages: Sequence[Message], schemas: "Schemas | None"
) -> tuple[int, list[dict[str, Any]]]:
    """Decode rows with the columns that they have; absent ones are not added as null."""
    request = wanted_of(source, _ALL)
    request = msgspec.structs.replace(request, declared=_AsTheyAre(request.declared))
    make = source.traits.codec
    assert make is not None, f"{source.value_format} has updates, not changes"
    reader = MessageReader(source, make(request, source.key_format, schemas), _ALL)
    return _of_objects(
        [
            [_object(image) for change in changes for image in (change.before, change.after)]
            for _, changes in reader.decode(messages, _NOWHERE, Counter())
            if not isinstance(changes, Undecodable)
        ]
    )


def _of_objects(by_message: Sequence[Sequence[Any]]) -> tuple[int, list[dict[str, Any]]]:
    """Count the messages that have objects, and list these."""
    objects = [[row for row in rows if isinstance(row, dict)] for rows in by_message]
    return sum(map(bool, objects)), [row for rows in objects for row in rows]


_decode = canonical.decoder(Any)


def _object(value: bytes | None) -> Any:
    try:
        return None if value is None else _decode(value)
    except canonical.REFUSALS:
        return None


def _reason(record: bytes) -> str:
    return str(msgspec.json.decode(record)["reason"])
