"""`ikebana serve` over topics on a broker: reads, restarts, damage, signals."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ikebana
from ikebana.processor.kafka.broker import Broker
from support.waiting import patient, wait_until
from support.written_topics import Row, Written

pytestmark = pytest.mark.kafka

COMMAND = [sys.executable, "-c", "from ikebana.processor.cli.main import main; main()"]
DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "serving.md", DOCS / "how-to" / "serve.md")
FIRST: list[Row] = [
    (0, b'"frank"', b'"zappa"', 5, 1),
    (1, b'"david"', b'{"born":1947}', 7, 1),
]
SECOND: list[Row] = [(1, b'"david"', b'{"born":1947}', 12, -1)]


@pytest.fixture
def written(broker: Broker, topic_name: Callable[[str], str]) -> Written:
    """A topic with one closed batch."""
    made = Written(broker.bootstrap_servers, topic_name("served"))
    made.batch(FIRST, 10)
    return made


class Server:
    """A running `ikebana serve`."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    def listening(self) -> bool:
        """Whether it has said where it answers."""
        assert self.process.poll() is None, self.log.read_text()
        for line in self.log.read_text().splitlines():
            if line.startswith("serving "):
                self.url = line.split()[1].removesuffix("/v1/collections")
                return True
        return False

    def get(self, path: str) -> Any:
        """Ask, and decode the answer."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=patient(30)) as answer:
            return json.load(answer)

    def wait(self, topic: str, time: int) -> None:
        """Wait until a time is closed there."""
        wait_until(lambda: self._upper(topic) > time, 30, f"time {time} is served")

    def _upper(self, topic: str) -> int:
        """The time before which all are closed; 0 as long as none is."""
        upper: int | None = self.get(f"/v1/collections/{topic}")["collection"]["upper"]
        return upper or 0

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(patient(30))


@contextmanager
def _serve(written: Written, folder: Path, *options: str) -> Iterator[Server]:
    log = folder.with_suffix(".log")
    with log.open("w") as err:
        process = subprocess.Popen(
            [
                *COMMAND,
                "serve",
                written.name,
                f"--bootstrap-servers={written.servers}",
                f"--data={folder}",
                "--http=127.0.0.1:0",
                *options,
            ],
            stderr=err,
            text=True,
        )
    server = Server(process, log)
    try:
        wait_until(server.listening, 60, "the server listens")
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


class Shared(NamedTuple):
    """A server that several tests ask, its folder and its topic."""

    server: Server
    folder: Path
    written: Written


@pytest.fixture(scope="module")
def shared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """It serves the first closed batch."""
    written = Written(broker.bootstrap_servers, f"shared-{uuid.uuid4().hex[:12]}")
    written.batch(FIRST, 10)
    folder = tmp_path_factory.mktemp("shared") / "data"
    with _serve(written, folder) as server:
        server.wait(written.name, 9)
        yield Shared(server, folder, written)


def test_it_serves_what_is_closed_and_goes_on_after_restarts(
    written: Written, tmp_path: Path
) -> None:
    """After a kill, too, without reading the topic from its beginning."""
    folder = tmp_path / "data"
    with _serve(written, folder) as server:
        server.wait(written.name, 9)
        found = server.get(f"/v1/collections/{written.name}/get?key=%22david%22")
        assert found["values"] == [{"value": {"born": 1947}, "count": 1}]
        written.batch(SECOND, 20)
        server.wait(written.name, 19)
        server.process.kill()
        server.process.wait()
    # What was deleted now cannot be read again.
    for partition in (0, 1):
        written.delete_before(written.name, partition, 1)
    with _serve(written, folder) as server:
        rows = server.get(f"/v1/collections/{written.name}/scan")["rows"]
        assert [row["key"] for row in rows] == ["frank"]
        rows = server.get(f"/v1/collections/{written.name}/scan?as_of=11")["rows"]
        assert [row["key"] for row in rows] == ["david", "frank"]
        written.batch([(0, b'"grace"', b"1", 25, 1)], 30)
        server.wait(written.name, 29)
        assert server.stop() == 0


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.full), signal.SIGINT]
)
def test_a_signal_ends_it_with_its_subscriptions(
    written: Written, tmp_path: Path, number: int
) -> None:
    """At once, with status 0."""
    with _serve(written, tmp_path / "data") as server:
        server.wait(written.name, 9)
        with urllib.request.urlopen(f"{server.url}/v1/subscribe") as events:
            assert events.readline() == b"event: snapshot\n"
            assert server.stop(number) == 0
            assert b"data: " in events.read()


def test_a_damaged_copy_is_rebuilt_by_name(written: Written, tmp_path: Path) -> None:
    """And so is one of a topic that was made anew."""
    folder = tmp_path / "data"
    with _serve(written, folder) as server:
        server.wait(written.name, 9)
        assert server.stop() == 0
    [manifest] = (folder / written.name).glob("MANIFEST-*")
    manifest.write_bytes(b"nothing")
    with _serve(written, folder) as server:
        server.wait(written.name, 9)
        assert server.get(f"/v1/collections/{written.name}/count")["keys"] == 2
        assert f'the local copy of "{written.name}"' in server.log.read_text()


def test_readers_in_other_processes_follow_the_folder(shared: Shared) -> None:
    """While it is written."""
    written = shared.written
    with ikebana.open(shared.folder) as served:
        assert served.get(written.name, b'"frank"') == {b'"zappa"': 1}
        written.batch(SECOND, 20)
        assert served.wait(19, written.name, timeout=patient(20)) == 19
        assert served.get(written.name, b'"david"') == {}
        assert served.get(written.name, b'"david"', as_of=11) == {b'{"born":1947}': 1}


def test_the_snippets_of_the_pages_run(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As they stand, but for names of topics, of the folder, and the address."""
    where, planes = (Written(broker.bootstrap_servers, topic_name(n)) for n in ("where", "planes"))
    where.batch([(0, b'"N12345"', b'{"at":"JFK"}', 3, 1)], 10)
    planes.batch([(0, b'"N12345"', b'{"seats":4}', 3, 1)], 10)
    shown = "".join(page.read_text() for page in PAGES)
    snippets = re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
    # Run by tests/unit/test_served_access.py, tests/kafka/test_following.py and
    # tests/spark/test_topic_source.py.
    elsewhere = ("import ssl", "as_of_join(batches", "def as_of(", "def merge(", "def copy(")
    snippets = [each for each in snippets if not any(part in each for part in elsewhere)]
    assert len(snippets) == 4
    with _serve(where, tmp_path / "data", planes.name) as server:
        server.wait(where.name, 9)
        server.wait(planes.name, 9)
        where.batch([], 20)
        for snippet in snippets:
            for name, real in (
                ('"served"', repr(str(tmp_path / "data"))),
                ('"whereabouts"', repr(where.name)),
                ('"planes"', repr(planes.name)),
                ("FROM planes", f'FROM \\"{planes.name}\\"'),
                ("http://127.0.0.1:8080", server.url),
                ("wait=False", f'wait=False, bootstrap_servers="{broker.bootstrap_servers}"'),
            ):
                snippet = snippet.replace(name, real)
            exec(compile(snippet, "a page", "exec"), {})


def test_sql_is_answered_from_a_folder_a_server_and_topics(shared: Shared) -> None:
    """With the same rows."""
    name, servers = shared.written.name, shared.written.servers
    text = f"SELECT key, value FROM \"{name}\" WHERE key = 'frank'"
    for place in (
        [f"--url={shared.server.url}"],
        [f"--data={shared.folder}"],
        [name, f"--bootstrap-servers={servers}"],
    ):
        found = subprocess.run(
            [*COMMAND, "sql", text, *place],
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
        )
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout) == {"key": "frank", "value": '"zappa"'}


def test_two_servers_do_not_write_one_folder(shared: Shared) -> None:
    """The second one says why it ends."""
    second = subprocess.run(
        [
            *COMMAND,
            "serve",
            shared.written.name,
            f"--bootstrap-servers={shared.written.servers}",
            f"--data={shared.folder}",
            "--http=127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert second.returncode == 1
    assert "another process writes it" in second.stderr


def test_a_topic_that_is_no_output_is_refused(written: Written, tmp_path: Path) -> None:
    """With the status of an error, although it listens already."""
    with (tmp_path / "log").open("w") as err:
        process = subprocess.Popen(
            [
                *COMMAND,
                "serve",
                written.name + ".progress",
                f"--bootstrap-servers={written.servers}",
                f"--data={tmp_path / 'data'}",
                "--http=127.0.0.1:0",
            ],
            stderr=err,
        )
    assert process.wait(patient(60)) == 1
    assert "is no output of a pipeline" in (tmp_path / "log").read_text()


def test_tokens_are_read_from_a_file(written: Written, tmp_path: Path) -> None:
    """Without one, a request is refused."""
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    with _serve(written, tmp_path / "data", f"--token-file={tokens}") as server:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.get("/v1/collections")
        request = urllib.request.Request(
            f"{server.url}/v1/collections", headers={"Authorization": "Bearer secret"}
        )
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["collections"]
