"""`ikebana top`: a page of a run or of a server, by its address."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from ikebana.errors import AccessError, AwayError, ConfigError, IkebanaError
from ikebana.processor.cli import top
from ikebana.processor.cli.http_options import trusting
from ikebana.processor.cli.top import Server, StatusAnswer, page, top_command
from ikebana.processor.watching import guard
from ikebana.processor.watching.guard import Access
from ikebana.processor.watching.health import Health, HealthLimits
from ikebana.processor.watching.monitor import Monitor
from ikebana.serving.service import Service
from support.served_topics import MemoryTopics, answering, caught_up, serving
from support.watched_runs import PLAN, monitored


@pytest.fixture
def topics() -> MemoryTopics:
    """One topic of two keys."""
    made = MemoryTopics()
    made.close("orders", 10, (b"1", b'{"n":1}', 1, 1), (b"2", b'{"n":2}', 2, 1))
    return made


@pytest.fixture
def service(topics: MemoryTopics, tmp_path: Path) -> Iterator[Service]:
    """A service of it."""
    with serving(topics, tmp_path, "orders") as found:
        caught_up(found, topics, "orders")
        yield found


def _text(told: Any) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as found:
        console.print(told)
    return found.get()


def test_a_page_of_a_server(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its URL, or by host and port."""
    monkeypatch.setattr(top, "_ONCE_S", 0.0)
    with answering(service) as url:
        for address in (url, f"{url}/console/", url.removeprefix("http://")):
            found = CliRunner().invoke(top_command, [address, "--once"])
            assert found.exit_code == 0, found.output
            [line] = [line for line in found.output.splitlines() if "orders" in line]
            assert line.split()[:3] == ["orders", "0", "10"]
            assert "newest time of all: 9" in found.output


def test_a_page_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operators and outputs, too, which it has from its plan before the first batch."""
    monkeypatch.setattr(top, "_ONCE_S", 0.0)
    health = Health(HealthLimits(60, 60, 60), time.monotonic)
    with monitored(Monitor(PLAN, health)) as url:
        found = CliRunner().invoke(top_command, [url, "--once"])
    assert found.exit_code == 0, found.output
    assert found.output.startswith("shop: not ready (")
    assert "0 records" in found.output


def test_rates_are_of_two_looks() -> None:
    """And there are none after the server has begun again."""
    told: dict[str, Any] = {
        "collection": {"name": "orders", "since": 0, "upper": 9, "keys": 2, "bytes": None},
        "lag_s": None,
        "caught_up_s": 0.25,
        "disk_bytes": 123_456,
        "updates": 1_000,
    }

    def look(at: float, updates: int) -> StatusAnswer:
        return StatusAnswer(
            at, is_run=False, answer={"newest": 8, "collections": [{**told, "updates": updates}]}
        )

    assert _text(page(look(1, 1_000), look(3, 9_000))).split()[-1] == "4,000"
    line = _text(page(None, look(1, 1_000))).splitlines()[-1]
    assert line.split() == ["orders", "0", "9", "0.2", "s", "2", "123.5", "kB"]
    assert "9,000" not in _text(page(look(1, 9_000), look(3, 5)))
    assert _text(page(None, look(1, 1), "it is away")).startswith("it is away")


def test_all_of_a_run_is_on_its_page() -> None:
    """Also what is wrong."""
    told = {
        "pipeline": "shop",
        "ready": True,
        "reason": "keeps up",
        "lag_s": 1.5,
        "batch": 7,
        "records": 100,
        "restarts": 1,
        "inputs": {"changes": {"frontier": 5, "silent": True, "holds": True}},
        "operators": {
            "current": {"frontier": 6, "lag_s": 2.0},
            "prices:46d000e8a1": {"frontier": 5, "lag_s": 2.5},
            "prices:f654306c4f": {"frontier": 4, "lag_s": 2.25},
        },
        "outputs": {"out": {"frontier": 7, "lag_s": 3.0, "updates": 50}},
        "counted": {"errors": 3, "late": 0},
        "state": {"shards": 4, "bytes": 2_000_000, "entries": 10},
    }
    first = StatusAnswer(1, is_run=True, answer=told)
    more = {**told, "records": 300, "outputs": {"out": {**told["outputs"]["out"], "updates": 90}}}  # type: ignore[index]
    text = _text(page(first, StatusAnswer(2, is_run=True, answer=more)))
    for part in ("shop: ready (keeps up)", "lag 1.5 s", "300 records, 200 /s", "1 restart"):
        assert part in text
    assert "state 2.0 MB, 10 entries" in text
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert lines["out"] == ["7", "3.0", "s", "90", "40"]
    assert lines["current"] == ["6", "2.0", "s"]
    assert lines["prices,"] == ["arranged", "4", "2.5", "s"]
    assert "46d000e8a1" not in text
    assert lines["changes"] == ["5", "holds", "the", "others"]
    assert "3 errors" in text
    assert "late" not in text


@pytest.mark.parametrize(
    ("address", "kind", "reason"),
    [
        ("127.0.0.1:1", AwayError, "does not answer"),
        ("ftp://there", ConfigError, "neither a URL of HTTP nor HOST:PORT"),
    ],
)
def test_an_address_without_a_server_is_told(
    address: str, kind: type[IkebanaError], reason: str
) -> None:
    """With what to give."""
    with pytest.raises(kind, match=reason):
        Server(address, None, trusting(None, None)).look()


def test_a_token_is_asked_for(service: Service, tmp_path: Path) -> None:
    """Where the server does."""
    with answering(service, guard.AccessLimits(Access.of_tokens(["secret"]))) as url:
        with pytest.raises(AccessError, match="there is no token"):
            Server(url, None, trusting(None, None)).look()
        assert Server(url, "secret", trusting(None, None)).look().is_run is False
    with pytest.raises(ConfigError, match=r"none\.pem"):
        trusting(tmp_path / "none.pem", None)
