"""Options of formats: known by their names, with values that the codecs take."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ikebana as ik
from ikebana.codecs.change import DeclaredColumns, Needs
from ikebana.codecs.formats import FORMATS
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.authoring import pipeline

OPTIONS = [
    pytest.param(name, option, id=f"{name} {option}")
    for name, traits in FORMATS.items()
    for option in traits.options
]


def plan_with(value_format: Any, options: Mapping[str, Any]) -> ik.Plan:
    made = ik.Pipeline("p")
    columns = [ik.Column("id", "BIGINT")]
    key = ["id"] if FORMATS[value_format].key_from != "kafka" else []
    read = made.topic("t", format=value_format, columns=columns, key=key, options=options)
    read.upsert().to("out")
    return made.plan()


@pytest.mark.parametrize(("value_format", "option"), OPTIONS)
def test_a_codec_takes_what_the_table_of_formats_has(value_format: str, option: str) -> None:
    """Each choice alone, and no other value."""
    known = FORMATS[value_format].options[option]
    make = FORMATS[value_format].codec
    assert make is not None
    schemas: Any = object()

    for value in known.choices or ("x_",):
        wanted = Needs(
            key=("id",), options={option: value}, declared=DeclaredColumns({"id": "BIGINT"})
        )
        make(wanted, "json", schemas)
        plan_with(value_format, {option: value})
    for value in ("other", "") if known.choices else () if known.may_be_empty else ("",):
        problem = f"inputs.t.options.{option}: (is .*; set it to one of: |must not be empty)"
        with pytest.raises(PlanError, match=problem):
            plan_with(value_format, {option: value})


@pytest.mark.parametrize(
    ("value_format", "options", "problem"),
    [
        (
            "maxwell",
            {"row_imge": "minimal"},
            'options.row_imge: is no option of maxwell; did you mean "row_image"?',
        ),
        ("json", {"empty_value": "error"}, "options.empty_value: is no option of json"),
        ("avro", {"frame": "headers"}, 'is no option of avro; did you mean "framing"?'),
        ("canal", {"x": "1"}, "is no option of canal; there are empty_value, row_image"),
        ("debezium-json", {"unavailable_placeholder": ""}, "must not be empty"),
        ("debezium-flat-json", {"prefix": ""}, "must not be empty"),
        (
            "maxwell",
            {"row_image": "minimal", "output_nulls": "false"},
            "inputs.t.options: minimal row images without nulls do not tell null from unchanged",
        ),
        (
            "goldengate",
            {"op_insert": "U"},
            "inputs.t.options: two operations of GoldenGate have the same letter",
        ),
        ("dms", {"before_image": "data"}, 'option "before_image" is "data", which it cannot be'),
    ],
)
def test_options_that_a_format_does_not_have_are_problems_of_the_plan(
    value_format: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PlanError) as told:
        plan_with(value_format, options)

    assert problem in str(told.value)


def test_a_file_is_told_the_option_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "pipeline: p\ninputs:\n  t:\n    topic: t\n    format: maxwell\n    options:\n"
        "      row_imge: minimal\noperators: {r: {upsert: t}}\n"
        "outputs: {o: {from: r, topic: o}}\n"
    )

    with pytest.raises(ConfigError) as told:
        pipeline.read(path, environ={})

    assert (
        'inputs.t.options.row_imge: is no option of maxwell; did you mean "row_image"? (line 7'
        in (str(told.value))
    )


def test_topic_takes_no_argument_that_it_does_not_know() -> None:
    made: Any = ik.Pipeline("p")

    with pytest.raises(ConfigError, match='topic\\(\\) takes no "colums"; did you mean "columns"'):
        made.topic("t", colums=[ik.Column("id", "BIGINT")])
