"""Arguments and options of commands that read a pipeline or topics: brokers, formats, times."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.offsets import is_topic
from ikebana.processor.base.texts import parse_moment, suggestion

if TYPE_CHECKING:
    from ikebana.processor.planning.plan import Plan

DEFAULT_BROKERS = "localhost:9092"
SERVED = ("diff", "cdcv2-json", "cdcv2-avro", "debezium-json", "upsert")
"""The formats of topics that can be served."""
_NONE: Mapping[str, str] = {}
Command = Callable[..., None]


def time(value: str) -> int:
    """Read a time of an output: a whole number, or a date with or without a time of day."""
    try:
        return parse_moment(value)
    except ValueError:
        raise click.BadParameter(
            f'"{value}" is no time: give a whole number, or, where times are milliseconds, '
            "a date like 2024-02-29 or 2024-02-29T12:30:00Z (UTC if it names no zone)"
        ) from None


NOW = -(2**64)
"""What `time_or_now` reads of "now", a time that no output has."""


def time_or_now(value: str) -> int:
    """Read a time of an output, or `now`."""
    return NOW if value == "now" else time(value)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Add options to a command, in the order of its help text."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


BROKERS = click.option(
    "--bootstrap-servers",
    metavar="H:P",
    envvar="IKEBANA_BOOTSTRAP_SERVERS",
    help="Brokers; wins over the files. [env: IKEBANA_BOOTSTRAP_SERVERS; default: "
    f"{DEFAULT_BROKERS}]",
)
CONFIG = click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of the Kafka client, a line `key=value` each, such as "
    "security.protocol=SASL_SSL; of a schema registry, too: schema.registry.url=URL.",
)


_CHECKPOINT = click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")


def with_pipeline(*, checkpoint: bool = True) -> Callable[[Command], Command]:
    """Add PIPELINE, `--bootstrap-servers` and `--checkpoint`; the command gets a `pipeline`.

    Without `checkpoint`, the command needs none.
    """

    def add(command: Command) -> Command:
        @click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
        @click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
        @functools.wraps(command)
        def with_argument(
            file: Path,
            *,
            bootstrap_servers: str | None,
            checkpoint: str | None = "-",
            **options: object,
        ) -> None:
            # Imported here, so that `--help` does not wait for DuckDB.
            from ikebana.processor.cli.pipeline_argument import PipelineArgument

            command(PipelineArgument(file, bootstrap_servers, checkpoint), **options)

        return _CHECKPOINT(with_argument) if checkpoint else with_argument

    return add


def connected(*formats: str) -> Callable[[Command], Command]:
    """Add the connection options to a command that reads TOPIC.

    The options are `--bootstrap-servers`, `--config` and `--pipeline`, and `--format` if
    `formats` are given.  The command gets the Kafka client's `settings`, and then also
    `form`, one of the formats.
    """

    def add(command: Command) -> Command:
        @BROKERS
        @CONFIG
        @click.option(
            "--pipeline",
            metavar="PIPELINE",
            type=click.Path(path_type=Path),
            help="The pipeline that writes TOPIC, a file or module:name: its brokers"
            + (", and its format for TOPIC, are used." if formats else " are used."),
        )
        @functools.wraps(command)
        def with_settings(
            *arguments: object,
            topic: str,
            bootstrap_servers: str | None,
            config: Path | None,
            pipeline: Path | None,
            **options: object,
        ) -> None:
            from ikebana.processor.kafka import reading_rights

            chosen = options.pop("form") if formats else None
            settings, written = topic_access(topic, pipeline, config, bootstrap_servers)
            if formats:
                options["form"] = form = chosen or written
                if form not in formats:
                    raise ConfigError(
                        f'this command cannot read "{topic}": its format is {form}',
                        hint="`ikebana snapshot` reads it.",
                    )
            reading_rights.reach(settings, {topic: str(options.get("form", "diff"))})
            command(*arguments, topic=topic, settings=settings, **options)

        return _with_format(formats)(with_settings) if formats else with_settings

    return add


def _with_format(formats: tuple[str, ...]) -> Callable[[Command], Command]:
    return click.option(
        "--format",
        "form",
        type=click.Choice(formats),
        help="The topic's format.  [default: the pipeline's, or diff without --pipeline]",
    )


def client_settings(
    bootstrap_servers: str | None, config: Path | None, of_pipeline: Mapping[str, str] = _NONE
) -> dict[str, str]:
    """Return the settings of the Kafka client.

    Options win over the file `config`, and that over a pipeline.

    Raises:
        ConfigError: the file cannot be read.
    """
    settings = {**of_pipeline, **({} if config is None else read_config(config))}
    if bootstrap_servers:
        settings["bootstrap.servers"] = bootstrap_servers
    settings.setdefault("bootstrap.servers", DEFAULT_BROKERS)
    return settings


def topic_access(
    topic: str, pipeline: Path | None, config: Path | None, bootstrap_servers: str | None
) -> tuple[dict[str, str], str]:
    """Return the settings of the Kafka client, and the format of the topic.

    Raises:
        ConfigError: a file cannot be read, or no output of the pipeline writes the topic.
    """
    if pipeline is None:
        return client_settings(bootstrap_servers, config), "diff"
    of_pipeline, formats, _ = _outputs_of(pipeline, bootstrap_servers)
    if topic not in formats:
        raise ConfigError(
            f'{pipeline} has no output whose topic is "{topic}"{suggestion(topic, formats)}',
            hint="Give the topic's name, which is in outputs.<name>.topic.",
        )
    return client_settings(bootstrap_servers, config, of_pipeline), formats[topic]


def topics_to_read(
    what: Sequence[str], form: str | None, bootstrap_servers: str | None, config: Path | None
) -> tuple[dict[str, str], dict[str, str], "Plan | None"]:
    """Return the settings of the Kafka client, the topics with their formats, and the plan.

    `what` is a pipeline, with all of its outputs and its error topic, or topics by name.

    Raises:
        ConfigError: a file cannot be read, or a name is none of a topic.
    """
    of_pipeline: dict[str, str] = {}
    formats, plan = dict.fromkeys(what, form or "diff"), None
    if pipelines := [each for each in what if _is_pipeline(each)]:
        if len(what) > 1:
            raise ConfigError(
                f"cannot read {', '.join(what)} together: {pipelines[0]} is a pipeline, "
                "which is given alone, with all of its outputs",
                hint="Name the topics of outputs to read those of several pipelines.",
            )
        if form is not None:
            raise ConfigError(
                f"cannot read {what[0]} as {form}: a pipeline names the formats of its outputs",
                hint="Leave --format out, or name topics.",
            )
        of_pipeline, formats, plan = _outputs_of(Path(what[0]), bootstrap_servers)
    for topic in formats:
        if not is_topic(topic):
            raise ConfigError(f'cannot read "{topic}": it is no name of a topic')
    return client_settings(bootstrap_servers, config, of_pipeline), formats, plan


def _outputs_of(
    pipeline: Path, bootstrap_servers: str | None
) -> "tuple[dict[str, str], dict[str, str], Plan]":
    """The settings of a pipeline for readers of its outputs, their formats by topic, the plan."""
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.kafka.client import with_registry

    plan, settings = PipelineArgument(pipeline, bootstrap_servers, "-").written()
    formats: dict[str, str] = {each.topic: each.format for each in plan.published}
    return with_registry(settings.kafka, settings.registry), formats, plan


def _is_pipeline(argument: str) -> bool:
    return (
        ":" in argument or argument.endswith((".yaml", ".yml", ".sql")) or Path(argument).is_file()
    )


def read_config(path: Path) -> dict[str, str]:
    """Read a file of client settings; blank lines and lines that begin with # are skipped.

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
