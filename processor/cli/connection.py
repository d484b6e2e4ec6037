"""Where the brokers are, for commands that read a topic without a pipeline file."""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.kafka import client

_DEFAULT = "localhost:9092"


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--bootstrap-servers` and `--config`, and it the `settings` argument."""

    @click.option(
        "--bootstrap-servers",
        metavar="H:P",
        envvar="IKEBANA_BOOTSTRAP_SERVERS",
        help=f"Brokers; wins over the file. [env: IKEBANA_BOOTSTRAP_SERVERS; default: {_DEFAULT}]",
    )
    @click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Settings of the Kafka client, a line `key=value` each, such as "
        "security.protocol=SASL_SSL.",
    )
    @functools.wraps(command)
    def with_settings(
        *given: object, bootstrap_servers: str | None, config: Path | None, **options: object
    ) -> None:
        settings = {} if config is None else read_config(config)
        if bootstrap_servers:
            settings["bootstrap.servers"] = bootstrap_servers
        settings.setdefault("bootstrap.servers", _DEFAULT)
        client.reach(settings)
        command(*given, settings=settings, **options)

    return with_settings


def read_config(path: Path) -> dict[str, str]:
    """Read a file of client settings; blank lines and those that begin with # are none.

    Raises:
        ConfigError: it cannot be read, or a line has no `=`.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as err:
        raise ConfigError(f"could not read client settings {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise ConfigError(f"cannot read client settings {path}: it is not UTF-8 text") from err
    settings = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"cannot read client settings {path}: line {number} is no key=value")
        settings[key.strip()] = value.strip()
    return settings
