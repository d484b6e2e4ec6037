"""The tutorial from a database to a lake, from its first command to its last one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from cdc import connect, postgres
from cdc.fetched import Unavailable, java
from cdc.postgres import Postgres
from ikebana.processor.kafka.broker import Broker, free_port
from support.doc_blocks import ROOT
from support.pipeline_processes import create
from support.waiting import patient, wait_until

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

# Fenced blocks with their language, and indented commands.
_STEP = re.compile(r"^```(\w+)\n(.*?)^```$|^    (\S[^\n]*)$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w+\.(?:sql|properties|yaml|py))`")
_APART = "  # in a terminal of its own"
_CONNECT = """\
#!/bin/sh
exec {java} -Xmx384m -XX:+UseSerialGC -cp '{lib}/*' \\
  org.apache.kafka.connect.cli.ConnectStandalone "$@"
"""


class Step(NamedTuple):
    """A file to save, a command, or what the command before it prints."""

    kind: str
    text: str
    file: str = ""


def steps(text: str) -> Iterator[Step]:
    """What a reader does, one after the other; the paragraph before a block names its file."""
    for match in _STEP.finditer(text):
        language, block, command = match.groups()
        if command:
            yield Step("command", command)
        elif language == "text":
            yield Step("printed", block)
        else:
            paragraph = text[: match.start()].rstrip().rpartition("\n\n")[2]
            yield Step("file", block, _FILE.findall(paragraph)[0])


class Reader:
    """Does what the page says, in a folder."""

    def __init__(self, folder: Path, database: Postgres, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._apart: list[subprocess.Popen[bytes]] = []
        places = (Path(sys.executable).parent, database.binaries)
        path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
        self._environment = {**os.environ, "PATH": path, "PGPORT": str(database.port)}

    def do(self, step: Step, then: Step) -> None:
        """Do a step; a command is repeated until it prints what follows it."""
        if step.kind == "file":
            (self._folder / step.file).write_text(step.text)
        elif step.text.endswith(_APART):
            self._begin(step.text.removesuffix(_APART))
        elif step.kind == "command" and then.kind == "printed":
            expected = _lines(then.text)
            wait_until(lambda: self._printed(step.text) == expected, 240, then.text)
        elif step.kind == "command" and not step.text.startswith("ikebana broker"):
            done = self._run(step.text)
            assert done.returncode == 0, done.stdout + done.stderr

    def _printed(self, command: str) -> list[str]:
        for process in self._apart:
            assert process.poll() is None, (self._folder / f"{process.pid}.log").read_text()
        return _lines(self._run(command).stdout)

    def _run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            timeout=patient(120),
            check=False,
            cwd=self._folder,
            env=self._environment,
        )

    def _begin(self, command: str) -> None:
        """Start a program that goes on, and end it with the test."""
        log = (self._folder / f"{len(self._apart)}.log").open("wb")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
        )
        (self._folder / f"{process.pid}.log").symlink_to(log.name)
        self._apart.append(process)
        self._stack.callback(_end, process)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _end(process: subprocess.Popen[bytes]) -> None:
    # What a shell runs in the background ignores Ctrl-C.
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(patient(60))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_each_command_does_what_the_page_says(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Tables, their changes, a view in two targets, and a column that comes later."""
    text = (ROOT / "docs" / "tutorial-lake.md").read_text()
    name = topic_name("shop").replace("-", "_")
    try:
        lib = connect.installed("postgres")
        with ExitStack() as stack:
            database = stack.enter_context(postgres.running())
            for theirs, our in [
                ("localhost:9092", broker.bootstrap_servers),
                ("127.0.0.1:8083", f"127.0.0.1:{free_port()}"),
                ("port=5432", f"port={database.port}"),
                ("topic.prefix=shop", f"topic.prefix={name}"),
                ("topic: shop.", f"topic: {name}."),
                ("pipeline: shop", f"pipeline: {name}"),
                ("topic: sales", f"topic: {name}.sales"),
            ]:
                assert theirs in text
                text = text.replace(theirs, our)
            # The broker of the tests makes no topic by itself; that of `ikebana broker` does.
            for table in ("customers", "orders"):
                create(broker.bootstrap_servers, f"{name}.public.{table}", 1)
            script = tmp_path / "kafka" / "bin" / "connect-standalone.sh"
            script.parent.mkdir(parents=True)
            script.write_text(_CONNECT.format(java=java(), lib=lib))
            script.chmod(0o755)
            reader = Reader(tmp_path, database, stack)
            for step, then in pairwise([*steps(text), Step("end", "")]):
                reader.do(step, then)
    except Unavailable as reason:
        pytest.skip(str(reason))
