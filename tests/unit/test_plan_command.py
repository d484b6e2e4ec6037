"""`ikebana plan`: an edit and a checkpoint in, what changes out, and an exit status.

The stored texts lie in `tests/golden/plan`; IKEBANA_GOLDEN=write stores them anew.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import msgspec
import pytest
from click.testing import CliRunner, Result

import shop
from ikebana.errors import CheckpointError
from ikebana.processor.authoring import pipeline
from ikebana.processor.base.transition import Phase, Transition
from ikebana.processor.checkpoint.checkpoint import CheckpointFiles, count_state
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.cli.plan import require_unchanged
from ikebana.testing import Run
from support.checkpoints import left
from support.doc_blocks import ROOT, named
from support.waiting import patient

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "plan"
BEFORE = GOLDEN / "before.yaml"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of the plan before, which has read twelve orders."""
    place = tmp_path_factory.mktemp("stopped") / "checkpoint"
    run = Run(pipeline.read(BEFORE, environ={}).plan.portable(), shards=2)
    for number in range(12):
        order = {"product": "tea" if number % 3 else "milk", "customer": 1, "quantity": number}
        run.send("shop.orders", number, order)
    run.read()
    left(run, place)
    return place


def asked(file: Path | str, place: Path, *options: str, **environ: str) -> Result:
    options = ("plan", str(file), "--against", str(place), *options)
    return CliRunner().invoke(cli, options, env=environ)


def files_of(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("name", "status"),
    [("before", 0), ("edited", 2), ("again", 2), ("refused", 1)],
    ids=lambda each: each,
)
def test_what_is_said_is_what_is_stored(name: str, status: int, stopped: Path) -> None:
    """To the letter, with the exit status; nothing is written."""
    before = files_of(stopped)
    found = asked(GOLDEN / f"{name}.yaml", stopped)
    told = found.stdout.replace(str(stopped), "CHECKPOINT")
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        path.write_text(told, encoding="utf-8")

    assert told == path.read_text(encoding="utf-8")
    assert found.exit_code == status
    assert files_of(stopped) == before


def test_the_docs_show_what_is_said(tmp_path: Path) -> None:
    """The two pipelines of docs/edits.md, and what is said of the edit."""
    place, page = tmp_path / "checkpoint", ROOT / "docs" / "edits.md"
    rest = "pipeline: shop\ntime: offset\nkafka: {bootstrap.servers: localhost:9092}\n"
    files = {}
    for name in ("edits-1", "edits-2"):
        files[name] = tmp_path / f"{name}.yaml"
        where = f"run: {{checkpoint: {place}, shards: 2}}\n"
        files[name].write_text(named(name).text + rest + where)
    run = Run(pipeline.read(files["edits-1"], environ={}).plan.portable(), shards=2)
    for message in shop.history(orders=40):
        if message.topic == "orders":
            run.send("orders", message.key, message.value)
    run.read()
    left(run, place)
    found = asked(files["edits-2"], place)
    assert found.exit_code == 2, found.exception
    told = found.stdout.replace(str(place), "./checkpoint")
    before, _, rest = page.read_text().partition("```text\n")
    _, end, after = rest.partition("```\n")
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        page.write_text(f"{before}```text\n{told}{end}{after}")

    assert f"```text\n{told}```\n" in page.read_text()


def test_a_run_that_is_to_refuse_changes_ends_before_it_starts(stopped: Path) -> None:
    """With all that it would do; by an option or the environment, and not by itself."""
    edited = str(GOLDEN / "edited.yaml")
    options = ["run", edited, "--checkpoint", str(stopped)]
    before = files_of(stopped)
    told = [
        CliRunner().invoke(cli, [*options, "--refuse-changes"]).exception,
        CliRunner().invoke(cli, options, env={"IKEBANA_REFUSE_CHANGES": "1"}).exception,
    ]

    assert [type(each) for each in told] == [CheckpointError] * 2
    assert str(told[0]) == str(told[1])
    assert "changes are to be refused\npipeline shop, checkpoint" in str(told[0])
    # The text is that of `ikebana plan`, but for what is counted.
    said = asked(edited, stopped, "--no-count").stdout
    assert said.strip() in str(told[0])
    assert files_of(stopped) == before


def test_a_plan_that_is_as_it_was_is_not_refused(stopped: Path, tmp_path: Path) -> None:
    """Nor is a new checkpoint: it has no plan yet."""
    for place in (stopped, tmp_path / "nothing"):
        plan, settings = pipeline.read(BEFORE, checkpoint=str(place), environ={})
        require_unchanged(plan, settings)


def test_json_has_the_same_for_programs(stopped: Path) -> None:
    """The parts that change, what they are filled from, and the size of the state."""
    found = asked(GOLDEN / "edited.yaml", stopped, "--json")
    told = json.loads(found.stdout)

    assert found.exit_code == 2
    assert (told["result"], told["pipeline"], told["is_new"]) == ("changes", "shop", False)
    assert told["counts"] == {"new": 6, "replaced": 4, "dropped": 2, "stays": 2}
    (named,) = [p for p in told["parts"] if (p["kind"], p["name"]) == ("output", "named")]
    assert named == {
        "kind": "output",
        "name": "named",
        "does": "new",
        "type": "diff",
        "was": None,
        "why": "",
        "filled_from": [{"kind": "operator", "name": "named", "rows": None}],
        "shows": "everything",
        "topic": "shop.named",
        "bytes": None,
    }
    assert told["refused"] == []
    # Twelve orders, two products of large ones, and one customer.
    assert told["state"]["rows_to_read"] == 12 + 2 + 1
    assert told["state"]["kept_bytes"] > told["state"]["released_bytes"] > 0


def test_a_refusal_is_told_in_json_too(stopped: Path) -> None:
    """With its path, the reason and what to do."""
    found = asked(GOLDEN / "refused.yaml", stopped, "--json")

    assert found.exit_code == 1
    refused = json.loads(found.stdout)["refused"]
    assert [each["path"] for each in refused] == ["inputs.orders"]
    assert all(each["reason"] and each["remedy"] for each in refused)
    lines = (GOLDEN / "refused.yaml").read_text().splitlines()
    assert [lines[each["line"] - 1].split()[0] for each in refused] == ["orders:"]


def test_what_a_start_refuses_is_told_with_its_lines(tmp_path: Path) -> None:
    """Of a file; a module has none."""
    file = GOLDEN / "refused.yaml"
    error = CheckpointError("refused", hint="Wait.", paths=["operators.order.x", "nothing"])
    with pytest.raises(CheckpointError) as told, PipelineArgument(file).with_lines():
        raise error

    line = (
        file.read_text()
        .splitlines()
        .index(
            next(
                line for line in file.read_text().splitlines() if line.strip().startswith("order:")
            )
        )
        + 1
    )
    assert told.value.message == f"refused ({file}: operators.order.x on line {line})"
    assert (told.value.hint, told.value.paths) == (error.hint, error.paths)
    module = PipelineArgument(tmp_path / "module:name")
    with pytest.raises(CheckpointError) as told, module.with_lines():
        raise error
    assert told.value is error


def test_without_a_checkpoint_all_is_new(tmp_path: Path) -> None:
    """That is a change; it says so."""
    found = asked(BEFORE, tmp_path / "nothing")

    assert found.exit_code == 2
    last = found.stdout.splitlines()[-1]
    assert last == "there is no checkpoint yet, all is new: 8 new"
    assert not (tmp_path / "nothing").exists()


def test_a_file_may_come_through_standard_input(stopped: Path) -> None:
    """As `kubectl exec -i` does it: the checkpoint is there, the edited file is here."""
    command = "from ikebana.processor.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "plan", "/dev/stdin", "--checkpoint", str(stopped)],
        stdin=(GOLDEN / "edited.yaml").open(),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )

    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == asked(GOLDEN / "edited.yaml", stopped).stdout


def test_the_checkpoint_is_that_of_the_file_where_none_is_named(tmp_path: Path) -> None:
    """As for a run."""
    file = tmp_path / "shop.yaml"
    file.write_text(BEFORE.read_text().replace("./checkpoint", str(tmp_path / "there")))

    found = CliRunner().invoke(cli, ["plan", str(file)])

    assert found.exit_code == 2
    assert f"checkpoint {tmp_path / 'there'}" in found.stdout


def test_a_batch_that_is_unfinished_is_told_as_a_run_would(tmp_path: Path) -> None:
    """Its own plan goes on, before another one it is finished."""
    run = Run(pipeline.read(BEFORE, environ={}).plan.portable(), shards=2)
    run.send("shop.orders", 1, {"product": "tea", "customer": 1, "quantity": 9})
    run.read()
    left(run, tmp_path / "checkpoint", committed=False)

    assert asked(BEFORE, tmp_path / "checkpoint").exit_code == 0
    found = asked(GOLDEN / "edited.yaml", tmp_path / "checkpoint")

    assert found.exit_code == 2
    told = " is unfinished: finished under the plan of before first"
    assert f"before that\n  batch {run.last.batch}{told}" in found.stdout
    told = json.loads(asked(GOLDEN / "edited.yaml", tmp_path / "checkpoint", "--json").stdout)
    assert told["finishes"] == {
        "batch": run.last.batch,
        "unfinished": True,
        "between_operators": False,
    }


def test_a_module_needs_no_brokers(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline in Python is compared like one in a file."""
    (tmp_path / "planned_shop.py").write_text(
        "import ikebana\n"
        "shop = ikebana.Pipeline('shop')\n"
        "shop.topic('shop.orders').upsert().to('latest')\n"
    )
    monkeypatch.chdir(tmp_path)
    found = asked("planned_shop:shop", stopped)

    assert found.exit_code == 1
    assert "time was" in found.stdout


def test_a_large_state_is_counted_if_that_is_asked_for(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its size alone is told, and no figure is made up."""
    monkeypatch.setattr("ikebana.processor.cli.plan._COUNTED_BYTES", 10)
    edited = GOLDEN / "edited.yaml"
    alone = json.loads(asked(edited, stopped, "--json").stdout)["state"]
    counted = json.loads(asked(edited, stopped, "--json", "--count").stdout)["state"]

    assert alone["files_bytes"] == counted["files_bytes"] > 10
    assert (alone["rows_to_read"], alone["kept_bytes"]) == (None, None)
    assert counted["rows_to_read"] == 15
    assert "no more than that is read" in asked(edited, stopped).stdout


def test_of_files_that_are_no_line_only_the_size_is_told(stopped: Path, tmp_path: Path) -> None:
    """A file that is gone, or damaged, is not guessed at."""
    place = copytree(stopped, tmp_path / "checkpoint")
    layout = CheckpointFiles(str(place), 0)
    whole = count_state(layout, 2)
    assert whole.parts is not None
    assert whole.parts["order"].keys == 12

    (file,) = (place / "shards" / "0000").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert count_state(layout, 2).parts is None

    file.rename(file.with_name(file.name.replace("-000000000000-", "-000000000001-")))
    assert count_state(layout, 2).parts is None


def test_a_plan_that_is_as_it_was_says_nothing_of_an_edit_that_fills(tmp_path: Path) -> None:
    """What was accepted before goes on."""
    plan = pipeline.read(BEFORE, environ={}).plan.portable()
    run = Run(plan, shards=2)
    run.send("shop.orders", 1, {"product": "tea", "customer": 1, "quantity": 9})
    run.read()
    fills = Transition(at=run.last.upper, phase=Phase.FILL)
    run.last = msgspec.structs.replace(run.last, transition=fills)
    left(run, tmp_path / "checkpoint")

    assert asked(BEFORE, tmp_path / "checkpoint").exit_code == 0
    found = asked(GOLDEN / "edited.yaml", tmp_path / "checkpoint")
    assert found.exit_code == 2
    assert "between operators" in found.stdout
