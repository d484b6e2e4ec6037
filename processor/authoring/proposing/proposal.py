"""Propose an input for a topic: its format, key, and columns with types."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_schema import Framing, Schemas, SchemaUnknown, locate
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FORMATS, Format, InputTraits, KeyFormat
from ikebana.errors import ConfigError
from ikebana.processor.authoring.proposing.formats import (
    Evidence,
    Row,
    Sample,
    Seen,
    event,
    evidence_of,
    gathered,
    is_envelope,
    is_framed,
    key_format,
    names_of_key,
    names_schema,
    value_format,
)
from ikebana.processor.authoring.proposing.kinds import AvroKinds, Kind, common, hint, of_values
from ikebana.processor.base.texts import counted
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.planning.plan import Mode


class AvroEvidence(NamedTuple):
    """The format and rows of messages in Avro, and why some could not be read."""

    form: Format
    seen: list[Seen]
    unread: str = ""

    def of_table(self, table: str | None = None) -> Evidence:
        """The evidence of one table or of all."""
        return gathered(self.seen, table)


def framing_of(samples: Sequence[Sample]) -> Framing:
    """Recognise how messages name their schemas: ids of registries are small and begin at 1."""
    for sample in samples:
        if names_schema(sample, "value"):
            wide = any(name.endswith(".globalId") for name, _ in sample.headers or ())
            return "apicurio" if wide else "headers"
    values = [s.value for s in samples if s.value is not None and is_framed(s.value)]
    wide = bool(values) and all(value[1:5] == bytes(4) for value in values)
    return "apicurio" if wide else "confluent"


def evidence_of_avro(
    samples: Sequence[Sample], schemas: Schemas, framing: Framing
) -> AvroEvidence:
    """Extract rows from messages with a known schema; if any is a Debezium event, from events."""
    reader = _Reader(schemas, framing)
    seen = [reader.seen(sample) for sample in samples if sample.value]
    form: Format = (
        "debezium-avro" if any(each_form == "debezium-avro" for each_form, _ in seen) else "avro"
    )
    return AvroEvidence(form, [its for each_form, its in seen if each_form == form], reader.unread)


class _Reader:
    def __init__(self, schemas: Schemas, framing: Framing) -> None:
        self._schemas, self._framing = schemas, framing
        self._values = AvroDecoder(schemas, framing=framing)
        self._keys = AvroDecoder(schemas, framing=framing, part="key")
        self._kinds: dict[int | str, tuple[AvroKinds, dict[str, Any]]] = {}
        self.unread = ""

    def seen(self, sample: Sample) -> tuple[Format, Seen]:
        assert sample.value is not None
        try:
            number, _ = locate(self._framing, "value", sample.value, sample.headers)
            kinds, fields = self._schema(number)
            value = self._values.decode(sample.value, sample.headers)
        except (DecodeError, SchemaUnknown) as error:
            self.unread = error.reason
            return "avro", Seen()
        if not isinstance(value, dict):
            return "avro", Seen()
        key = self._key(sample)
        keyed, of_kafka = key is not None, names_of_key(key)
        if is_envelope(fields):
            images = kinds.fields(fields["after"]) or kinds.fields(fields["before"])
            its = event(value, {name: kinds.of(kind) for name, kind in images.items()})
            return "debezium-avro", its._replace(of_kafka=of_kafka, keyed=keyed)
        of = {name: kinds.of(kind) for name, kind in fields.items()}
        return "avro", Seen(rows=[Row(value, of)], of_kafka=of_kafka, keyed=keyed)

    def _schema(self, number: int | str) -> tuple[AvroKinds, dict[str, Any]]:
        if number not in self._kinds:
            schema = self._schemas.parsed(number)
            kinds = AvroKinds(schema)
            self._kinds[number] = kinds, kinds.fields(schema)
        return self._kinds[number]

    def _key(self, sample: Sample) -> Any:
        if sample.key is None:
            return None
        try:
            return self._keys.decode(sample.key, sample.headers)
        except DecodeError:
            return None


class ProposedColumn(NamedTuple):
    """A column to declare, with a comment on what its values do not show."""

    name: str
    type: str
    encoding: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed input for a topic, with notes on what its messages do not show."""

    topic: str
    value: Format = "json"
    key: KeyFormat = "json"
    key_columns: tuple[str, ...] = ()
    columns: tuple[ProposedColumn, ...] = ()
    tables: str | None = None
    mode: Mode = "upsert"
    options: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_collection(self) -> bool:
        """Whether the input is a collection without an operator."""
        return self.mode != "upsert" or FORMATS[self.value].is_updates

    @property
    def needs_registry(self) -> bool:
        """Whether decoding the input needs a schema registry."""
        return FORMATS[self.value].in_registry or self.key == "avro"

    def noting(self, *notes: str) -> "Proposal":
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))


def propose(
    topic: str,
    samples: Sequence[Sample],
    schemas: Schemas | None = None,
    table: str | None = None,
) -> Proposal:
    """Propose an input from some messages of a topic; `schemas` are those of a registry.

    Of several tables it reads `table`, by default that with the most rows.

    Raises:
        ConfigError: no message is of this table.
        SourceError: the registry does not answer.
    """
    if not samples:
        note = "The topic has no messages that could be read: format and key are guesses."
        return Proposal(topic, notes=(note,))
    form = value_format(samples)
    there = sum(sample.value is not None for sample in samples)
    proposal = Proposal(topic, form, key_format(samples)).noting(
        f"Seen: {counted(len(samples), 'message')}, of which {there} have a value."
    )
    if form != "avro":
        proposal, evidence = _of_a_table(proposal, partial(evidence_of, form, samples), table)
        if form == "debezium-flat-json" and evidence.keyless and not _identity(evidence):
            return _as_rows_that_stay(proposal, samples)
        return _declared(proposal, evidence, samples)
    framing = framing_of(samples)
    options = {} if framing == "confluent" else {"framing": framing}
    proposal = replace(proposal, options=options)
    if schemas is None:
        return _declared(proposal, gathered([]), samples).noting(
            "Values are in Avro. Their schemas are in a registry, and were not read.",
            "Name it with --registry: then format, key and columns come from the schemas.",
        )
    of_avro = evidence_of_avro(samples, schemas, framing)
    if of_avro.unread:
        proposal = proposal.noting(f"Not all values could be read: {of_avro.unread}.")
    proposal, evidence = _of_a_table(
        replace(proposal, value=of_avro.form), of_avro.of_table, table
    )
    return _declared(proposal, evidence, samples)


def _of_a_table(
    proposal: Proposal, read: Callable[[str | None], Evidence], table: str | None
) -> tuple[Proposal, Evidence]:
    """Choose the table that is asked for, or the one with the most rows; and its evidence."""
    evidence = read(None)
    if table is not None and table not in evidence.tables:
        tables = f"There are {', '.join(sorted(evidence.tables))}." if evidence.tables else None
        raise ConfigError(
            f'no message read of topic "{proposal.topic}" is of table "{table}"', hint=tables
        )
    if len(evidence.tables) < 2:
        return proposal, evidence
    one = table or evidence.tables.most_common(1)[0][0]
    others = ", ".join(sorted(evidence.tables.keys() - {one}))
    note = f"The topic has several tables: this input reads one, others are {others}."
    return replace(proposal, tables=re.escape(one)).noting(note), read(one)


def _as_rows_that_stay(proposal: Proposal, samples: Sequence[Sample]) -> Proposal:
    """Propose format json for Connect's messages without keys, where no row replaces another."""
    evidence = evidence_of("json", samples)
    rows = [Row({n: of for n, of in row.values.items() if n != "schema"}) for row in evidence.rows]
    proposal = replace(proposal, value="json").noting(
        "Rows are in the field payload, and their schema is not used: with a key in the "
        "messages, the format is debezium-flat-json."
    )
    return _declared(proposal, evidence._replace(rows=rows), samples)


def _declared(proposal: Proposal, evidence: Evidence, samples: Sequence[Sample]) -> Proposal:
    """Add the columns and the key of rows."""
    form, traits = proposal.value, FORMATS[proposal.value]
    bare = any(row.kinds is None for row in evidence.rows)
    columns, unknown = columns_of(
        evidence.rows,
        hints=bare and traits.kind == "changes",
        texts=traits.usual_encodings == "always",
    )
    proposal = _keyed(replace(proposal, columns=columns), traits, evidence, samples)
    if form == "bytes":
        proposal = proposal.noting(
            "Values are no JSON: expressions have them as `value`, of type BLOB."
        )
    if unknown:
        names = ", ".join(unknown)
        proposal = proposal.noting(f"Of {names} only nulls were seen: JSON stands for any type.")
    if not columns:
        return proposal
    if not bare:
        return proposal.noting("Types come from the schemas in the messages seen.")
    if traits.kind == "changes" and traits.source_clocks:
        proposal = proposal.noting(
            "Messages have no schema: they do not show what is a date, a time or a decimal. Where "
            "a column has a comment, look at the table, and declare its encoding."
        )
    return proposal.noting(
        "Types come from the values seen: a value that does not fit is an error record."
    )


def columns_of(
    rows: Sequence[Row], *, hints: bool = False, texts: bool = False
) -> tuple[tuple[ProposedColumn, ...], list[str]]:
    """Infer the columns of rows, in order; also list those that are always null.

    A column has the type that schemas give it, else one that takes its values.  With `texts` the
    format takes JSON for the text of a document, unless the column says that it is not.
    """
    kinds: dict[str, dict[Kind, None]] = {}
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name in row.values if row.kinds is None else {**row.kinds, **row.values}:
            kinds.setdefault(name, {})
            values.setdefault(name, [])
            if row.kinds is None:
                values[name].append(row.values.get(name))
            elif name in row.kinds:
                # The newest kind is the last.
                kinds[name].pop(row.kinds[name], None)
                kinds[name][row.kinds[name]] = None
    bare = any(row.kinds is None for row in rows)
    columns, unknown = [], []
    for name, of_schema in kinds.items():
        if of_schema:
            kind = common(tuple(of_schema))
            columns.append(ProposedColumn(name, kind.type, kind.encoding if bare else None))
            continue
        seen = of_values(values[name])
        if seen is None:
            unknown.append(name)
        comment = hint(values[name]) if hints else ""
        inferred = (seen or Kind(JSON)).type
        plain = "plain" if texts and inferred == JSON else None
        columns.append(ProposedColumn(name, inferred, plain, comment))
    return tuple(columns), unknown


def _keyed(
    proposal: Proposal, traits: InputTraits, evidence: Evidence, samples: Sequence[Sample]
) -> Proposal:
    """Add the columns of the key, or the mode for rows without a key."""
    form = proposal.value
    if traits.is_updates:
        return proposal
    if traits.kind == "rows":
        keyless = sum(sample.key is None for sample in samples)
        if keyless == len(samples):
            return replace(proposal, mode="append").noting(
                "No message has a key: each is a row that stays (mode: append)."
            )
        if keyless:
            note = f"{keyless} messages have no key: they will be error records."
            proposal = proposal.noting(note)
        if proposal.key == "bytes":
            proposal = proposal.noting("Keys are no JSON: they are taken as bytes.")
        return proposal
    if traits.key_from == "either":
        named = not evidence.keyless
    elif traits.key_from == "message":
        named = bool(evidence.keys) and not evidence.unnamed
    else:
        named = False
    if named or not evidence.rows:
        return proposal
    if of_messages := _key_columns(proposal, evidence):
        note = "The key's columns are the fields of the messages' keys."
        return replace(proposal, key_columns=of_messages).noting(note)
    if traits.old_images and not evidence.imageless and traits.key_from != "columns":
        return replace(proposal, mode="diffs").noting(
            "Messages name no key: rows are told apart by their old images (mode: diffs), so the "
            "source must write whole ones and repeat nothing. If the table has a key, name it "
            "with key, and take mode away."
        )
    # This is a guess: messages do not name the key, and an input must have one.
    guess = _identity(evidence) or tuple(column.name for column in proposal.columns[:1])
    note = f"Messages of {form} do not name the key: check that key has its columns."
    return replace(proposal, key_columns=guess).noting(note)


def _key_columns(proposal: Proposal, evidence: Evidence) -> tuple[str, ...]:
    """The columns of the most frequent key that are all columns of the row."""
    by_name = {column.name.lower(): column.name for column in proposal.columns}
    for names, _ in (evidence.keys + evidence.kafka_keys).most_common():
        # Maxwell writes the names in lower case.
        if all(name.lower() in by_name for name in names):
            return tuple(by_name[name.lower()] for name in names)
    return ()


def _identity(evidence: Evidence) -> tuple[str, ...]:
    """The column that is called `id`, if every row has a value of it."""
    for name in evidence.rows[0].values if evidence.rows else ():
        if name.lower() == "id" and all(r.values.get(name) is not None for r in evidence.rows):
            return (name,)
    return ()
