"""What tests over a broker share: topics written by hand, commands, and one secured broker."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ikebana.processor.cli.main import main
from ikebana.processor.kafka.broker import Broker
from support.secured_broker import Secured, secured_broker
from support.written_topics import Command, Result, Written


@pytest.fixture(scope="session")
def secured() -> Iterator[Secured]:
    """A broker with encrypted listeners, users, certificates and rights."""
    with secured_broker() as found:
        yield found


@pytest.fixture
def servers(broker: Broker) -> str:
    """Where the broker is."""
    return broker.bootstrap_servers


@pytest.fixture
def settings(servers: str) -> dict[str, str]:
    """The settings of its clients."""
    return {"bootstrap.servers": servers}


@pytest.fixture
def written(servers: str, topic_name: Callable[[str], str]) -> Written:
    """An empty topic."""
    return Written(servers, topic_name("diffs"))


@pytest.fixture
def command(
    servers: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Command:
    """Run a command as the shell would."""
    monkeypatch.setenv("IKEBANA_BOOTSTRAP_SERVERS", servers)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["ikebana", *arguments])
        capfd.readouterr()
        status: Any = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
        return Result(status, *capfd.readouterr())

    return run
