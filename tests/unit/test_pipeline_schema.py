"""The JSON Schema of pipeline files: it refuses what the parser refuses, and nothing else."""

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana.errors import PlanError
from ikebana.processor.authoring.operator_kinds import operators
from ikebana.processor.authoring.pipeline import schema_errors
from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.authoring.settings import SettingsError
from ikebana.processor.cli.main import cli
from support.doc_blocks import EXAMPLES, ROOT, blocks
from support.mistakes import MISTAKES, WELL
from support.pipeline_schema import PUBLISHED, described, generated


def read(text: str) -> Any:
    """A file as it is read, in which `on` is text as in YAML 1.2."""
    return read_yaml(text, "f.yaml", {"KAFKA_PASSWORD": "x"}).value


SCHEMA: dict[str, Any] = json.loads(PUBLISHED.read_text())
CHART = json.loads((ROOT / "helm" / "ikebana" / "values.schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
FILES: list[dict[str, Any]] = [
    *(read(path.read_text()) for path in EXAMPLES),
    read(WELL),
]


def problems(document: object) -> list[str]:
    return [f"{'.'.join(map(str, e.path))}: {e.message}" for e in VALIDATOR.iter_errors(document)]


def refused_later(document: dict[str, Any]) -> bool:
    """Whether what was read is refused: keys of another kind of operator, names of settings."""
    read = PipelineFile.model_validate(document)
    try:
        for name, part in read.operators.items():
            operators(part, name)
        read.settings(bootstrap_servers="b:1", checkpoint="c")
    except (PlanError, SettingsError):
        return True
    return False


def test_the_stored_schema_is_the_generated_one() -> None:
    """Written anew with IKEBANA_GOLDEN=write."""
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        PUBLISHED.write_text(generated())

    assert PUBLISHED.read_text() == generated()


def test_the_schema_is_one() -> None:
    """Of draft 7, which editors know."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def test_the_command_prints_what_is_published() -> None:
    """From the package."""
    assert CliRunner().invoke(cli, ["schema"]).output == PUBLISHED.read_text()


def keys_of(schema: Any, place: str = "") -> Iterator[str]:
    """The keys that a schema knows, as the page names them."""
    for name, of in schema.get("properties", {}).items():
        yield place + name
        yield from keys_of(of, f"{place}{name}.")
    if "$ref" in schema:
        yield from keys_of(SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]], place)
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from keys_of(more, f"{place}<name>.")
    for each in schema.get("anyOf", ()):
        if each.keys() != {"required", "properties"}:
            yield from keys_of(each, place)


def test_each_key_has_its_words() -> None:
    """And the page tells of no others."""
    known = {key for key in keys_of(SCHEMA) if ".steps." not in key}
    sections = {key.rpartition(".")[0].removesuffix(".<name>") for key in known}

    assert known - sections - described().keys() == set()
    # What a client takes has names of its own.
    assert described().keys() - known == {"kafka.bootstrap.servers"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_the_schema_that_it_names(path: Any) -> None:
    """Editors find it by the first line."""
    first, _, _ = path.read_text().partition("\n")
    _, _, named = first.partition("# yaml-language-server: $schema=")

    assert (path.parent / named).resolve() == PUBLISHED.resolve()
    assert problems(read(path.read_text())) == []


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.name)
def test_a_documented_file_fits(block: Any) -> None:
    """What it leaves out is no problem of what it says."""
    document = read(block.text)
    if not document.keys() <= SCHEMA["properties"].keys():
        pytest.skip("no pipeline file")
    if jsonschema.Draft7Validator(CHART).is_valid(document):
        pytest.skip("values of the chart")
    rest = {"pipeline": "p", "inputs": {}, "outputs": {}}

    assert problems({**rest, **document}) == []


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_structure_are_refused(name: str) -> None:
    """Those of SQL and of names are not the schema's."""
    well, wrong, _ = MISTAKES[name]
    document = read(WELL.replace(well, wrong))

    found = problems(document)

    assert bool(found) == (bool(schema_errors(document)) or refused_later(document)), found


@pytest.mark.parametrize(
    ("path", "value", "fits"),
    [
        pytest.param("run.shards", "${SHARDS}", True, id="a variable for a number"),
        pytest.param("time", "${TIME:-ingest}", True, id="a variable for a choice"),
        pytest.param("run.trigger_interval", "500ms", True, id="a duration"),
        pytest.param("run.trigger_interval", "soon", False, id="no duration"),
        pytest.param("run.heartbeat", None, True, id="nothing"),
        pytest.param("pipeline", None, False, id="nothing where something must be"),
        pytest.param("kafka.group.id", "g", False, id="ikebana's own to set"),
        pytest.param("kafka.acks", "all", True, id="a client's setting"),
        pytest.param("operators.order.where", ["amount > 1"], False, id="a key of other kinds"),
        pytest.param("operators.order.where", None, True, id="an empty key of other kinds"),
        pytest.param("operators.order.upsert", None, False, id="no kind"),
        pytest.param("operators.order.linear", "o", False, id="two kinds"),
    ],
)
def test_values(path: str, value: Any, fits: bool) -> None:  # noqa: FBT001
    """What editors mark and what they let stand."""
    document = read(WELL)
    section = document
    head, _, rest = path.partition(".")
    names = path.split(".") if head != "kafka" else [head, rest]
    for name in names[:-1]:
        section = section[name]
    section[names[-1]] = value

    assert (problems(document) == []) == fits


# Numbers that are also true, and whole numbers with a point, Python takes for one another.
PLAIN = [None, True, 5, 2.5, "x", "5s", "17", "never", "json", "earliest", "${X}", ""]
LISTS = [[], ["a"], [["a"]], [5], [{}]]
MAPPINGS = [{}, {"a": "b"}, {"a": None}, {"a": ["b"]}, {"a": {}}, {"type": "x"}]
VALUES = st.sampled_from([*PLAIN, *LISTS, *MAPPINGS])


def filled(value: Any) -> Any:
    """A copy without keys that have no value."""
    if isinstance(value, list):
        return [filled(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: filled(each) for name, each in value.items() if each is not None}


NAMES = [
    *SCHEMA["properties"],
    *SCHEMA["definitions"]["OperatorSection"]["properties"],
    "topic",
    "x",
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a document something stands."""
    if path:
        yield path
    items = enumerate(value) if isinstance(value, list) else ()
    for name, of in value.items() if isinstance(value, dict) else items:
        yield from places(of, (*path, name))


@st.composite
def changed(draw: st.DrawFn) -> dict[str, Any]:
    """A file with some of it taken away, put elsewhere, or made something else."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from([*places(document)] or [("pipeline",)]))
        section: Any = document
        for name in way:
            section = section[name]
        match draw(st.sampled_from(["drop", "put", "put", "name"])):
            case "drop":
                del section[last]
            case "name" if isinstance(section, dict):
                section[draw(st.sampled_from(NAMES))] = section.pop(last)
            case _:
                section[last] = copy.deepcopy(draw(VALUES))
    return document


@settings(deadline=None, max_examples=150)
@given(changed())
def test_the_schema_refuses_what_the_parser_refuses(document: dict[str, Any]) -> None:
    """All that is wrong in structure, and nothing that is right."""
    text = json.dumps(document)
    if "${" in text:
        # What stands for it is not known to the schema.
        document = json.loads(text.replace("${X}", "x"))
    wrong = bool(schema_errors(document))
    found = problems(document)

    if wrong:
        assert found, schema_errors(document)
    elif found and not refused_later(document):
        # A misspelt key without a value is nothing to the parser.
        assert problems(filled(document)) == [], found
