"""What `ikebana run` is told about being watched."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ikebana.processor.cli.main import cli
from ikebana.processor.cli.watching import _address
from pipelines import Pipeline


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
    assert _address(given) == expected


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
    environment = {"IKEBANA_HTTP": "192.0.2.1:9464"}

    result = CliRunner().invoke(cli, ["run", str(file)], env=environment)

    assert "cannot listen on 192.0.2.1:9464" in str(result.exception)
