"""What commands that read a topic are told by files and options, before they ask any broker."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ikebana import ConfigError
from ikebana.processor.cli.check import check_command
from ikebana.processor.cli.connection import topic_access, topics_to_read
from ikebana.processor.cli.follow import follow_command
from ikebana.processor.cli.snapshot import snapshot_command

FILE = """\
pipeline: p
inputs: {i: {topic: t}}
operators: {o: {upsert: i}}
outputs:
  plain: {from: o, topic: plain}
  latest: {from: o, topic: latest, format: upsert}
  facts: {from: o, topic: facts, format: cdcv2-json}
kafka: {bootstrap.servers: "localhost:1", client.id: of-the-file}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A pipeline file with outputs in several formats."""
    (path := tmp_path / "p.yaml").write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("topic", "form"),
    [
        ("plain", "diff"),
        ("latest", "upsert"),
        ("facts", "cdcv2-json"),
        ("p.errors", "diff"),
    ],
)
def test_a_pipeline_file_tells_brokers_and_format(path: Path, topic: str, form: str) -> None:
    """Of each of its outputs, and of its errors."""
    settings = {"bootstrap.servers": "localhost:1", "client.id": "of-the-file"}

    assert topic_access(topic, path, None, None) == (settings, form)


MODULE = """\
import ikebana as ik

shop = ik.Pipeline("p")
orders = shop.topic("t").upsert()
orders.to("plain")
orders.to("latest", format="upsert")
"""


@pytest.mark.parametrize(("topic", "form"), [("plain", "diff"), ("latest", "upsert")])
def test_a_pipeline_of_a_module_tells_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, form: str
) -> None:
    """Its brokers are those of the file of settings, as for `ikebana run`."""
    (tmp_path / "pipeline_that_is_followed.py").write_text(MODULE)
    (tmp_path / "settings.yaml").write_text("kafka: {bootstrap.servers: 'b:1', client.id: own}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IKEBANA_SETTINGS", "settings.yaml")
    monkeypatch.delitem(sys.modules, "pipeline_that_is_followed", raising=False)

    found = topic_access(topic, Path("pipeline_that_is_followed:shop"), None, None)

    assert found == ({"bootstrap.servers": "b:1", "client.id": "own"}, form)


@pytest.mark.parametrize("command", [follow_command, snapshot_command, check_command])
def test_every_command_that_reads_a_topic_takes_a_pipeline_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: click.Command
) -> None:
    """A topic that is none of its outputs is refused before any broker is asked."""
    (tmp_path / "pipeline_that_is_read.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "pipeline_that_is_read", raising=False)
    given = ["lates", "--pipeline", "pipeline_that_is_read:shop", "--bootstrap-servers", "b:1"]
    more = ["--as-of", "1"] if command is snapshot_command else []

    done = CliRunner().invoke(command, [*given, *more])

    assert isinstance(done.exception, ConfigError)
    assert 'pipeline_that_is_read:shop has no output whose topic is "lates"' in str(done.exception)


def test_without_a_file_a_topic_has_diffs() -> None:
    """On the broker of this machine."""
    assert topic_access("plain", None, None, None) == (
        {"bootstrap.servers": "localhost:9092"},
        "diff",
    )


def test_options_win_over_files(path: Path, tmp_path: Path) -> None:
    """And client settings over those of the pipeline."""
    (config := tmp_path / "client").write_text("client.id=of-the-client\nbootstrap.servers=x:1\n")

    settings, _ = topic_access("plain", path, config, "localhost:2")

    assert settings == {"bootstrap.servers": "localhost:2", "client.id": "of-the-client"}


def test_a_topic_that_is_no_output_is_told_with_what_is_meant(path: Path) -> None:
    """The name of an output is none of a topic."""
    with pytest.raises(ConfigError, match=r'no output whose topic is "lates"; did .*"latest"'):
        topic_access("lates", path, None, None)


def test_follow_reads_no_facts(path: Path) -> None:
    """They have no order in which they could be shown; a snapshot has none either."""
    done = CliRunner().invoke(follow_command, ["facts", "--pipeline", str(path)])

    assert isinstance(done.exception, ConfigError)
    assert 'cannot read "facts": its format is cdcv2-json' in str(done.exception)


@pytest.mark.parametrize(
    ("what", "form", "words"),
    [
        (("p.yaml", "other.yaml"), None, "p.yaml, other.yaml together: p.yaml is a pipeline"),
        (("plain", "p.yaml"), None, "plain, p.yaml together: p.yaml is a pipeline"),
        (("p.yaml",), "upsert", "p.yaml as upsert: a pipeline names the formats"),
    ],
)
def test_a_pipeline_is_given_alone(what: tuple[str, ...], form: str | None, words: str) -> None:
    """The other names are read as topics nowhere, and the remedy is to name topics."""
    with pytest.raises(ConfigError, match=words) as refused:
        topics_to_read(what, form, None, None)
    assert "topics" in (refused.value.hint or "")
