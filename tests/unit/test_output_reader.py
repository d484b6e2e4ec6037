"""Outputs with one value a key read back: the updates that they were written of."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.debezium_out import EnvelopeOrigin, to_envelopes
from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.codecs.progress import ProgressRecord
from ikebana.codecs.upsert_out import OutputMessage
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import ClosedBatch, NoDiffError, decode
from ikebana.processor.base.output_reader import OutputReader
from ikebana.processor.base.verify import batch_offence

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


def read_back(form: str, messages: Sequence[OutputMessage]) -> list[Fact]:
    reader = OutputReader("out", form)
    return [
        (update.key, update.value, update.time, update.diff)
        for at, (key, value, headers) in enumerate(messages)
        for update in reader.read((0, at), key, value, headers)
    ]


def written(form: str, facts: Sequence[Fact], origin: EnvelopeOrigin) -> Sequence[OutputMessage]:
    codec = OUTPUT_FORMATS[form].codec
    assert codec is not None
    messages, violations = codec().write(facts, origin, None)
    assert violations == []
    return messages


@pytest.mark.parametrize("form", SINGLE_VALUE_FORMATS)
@given(VALUES, VALUES, st.booleans())
def test_what_is_read_is_what_was_written(
    form: str, one: list[bytes | None], other: list[bytes | None], tombstones: Any
) -> None:
    """Update by update, at their times, in all formats, with and without tombstones."""
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


@pytest.mark.parametrize(
    ("form", "value", "headers", "reason"),
    [
        ("upsert", b"1", [], 'header "time" is missing'),
        ("debezium-json", b"1", [("time", b"3")], "it is no envelope of Debezium's"),
    ],
)
def test_what_is_no_message_of_the_format_has_its_place(
    form: str, value: bytes, headers: list[tuple[str, bytes]], reason: str
) -> None:
    """And the option that says which format it is."""
    with pytest.raises(SourceError) as refused:
        OutputReader("out", form).read((2, 7), b"k", value, headers)

    assert refused.value.message == f"cannot read out[2]@7 as {form}: {reason}"
    assert refused.value.hint == "--format says how the topic is written."


def test_a_message_without_a_diff_says_by_which_option_it_is_read() -> None:
    """Where a diff topic is expected."""
    with pytest.raises(NoDiffError, match="--format upsert or --format debezium-json"):
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
