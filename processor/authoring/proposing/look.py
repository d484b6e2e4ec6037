"""Look at some messages of an input: the columns of their rows, and what is probably not meant.

`look` decodes messages as the input does, but with all columns, whatever the pipeline needs.
`columns_seen` compares these with the declared ones: has the schema drifted?  A column of messages
that is not declared is not read.  A declared column that messages lack is null.

`notices` are probable mistakes.  None of them stops a run: they give nulls, error records, or
nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ikebana.codecs import sql_type
from ikebana.codecs.change import Change, DeclaredColumns
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.sql_type import Array, List, SqlType, Struct
from ikebana.processor.authoring.proposing.formats import (
    MessageRow,
    Sample,
    columns_of,
    parsed,
    value_format,
)
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.texts import counted, did_you_mean
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.planning.input_rows import dating_query
from ikebana.processor.planning.plan import Input, Plan, Reading
from ikebana.processor.topics.event_time import EventTimes, TimeBounds
from ikebana.processor.topics.input_codec import (
    ColumnTypes,
    codec_of,
    declared_by,
    decoding_needs,
    takes_empty_for_null,
)
from ikebana.processor.topics.messages import (
    Message,
    MessageOrigin,
    MessageReader,
    Undecodable,
    incomplete_image,
)

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas

_NOWHERE = MessageOrigin("", 0, "")
_ALL = Reading()
# The most names to list.
_MOST_NAMES = 12
# The least likeness of a name for "did you mean".
_LIKE = 0.5
_ENVELOPE = {"schema", "payload"}


class _AsTheyAre(DeclaredColumns):
    """Declared columns that may be absent: images are neither refused nor filled with nulls."""

    __slots__ = ()

    def __init__(self, declared: DeclaredColumns) -> None:
        names = declared.to_look_for()
        super().__init__({name: declared.type_of(name) or "" for name in names})

    def absent(self, image: Container[str]) -> tuple[str, ...]:
        return ()

    def nulls(self, columns: Container[str] | None) -> dict[str, None]:
        return {}


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
        rows = [parsed(message.value) for message in messages if message.value is not None]
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
            if (lacking := incomplete_image(change)) is not None:
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
    request = decoding_needs(source, _ALL)
    request = msgspec.structs.replace(request, declared=_AsTheyAre(request.declared))
    make = source.traits.codec
    assert make is not None, f"{source.value_format} has updates, not changes"
    reader = MessageReader(source, make(request, source.key_format, schemas), _ALL)
    return _of_objects(
        [
            [parsed(image) for change in changes for image in (change.before, change.after)]
            for _, changes in reader.decode(messages, _NOWHERE, Counter())
            if not isinstance(changes, Undecodable)
        ]
    )


def _of_objects(by_message: Sequence[Sequence[Any]]) -> tuple[int, list[dict[str, Any]]]:
    """Count the messages that have objects, and list these."""
    objects = [[row for row in rows if isinstance(row, dict)] for rows in by_message]
    return sum(map(bool, objects)), [row for rows in objects for row in rows]


def _reason(record: bytes) -> str:
    return str(msgspec.json.decode(record)["reason"])


class UndeclaredColumn(msgspec.Struct):
    """A column of messages that is not declared: a type for its values, and its rows."""

    name: str
    type: str
    rows: int


class ColumnsSeen(msgspec.Struct):
    """The differences between the columns of some rows and the declared ones.

    `absent` are declared columns that no row has; `why` is the reason if nothing was compared.
    """

    input: str
    rows: int = 0
    undeclared: list[UndeclaredColumn] = []
    absent: list[str] = []
    why: str = ""


def columns_seen(source: Input, seen: Look) -> ColumnsSeen:
    """Compare the columns of messages with those that an input declares.

    >>> from ikebana.processor.planning.plan import Column
    >>> from ikebana.processor.topics.messages import Message
    >>> declared = (Column("n", "BIGINT"), Column("of", "JSON"))
    >>> source = Input("orders", ("orders",), columns=declared)
    >>> found = columns_seen(source, look(source, [Message(0, b"1", b'{"n": 1, "gift": true}')]))
    >>> found.undeclared, found.absent
    ([UndeclaredColumn(name='gift', type='BOOLEAN', rows=1)], ['of'])
    """
    if not source.columns:
        return ColumnsSeen(source.name, why="it declares no columns")
    if source.traits.kind == "facts":
        return ColumnsSeen(source.name, why=f"messages of {source.value_format} are not looked at")
    rows = seen.rows
    if not rows:
        return ColumnsSeen(source.name, why="there is no row among the newest messages")
    declared = {column.name for column in source.columns}
    counts = Counter(name for row in rows for name in row)
    columns, _ = columns_of([MessageRow(row) for row in rows])
    undeclared = [
        UndeclaredColumn(column.name, column.type, counts[column.name])
        for column in columns
        if column.name not in declared and column.name not in source.key
    ]
    # Columns of the key may be in the Kafka key alone.
    absent = sorted(declared - counts.keys() - {*source.key})
    return ColumnsSeen(source.name, len(rows), undeclared, absent)


def notices(plan: Plan, source: Input, messages: Sequence[Message], seen: Look) -> list[Notice]:
    """List probable mistakes; `seen` is the look at the messages."""
    errors = [*_errors(source, seen)]
    if (envelope := _envelope(source, messages, seen)) is not None:
        return [*errors, envelope]
    return [*errors, *_columns(source, seen), *_texts(plan, source, seen)]


def _errors(source: Input, seen: Look) -> Iterator[Notice]:
    if not seen.read or seen.reasons.total() < seen.read:
        return
    ((reason, most),) = seen.reasons.most_common(1)
    mostly = "" if most == seen.read else f" ({most:,} of them)"
    words = (
        f"{source.name}: {_each(seen.read)} is an error: {reason}{mostly}; `ikebana errors` "
        "shows the messages: mend the input, or what sends them"
    )
    yield Notice("errors", source.name, source.name, words)


def _each(count: int) -> str:
    return "its only message" if count == 1 else f"each of {counted(count, 'message')}"


def _envelope(source: Input, messages: Sequence[Message], seen: Look) -> Notice | None:
    declared = {column.name for column in source.columns}
    if source.value_format != "json" or not seen.rows or not declared or declared & _ENVELOPE:
        return None
    if not all(row.keys() == _ENVELOPE for row in seen.rows):
        return None
    form = value_format([Sample(each.key, each.value) for each in messages])
    form = "debezium-flat-json" if form == "json" else form
    words = (
        f'{source.name}: {_each(seen.with_rows)} is {{"schema", "payload"}} of Kafka Connect, '
        "which format json reads as it is, so every declared column is null; "
        f"format {form} reads the payload"
    )
    return Notice("envelope", source.name, source.name, words)


def _columns(source: Input, seen: Look) -> Iterator[Notice]:
    compared = columns_seen(source, seen)
    names = {name for row in seen.rows for name in row}
    others = [each.name for each in compared.undeclared]
    for name in compared.absent:
        yield _absent(source, seen.with_rows, name, "column", names, others)
    for column in source.columns:
        values = [row.get(column.name) for row in seen.rows]
        for count, path, there in _absent_fields(
            sql_type.parsed(column.type), values, column.name
        ):
            yield _absent(source, count, path, "field", there, there)


def new_columns(source: Input, had: Collection[str], seen: Look) -> Notice | None:
    """A notice of columns that earlier messages did not have (`had`); None if there are none.

    Columns that were there before and are not declared were left out on purpose.
    """
    compared = columns_seen(source, seen)
    new = [each for each in compared.undeclared if each.name not in had]
    if not new:
        return None
    words = (
        f"{source.name}: messages have {counted(len(new), 'column')} that earlier ones did not "
        "have, and nothing reads what is not declared; `ikebana plan --latest-schemas` shows "
        "the edit that declares them"
    )
    listed = ", ".join(f"{each.name} {each.type}" for each in new[:_MOST_NAMES])
    more = ", …" if len(new) > _MOST_NAMES else ""
    return Notice("new column", source.name, source.name, words, f": {listed}{more}")


def _absent_fields(
    kind: SqlType, values: Sequence[Any], path: str
) -> Iterator[tuple[int, str, list[str]]]:
    """Find fields within a type that no value has: (number of values, path, present fields)."""
    match kind:
        case List(of) | Array(of):
            inner = [each for value in values if isinstance(value, list) for each in value]
            yield from _absent_fields(of, inner, f"{path}[]")
        case Struct(fields):
            rows = [value for value in values if isinstance(value, dict)]
            there = {name for row in rows for name in row}
            held = [f"{path}.{name}" for name in sorted(there)]
            for name, of in fields:
                if name in there:
                    each = [row.get(name) for row in rows]
                    yield from _absent_fields(of, each, f"{path}.{name}")
                elif rows:
                    yield len(rows), f"{path}.{name}", held


def _absent(
    source: Input, count: int, name: str, what: str, names: Collection[str], others: Sequence[str]
) -> Notice:
    words, shown = absent_words(count, name, what, names, others)
    return Notice("column", source.name, name, f"{source.name}: {words}", shown)


def absent_words(
    count: int, name: str, what: str, names: Collection[str], others: Collection[str]
) -> tuple[str, str]:
    """Word that `count` messages lack a column, which they have, and which of `others` is meant.

    >>> print(*absent_words(2, "nom", "column", ["id", "name"], ["name"]), sep="")
    no message of 2 has the column "nom", so it is null: ...; did you mean "name"?
    """
    listed = ", ".join(
        [*sorted(names)[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])]
    )
    meant = did_you_mean(name, others, _LIKE)
    words = (
        f'no message of {count:,} has the {what} "{name}", so it is null: correct its name, or '
        "leave it out"
    )
    return words, f"; they have {listed or 'none'}" + (
        f'; did you mean "{meant}"?' if meant else ""
    )


def _texts(plan: Plan, source: Input, seen: Look) -> Iterator[Notice]:
    for column in source.columns:
        if _type(source, column.name) != JSON or not _has_path(plan, column.name):
            continue
        values = [each for row in seen.rows if (each := row.get(column.name)) is not None]
        if values and all(map(holds_json, values)):
            words = (
                f'{source.name}: the JSON column "{column.name}" has texts that hold JSON in '
                f"{counted(len(values), 'row')}, so a path into it is null; declare its "
                "encoding as json"
            )
            yield Notice("json text", source.name, column.name, words)


def _type(source: Input, name: str) -> str:
    return declared_by(source).type_of(name) or JSON


def holds_json(value: Any) -> bool:
    """Whether a value is a text of a JSON object or list."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _has_path(plan: Plan, name: str) -> bool:
    """Whether an expression of the plan reads a path within a column of this name."""
    path = re.compile(rf'(?<!\w)"?{re.escape(name)}"?\s*(?:->|\[|\.\s*["\w]|,\s*\'[$/])')
    return any(
        path.search(text) for text in _texts_in(msgspec.to_builtins(plan.operators, enc_hook=str))
    )


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts_in(each)
        case list() | tuple():
            for each in value:
                yield from _texts_in(each)
