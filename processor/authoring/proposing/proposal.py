"""Propose an input for a topic: its format, key, and columns with types.

`until_readable` tries a proposal on the messages that it was made from, and repairs what does
not work.
The text is parsed as a pipeline file, and its input decodes the messages.  Columns that a file
cannot declare are left out.  If a column's type does not fit a value, the column gets a type that
fits all values.  Notes say which and why.

`later_columns` has declarations for columns that an input does not declare yet.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_schema import OF_GLUE, Framing, Schemas, SchemaUnknown, is_of_glue, locate
from ikebana.codecs.column_encodings import full_name
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FORMATS, FRAMES, IN_REGISTRY, Format, InputTraits, KeyFormat
from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.proposing.formats import (
    Evidence,
    MessageEvidence,
    MessageRow,
    ProposedColumn,
    Sample,
    change_of,
    collect_evidence,
    columns_of,
    event,
    evidence_of,
    is_envelope,
    is_framed,
    key_format,
    names_of_key,
    names_schema,
    options_of,
    parsed,
    places_of,
    schema_of,
    value_format,
)
from ikebana.processor.authoring.proposing.kinds import AvroKinds, ColumnKind, of_values
from ikebana.processor.authoring.proposing.look import columns_seen, holds_json, look
from ikebana.processor.base.offsets import LONGEST_TOPIC, progress_topic
from ikebana.processor.base.texts import counted
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import ExpressionError, StepError
from ikebana.processor.planning.plan import Input, InputMode
from ikebana.processor.topics.input_codec import ColumnTypes, needs_registry
from ikebana.processor.topics.messages import Message

_CHANGES = ".changes"


class RegistryEvidence(NamedTuple):
    """The formats and rows of messages by a registry's schemas, with notes on them."""

    form: Format
    key: KeyFormat
    seen: list[MessageEvidence]
    notes: Sequence[str] = ()

    def of_table(self, table: str | None = None) -> Evidence:
        """The evidence of one table or of all."""
        return collect_evidence(self.seen, table)


def framing_of(samples: Sequence[Sample]) -> Framing:
    """Recognise how messages name their schemas: ids of registries are small and begin at 1."""
    for sample in samples:
        if names_schema(sample, "value"):
            wide = any(name.endswith(".globalId") for name, _ in sample.headers or ())
            return "apicurio" if wide else "headers"
    values = [s.value for s in samples if s.value is not None and is_framed(s.value)]
    wide = bool(values) and all(value[1:5] == bytes(4) for value in values)
    return "apicurio" if wide else "confluent"


def _bare_json(samples: Sequence[Sample], framing: Framing) -> list[Sample] | None:
    """Strip what serializers of JSON Schema write before JSON; None if other data is there."""
    length = FRAMES.get(framing, 0)

    def bare(data: bytes | None) -> bytes | None:
        return data[length:] if data and data[0] == 0 else data

    stripped = [s._replace(key=bare(s.key), value=bare(s.value)) for s in samples]
    stripped = [s._replace(headers=()) for s in stripped]
    are_objects = all(isinstance(parsed(s.value), dict) for s in stripped if s.value)
    return stripped if are_objects else None


def evidence_of_avro(
    samples: Sequence[Sample], schemas: Schemas, framing: Framing
) -> RegistryEvidence:
    """Extract rows from messages with a known schema; if any is a Debezium event, from events."""
    reader = _Reader(schemas, framing)
    seen = [reader.seen(sample) for sample in samples if sample.value]
    if not any(its.rows for _, its in seen) and reader.unread.endswith("PROTOBUF"):
        return _evidence_of_protobuf(samples, schemas)
    forms: Sequence[Format] = ("debezium-avro", "changes-avro", "avro")
    form = next(each for each in forms if each in {"avro", *(form for form, _ in seen)})
    # Rows from before they had a mark of deleted ones have the same columns.
    alike = ("avro", form) if form == "changes-avro" else (form,)
    its_seen = [its for each_form, its in seen if each_form in alike]
    # Numbers of Java look like the ids of schemas, so keys have to be read.
    is_avro = any(its.keyed or not its.rows for its in its_seen)
    key = key_format(samples, "avro" if is_avro else "json")
    notes = _unread(reader.unread)
    if form == "avro" and len(reader.records) > 1:
        notes.append(
            f"Values are records of several types, {', '.join(sorted(reader.records))}, and a row "
            "replaces that of its key whatever its type is."
        )
    return RegistryEvidence(form, key, its_seen, notes)


def _unread(reason: str) -> list[str]:
    return [f"Not all values could be read: {reason}."] if reason else []


def _evidence_of_protobuf(samples: Sequence[Sample], schemas: Any) -> RegistryEvidence:
    """Extract rows from messages in Protobuf; values show their types."""
    from ikebana.codecs.protobuf import ProtobufDecoder

    keys, values = ProtobufDecoder(schemas, "key"), ProtobufDecoder(schemas)
    key = key_format(samples, "json")
    seen, unread = [], ""
    for sample in samples:
        if sample.key is not None and key != "protobuf":
            with suppress(DecodeError):
                keys.decode(sample.key, sample.headers)
                key = "protobuf"
        try:
            value = values.decode(sample.value, sample.headers) if sample.value else None
        except DecodeError as error:
            unread = error.reason
        else:
            seen += [MessageEvidence(rows=[MessageRow(value)])] if isinstance(value, dict) else []
            if isinstance(value, dict) and is_envelope(value):
                unread = "events of Debezium are read as changes only in JSON and Avro"
    return RegistryEvidence("protobuf", key, seen, _unread(unread))


class _Reader:
    def __init__(self, schemas: Schemas, framing: Framing) -> None:
        self._schemas, self._framing = schemas, framing
        self._values = AvroDecoder(schemas, framing=framing)
        self._keys = AvroDecoder(schemas, framing=framing, part="key")
        self._kinds: dict[int | str, tuple[str, AvroKinds, dict[str, Any]]] = {}
        self.unread = ""
        self.records: set[str] = set()

    def seen(self, sample: Sample) -> tuple[Format, MessageEvidence]:
        assert sample.value is not None
        try:
            number, _ = locate(self._framing, "value", sample.value, sample.headers)
            name, kinds, fields = self._schema(number)
            value = self._values.decode(sample.value, sample.headers)
        except (DecodeError, SchemaUnknown) as error:
            self.unread = error.reason
            return "avro", MessageEvidence()
        if not isinstance(value, dict):
            return "avro", MessageEvidence()
        key = self._key(sample)
        keyed = key is not None
        of_kafka = tuple(key) if isinstance(key, dict) else names_of_key(sample.key)
        if is_envelope(fields):
            images = kinds.fields(fields.get("after")) or kinds.fields(fields.get("before"))
            its = event(value, {name: kinds.of(kind) for name, kind in images.items()})
            return "debezium-avro", its._replace(
                of_kafka=of_kafka,
                keyed=keyed,
                partition=sample.partition,
                places=places_of("debezium-avro", value),
            )
        if options_of(value):
            return "changes-avro", change_of(value)._replace(of_kafka=of_kafka, keyed=keyed)
        self.records.add(name)
        # A flattened row that is marked as deleted is none.
        options = {"deleted": "__deleted", "op": "__op"} if "__deleted" in fields else {}
        options = {name: of for name, of in options.items() if of in fields}
        marks = options.values()
        of = {name: kinds.of(kind) for name, kind in fields.items() if name not in marks}
        row = {name: of for name, of in value.items() if name not in marks}
        return "changes-avro" if options else "avro", MessageEvidence(
            rows=[MessageRow(row, of)], of_kafka=of_kafka, keyed=keyed, options=options
        )

    def _schema(self, number: int | str) -> tuple[str, AvroKinds, dict[str, Any]]:
        if number not in self._kinds:
            schema: Any = self._schemas.parsed(number)
            kinds = AvroKinds(schema)
            name = schema.get("name", "") if isinstance(schema, dict) else ""
            self._kinds[number] = name, kinds, kinds.fields(schema)
        return self._kinds[number]

    def _key(self, sample: Sample) -> Any:
        if sample.key is None:
            return None
        try:
            return self._keys.decode(sample.key, sample.headers)
        except DecodeError:
            return None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed input for a topic, with notes on what its messages do not show."""

    topic: str
    value: Format = "json"
    key: KeyFormat = "json"
    key_columns: tuple[str, ...] = ()
    columns: tuple[ProposedColumn, ...] = ()
    tables: str | None = None
    mode: InputMode = "upsert"
    options: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_collection(self) -> bool:
        """Whether the input is a collection without an operator."""
        return self.mode != "upsert" or FORMATS[self.value].is_updates

    @property
    def needs_registry(self) -> bool:
        """Whether decoding the input needs a schema registry."""
        return FORMATS[self.value].in_registry or self.key in IN_REGISTRY

    @property
    def output_topic(self) -> str:
        """The topic of its changes, within the length that Kafka allows."""
        most = LONGEST_TOPIC - len(progress_topic(_CHANGES))
        return self.topic[:most] + _CHANGES

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
    form, options = value_format(samples), {}
    framing = framing_of(samples)
    if form == "avro" and (bare := _bare_json(samples, framing)) is not None:
        samples, form = bare, value_format(bare)
        options = {"framing": framing} if framing in FRAMES else {}
    there = sum(sample.value is not None for sample in samples)
    proposal = Proposal(topic, form, key_format(samples, form), options=options).noting(
        f"Seen: {counted(len(samples), 'message')}, {there or 'none'} with a value"
        f"{'.' if there else ': the format is a guess.'}"
    )
    if options:
        proposal = proposal.noting("Before the JSON is the id of a schema, which is skipped.")
    if form != "avro":
        proposal, evidence = _of_a_table(proposal, partial(evidence_of, form, samples), table)
        keyless = evidence.keyless and not evidence.kafka_keys
        if form == "debezium-flat-json" and keyless and not _identity(evidence):
            return _as_rows_that_stay(proposal, samples)
        return _declared(proposal, evidence, samples)
    if framing != "confluent":
        proposal = replace(proposal, options={"framing": framing})
    if schemas is None:
        return _declared(proposal, collect_evidence([]), samples).noting(
            "Values are in Avro, or in Protobuf, which has a format of its own. Their schemas "
            "are in a registry, and were not read.",
            "Name it with --registry: then format, key and columns come from there.",
        )
    of_avro = evidence_of_avro(samples, schemas, framing)
    proposal = proposal.noting(*of_avro.notes)
    proposal = replace(proposal, value=of_avro.form, key=of_avro.key)
    proposal, evidence = _of_a_table(proposal, of_avro.of_table, table)
    return _declared(proposal, evidence, samples)


# What Debezium's router of tables adds to the keys of those that are parts of one.
_ROUTED = "__dbz__physicalTableIdentifier"


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
    are_one = table is None and all(_ROUTED in names for names in evidence.kafka_keys)
    if len(evidence.tables) < 2 or (evidence.kafka_keys and are_one):
        return proposal, evidence
    one = table or evidence.tables.most_common(1)[0][0]
    others = ", ".join(sorted(evidence.tables.keys() - {one}))
    note = f"The topic has several tables: this input reads one, others are {others}."
    return replace(proposal, tables=re.escape(one)).noting(note), read(one)


def _as_rows_that_stay(proposal: Proposal, samples: Sequence[Sample]) -> Proposal:
    """Propose format json for Connect's messages without keys, where no row replaces another."""
    evidence = evidence_of("json", samples)
    rows = [
        MessageRow({n: of for n, of in row.values.items() if n != "schema"})
        for row in evidence.rows
    ]
    proposal = replace(proposal, value="json").noting(
        "No key is in the messages or their rows: what is a delete by debezium-flat-json is a row "
        "here, and schemas are not used. With a key in the messages, that is the format."
    )
    return _declared(proposal, evidence._replace(rows=rows), samples)


def _declared(proposal: Proposal, evidence: Evidence, samples: Sequence[Sample]) -> Proposal:
    """Add the columns and the key of rows."""
    form, traits = proposal.value, FORMATS[proposal.value]
    proposal = replace(proposal, options={**proposal.options, **evidence.options})
    bare = any(row.kinds is None for row in evidence.rows)
    columns, unknown = columns_of(
        evidence.rows,
        hints=bare and traits.kind == "changes",
        usual=traits.usual_encodings,
    )
    proposal = _keyed(replace(proposal, columns=columns), traits, evidence, samples)
    proposal = _in_order(proposal, traits, evidence)
    there = [sample.value for sample in samples if sample.value is not None]
    if form == "bytes":
        proposal = proposal.noting(_no_json(there))
    if traits.kind == "changes" and not evidence.rows and len(there) < len(samples):
        proposal = proposal.noting(
            "No row is in the messages seen, and those without a value are deletes: "
            "CockroachDB's envelope key_only, for one, cannot be read as a table."
        )
    if form == "json" and there and not evidence.rows:
        proposal = proposal.noting(_no_objects(there))
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


_MOVES = "Rows are in several partitions, and a changed key is in that of the new one: "
_NOT_ALL_PLACED = (
    "The sequence is left out, because not all messages seen have a place in it: fill partitions "
    "by table, or have the source write whole rows."
)


def _in_order(proposal: Proposal, traits: InputTraits, evidence: Evidence) -> Proposal:
    """Add the option that puts changed keys in order across partitions, if they need one."""
    if proposal.mode != "upsert" or evidence.partitions < 2 or not traits.old_images:
        return proposal
    if "sequence" in proposal.options or (
        traits.key_from == "either" and not proposal.key_columns
    ):
        # Debezium writes a changed key as a delete in the partition of the old one.
        return proposal
    if evidence.places:
        sequence = ", ".join(evidence.places)
        return replace(proposal, options={**proposal.options, "sequence": sequence}).noting(
            f"{_MOVES}sequence puts it in the order of the source."
        )
    return proposal.noting(
        f"{_MOVES}messages do not say their place in the order of the source, so fill partitions "
        "by table."
    )


def _no_json(values: Sequence[bytes]) -> str:
    """Say how expressions have values that are no JSON, with one of them if they are texts."""
    end = "expressions have them as `value`, of type BLOB"
    one = next((value for value in values if parsed(value) is ...), b"")
    if is_of_glue(one):
        return f"A value cannot be read: {OF_GLUE}."
    try:
        text = one.decode()
    except UnicodeDecodeError:
        return f"Values are neither JSON nor text: {end}."
    return f"Values are no JSON, such as {text[:40]!r}: {end}; decode(value) is the text."


def _no_objects(values: Sequence[bytes]) -> str:
    """Say how expressions have values that are JSON, but no objects with columns."""
    if all(map(holds_json, map(parsed, values))):
        return "Values are texts of JSON: (value->>'$')::JSON->>'name' is a field of one."
    return "Values are no objects: expressions have them as `value`, of type JSON."


def _keyed(
    proposal: Proposal, traits: InputTraits, evidence: Evidence, samples: Sequence[Sample]
) -> Proposal:
    """Add the columns of the key, or the mode for rows without a key."""
    form = proposal.value
    if traits.is_updates:
        return proposal
    if traits.kind == "rows":
        if all(sample.key is None for sample in samples):
            return replace(proposal, mode="append").noting(
                "No message has a key: each is a row that stays (mode: append)."
            )
        if all("id" in dict(sample.headers or ()) for sample in samples):
            proposal = proposal.noting(
                "Headers have an id of each message, as those of Debezium's outbox do: "
                "mode: append keeps all of a key's, of which this input has the last."
            )
        if proposal.key == "bytes":
            proposal = proposal.noting(
                "Keys are taken as bytes: they are no JSON, or texts such as 1.1 and 1.10, which "
                "are equal as numbers."
            )
        return proposal
    if traits.key_from == "either":
        named = not evidence.keyless and not evidence.keys
    elif traits.key_from == "message":
        named = bool(evidence.keys) and not evidence.unnamed
    else:
        named = False
    if named or not evidence.rows:
        return proposal
    if of_messages := _key_columns(proposal, evidence):
        note = "The key's columns are the fields of the messages' keys."
        return replace(proposal, key_columns=of_messages).noting(note)
    unreadable = proposal.key == "bytes" or (traits.keys_alike and proposal.key != "avro")
    must_have_columns = traits.key_from == "columns" or (
        unreadable and any(sample.key is not None for sample in samples)
    )
    if traits.old_images and not evidence.imageless and not must_have_columns:
        return replace(proposal, mode="diffs").noting(
            "Messages name no key: rows are told apart by their old images (mode: diffs), so the "
            "source must write whole ones and repeat nothing. If the table has a key, name it "
            "with key, and take mode away."
        )
    # This is a guess: messages do not name the key, and an input must have one.
    guess = _key_columns(proposal, evidence, in_part=True) or _identity(evidence)
    guess = guess or tuple(column.name for column in proposal.columns[:1])
    note = f"Messages of {form} do not name the key: check that key has its columns."
    return replace(proposal, key_columns=guess).noting(note)


def _key_columns(
    proposal: Proposal, evidence: Evidence, *, in_part: bool = False
) -> tuple[str, ...]:
    """The columns of the longest key, then the most frequent, that are all columns of the row.

    A part of them suffices with `in_part`: Debezium's router of tables adds one to keys alone.
    """
    by_name = {column.name.lower(): column.name for column in proposal.columns}
    for counts in (evidence.keys, evidence.kafka_keys):
        # The text that a StringConverter makes of a key lacks its nulls.
        for names in sorted(counts, key=lambda each: (-len(each), -counts[each])):
            # Maxwell writes the names in lower case.
            there = [by_name[name.lower()] for name in names if name.lower() in by_name]
            if in_part or len(there) == len(names):
                return tuple(there)
    return ()


def _identity(evidence: Evidence) -> tuple[str, ...]:
    """The column that is called `id`, if every row has a value of it."""
    for name in evidence.rows[0].values if evidence.rows else ():
        if name.lower() == "id" and all(r.values.get(name) is not None for r in evidence.rows):
            return (name,)
    return ()


Write = Callable[[Proposal], str]
"""Writes a proposal as the text of a pipeline file."""


def until_readable(
    proposal: Proposal, samples: Sequence[Sample], schemas: Schemas | None, write: Write
) -> Proposal:
    """Change a proposal so that its text is a pipeline file that reads all of the messages.

    What it cannot change is noted: how many messages will be error records, and why.
    """
    proposal = _loadable(proposal, write)
    (source,) = parse(write(proposal), "new", environ={}).plan.inputs
    if source.traits.is_updates or (needs_registry(source) and schemas is None):
        return proposal
    messages = [Message(at, *sample[:3]) for at, sample in enumerate(samples)]
    seen = look(source, messages, schemas)
    if "sequence" in proposal.options and any("sequence" in why for why in seen.reasons):
        options = {name: of for name, of in proposal.options.items() if name != "sequence"}
        proposal = replace(proposal, options=options).noting(_NOT_ALL_PLACED)
        return until_readable(proposal, samples, schemas, write)
    rows = [canonical.write(row) for row in seen.rows]
    if source.columns and ColumnTypes(source).wrong(rows):
        proposal = _widened(proposal, source, rows)
        (source,) = parse(write(proposal), "new", environ={}).plan.inputs
        seen = look(source, messages, schemas)
    reasons = seen.reasons.most_common()
    notes = [
        f"{counted(n, 'message')} of those seen will be error records: {why}."
        for why, n in reasons
    ]
    return proposal.noting(*notes)


def _loadable(proposal: Proposal, write: Write) -> Proposal:
    """Leave out the columns that a pipeline file cannot declare."""
    if _refusal(proposal, write) is None:
        return proposal
    columns: list[ProposedColumn] = []
    notes = []
    for column in proposal.columns:
        refusal = _refusal(replace(proposal, columns=(*columns, column)), write)
        if refusal is None:
            columns.append(column)
        else:
            notes.append(f'Column "{column.name}" is not declared: {refusal}.')
    return replace(proposal, columns=tuple(columns)).noting(*notes)


def _refusal(proposal: Proposal, write: Write) -> str | None:
    """Why the proposal is no valid pipeline file; None if it is one."""
    try:
        (source,) = parse(write(proposal), "new", environ={}).plan.inputs
        # Lists fit no type, so SQL tests each column, and refuses names that it cannot have.
        ColumnTypes(source).wrong([canonical.write({c.name: [] for c in source.columns})])
    except ConfigError as error:
        return str(error).splitlines()[-1].strip().rstrip(".")
    except (ExpressionError, StepError) as error:
        return str(error)
    return None


_decode = canonical.decoder(dict[str, Any])


def _widened(proposal: Proposal, source: Input, rows: Sequence[bytes]) -> Proposal:
    """Widen the types of columns that do not fit all values."""
    columns, notes = [], []
    for column, declared in zip(proposal.columns, source.columns, strict=True):
        wrong = ColumnTypes(replace(source, columns=(declared,))).wrong(rows)
        if not wrong:
            columns.append(column)
            continue
        values = [_decode(row).get(column.name) for row in rows]
        wide = (of_values(values) or ColumnKind(JSON)).type
        encoding = column.encoding and full_name(column.type, column.encoding)
        if wide == JSON and encoding is None and source.traits.usual_encodings == "always":
            # The values are JSON themselves.
            encoding = "plain"
        columns.append(column._replace(type=wide, encoding=encoding))
        notes.append(
            f'Column "{column.name}" is {wide}: {column.type} does not take '
            f"{len(wrong)} of {len(rows)} values seen."
        )
    return replace(proposal, columns=tuple(columns)).noting(*notes)


Declarations = Mapping[str, str | Mapping[str, str]]
"""Values of `columns` in a pipeline file: a type, or a type and an encoding."""


def later_columns(
    source: Input,
    messages: Sequence[Message],
    schemas: "Schemas | None" = None,
    *,
    takes_all: bool = False,
) -> Declarations:
    """Find the columns of messages that an input does not declare, with declarations for them.

    Types come from schemas in the messages or in the registry.  Without schemas they fit the
    values seen, or with `takes_all` any value: JSON as it is.  Without `takes_all` there are also
    the declared columns whose types do not fit all values, with wider types.  An input without
    declared columns reads all columns, so the result is empty.

    >>> from ikebana.processor.planning.plan import Column
    >>> source = Input("orders", ("orders",), columns=(Column("n", "BIGINT"),))
    >>> later_columns(source, [Message(0, b"1", b'{"n": 1, "gift": true}')])
    {'gift': 'BOOLEAN'}
    >>> later_columns(source, [Message(0, b"1", b'{"n": 1.5}')])
    {'n': 'DOUBLE'}
    """
    seen = look(source, messages, schemas)
    wider = {} if takes_all else _wider(source, [canonical.write(row) for row in seen.rows])
    new = {each.name: each.type for each in columns_seen(source, seen).undeclared}
    if not new:
        return wider
    if takes_all and not source.traits.in_registry and not any(map(_has_schema, messages)):
        any_value: str | Mapping[str, str] = JSON
        if source.traits.usual_encodings == "always":
            # Otherwise a text would have to hold JSON.
            any_value = {"type": JSON, "encoding": "plain"}
        return dict.fromkeys(new, any_value)
    samples = [Sample(m.key, m.value, tuple(m.headers or ())) for m in messages]
    # The columns above are of the input's own table, if the topic has several.
    try:
        proposal = propose(source.topics[0], samples, schemas)
    except ConfigError:
        return {**wider, **new}
    by_name = {column.name: column for column in proposal.columns}
    declarations = dict(wider)
    for name, kind in new.items():
        column = by_name.get(name) if proposal.value == source.value_format else None
        declarations[name] = kind if column is None else _declaration(column)
    return declarations


def _wider(source: Input, rows: Sequence[bytes]) -> Declarations:
    """The declared columns that do not take all values, with types that do.

    One that takes all but some of other kinds stays: these are errors of who has written them.
    """
    if not source.columns or not ColumnTypes(source).wrong(rows):
        return {}
    columns = [ProposedColumn(*msgspec.structs.astuple(each)) for each in source.columns]
    widened = _widened(Proposal(source.topics[0], columns=tuple(columns)), source, rows).columns
    return {
        column.name: _declaration(column)
        for column, before in zip(widened, columns, strict=True)
        if column.type not in (before.type, JSON)
    }


def _declaration(column: ProposedColumn) -> str | Mapping[str, str]:
    if column.encoding is None:
        return column.type
    return {"type": column.type, "encoding": column.encoding}


def _has_schema(message: Message) -> bool:
    return schema_of(parsed(message.value)) is not None
