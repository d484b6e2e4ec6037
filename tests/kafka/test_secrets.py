"""A planted password is found nowhere: no output, page, file, topic or list of processes."""

import json
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from ikebana.processor.cli.main import cli
from support.certificates import Authority
from support.guarded_pipelines import Guarded
from support.http_answers import answer
from support.pipeline_processes import Run
from support.secured_broker import Rule, Secured
from support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGES = ("/metrics", "/ready", "/live", "/v1/run", "/v1/plan", "/console/", "/console/main.js")
# It may do all of it, for rights are not what is tested here.
EVERYTHING = [
    Rule(kind, "*", AclOperation.ALL, ResourcePatternType.LITERAL)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
]


@pytest.fixture
def planted() -> str:
    """What must not be seen; no spelling of it differs from it."""
    return f"planted{uuid.uuid4().hex}"


@pytest.fixture
def pipe(secured: Secured, planted: str, tmp_path: Path) -> Guarded:
    """A pipeline whose file refers to the password, which lies outside its folder."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "password").write_text(planted)
    name = f"kept{uuid.uuid4().hex[:8]}"
    secured.create({f"{name}.in": 1})
    secured.admit({name: EVERYTHING}, {name: planted})
    clients = {"kafka": secured.user(name, secret=f"${{file:{outside / 'password'}}}")}
    return Guarded(inside, "", name, f"{name}.in", clients=clients)


@pytest.mark.long
def test_a_password_is_seen_nowhere_while_a_pipeline_runs_and_afterwards(
    secured: Secured, pipe: Guarded, planted: str
) -> None:
    secured.produce(pipe.source, [(b"a", b'"x"'), (b"b", b'"y"'), (b"c", b"{")])
    seen: dict[str, bytes] = {}
    with pipe.start("--http", "127.0.0.1:0") as run:
        url = _address(run)
        secured.committed(pipe.target, 2)
        secured.committed(f"{pipe.name}.errors", 1)
        seen |= {f"page {path}": answer(url + path).body for path in PAGES}
        seen |= dict(_processes(run))
        seen |= dict(_files(pipe.folder))
        assert run.stop() == 0, run.text
    seen |= dict(_files(pipe.folder))
    seen |= dict(_commands(pipe))
    seen |= dict(_topics(secured, pipe.name))

    assert {kind.split()[0] for kind in seen} >= {"page", "process", "file", "command", "topic"}
    assert "file run-0.log" in seen
    assert [where for where, found in seen.items() if planted.encode() in found] == []
    for folder in (pipe.place, *(pipe.folder / "local").iterdir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    kinds: set[str] = set()
    for place in (pipe.place, pipe.folder / "local"):
        kinds |= {_kind(place, file) for file in _own_files(place)}
        # Also if somebody else may look into the folder.
        assert [str(file) for file in _own_files(place) if file.stat().st_mode & 0o077] == []
    # Those of a shard's state, its local database, Spark's logs, its state, and the metadata.
    assert kinds >= {"metadata", "offsets", "commits", "state", "shards", "ikebana.json"}
    assert kinds >= {"local .sst", "local CURRENT"} or kinds >= {"local .log", "local CURRENT"}


def test_a_wrong_password_is_told_as_one_and_not_shown(
    secured: Secured, pipe: Guarded, planted: str
) -> None:
    wrong = f"wrong{planted}"
    clients = {"kafka": secured.user(pipe.name, secret=wrong)}
    refused = Guarded(pipe.folder, "", pipe.name, pipe.source, clients=clients)

    told = CliRunner().invoke(cli, ["preflight", str(refused.file())]).output

    assert "refuse the user: SASL authentication error" in told
    assert "Check kafka's sasl.mechanism, sasl.username and sasl.password." in told
    assert wrong not in told


def test_a_certificate_that_is_not_known_is_told(secured: Secured, pipe: Guarded) -> None:
    settings = secured.user("everybody") | {"ssl.ca.pem": Authority("other").certificate}
    refused = Guarded(pipe.folder, "", pipe.name, pipe.source, clients={"kafka": settings})

    told = CliRunner().invoke(cli, ["preflight", str(refused.file())]).output

    assert "certificate verify failed" in told
    assert "ssl.ca.location or ssl.ca.pem" in told


def _own_files(place: Path) -> Iterator[Path]:
    """All files below a folder."""
    yield from (file for file in place.rglob("*") if file.is_file())


def _kind(place: Path, file: Path) -> str:
    """What a file is for: the part of the checkpoint, or of a local database."""
    if place.name == "local":
        return f"local {file.suffix or file.name}"
    return file.relative_to(place).parts[0]


def _address(run: Run) -> str:
    def told() -> bool:
        assert run.poll() is None, run.text
        return re.search(r"http://127\.0\.0\.1:\d+", run.text) is not None

    wait_until(told, 120, "the run says where it is watched")
    found = re.search(r"http://127\.0\.0\.1:\d+", run.text)
    assert found is not None
    return found[0]


def _processes(run: Run) -> Iterator[tuple[str, bytes]]:
    """The arguments and environments of all that the run has started."""
    for process in run.family.alive():
        with suppress(psutil.Error):
            told: dict[str, Any] = process.as_dict(["cmdline", "environ", "name"])
            yield f"process {process.pid} {told['name']}", json.dumps(told).encode()


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        # Files of the moment go while we look.
        with suppress(FileNotFoundError):
            if path.is_file():
                yield f"file {path.relative_to(folder)}", path.read_bytes()


def _commands(pipe: Guarded) -> Iterator[tuple[str, bytes]]:
    file, place = str(pipe.file()), str(pipe.place)
    for words in (
        ["preflight", file],
        ["preflight", file, "--json"],
        ["explain", file],
        ["explain", file, "--json"],
        ["plan", file],
        ["plan", file, "--json"],
        ["state", "list", place],
        ["errors", file],
    ):
        told = CliRunner().invoke(cli, words)
        yield f"command {' '.join(words[:1] + words[2:])}", told.output.encode()


def _topics(secured: Secured, name: str) -> Iterator[tuple[str, bytes]]:
    """All records of all topics of the pipeline, as the administrator reads them."""
    for topic in sorted(secured.topics()):
        if topic.startswith(name):
            yield f"topic {topic}", secured.everything(topic)
