"""The command line as a process: what it imports, and what it does when it cannot write."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ikebana.processor.cli.main import cli

PIPELINE = """\
pipeline: p
inputs: {i: {topic: t}}
operators: {o: {upsert: i}}
outputs: {d: {from: o, topic: u}}
kafka: {bootstrap.servers: "localhost:1"}
run: {checkpoint: c}
"""
_EXAMPLE = re.compile(r"^ikebana (.*?)(?:  .*| > .*)?$", re.MULTILINE)
HEAVY = {"duckdb", "numpy", "pandas", "pyarrow", "pydantic", "pyspark"}
COMMANDS = (
    "run",
    "preflight",
    "explain",
    "follow",
    "check",
    "snapshot",
    "prepare",
    "broker",
    "new",
    "schema",
    "compact",
    "state",
    "rescale",
    "recover",
)


def printed_by(script: str) -> str:
    """What another Python prints, which ends without an error."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_waits_for_no_library() -> None:
    """Neither that of `ikebana` nor that of a command imports what takes long to import."""
    script = f"""
import sys
from ikebana.__main__ import main
for arguments in ([], *([command] for command in {COMMANDS!r})):
    sys.argv = ["ikebana", *arguments, "--help"]
    try:
        main()
    except SystemExit as done:
        assert not done.code, arguments
    found = sorted({HEAVY!r} & sys.modules.keys())
    assert not found, (arguments, found)
"""
    assert "Run a pipeline" in printed_by(script)


def test_an_import_waits_for_no_library() -> None:
    """What users import of ikebana."""
    printed_by(f"""
import sys
import ikebana
from ikebana import Column, Pipeline, Plan, Upsert
found = sorted({HEAVY!r} & sys.modules.keys())
assert not found, found
""")


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_the_help_of_a_command_begins_with_an_example(name: str) -> None:
    """Behind the sentence that says what it does; the command takes each example."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    _, examples, *_ = inspect.cleandoc(command.help or "").split("\n\n")
    commit, *lines = examples.splitlines()

    assert commit == "\b"
    for line in lines:
        found = _EXAMPLE.fullmatch(line)
        assert found is not None, line
        first, *arguments = shlex.split(found[1], comments=True)
        assert first == name
        with command.make_context(name, arguments):
            pass


def test_processes_of_spark_wait_for_no_import_of_spark() -> None:
    """They take longest to come up, so what begins them is imported before pyspark."""
    printed_by("""
import sys
from ikebana.processor.spark import supervised
from ikebana.processor.spark.session import Spark
found = sorted({"pandas", "pyspark"} & sys.modules.keys())
assert not found, found
from ikebana.processor.spark import query
assert "pyspark" in sys.modules
""")


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [
        pytest.param(
            "/dev/full",
            1,
            "ikebana: could not write the output: No space left on device\n",
            id="a full disk",
        ),
        pytest.param(None, 0, "", id="a reader that is gone"),
    ],
)
def test_output_that_cannot_be_written_is_no_stack(
    tmp_path: Path, output: str | None, status: int, said: str
) -> None:
    """A full disk is an error, a reader that has seen enough is none."""
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    command = [sys.executable, "-m", "ikebana", "explain", str(file)]
    if output is None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
    else:
        with open(output, "wb") as full:
            process = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=300)

    assert (process.returncode, told.decode()) == (status, said)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere(tmp_path: Path, closed: str) -> None:
    """As those of a daemon may be."""
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    words = [sys.executable, "-m", "ikebana", "explain", str(file)]
    command = ["sh", "-c", f'"$@" {closed}', "sh", *words]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == (" >&-" not in f" {closed}")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("expalin", 'there is no command "expalin"; did you mean "explain"?'),
        ("xyzzy", 'there is no command "xyzzy"; there are broker, check, compact, deliver, demo,'),
    ],
)
def test_a_misspelt_command_is_told_with_what_is_meant(word: str, said: str) -> None:
    """Or with what there is."""
    done = CliRunner().invoke(cli, [word])

    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "x"])
def test_what_is_no_finite_number_is_refused(number: str) -> None:
    """By each option that takes a number; with `--rate nan` a server limited nobody."""
    context = click.Context(cli)
    told = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option.type, click.types.FloatParamType):
                given = [name, f"{option.opts[0]}={number}"]
                told.append((option.name, CliRunner().invoke(cli, given)))

    names = {name for name, _ in told}
    assert {"every", "rate", "ready_within", "sql_seconds", "stuck_after"} <= names
    for name, done in told:
        assert done.exit_code == 2, name
        assert "Invalid value" in done.stderr
        assert number in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["explain", ""], "pipeline file .: it is a folder", id="no name"),
        pytest.param(["plan", "{folder}"], "it is a folder", id="a folder"),
        pytest.param(["state", "{file}"], "a checkpoint is a folder, and a file is", id="a file"),
    ],
)
def test_a_file_in_place_of_a_folder_is_named_in_plain_words(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    """And a folder in place of a file."""
    file = tmp_path / "plain.txt"
    file.write_text("plain")
    names = [each.format(folder=tmp_path, file=file) for each in arguments]
    refused = CliRunner().invoke(cli, names)

    assert said in str(refused.exception)
