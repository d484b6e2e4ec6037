"""Where the brokers are, and how a topic is written, for commands that read one topic."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.ground.spelling import instead
from ikebana.processor.kafka import client

if TYPE_CHECKING:
    from ikebana.processor.planning.plan import Plan

_DEFAULT = "localhost:9092"
Command = Callable[..., None]


def connected(*formats: str) -> Callable[[Command], Command]:
    """Give a command that reads TOPIC its `settings`, and `form`, which is one of `formats`.

    Options are `--bootstrap-servers`, `--config` and `--pipeline`, and `--format` if there are
    `formats`; without these the command gets no `form`.
    """

    def made(command: Command) -> Command:
        @click.option(
            "--bootstrap-servers",
            metavar="H:P",
            envvar="IKEBANA_BOOTSTRAP_SERVERS",
            help="Brokers; wins over the files. "
            f"[env: IKEBANA_BOOTSTRAP_SERVERS; default: {_DEFAULT}]",
        )
        @click.option(
            "--config",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Settings of the Kafka client, a line `key=value` each, such as "
            "security.protocol=SASL_SSL.",
        )
        @click.option(
            "--pipeline",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="The pipeline file that TOPIC is an output of: it tells the brokers"
            + (", and the format." if formats else "."),
        )
        @functools.wraps(command)
        def with_settings(
            *given: object,
            topic: str,
            bootstrap_servers: str | None,
            config: Path | None,
            pipeline: Path | None,
            **options: object,
        ) -> None:
            wanted = options.pop("form") if formats else None
            settings, written = told_by(topic, pipeline, config, bootstrap_servers)
            if formats:
                options["form"] = form = wanted or written
                if form not in formats:
                    raise ConfigError(
                        f'this command cannot read "{topic}": its format is {form}',
                        hint="`ikebana snapshot` reads every format.",
                    )
            client.reach(settings)
            command(*given, topic=topic, settings=settings, **options)

        return _with_format(formats)(with_settings) if formats else with_settings

    return made


def _with_format(formats: tuple[str, ...]) -> Callable[[Command], Command]:
    return click.option(
        "--format",
        "form",
        type=click.Choice(formats),
        help="How the topic's updates are written.  [default: as --pipeline says, else diff]",
    )


def told_by(
    topic: str, pipeline: Path | None, config: Path | None, bootstrap_servers: str | None
) -> tuple[dict[str, str], str]:
    """The settings of the Kafka client, and how the topic is written, as files and options say.

    Raises:
        ConfigError: a file cannot be read, or the topic is no output of the pipeline.
    """
    settings = {} if config is None else read_config(config)
    form = "diff"
    if pipeline is not None:
        # There, and not here: `--help` is not to wait for what reads the file.
        from ikebana.processor.configuring.pipeline import read

        found = read(
            pipeline, bootstrap_servers=bootstrap_servers, checkpoint="-", environ=os.environ
        )
        settings = {**found.settings.kafka, **settings}
        form = _format_of(topic, found.plan, pipeline)
    if bootstrap_servers:
        settings["bootstrap.servers"] = bootstrap_servers
    settings.setdefault("bootstrap.servers", _DEFAULT)
    return settings, form


def _format_of(topic: str, plan: "Plan", path: Path) -> str:
    """How the pipeline writes a topic.  Raises: ConfigError, if it is none of its outputs."""
    formats: dict[str, str] = {output.topic: output.format for output in plan.published}
    if topic not in formats:
        raise ConfigError(
            f'{path} has no output whose topic is "{topic}"{instead(topic, formats)}',
            hint="Give the name of a topic, as outputs.<name>.topic has it.",
        )
    return formats[topic]


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
