"""Find probable mistakes by a look at some messages of an input.

None of them stops a run: they give nulls, error records, or nothing.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ikebana.codecs.sql_type import Array, List, SqlType, Struct, parsed
from ikebana.processor.authoring.proposing.columns_seen import columns_seen
from ikebana.processor.authoring.proposing.formats import Sample, value_format
from ikebana.processor.authoring.proposing.look import Look
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.texts import counted, did_you_mean
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_codec import declared_by
from ikebana.processor.topics.messages import Message

# The most names to list.
_MOST_NAMES = 12
# The least likeness of a name for "did you mean".
_LIKE = 0.5
_ENVELOPE = {"schema", "payload"}


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
        for count, path, there in _absent_fields(parsed(column.type), values, column.name):
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
        if values and all(map(_holds_json, values)):
            words = (
                f'{source.name}: the JSON column "{column.name}" has texts that hold JSON in '
                f"{counted(len(values), 'row')}, so a path into it is null; declare its "
                "encoding as json"
            )
            yield Notice("json text", source.name, column.name, words)


def _type(source: Input, name: str) -> str:
    return declared_by(source).type_of(name) or JSON


def _holds_json(value: Any) -> bool:
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
    return any(path.search(text) for text in _texts_in(msgspec.to_builtins(_operators(plan))))


def _operators(plan: Plan) -> Any:
    return [msgspec.to_builtins(each, enc_hook=str) for each in plan.operators]


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
