"""Propose an input for a topic: its format, key, and columns with types."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.codecs.formats import FORMATS, Format, KeyFormat
from ikebana.processor.proposing.formats import Sample, key_format, told, value_format

# Whole numbers from here on do not fit into a BIGINT.
_BIGINT = 1 << 63


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed input for a topic, with notes on what its messages leave open."""

    topic: str
    value: Format = "json"
    key: KeyFormat = "json"
    key_columns: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    tables: str | None = None
    is_appended: bool = False
    """Messages have no keys, so each message is a row of its own."""
    notes: tuple[str, ...] = ()

    @property
    def is_collection(self) -> bool:
        """Whether the input is a collection without an operator."""
        return self.is_appended or FORMATS[self.value].is_updates

    @property
    def needs_registry(self) -> bool:
        """Whether decoding the input needs a schema registry."""
        return "avro" in (self.value, self.key)


def propose(topic: str, samples: Sequence[Sample]) -> Proposal:
    """Propose an input from some messages of a topic."""
    if not samples:
        note = "The topic has no messages that could be read: format and key are guesses."
        return Proposal(topic, notes=(note,))
    form, key = value_format(samples), key_format(samples)
    traits = FORMATS[form]
    names_its_key = traits.kind == "changes" and traits.key_from == "message"
    found = told(form, samples)
    notes = [f"Seen: {len(samples)} messages, of which {_count(samples)} have a value."]
    keyless = sum(sample.key is None for sample in samples)
    tables = None
    if len(found.tables) > 1:
        ((first, _),) = found.tables.most_common(1)
        tables = re.escape(first)
        others = ", ".join(sorted(found.tables.keys() - {first}))
        notes.append(f"The topic has several tables: this input reads one, others are {others}.")
        found = told(form, [s for s in samples if _is_of(form, s, first)])
    columns, unknown = typed(found.rows)
    key_columns: tuple[str, ...] = ()
    if names_its_key and not found.keys:
        notes.append("No message names the columns of the primary key: name them with key.")
    if traits.key_from == "columns":
        # This is a guess: messages do not name the key, and an input must have one.
        key_columns = tuple(name for name, _ in columns if name.lower() == "id")
        key_columns = key_columns or tuple(name for name, _ in columns[:1])
        notes.append(f"Messages of {form} do not name the key: check that key has its columns.")
    appended = form in ("json", "bytes") and keyless == len(samples)
    if appended:
        notes.append("No message has a key: each is a row that stays (mode: append).")
    elif keyless and form in ("json", "bytes", "avro"):
        notes.append(f"{keyless} messages have no key: they will be error records.")
    if form == "avro":
        notes.append("Values are in Avro, whose schemas are in a registry and were not read.")
        notes.append("If they are changes of Debezium, the format is debezium-avro.")
    if form == "bytes":
        notes.append("Values are no JSON: expressions have them as `value`, of type BLOB.")
    if unknown:
        notes.append(f"Of {', '.join(unknown)} only nulls were seen: JSON stands for any type.")
    if columns:
        notes.append("Types are those of the messages seen: what does not fit is an error record.")
    if key == "bytes" and not names_its_key and traits.key_from != "columns":
        notes.append("Keys are no JSON: they are taken as bytes.")
    return Proposal(topic, form, key, key_columns, columns, tables, appended, tuple(notes))


def _count(samples: Iterable[Sample]) -> int:
    return sum(sample.value is not None for sample in samples)


def _is_of(form: Format, sample: Sample, table: str) -> bool:
    return table in told(form, [sample]).tables


def typed(rows: Sequence[dict[str, Any]]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Infer the columns of rows, in order, with types; also list those that are always null."""
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).update([] if value is None else [_type_of(value)])
    unknown = [name for name, seen in kinds.items() if not seen]
    return tuple((name, _common(seen)) for name, seen in kinds.items()), unknown


def _type_of(value: object) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_BIGINT <= value < _BIGINT else "HUGEINT"
        case float():
            return "DOUBLE"
        case str():
            return "VARCHAR"
        case _:
            return "JSON"


def _common(kinds: set[str]) -> str:
    """Choose a type for values of several types: the wider of numbers, else JSON."""
    if len(kinds) == 1:
        return next(iter(kinds))
    for wider in ("HUGEINT", "DOUBLE"):
        if kinds and kinds <= {"BIGINT", wider}:
            return wider
    return "JSON"
