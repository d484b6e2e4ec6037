"""Outputs with one value a key read back: the updates that they were written of."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.avro_out import schemas
from ikebana.codecs.avro_schema import self_contained
from ikebana.codecs.debezium_out import EnvelopeOrigin, to_envelopes
from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.codecs.output_messages import Ids, OutputMessage, OutputShape, encoded, framed
from ikebana.codecs.protobuf import File
from ikebana.codecs.protobuf_out import files_of
from ikebana.codecs.sql_type import parsed
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base.diff_reader import ClosedBatch, NoDiffError, decode
from ikebana.processor.base.verify import batch_offence
from ikebana.processor.kafka import client
from ikebana.processor.kafka.diff_topic import OutputReader, output_reader
from ikebana.processor.kafka.following import can_go_on
from support.sums import summed

Fact = tuple[bytes | None, bytes, int, int]
# What each key has at each of some times, or nothing.
VALUES = st.lists(st.sampled_from([None, b'{"n":1}', b'{"n":2}', b'{"n":3}']), max_size=6)


def history(key: bytes, values: Sequence[bytes | None]) -> list[Fact]:
    """The updates of a key that has these values, one after the other."""
    facts: list[Fact] = []
    before: bytes | None = None
    for time, value in enumerate(values):
        if value != before:
            facts += [(key, before, time, -1)] if before is not None else []
            facts += [(key, value, time, 1)] if value is not None else []
        before = value
    return facts


SHAPE = OutputShape("out", parsed("BIGINT"), (("n", parsed("BIGINT")),))


IDS = Ids(1, 2)


class Shapes:
    """The schemas of shapes by their ids, as a registry has them: 1 and 2 are of the first one."""

    def __init__(self, *shapes: OutputShape) -> None:
        self._shapes = shapes

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        assert isinstance(id, int)
        texts = [schema for shape in self._shapes for schema in schemas(shape)]
        return self_contained(msgspec.json.decode(texts[id - 1]))

    def described(self, id: int | str) -> Sequence[File]:  # noqa: A002 -- as in `Descriptions`
        assert isinstance(id, int)
        files = [file for shape in self._shapes for file in files_of(shape)]
        return [(files[id - 1].name, files[id - 1].SerializeToString())]


def read_back(form: str, messages: Sequence[OutputMessage], *shapes: OutputShape) -> list[Fact]:
    reader = OutputReader("out", form, Shapes(*(shapes or (shape_of(form),))))
    return [
        (update.key, update.value, update.time, update.diff)
        for at, (key, value, headers) in enumerate(messages)
        for update in reader.read((0, at), key, value, headers)
    ]


def shape_of(form: str, shape: OutputShape = SHAPE) -> OutputShape:
    return shape._replace(envelope=OUTPUT_FORMATS[form].envelope)


def written(
    form: str,
    facts: Sequence[Fact],
    origin: EnvelopeOrigin,
    shape: OutputShape = SHAPE,
    ids: Ids = IDS,
) -> Sequence[OutputMessage]:
    codec = OUTPUT_FORMATS[form].codec
    assert codec is not None
    messages, violations = codec().write(facts, origin, None)
    if (kind := OUTPUT_FORMATS[form].schemas) is not None:
        messages, violations = encoded(kind().writers(shape_of(form, shape)), messages)
        messages = framed(messages, ids)
    assert violations == []
    return messages


@pytest.mark.parametrize("form", SINGLE_VALUE_FORMATS)
@given(VALUES, VALUES, st.booleans())
def test_what_is_read_is_what_was_written(
    form: str, one: list[bytes | None], other: list[bytes | None], tombstones: Any
) -> None:
    """Update by update, at their times, in all formats, with and without tombstones."""
    if form == "protobuf":
        pytest.importorskip("google.protobuf", reason="Protobuf is an extra")
    facts = history(b"1", one) + history(b"2", other)
    messages = written(form, facts, EnvelopeOrigin("p", "o", tombstones))

    assert sorted(read_back(form, messages)) == sorted(facts)


def test_rows_that_come_several_times_are_counted() -> None:
    """Of a key with several rows debezium-json has a message for each."""
    facts: list[Fact] = [(b"1", b'{"n":1}', 3, 2), (b"1", b'{"n":2}', 3, 1)]
    envelopes, _ = to_envelopes(facts, EnvelopeOrigin("p", "o"), empty=())

    assert sorted(read_back("debezium-json", envelopes)) == [
        (b"1", b'{"n":1}', 3, 1),
        (b"1", b'{"n":1}', 3, 1),
        (b"1", b'{"n":2}', 3, 1),
    ]


IN_AVRO = ("avro", "debezium-avro")


@pytest.mark.parametrize("form", IN_AVRO)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("JSON", {"b": [1.5]}),
        ("JSON[]", [{"a": 1}, None]),
        ("STRUCT(j JSON, n DECIMAL(9,2))", {"j": [1], "n": 2.5}),
        ("MAP(VARCHAR, JSON)", {"a": [1]}),
        ("TIMESTAMPTZ", "2024-01-31T12:00:00.5Z"),
        ("BLOB", "/w=="),
        ("DOUBLE", "NaN"),
    ],
)
def test_values_in_avro_are_those_of_json(form: str, kind: str, value: Any) -> None:
    """Also JSON within lists, structs and maps, which Avro has as texts."""
    shape = OutputShape("out", parsed("STRUCT(id BIGINT)"), (("v", parsed(kind)),))
    fact = b'{"id":1}', canonical.encode({"v": value}), 3, 1

    messages = written(form, [fact], EnvelopeOrigin("p", "o"), shape)

    assert read_back(form, messages, shape_of(form, shape)) == [fact]


def test_a_key_in_avro_of_which_nothing_is_known_is_json() -> None:
    """It is the text of one."""
    shape = SHAPE._replace(key_type=parsed("JSON"))
    facts: list[Fact] = [(key, b'{"n":1}', 3, 1) for key in (b'{"a":1}', b"7", b'"x"')]

    messages = written("avro", facts, EnvelopeOrigin("p", "o"), shape)

    assert sorted(read_back("avro", messages, shape)) == sorted(facts)


@pytest.mark.parametrize("form", IN_AVRO)
@pytest.mark.parametrize(
    ("before", "after"),
    [("n", "nm"), ("nm", "n"), ("n", "m")],
    ids=["added", "dropped", "another"],
)
def test_a_row_that_had_other_columns_is_taken_away(form: str, before: str, after: str) -> None:
    """What an edit of the columns writes, and deletes behind it, leave nothing of before."""
    shapes = [
        OutputShape("out", parsed("BIGINT"), tuple((name, parsed("BIGINT")) for name in names))
        for names in (before, after)
    ]
    old, new = (dict.fromkeys(names, 5) for names in (before, after))
    old_row, new_row = canonical.encode(old), canonical.encode(new)
    first: list[Fact] = [(b"1", old_row, 1, 1), (b"2", old_row, 1, 1)]
    edit: list[Fact] = [
        (key, *change) for key in (b"1", b"2") for change in ((old_row, 5, -1), (new_row, 5, 1))
    ]
    origin = EnvelopeOrigin("p", "o")
    messages = [
        *written(form, first, origin, shapes[0]),
        *written(form, edit, origin, shapes[1], Ids(3, 4)),
        *written(form, [(b"2", new_row, 7, -1)], origin, shapes[1], Ids(3, 4)),
    ]

    found = read_back(form, messages, *(shape_of(form, shape) for shape in shapes))

    assert summed(((key, row), count) for key, row, _, count in found) == {(b"1", new_row): 1}


@pytest.mark.parametrize("form", IN_AVRO)
def test_a_topic_in_avro_needs_a_registry_to_be_read(form: str) -> None:
    """The error names the settings; the registry's are no settings of the brokers' client."""
    with pytest.raises(ConfigError, match=f'cannot read "out": the format {form} needs') as error:
        output_reader({"bootstrap.servers": "x"}, "out", form)
    assert "schema.registry.url" in str(error.value)
    settings = client.with_registry({"client.id": "a"}, {"url": "http://127.0.0.1:9"})
    assert output_reader(settings, "out", form) is not None
    assert client.of_brokers(settings) == {"client.id": "a"}


def test_a_reader_goes_on_only_where_messages_say_all() -> None:
    """In Avro the columns of a row may have changed since."""
    assert [form for form in OUTPUT_FORMATS if can_go_on(form)] == [
        *("diff", "cdcv2-json", "cdcv2-avro", "debezium-json")
    ]


@pytest.mark.parametrize(
    ("form", "value", "headers", "reason"),
    [
        ("upsert", b"1", [], 'header "time" is missing'),
        ("debezium-json", b"1", [("time", b"3")], "it is no envelope of Debezium's"),
        ("avro", b"1", [("time", b"3")], "it does not begin with the byte of a schema id"),
    ],
)
def test_what_is_no_message_of_the_format_has_its_place(
    form: str, value: bytes, headers: list[tuple[str, bytes]], reason: str
) -> None:
    """And the option that says which format it is."""
    with pytest.raises(SourceError) as refused:
        OutputReader("out", form, Shapes(SHAPE)).read((2, 7), None, value, headers)

    assert refused.value.message == f"cannot read out[2]@7 as {form}: {reason}"
    assert refused.value.hint == "--format says how the topic is written."


def test_a_message_without_a_diff_says_by_which_option_it_is_read() -> None:
    """Where a diff topic is expected."""
    with pytest.raises(
        NoDiffError, match="--format upsert or --format avro or --format json-schema"
    ):
        decode("out", (0, 0), b"k", b"1", [("time", b"3")])


def test_batches_of_other_formats_are_judged_without_their_count() -> None:
    """A message is up to two updates; their times are held against progress all the same."""
    progress = ProgressRecord("c", "p", "out", 0, 0, 5, 1, {0: 1}, "upserts")
    reader = OutputReader("out", "upsert")
    reader.read((0, 0), b"k", b"1", [("time", b"3")])
    both = ClosedBatch(progress, reader.read((0, 1), b"k", b"2", [("time", b"4")]))
    late = ClosedBatch(progress, reader.read((0, 2), b"k", b"3", [("time", b"5")]))

    assert batch_offence("out", None, both) is not None
    assert batch_offence("out", None, both, counted=False) is None
    offence = batch_offence("out", None, late, counted=False)
    assert offence is not None
    assert "time 5 is outside batch 0" in offence.sentence
