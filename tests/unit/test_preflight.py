"""The checks of a start that need no broker."""

import json
import os
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana.processor.authoring import pipeline
from ikebana.processor.base.notices import Check
from ikebana.processor.checkpoint.checkpoint import Checkpoint, metadata_of
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.cli.preflight import checks
from ikebana.processor.kafka.preflight import of_checkpoint, of_java
from ikebana.processor.topics.source_offset import SourceOffset
from support.pipeline_processes import Pipeline

NOTHING = SourceOffset(-1, 0, 0, {}, "")


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path, "localhost:1", "shop", "orders")


def born(shop: Pipeline) -> str:
    """Make the checkpoint of a pipeline; its id."""
    plan, settings = pipeline.read(shop.file(), environ=os.environ)
    metadata = metadata_of(settings.checkpoint, plan, settings.shards, NOTHING)
    Checkpoint(settings.checkpoint).write(metadata)
    return metadata.id


def found(shop: Pipeline) -> dict[str, Check]:
    """The checks by what is looked at, after the location."""
    plan, settings = pipeline.read(shop.file(), environ=os.environ)
    return {
        check.check.removeprefix(f'checkpoint "{shop.place}": '): check
        for check in of_checkpoint(plan, settings)
    }


def everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_new_checkpoint_is_left_unmade(shop: Pipeline) -> None:
    """Its folder is not there before, and not after."""
    shop.file()
    before = everything(shop.folder)

    checks = found(shop)

    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["read"].fact == "new: nothing is there yet"
    assert everything(shop.folder) == before


def test_a_checkpoint_of_this_plan_is_told_and_left_as_it_is(shop: Pipeline) -> None:
    """The probe is gone again."""
    name = born(shop)
    before = everything(shop.folder)

    checks = found(shop)

    assert {check.status for check in checks.values()} == {"ok"}
    assert checks["read"].fact == f"{name}, committed up to batch -1"
    assert everything(shop.folder) == before


@pytest.mark.parametrize(
    ("run", "told"),
    [
        pytest.param({"time": "ingest"}, 'time was "offset", is "ingest"', id="plan"),
    ],
)
def test_what_changed_since_the_checkpoint_is_told(
    shop: Pipeline, run: dict[str, object], told: str
) -> None:
    """With what can be done about it."""
    born(shop)
    time = str(run.pop("time", shop.domain))
    changed = Pipeline(shop.folder, shop.servers, "shop", "orders", time, settings=run)

    check = found(changed)["same plan"]

    assert check.status == "failed"
    assert told in check.fact
    assert check.remedy


def test_another_number_of_shards_is_told(shop: Pipeline) -> None:
    """A start rewrites the state for it."""
    born(shop)

    check = found(shop.but(shards=3))["same plan"]

    assert check.status == "ok"
    assert "the state is rewritten for 3 shards, from 2" in check.fact


def test_a_folder_of_somebody_else_is_refused(shop: Pipeline) -> None:
    """What cannot be read is not compared with either."""
    (shop.place / "offsets").mkdir(parents=True)
    (shop.place / "offsets" / "0").touch()

    checks = found(shop)

    assert checks["read"].status == "failed"
    assert "without ikebana.json" in checks["read"].fact
    assert checks.keys() == {"read", "write"}


def test_a_location_that_cannot_be_written_is_told(shop: Pipeline) -> None:
    """Here a file stands where a folder is needed."""
    (shop.folder / "checkpoint").touch()

    check = found(shop)["write"]

    assert check.status == "failed"
    assert check.fact.startswith(f'could not write "{shop.place}": ')
    assert check.remedy


def test_a_pipeline_file_with_problems_ends_it(shop: Pipeline) -> None:
    """Nothing else can be looked at; the exit status says so, and JSON too."""
    path = shop.but(shards=0).file()

    shown = CliRunner().invoke(cli, ["preflight", str(path)])
    told = CliRunner().invoke(cli, ["preflight", "--json", str(path)])

    assert shown.exit_code == told.exit_code == 1
    assert shown.output.startswith(f"failed  pipeline file {path}: ")
    assert "run.shards: must be at least 1; is 0" in shown.output
    answer = json.loads(told.output)
    assert answer["ok"] is False
    assert [check["status"] for check in answer["checks"]] == ["failed"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("", "failed", "cannot find Java: JAVA_HOME is not set and PATH has no java"),
        (os.environ["PATH"], "ok", "version "),
    ],
)
def test_java_is_looked_at_as_a_start_does(path: str, status: str, told: str) -> None:
    """Without one nothing could start."""
    home = {"JAVA_HOME": os.environ["JAVA_HOME"]} if path and "JAVA_HOME" in os.environ else {}
    check = of_java({"PATH": path, **home})

    assert (check.check, check.status) == ("Java", status)
    assert check.fact.startswith(told)


def test_the_command_looks_at_java(shop: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it asks the brokers."""
    monkeypatch.setenv("JAVA_HOME", str(shop.folder))

    _, check = islice(checks(PipelineArgument(shop.file())), 2)

    assert check.fact == f'cannot find Java: JAVA_HOME "{shop.folder}" has no bin/java'
