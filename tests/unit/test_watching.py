"""How `ikebana run` is asked to be watched, and that each of several watchers is told all."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana.processor.base.notices import Notice
from ikebana.processor.checkpoint.edit_description import EditDescription
from ikebana.processor.cli.http_options import address
from ikebana.processor.cli.main import cli
from ikebana.processor.watching.reports import BatchReport, RunStart, Watcher, Watchers
from support.pipeline_processes import Pipeline


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        (":9464", ("", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("driver.ikebana.svc:80", ("driver.ikebana.svc", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(given: str, expected: tuple[str, int]) -> None:
    """An empty host is every address; one of IPv6 stands in brackets."""
    assert address(given) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "9464"], '"9464" is no HOST:PORT'),
        (["--http", "localhost:http"], '"localhost:http" is no HOST:PORT'),
        (["--http", "localhost:70000"], '"localhost:70000" is no HOST:PORT'),
        (["--ready-within", "0"], "0.0 is not in the range"),
    ],
)
def test_a_mistake_is_told_before_anything_is_done(
    tmp_path: Path, options: list[str], said: str
) -> None:
    """The brokers of this pipeline do not even exist."""
    file = Pipeline(tmp_path, "localhost:1", "shop", "orders").file()

    result = CliRunner().invoke(cli, ["run", str(file), *options])

    assert result.exit_code == 2
    assert said in result.output


def test_an_address_that_cannot_be_listened_on_is_an_error_before_the_start(
    tmp_path: Path,
) -> None:
    """An environment variable is an option too."""
    file = Pipeline(tmp_path, "localhost:1", "shop", "orders").file()
    environment = {"IKEBANA_HTTP": "192.0.2.1:9464", "IKEBANA_ANYONE": "1"}

    result = CliRunner().invoke(cli, ["run", str(file)], env=environment)

    assert "cannot listen on 192.0.2.1:9464" in str(result.exception)


class _Notes(Watcher):
    """Writes down what a watcher is told, each time with its own name."""

    def __init__(self, name: str, notes: list[tuple[object, ...]]) -> None:
        self._name, self._notes = name, notes

    def step(self, what: str) -> None:
        self._notes.append((self._name, "step", what))

    def edit(self, description: EditDescription) -> None:
        self._notes.append((self._name, "edit", description))

    def started(self, start: RunStart) -> None:
        self._notes.append((self._name, "started", start))

    def batch(self, report: BatchReport) -> None:
        self._notes.append((self._name, "batch", report))

    def restart(self, cause: Exception, pause_s: float) -> None:
        self._notes.append((self._name, "restart", cause, pause_s))

    def notice(self, notices: Sequence[Notice]) -> None:
        self._notes.append((self._name, "notice", *notices))


def test_each_of_several_watchers_is_told_everything_in_order() -> None:
    """Steps, edits, starts, batches, restarts and notices."""
    notes: list[tuple[object, ...]] = []
    watchers = Watchers([_Notes("person", notes), _Notes("machines", notes)])
    batch = BatchReport(1, 0, 5, 2, 0, {}, {}, 0, 0.1, [])
    notice = Notice("column", "orders", "nom", "orders: nothing has it")
    start = RunStart("c", 1)
    cause, edit = OSError(), EditDescription("p", "c", edited=True, parts=())

    watchers.step("begins")
    watchers.edit(edit)
    watchers.started(start)
    watchers.batch(batch)
    watchers.restart(cause, 2.0)
    watchers.notice([notice])

    assert notes == [
        ("person", "step", "begins"),
        ("machines", "step", "begins"),
        ("person", "edit", edit),
        ("machines", "edit", edit),
        ("person", "started", start),
        ("machines", "started", start),
        ("person", "batch", batch),
        ("machines", "batch", batch),
        ("person", "restart", cause, 2.0),
        ("machines", "restart", cause, 2.0),
        ("person", "notice", notice),
        ("machines", "notice", notice),
    ]
