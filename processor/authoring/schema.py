"""The JSON Schema of the pipeline file, generated from the models that read it.

Keys, sections and required keys come from `pipeline_file`.  The values that a key accepts are
listed here for each validator of `values`, since a validator accepts more than its result type.
"""

import copy
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from ikebana.codecs.formats import Format
from ikebana.processor.authoring import values
from ikebana.processor.authoring.deliver_section import DeliveredColumnSection
from ikebana.processor.authoring.operator_kinds import (
    KINDS,
    OperatorSection,
    StepSection,
    keys_of_kind,
)
from ikebana.processor.authoring.pipeline_file import ColumnSection, PipelineFile
from ikebana.processor.authoring.settings import KAFKA_NAMES, OWNED_KAFKA
from ikebana.processor.authoring.values import Section
from ikebana.processor.planning import starts

JsonSchema = dict[str, Any]
FILE = "pipeline.schema.json"

_TEXT: JsonSchema = {"type": "string"}
_SCALAR: JsonSchema = {"type": ["string", "number", "boolean"]}
# A variable has no value before the file is read, so any variable is accepted.
_VARIABLE: JsonSchema = {"type": "string", "pattern": r"\$\{"}
_NUMBERS = {"type": "string", "pattern": "^[0-9]+$"}
_DURATION = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)?$"}
_FINITE = {"type": "number", "exclusiveMinimum": -9e15, "exclusiveMaximum": 9e15}


def _any(*of: JsonSchema) -> JsonSchema:
    return {"anyOf": list(of)}


def _list(of: JsonSchema, least: int = 0) -> JsonSchema:
    return {"type": "array", "items": of, **({"minItems": least} if least else {})}


def _mapping(of: JsonSchema) -> JsonSchema:
    return {"type": "object", "additionalProperties": of}


_SECONDS = _any(_FINITE, _DURATION, _VARIABLE)
# The values that each validator accepts.
_ACCEPTED: Mapping[Callable[[Any], object], JsonSchema] = {
    values.as_aggregates: _mapping(_SCALAR),
    values.as_functions: _mapping(_SCALAR),
    values.as_typed: _mapping(_SCALAR),
    values.as_by: _any(_SCALAR, _list({"type": "string", "pattern": r"^\w+$"}, 1)),
    values.as_finite_seconds: _SECONDS,
    values.as_flag: _any({"enum": [True, False, "true", "false"]}, _VARIABLE),
    values.as_flat_mapped: _any(
        {"type": "string", "pattern": "^[^(]*:[^(]*$"},
        _VARIABLE,
        {**_mapping(_SCALAR), "minProperties": 1, "maxProperties": 1},
    ),
    values.as_joined: _mapping(_TEXT),
    values.as_names: _any(_TEXT, _list(_TEXT, 1)),
    values.as_orders: _mapping(_list({})),
    values.as_schema: {"type": ["string", "object", "array"]},
    values.as_seconds_or_never: _any(_FINITE, {"const": "never"}, _DURATION, _VARIABLE),
    values.as_selected: _any(_list(_TEXT), _mapping(_SCALAR)),
    values.as_start: _any(
        {"enum": list(starts.WORDS)},
        {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}|^[0-9]+: [0-9]+"},
        {"type": "integer", "minimum": 0},
        {**_mapping(_any({"type": "integer", "minimum": 0}, _NUMBERS)), "minProperties": 1},
        _VARIABLE,
    ),
    values.as_texts: _any(_TEXT, _list(_TEXT, 1)),
    values.as_topics: _any(_TEXT, _list(_TEXT, 1)),
    values.as_unique: _any(_TEXT, _list(_TEXT, 1), _list(_list({}, 1), 1)),
    values.as_conditions: _mapping(_any(_TEXT, _list(_TEXT, 1))),
    values.as_expression: _SCALAR,
    values.as_scalar: _SCALAR,
    values.as_seconds: _any({"type": "number"}, _DURATION, _VARIABLE),
    values.as_text: _TEXT,
    values.as_whole: _any({"type": "integer"}, _NUMBERS, _VARIABLE),
}
# Short forms that are accepted in place of a section.
_SHORT: Mapping[Callable[[Any], object], tuple[JsonSchema, ...]] = {
    values.as_formats: ({"enum": list(get_args(Format))}, _VARIABLE),
    values.as_columns: (),
}
# The path of each section, as docs/pipeline-file.md writes it.
PLACES = {
    "PipelineFile": "",
    "InputSection": "inputs.<name>.",
    "FormatsSection": "inputs.<name>.format.",
    "ColumnSection": "inputs.<name>.columns.<name>.",
    "EventTimeSection": "inputs.<name>.event_time.",
    "HistorySection": "inputs.<name>.history.",
    "StepSection": "operators.<name>.",
    "OperatorSection": "operators.<name>.",
    "OutputSection": "outputs.<name>.",
    "FunctionSection": "functions.<name>.",
    "ErrorsSection": "errors.",
    "SourceSection": "source.",
    "SinkSection": "sink.",
    "RunSection": "run.",
    "DeliverSection": "deliver.<name>.",
    "PostgresSection": "deliver.<name>.postgres.",
    "IcebergSection": "deliver.<name>.iceberg.",
    "DeltaSection": "deliver.<name>.delta.",
    "ParquetSection": "deliver.<name>.parquet.",
    "TableSection": "deliver.<name>.tables.<name>.",
    "DeliveredColumnSection": "deliver.<name>.tables.<name>.columns.<name>.",
}


class _Generator(GenerateJsonSchema):
    """Generates the schema of what a file may have; pydantic's own describes the results."""

    described: Mapping[str, str] = {}

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchema:
        function: Any = schema["function"]["function"]
        if (accepted := _ACCEPTED.get(function)) is not None:
            # A copy, since pydantic writes defaults into the schema.
            return copy.deepcopy(accepted)
        if (choices := getattr(function, "choices", None)) is not None:
            return _any({"enum": list(choices)}, _VARIABLE)
        inner: JsonSchema = self.generate_inner(schema["schema"])
        if function in _SHORT:
            return _any(*copy.deepcopy(_SHORT[function]), inner) if _SHORT[function] else inner
        # Other validators are methods of sections, and accept what the section accepts.
        if not isinstance(getattr(function, "__self__", None), type):
            raise AssertionError(f"{function} is in no table of the schema")
        return inner

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchema:
        result: JsonSchema = super().model_schema(schema)
        section = schema["cls"]
        assert issubclass(section, Section)
        needed = result.get("required", ())
        result["properties"] = {
            key: self._property(section, key, result["properties"][key], needed=key in needed)
            for key in section.keys()  # noqa: SIM118 -- no mapping
        }
        result.pop("title", None)
        result.pop("description", None)
        if section is OperatorSection:
            result |= _kinds()
        # A type alone is a short form of a column.
        return (
            _any(_TEXT, result) if section in (ColumnSection, DeliveredColumnSection) else result
        )

    def _property(
        self, section: type[Section], key: str, generated: JsonSchema, *, needed: bool
    ) -> JsonSchema:
        plain = {name: of for name, of in generated.items() if name not in ("title", "default")}
        # A key without a value counts as absent.
        several = plain.get("anyOf", [plain])
        if not needed:
            several = [*(each for each in several if each != {"type": "null"}), {"type": "null"}]
        result: JsonSchema = {} if needed else {"anyOf": several}
        described = self.described.get(PLACES[section.__name__] + key)
        default = generated.get("default")
        return {
            **({"description": described} if described else {}),
            # Defaults of several values are in the description.
            **({"default": default} if isinstance(default, str | int | float) else {}),
            **(result or plain),
        }


def _kinds() -> JsonSchema:
    """Rules for operators: each has one kind, and only the keys of that kind."""
    steps = {*StepSection.keys(), "steps"}
    rules = []
    for kind in KINDS:
        keys = {kind, *keys_of_kind(kind), *(steps if kind == "linear" else ())}
        others = {
            key: {"type": "null", "errorMessage": f"{kind} takes no {key}"}
            for key in OperatorSection.keys()  # noqa: SIM118 -- no mapping
            if key not in keys
        }
        rules.append({"if": _has(kind), "then": {"properties": others}})
    return {"anyOf": [_has(kind) for kind in KINDS], "allOf": rules}


def _has(key: str) -> JsonSchema:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def pipeline_schema(described: Mapping[str, str]) -> JsonSchema:
    """The schema; `described` has the description of each key, by its path in the docs."""
    generator = type("Generator", (_Generator,), {"described": described})
    result: JsonSchema = PipelineFile.model_json_schema(
        by_alias=True,
        ref_template="#/definitions/{model}",
        schema_generator=generator,
        mode="validation",
    )
    definitions = result.pop("$defs")
    for section in (result, definitions["SourceSection"], definitions["SinkSection"]):
        client = {"$ref": "#/definitions/KafkaClient"}
        section["properties"]["kafka"]["anyOf"] = [client, {"type": "null"}]
    definitions["KafkaClient"] = {
        **_mapping(_SCALAR),
        "propertyNames": {"enum": sorted(KAFKA_NAMES - OWNED_KAFKA.keys())},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Pipeline file of ikebana",
        **result,
        "definitions": dict(sorted(definitions.items())),
    }


def published() -> str:
    """The schema as it is published with the package, JSON text."""
    return files("ikebana").joinpath(FILE).read_text(encoding="utf-8")
