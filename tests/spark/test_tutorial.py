"""The tutorial, from its first line to its last one, in an empty folder."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import ikebana
from ikebana.processor.kafka.broker import Broker, free_port
from support.doc_blocks import ROOT
from support.pipeline_processes import create
from support.waiting import patient, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

# Fenced blocks with their language, and indented commands.
_STEP = re.compile(r"^```(\w+)\n(.*?)^```$|^    (ikebana [^\n]*)$", re.MULTILINE | re.DOTALL)
_VIEW = re.compile(r"^( *)SELECT city.*$", re.MULTILINE)
_FRONTIER = re.compile(r"caught up after .* frontier (\d+)")
COMMAND = [sys.executable, "-m", "ikebana"]


class Step(NamedTuple):
    """A block of a language, or a command."""

    kind: str
    text: str


class Student:
    """Does what the tutorial says, one step after the other, in a folder."""

    def __init__(self, folder: Path, servers: str, url: str) -> None:
        self._folder = folder
        self._servers = servers
        self._url = url
        self._server: subprocess.Popen[bytes] | None = None
        self._said = ""
        self._frontier = 0
        self.compared = 0

    def do(self, step: Step) -> None:
        """Do one step, and look at what it gives."""
        match step.kind:
            case "python":
                assert self._run([sys.executable, "-c", step.text]).returncode == 0
            case "yaml":
                (self._folder / "shop.yaml").write_text(step.text)
            case "sql":
                self._edit(step.text)
            case "text":
                assert step.text in self._said
                self.compared += 1
                self._said = ""
            case "command":
                self._command(shlex.split(step.text)[1:])

    def _command(self, words: list[str]) -> None:
        match words[0]:
            case "broker":
                return
            case "serve":
                self._serve(words)
            case "plan":
                assert self._run([*COMMAND, *words]).returncode == 2
            case _:
                done = self._run([*COMMAND, *words])
                assert done.returncode == 0, done.stdout + done.stderr
                if found := _FRONTIER.search(done.stderr):
                    self._frontier = int(found[1])
        if self._server is not None:
            wait_until(self._is_served, 60, "the server has what the run has written")

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=patient(240),
            check=False,
            cwd=self._folder,
            env={**os.environ, "IKEBANA_BOOTSTRAP_SERVERS": self._servers},
        )
        assert "Traceback" not in done.stderr, done.stderr
        self._said += done.stdout
        return done

    def _edit(self, view: str) -> None:
        path = self._folder / "shop.yaml"
        text, count = _VIEW.subn(lambda match: match[1] + view.strip(), path.read_text())
        assert count == 1
        path.write_text(text)

    def _serve(self, words: list[str]) -> None:
        with (self._folder / "serve.log").open("w") as log:
            self._server = subprocess.Popen(
                [*COMMAND, *words, "--http", self._url.removeprefix("http://")],
                stderr=log,
                cwd=self._folder,
            )

    def _is_served(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, (self._folder / "serve.log").read_text()
        try:
            with ikebana.connect(self._url) as served:
                return served.newest() >= self._frontier - 1
        except ikebana.IkebanaError:
            return False

    def leave(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()


def test_each_step_does_what_the_tutorial_says(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Records, a run, changes, reads, and an edit under the eyes of a server."""
    url = f"http://127.0.0.1:{free_port()}"
    text = (ROOT / "docs" / "tutorial.md").read_text()
    customers, orders = topic_name("customers"), topic_name("orders")
    for theirs, our in [
        ("localhost:9092", broker.bootstrap_servers),
        ("http://127.0.0.1:8080", url),
        ("topic: customers", f"topic: {customers}"),
        ('("customers"', f'("{customers}"'),
        ("topic: orders", f"topic: {orders}"),
        ('("orders"', f'("{orders}"'),
        ("pipeline: shop", f"pipeline: {topic_name('shop')}"),
        ("cities", topic_name("cities").replace("-", "_")),
    ]:
        assert theirs in text
        text = text.replace(theirs, our)
    # The broker of the tests makes no topic by itself; that of `ikebana broker` does.
    for topic in (customers, orders):
        create(broker.bootstrap_servers, topic, 1)

    student = Student(tmp_path, broker.bootstrap_servers, url)
    try:
        for match in _STEP.finditer(text):
            student.do(Step(match[1] or "command", match[2] or match[3]))
    finally:
        student.leave()

    assert student.compared == 4
