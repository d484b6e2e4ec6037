"""The tables of formats: every name has a row, and what the rows say holds together."""

import re
from typing import get_args

import pytest

from ikebana import ConfigError, Input
from ikebana.codecs.cdcv2 import UpdateFacts
from ikebana.codecs.change import Needs
from ikebana.codecs.formats import (
    FACT_FORMATS,
    FORMATS,
    OUTPUT_FORMATS,
    Format,
    KeyFormat,
    OutputFormat,
    fact_codec,
)
from ikebana.processor.authoring.proposing.formats import LOOKS
from support.connector_histories import FORMS
from support.doc_blocks import ROOT


class NoSchemas:
    """A registry that nobody asks, as long as no message is read."""

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        raise AssertionError(id)


def test_every_name_has_a_row_and_every_row_a_name() -> None:
    """Types know the names, the tables what they mean."""
    assert tuple(FORMATS) == get_args(Format)
    assert set(OUTPUT_FORMATS) == set(get_args(OutputFormat))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_changes_have_a_codec_and_facts_their_own(name: str) -> None:
    """What is neither is read by its progress."""
    its = FORMATS[name]

    assert (its.codec is not None) == (its.kind in ("rows", "changes"))
    assert (its.facts is not None) == (its.kind == "facts")
    if its.encoding == "protobuf":
        pytest.importorskip("google.protobuf", reason="Protobuf is an extra")
    if its.codec is not None:
        made = its.codec(Needs(key=("id",)), its.usual_key, NoSchemas())
        assert {"key", "changes"} <= set(dir(made))


@pytest.mark.parametrize("name", FORMATS)
def test_only_changes_tell_what_was_there(name: str) -> None:
    """A row is alone, and an update says by its diff what goes."""
    its = FORMATS[name]

    assert its.kind == "changes" or not (its.old_images or its.source_clocks or its.keys_alike)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("json", "json"),
        ("bytes", "bytes"),
        ("avro", "avro"),
        ("protobuf", "protobuf"),
        ("debezium-avro", "avro"),
        ("maxwell", "json"),
        ("diff", "json"),
        ("cdcv2-avro", "json"),
    ],
)
def test_the_key_of_a_format_that_is_said_alone(name: str, key: KeyFormat) -> None:
    """As the pipeline file reads `format: avro`."""
    assert FORMATS[name].usual_key == key


def test_what_readers_of_outputs_go_by() -> None:
    """An output's format is of one kind."""
    kinds = {
        name: (its.as_updates, its.facts is not None, its.single_value)
        for name, its in OUTPUT_FORMATS.items()
    }

    assert all(sum(kind) == 1 for kind in kinds.values())
    latest = [name for name, its in OUTPUT_FORMATS.items() if its.latest]
    assert latest == ["upsert", "avro", "json-schema", "protobuf"]


@pytest.mark.parametrize("name", FACT_FORMATS)
def test_facts_are_read_as_they_are_written(name: str) -> None:
    """By one encoding, in and out."""
    facts = OUTPUT_FORMATS[name].facts
    assert facts is not None
    (message,) = facts().encode_updates([(b"1", b"2", 3, 4)], 1_000)

    assert fact_codec(name).decode(message) == UpdateFacts([(b"1", b"2", 3, 4)])


CHANGES = {name for name, its in FORMATS.items() if its.kind == "changes"}


def test_every_format_of_changes_has_histories() -> None:
    """So that what holds of all formats is tested of each: pushdown, types, partial images."""
    assert {form.format for form in FORMS.values()} == CHANGES


def test_every_format_of_changes_in_json_is_known_by_its_looks() -> None:
    """`ikebana new` proposes it."""
    assert {*LOOKS, *(name for name, its in FORMATS.items() if its.encoding == "avro")} >= CHANGES


def rows_of(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table under a heading, by the names in their first cells."""
    text = (ROOT / "docs" / page).read_text().partition(f"{heading}\n")[2]
    table = text[text.index("|---") :].partition("\n\n")[0].splitlines()[1:]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]
    return {name: rest for first, *rest in cells for name in re.findall(r"`([^`]+)`", first)}


def test_the_docs_say_of_each_format_of_changes_where_its_key_is() -> None:
    """In the table of docs/change-data.md, which has plain Avro and Protobuf as well."""
    keys = {name: key for name, (key, *_) in rows_of("change-data.md", "## Formats").items()}

    assert keys.keys() == CHANGES | {"avro", "protobuf"}
    for name, key in keys.items():
        assert key.startswith("the Kafka key") == (FORMATS[name].key_from == "either")
        assert key.startswith("`key`") == (FORMATS[name].key_from == "columns")


def test_the_docs_say_of_each_format_of_outputs_how_many_values_a_key_has() -> None:
    """In the table of docs/formats-out.md."""
    rows = rows_of("formats-out.md", "# Output formats")

    assert rows.keys() == OUTPUT_FORMATS.keys()
    assert {name for name, row in rows.items() if row[-1].startswith("one")} == {
        name for name, its in OUTPUT_FORMATS.items() if its.single_value
    }


def test_a_format_that_is_none_is_refused_by_name() -> None:
    """Where the input is made, with what it may have been meant for."""
    with pytest.raises(ConfigError, match=r"the format 'dbz'; there are avro, bytes, "):
        Input("i", ("t",), "dbz")  # type: ignore[arg-type]
