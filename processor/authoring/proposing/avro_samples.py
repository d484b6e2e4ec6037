"""Extract the rows of messages in Avro, with the kinds that their schemas give."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_schema import Schemas, SchemaUnknown
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import Format
from ikebana.codecs.framing import Framing, locate
from ikebana.processor.authoring.proposing.formats import (
    Evidence,
    Row,
    Sample,
    Seen,
    event,
    gathered,
    is_envelope,
    is_framed,
    names_of_key,
    names_schema,
)
from ikebana.processor.authoring.proposing.kinds import AvroKinds


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
