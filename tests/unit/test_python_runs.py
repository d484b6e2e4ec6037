"""Runs from Python, as far as they go without Spark: settings, functions, programs, commands."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import ikebana as ik
import user_functions
from ikebana.processor.cli.main import cli
from ikebana.processor.cli.pipeline_argument import PipelineArgument
from ikebana.processor.linear.functions import why_not_portable
from support.waiting import patient

PROGRAM = """
import ikebana as ik

def kept(data):
    return True

shop = ik.Pipeline("shop")
shop.topic("orders").upsert().filter(kept).to("out")
shop.run("localhost:1", checkpoint="state", once=True)
"""


def _pipeline() -> ik.Pipeline:
    made = ik.Pipeline("shop")
    made.topic("orders").upsert().filter(user_functions.is_even).to("out")
    return made


def test_settings_are_refused_all_at_once() -> None:
    """By their paths in a pipeline file."""
    settings = {"run": {"shard": 2, "heartbeat": "soon"}, "kafka": {"bootstrap.server": "b:1"}}

    with pytest.raises(ik.ConfigError) as raised:
        _pipeline().start(checkpoint="state", settings=settings)

    assert str(raised.value).splitlines() == [
        'settings of pipeline "shop" have 2 problems:',
        "  run.heartbeat: must be a number of seconds, or a duration such as 500ms, 10s, 5m or "
        '7d; is "soon"',
        '  run.shard: there is no such setting here; did you mean "shards"?',
    ]


def test_settings_that_fit_no_cluster_are_refused() -> None:
    """What only the whole of them tells."""
    with pytest.raises(ik.ConfigError, match=r"kafka\.bootstrap\.servers: is missing"):
        _pipeline().start(checkpoint="state", settings={"run": {"shards": 0}})


def test_a_registry_that_is_needed_is_missed() -> None:
    """With the other problems, and the name of the input."""
    made = ik.Pipeline("shop")
    made.topic("orders", format="avro").upsert().to("out")

    with pytest.raises(ik.ConfigError) as raised:
        made.start("localhost:1", settings={"kafka": {"compression.type": "none at all"}})

    text = str(raised.value)
    assert text.startswith('settings of pipeline "shop" have 3 problems:\n')
    assert "  registry.url: is missing: input 'orders' is read by its schemas" in text


def test_a_settings_file_of_a_pipeline_of_a_module_is_named(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is missing is an error; one that is empty is as if it were not there."""
    (tmp_path / "empty.yaml").write_text("")
    pipeline = PipelineArgument(Path(f"{module}:shop"), "b:1", "c")

    monkeypatch.setenv("IKEBANA_SETTINGS", "empty.yaml")
    assert pipeline.written().plan.name == "shop"
    monkeypatch.setenv("IKEBANA_SETTINGS", "/none")
    with pytest.raises(ik.ConfigError, match="could not read settings file /none: No such file"):
        pipeline.written()


def test_a_function_that_no_worker_finds_is_refused_before_spark_starts() -> None:
    """With the line where it was given."""
    made = ik.Pipeline("shop")
    made.topic("orders").upsert().filter(lambda data: bool(data)).to("out")

    with pytest.raises(ik.PlanError, match=rf"give it a name in one \({__file__}, line \d+\)"):
        made.start("localhost:1", checkpoint="state")


def test_a_program_that_runs_while_it_is_imported_is_told_what_to_write(tmp_path: Path) -> None:
    """Workers import it for its functions: each would run the pipeline again."""
    (tmp_path / "shop_program.py").write_text(PROGRAM)

    done = subprocess.run(
        [sys.executable, "shop_program.py"],
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr.replace("\\", "")


CELLS = """
import ikebana as ik

def big(data):
    return data[1]["n"] > 1

shop = ik.Pipeline("shop")
shop.topic("orders").upsert().filter(big).to("out")
print(shop.evaluate(orders=[(1, {"n": 2}, 0)])["out"])
shop.start("localhost:1", checkpoint="state")
"""


def test_a_function_of_a_notebook_is_refused_before_a_run_with_what_to_write(
    tmp_path: Path,
) -> None:
    """Its module is no file that workers can import; in this process it works."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=CELLS,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
        cwd=tmp_path,
    )

    assert "Update(data=(1, {'n': 2}), time=0, diff=1)" in done.stdout
    assert done.returncode == 1
    assert 'filter: "big" is known to this notebook or program alone' in done.stderr
    assert "what `from my_functions import big` has" in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_program_without_a_name_to_import_has_no_functions_for_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a notebook, or a file whose name is no identifier."""

    def kept(data: object) -> bool:
        return bool(data)

    kept.__module__, kept.__qualname__ = "__main__", "kept"
    program = types.ModuleType("__main__")
    program.__dict__["kept"] = kept
    for file in (None, "/shops/my-shop.py"):
        program.__file__ = file
        monkeypatch.setitem(sys.modules, "__main__", program)
        assert "from my_functions import kept" in (why_not_portable(kept) or "")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a pipeline, in the current directory."""
    monkeypatch.chdir(tmp_path)
    name = "a_shop_of_tests"
    (tmp_path / f"{name}.py").write_text(
        "import ikebana as ik\n"
        'shop = ik.Pipeline("shop")\n'
        'shop.topic("orders").upsert().to("out")\n'
        "other = 1\n"
    )
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_commands_take_a_pipeline_of_a_module(module: str) -> None:
    """As they take a file."""
    done = CliRunner().invoke(
        cli, ["explain", f"{module}:shop", "--bootstrap-servers", "b:1", "--checkpoint", "c"]
    )

    assert done.exit_code == 0, done.output
    assert done.output.startswith("pipeline shop (")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{}:other", '"other" of module "{}" is of type int\nHint: Its pipelines are shop.'),
        ("{}:nothing", 'module "{}" has no "nothing"\nHint: Its pipelines are shop.'),
        ("no_such_module:shop", 'module "no_such_module" cannot be imported'),
    ],
)
def test_a_reference_that_finds_no_pipeline_is_refused(
    module: str, given: str, problem: str
) -> None:
    """With those that there are."""
    done = CliRunner().invoke(cli, ["explain", given.format(module), "--checkpoint", "c"])

    assert isinstance(done.exception, ik.ConfigError) or done.exit_code != 0
    assert problem.format(module) in (str(done.exception) + done.output)


def test_an_explained_plan_is_text_and_a_picture() -> None:
    """As a terminal and a notebook show it."""
    explained = _pipeline().explain()

    assert str(explained).startswith("pipeline shop (")
    assert explained._repr_svg_().startswith("<svg")
