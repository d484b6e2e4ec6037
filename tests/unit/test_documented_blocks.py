"""The docs run: each pipeline on the data of a small shop, each Python block, each command."""

import itertools
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import jsonschema
import pytest
import yaml

import flights
import shop
from ikebana import evaluate, load
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.pipeline_file import SETTINGS_VARIABLE
from ikebana.processor.cli.main import cli
from ikebana.processor.explain.explanation import explained
from ikebana.processor.planning.plan import Plan
from ikebana.processor.watching import guard
from support.doc_blocks import (
    EXAMPLES,
    ROOT,
    Block,
    blocks,
    command_lines,
    named,
    other_command_lines,
)
from support.flight_examples import two_days

# Of these the messages come from elsewhere: a real connector, and another pipeline.
PLANNED_ONLY = {
    *("change-data-2", "change-data-3", "changes-2", "changes-3", "keyed-6", "nested-1"),
    *("relations-4", "time-1", "time-2", "time-4", "time-5"),
}
# The sections that every file has, and that the docs say once.
REST = {
    "pipeline": "pipeline: documented",
    "kafka": "kafka: {bootstrap.servers: localhost:9092}",
    "run": "run: {checkpoint: ./checkpoint}",
}
# What the README writes to its topic.
FLIGHTS = [("N1", "JFK"), ("N2", "LGA"), ("N1", "MIA"), ("N2", None)]
# These need a broker: tests/kafka, tests/spark and tests/cdc run them.
NEED_A_BROKER = {
    *("tutorial-1", "tutorial-4", "tutorial-7", "tutorial-lake-6", "tutorial-lake-11"),
    *("README-1", "reading-1", "reading-2", "reading-3"),
    "deliver-7",
    *("serving-1", "serving-2", "serving-3", "serving-4", "serving-5", "serving-6"),
}
MODULES = {
    "keyed-2": "order_status",
    "keyed-5": "visits",
    "keyed-7": "prices",
    "linear-4": "areas",
}

MADE = {"flights.departures": flights.departures, "flights.events": flights.events}

CHART = jsonschema.Draft7Validator(
    json.loads((ROOT / "helm" / "ikebana" / "values.schema.json").read_text())
)
PIPELINES = [
    each
    for each in blocks("yaml")
    if {"inputs", "operators", "outputs"} & yaml.safe_load(each.text).keys()
]
OTHERS = [each for each in blocks("yaml") if each not in PIPELINES]
# Those of docs/how-to: tests/unit/test_how_to.py.
SCRIPTS = [
    each
    for each in blocks("python")
    if each.name not in NEED_A_BROKER and not each.name.startswith("how-to/")
]


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, ModuleType]:
    """The modules that blocks of the docs are, importable by their names."""
    found = {}
    for each in SCRIPTS:
        if name := MODULES.get(each.name):
            module = ModuleType(name)
            exec(compile(each.text, each.name, "exec"), module.__dict__)
            monkeypatch.setitem(sys.modules, name, module)
            found[name] = module
    assert len(found) == len(MODULES)
    return found


def planned(block: Block, folder: Path) -> pipeline.ConfiguredPlan:
    """What a block says, with the sections that it leaves out."""
    path = folder / "documented.yaml"
    missing = [line for key, line in REST.items() if key not in yaml.safe_load(block.text)]
    path.write_text("\n".join([block.text, *missing]))
    return pipeline.read(path, environ={})


def fed(plan: Plan) -> dict[str, list[tuple[Any, Any, int]]]:
    """What the topics of the README and of the shop have for the inputs of a plan."""
    messages = [
        *(shop.Message("flights", key, at and {"at": at}, shop.BEGIN) for key, at in FLIGHTS),
        *shop.history(orders=40),
    ]
    found: dict[str, list[tuple[Any, Any, int]]] = {}
    for source in plan.inputs:
        found[source.name] = [
            (
                message.key.encode() if source.key_format == "bytes" else message.key,
                message.value,
                int(message.time.timestamp() * 1000),
            )
            for message in messages
            if message.topic in source.topics
        ]
    return found


@pytest.mark.parametrize("block", PIPELINES, ids=lambda block: block.name)
def test_a_documented_pipeline_is_one(block: Block, tmp_path: Path) -> None:
    """It can be planned and explained."""
    assert explained(*planned(block, tmp_path)).fingerprint


@pytest.mark.parametrize(
    "block",
    # Those of docs/editing.md, the tutorial and docs/how-to have tests and data of their own.
    [
        each
        for each in PIPELINES
        if each.name not in PLANNED_ONLY
        and not each.name.startswith(("editing-", "tutorial-", "how-to/"))
    ],
    ids=lambda block: block.name,
)
def test_a_documented_pipeline_gives_updates_and_no_errors(block: Block, tmp_path: Path) -> None:
    """On the shop's messages every output has updates."""
    plan, _ = planned(block, tmp_path)

    found = evaluate(plan, fed(plan))

    assert found.pop("errors") == []
    assert {name for name, updates in found.items() if not updates} == set()


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.name)
def test_what_a_file_is_for_takes_it(block: Block, tmp_path: Path) -> None:
    """Values of the chart, sinks, tokens, settings, or probes of a pod: without a problem."""
    (path := tmp_path / "documented.yaml").write_text(block.text)
    (secret := tmp_path / "secret").write_text("word")
    content = yaml.safe_load(block.text)
    if "livenessProbe" in content:
        assert {probe["httpGet"]["path"] for probe in content.values()} == {"/live", "/ready"}
    elif "tokens" in content:
        assert guard.read_access(path)
    elif CHART.is_valid(content):
        assert content
    elif "deliver" in content:
        assert pipeline.read_sinks(path, {})
    else:
        path.write_text(re.sub(r"/run/secrets/[\w-]+", str(secret), block.text))
        environment = {SETTINGS_VARIABLE: str(path), "KAFKA_PASSWORD": "word"}
        assert load(EXAMPLES[0], environ=environment).plan()


def test_the_first_pipeline_is_the_example() -> None:
    """The README shows what `examples/first.yaml` has."""
    text = (ROOT / "examples" / "first.yaml").read_text()

    assert named("README-2").text == text[text.index("pipeline:") :]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_gives_updates_and_no_errors(path: Path) -> None:
    """On the messages of a shop, or of two days of flights, every output has updates."""
    plan = load(path, environ={}).plan()
    table = two_days()
    records = fed(plan)
    for source in plan.inputs:
        for message in MADE.get(source.topics[0], lambda _: [])(table):
            at = int(message.time.timestamp() * 1000)
            key, value = json.loads(message.key), json.loads(message.value)
            records[source.name].append((key, value, at))

    found = evaluate(plan, records)

    # Events that cannot follow a flight's state are errors, as the example says.
    assert found.pop("errors") == [] or path.stem == "life-cycle"
    assert {name for name, updates in found.items() if not updates} == set()


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.name)
def test_documented_python_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs by itself, in the folder of the project."""
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, block.name, "exec"), {"__name__": block.name})


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.name)
def test_documented_json_is_json(block: Block) -> None:
    """Messages and schemas can be read."""
    assert json.loads(block.text)


@pytest.mark.parametrize(
    ("where", "words"),
    [pytest.param(*each, id=f"{each[0]}: {' '.join(each[1])}") for each in command_lines()],
)
def test_documented_commands_are_understood(where: str, words: list[str]) -> None:
    """The command is there, and takes what it is given."""
    _, name, *arguments = words[: words.index(">")] if ">" in words else words
    if name.startswith("-"):
        assert name in {each for option in cli.params for each in option.opts}
        return
    command = cli.get_command(click.Context(cli), name)

    assert command is not None, where
    with command.make_context(name, arguments):
        pass


# A file of the project, such as bench/joins.py.
_PATH = re.compile(r"[\w-]+/[\w./-]+")
# What the reader makes, or what lies in an image.
_THEIRS = re.compile(r"(registry\.example\.org|\.venv|dist)/|.*\.whl")


@pytest.mark.parametrize(
    ("where", "words"),
    [pytest.param(*each, id=f"{each[0]}: {' '.join(each[1])}") for each in other_command_lines()],
)
def test_other_documented_commands_name_what_is_there(where: str, words: list[str]) -> None:
    """Targets of make, files of the project, and values of the chart."""
    if words[0] == "make":
        names = re.findall(r"^([\w-]+)(:| \?=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
        asked = {re.sub("=.*", "=", word) for word in words[1:]}
        assert asked <= {name + "=" * ("=" in rest) for name, rest in names}, where
    for word in words[1:]:
        if _PATH.fullmatch(word) and not _THEIRS.match(word):
            assert (ROOT / word).exists(), (where, word)
    values: dict[str, Any] = {}
    for option, value in itertools.pairwise(words):
        if option in ("--set", "--set-file"):
            path, _, text = value.partition("=")
            *sections, last = path.split(".")
            part = values
            for section in sections:
                part = part.setdefault(section, {})
            part[last] = yaml.safe_load(text) if option == "--set" else text
    assert [each.message for each in CHART.iter_errors(values)] == [], where
