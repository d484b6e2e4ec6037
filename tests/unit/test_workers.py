"""Spark's Python processes are forks of one, and Spark can't tell."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ikebana.processor.spark.workers.starting import PROGRAM, PYTHON_VARIABLE, Workers

ECHO = """
import json, os, sys
told = {"arguments": sys.argv[1:], "name": __name__, "variable": os.environ.get("VARIABLE"),
        "home": "HOME" in os.environ, "folder": os.getcwd(), "read": sys.stdin.read(),
        "imported": "duckdb" in sys.modules, "package": __package__}
print(json.dumps(told))
print("told", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(params=["near", "deep" * 30], ids=["near", "deep"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workers]:
    """A host that has imported `duckdb`, and is ended; its folder may lie deep."""
    folder = tmp_path / str(request.param)
    folder.mkdir()
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "echo.py").write_text(ECHO)
    (tmp_path / "user" / "waits.py").write_text(
        "import sys\nprint('here', flush=True)\nsys.stdin.read()"
    )
    made = Workers(folder, None, ["duckdb"])
    yield made
    made.end()


def environment(folder: Path, workers: Workers) -> dict[str, str]:
    """What a process of these tests is given, and nothing else."""
    return {"VARIABLE": "given", "PYTHONPATH": str(folder / "user"), **workers.environment}


def echo(python: str | Path, folder: Path, workers: Workers) -> tuple[dict[str, object], str, int]:
    """What a program says of itself that is run as Spark runs it."""
    done = subprocess.run(
        [str(python), "-m", "echo", "one", "two"],
        input="something",
        capture_output=True,
        text=True,
        cwd=folder / "user",
        env=environment(folder, workers),
        check=False,
        timeout=120,
    )
    return json.loads(done.stdout), done.stderr, done.returncode


def test_a_fork_is_as_a_python_of_its_own(workers: Workers, tmp_path: Path) -> None:
    """Arguments, environment, folder, status and streams are the same, unlike what is imported."""
    forked, said, status = echo(PROGRAM, tmp_path, workers)
    alone, said_alone, status_alone = echo(sys.executable, tmp_path, workers)

    assert (said, status) == (said_alone, status_alone) == ("told\n", 7)
    assert forked.pop("imported") is True
    assert alone.pop("imported") is False
    assert forked == alone
    assert forked["arguments"] == ["one", "two"]
    assert forked["read"] == "something"


def test_without_the_host_it_is_a_python_of_its_own(workers: Workers, tmp_path: Path) -> None:
    """Whoever asks is served, also when the host has ended, or none is named."""
    workers.end()
    assert echo(PROGRAM, tmp_path, workers)[0]["imported"] is False
    named = {PYTHON_VARIABLE: sys.executable}
    for env in (workers.environment, named):
        command = [str(PROGRAM), "-c", "import sys; print(sys.executable)"]
        ran = subprocess.run(command, capture_output=True, check=True, env=env)
        assert ran.stdout.decode().strip() == sys.executable


def test_a_fork_that_is_killed_says_so_and_all_end_with_the_host(
    workers: Workers, tmp_path: Path
) -> None:
    """A signal's number comes as a shell has it; who waits for a lost fork gets a failure."""
    with waiting(workers, tmp_path) as asked:
        os.kill(fork_of(asked), signal.SIGKILL)
        assert asked.wait(60) == 128 + signal.SIGKILL
    with waiting(workers, tmp_path) as asked:
        fork = fork_of(asked)
        workers.end()
        assert asked.wait(60) == 1
        # Nobody may have asked for its status yet.
        assert not psutil.pid_exists(fork) or psutil.Process(fork).status() == "zombie"


def waiting(workers: Workers, folder: Path) -> "subprocess.Popen[bytes]":
    """A process that waits for the end of its input, and has begun to."""
    found = subprocess.Popen(
        [PROGRAM, "-m", "waits"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(folder, workers),
    )
    assert found.stdout is not None
    assert found.stdout.readline() == b"here\n"
    return found


def fork_of(asked: "subprocess.Popen[bytes]") -> int:
    """The process behind one that stands in for it."""
    marks = [
        int(found.name)
        for found in Path("/proc").iterdir()
        if found.name.isdigit() and int(found.name) != asked.pid and _is_at(found, asked)
    ]
    assert len(marks) == 1
    return marks[0]


def _is_at(process: Path, asked: "subprocess.Popen[bytes]") -> bool:
    """Whether a process reads the same pipe."""
    assert asked.stdin is not None
    try:
        return os.readlink(process / "fd" / "0") == os.readlink(
            f"/proc/self/fd/{asked.stdin.fileno()}"
        )
    except OSError:
        return False
