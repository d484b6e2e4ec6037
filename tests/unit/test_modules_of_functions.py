"""Modules of users' functions: where they are found, and what is told of those that are not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ikebana import evaluate
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.linear.functions import FOLDER_VARIABLE, FunctionError, function_named
from ikebana.processor.spark import session

FILE = """\
pipeline: p
inputs: {i: {topic: in}}
operators:
  o: {upsert: i}
  doubled: {linear: o, map: MODULE:double}
outputs: {d: {from: doubled, topic: out}}
kafka: {bootstrap.servers: "b:1"}
run: {checkpoint: c}
"""
DOUBLE = "def double(data):\n    return data[0], 2 * data[1]\n"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    yield
    os.environ.pop(FOLDER_VARIABLE, None)


def file_in(folder: Path, module: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(FILE.replace("MODULE", module), encoding="utf-8")
    return path


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as told:
        pipeline.read(path, environ={})
    (problem,) = str(told.value).splitlines()[1:]
    return problem.removeprefix("  operators.doubled.map: ")


def test_a_module_beside_the_pipeline_file_is_found(tmp_path: Path) -> None:
    """By whoever reads the file, and with the modules that it imports itself."""
    (tmp_path / "ours_doubling.py").write_text("from ours_also import double\n", encoding="utf-8")
    (tmp_path / "ours_also.py").write_text(DOUBLE, encoding="utf-8")

    plan = pipeline.read(file_in(tmp_path, "ours_doubling"), environ={}).plan

    assert [update.data for update in evaluate(plan, {"i": [("k", 4, 0)]})["d"]] == [("k", 8)]


def test_a_module_beside_the_file_takes_nobodys_place(tmp_path: Path) -> None:
    """The folder comes last: a json.py in it is not what others import."""
    (tmp_path / "wave.py").write_text(DOUBLE, encoding="utf-8")

    assert refused(file_in(tmp_path, "wave")) == 'module "wave" has no "double" (line 5)'


def test_another_process_finds_it_by_the_environment(tmp_path: Path) -> None:
    """As Spark's Python workers do, which know the variable alone."""
    (tmp_path / "ours_elsewhere.py").write_text(DOUBLE, encoding="utf-8")
    pipeline.read(file_in(tmp_path, "ours_elsewhere"), environ={})
    script = (
        "from ikebana.processor.linear.functions import function_named\n"
        "print(function_named('ours_elsewhere:double')(('k', 21)))"
    )
    path = os.pathsep.join(sys.path)

    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": path.replace(str(tmp_path), "")},
    )

    assert (done.stdout, done.stderr) == ("('k', 42)\n", "")


def test_spark_hands_the_folder_on_to_its_workers(
    tmp_path: Path,
) -> None:
    """Also to those on other machines, which have none of the driver's environment."""
    (tmp_path / "ours_sparkling.py").write_text(DOUBLE, encoding="utf-8")
    pipeline.read(file_in(tmp_path, "ours_sparkling"), environ={})
    settings = Settings(checkpoint="c", kafka={"bootstrap.servers": "b:1"})

    options = session.spark_settings(settings, "p")

    assert options[f"spark.executorEnv.{FOLDER_VARIABLE}"] == str(tmp_path)


def test_where_a_module_was_looked_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's folder and PYTHONPATH."""
    path = file_in(tmp_path, "no_such.functions")
    start = 'module "no_such.functions" cannot be imported: there is no "no_such" in '

    assert refused(path) == (
        f"{start}{tmp_path}, the pipeline file's folder, on PYTHONPATH (not set) or among what "
        "is installed (line 5)"
    )
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert "on PYTHONPATH (/elsewhere) or among" in refused(path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("\nimport no_such_library\n", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("\n1 / 0\n", "ZeroDivisionError: division by zero"),
        ("\ndef double(data:\n", "SyntaxError: '(' was never closed"),
        ("\nraise SystemExit\n", "SystemExit"),
    ],
)
def test_why_a_module_fails_is_told(tmp_path: Path, text: str, cause: str) -> None:
    """What it has raised itself while it was imported, and at which of its lines."""
    (tmp_path / "ours_broken.py").write_text(text, encoding="utf-8")
    sys.modules.pop("ours_broken", None)

    assert refused(file_in(tmp_path, "ours_broken")) == (
        f'module "ours_broken" cannot be imported: it raised {cause} '
        f"({tmp_path}/ours_broken.py, line 2) (line 5)"
    )


def test_a_plan_in_python_has_no_folder() -> None:
    """Where there is no file, none is named."""
    with pytest.raises(FunctionError, match=r'there is no "no_such" on PYTHONPATH \(not set\)'):
        function_named("no_such:f")
