"""Commands for those who write pipeline files: a first file, and the JSON Schema of all."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import ConfigError
from ikebana.processor.cli.connection import DEFAULT_BROKERS, client_settings

if TYPE_CHECKING:
    from ikebana.processor.authoring.proposing.proposal import Proposal
    from ikebana.processor.authoring.proposing.writing import Writer


@click.command("new")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="A topic to read; repeatable, for one input each.  [default: write a sample]",
)
@click.option(
    "--bootstrap-servers",
    "--brokers",
    "brokers",
    metavar="H:P",
    envvar="IKEBANA_BOOTSTRAP_SERVERS",
    default=DEFAULT_BROKERS,
    show_default=True,
    help="Brokers.  [env: IKEBANA_BOOTSTRAP_SERVERS]",
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Settings of the Kafka client, one key=value a line; they are not written to FILE.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="The URL of the schema registry, for messages in Avro or Protobuf.",
)
@click.option(
    "--table", metavar="NAME", help="The table, as database.table, if the topic has several."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new_command(
    file: Path,
    *,
    topics: tuple[str, ...],
    brokers: str,
    config: Path | None,
    registry: str | None,
    table: str | None,
    force: bool,
) -> None:
    """Write FILE, a first pipeline file with comments: .yaml, .sql or .py.

    \b
    ikebana new orders.yaml --topic orders --bootstrap-servers localhost:9092
    ikebana new shop.sql --topic orders --topic customers

    The command reads the earliest and the newest messages of each --topic, and proposes format,
    key and columns.  Types come from the schemas of the messages, with --registry from the
    registry, and otherwise from the values.  Comments say what the messages did not show.
    Without --topic, FILE is a sample that runs as it is.
    """
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already", hint="--force overwrites it.")
    writer = _writer(file)
    topics = tuple(dict.fromkeys(topics))
    if table is not None and len(topics) > 1:
        raise ConfigError(
            f"--table {table} is for one topic, and there are {len(topics)}",
            hint="Write a file for that topic alone, and copy its input.",
        )
    if topics:
        text = _proposed(writer, file, topics, brokers, config, registry, table)
    else:
        text = writer.sample(brokers)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"could not write {file}: {error.strerror}") from error
    pipeline = f"{file.stem}:pipeline" if file.suffix == ".py" else shlex.quote(str(file))
    click.echo(f"wrote {file}; `ikebana explain {pipeline}` shows what it will do", err=True)


def _writer(file: Path) -> "Writer":
    """Return what writes files with this name's ending."""
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.authoring.proposing.writing import WRITERS

    match file.suffix.lower():
        case ".yaml" | ".yml":
            return WRITERS["yaml"]
        case ".sql":
            return WRITERS["sql"]
        case ".py" if file.stem.isidentifier():
            return WRITERS["python"]
        case ".py":
            raise ConfigError(
                f"cannot write {file}: Python cannot import a module with this name",
                hint="Use letters, digits and underscores, such as shop_orders.py.",
            )
    raise ConfigError(
        f'cannot write {file}: no pipeline is written in a "{file.suffix}" file',
        hint="Name a .yaml, .sql or .py file.",
    )


def _proposed(
    writer: "Writer",
    file: Path,
    topics: Sequence[str],
    brokers: str,
    config: Path | None,
    registry: str | None,
    table: str | None,
) -> str:
    """Return the text of a pipeline file for topics; print notes on what messages do not show."""
    from ikebana.processor.authoring.proposing import writing
    from ikebana.processor.authoring.proposing.proposal import propose, until_readable
    from ikebana.processor.kafka import client
    from ikebana.processor.kafka.records import sampled
    from ikebana.processor.kafka.registry import Registry

    settings = client_settings(brokers, config)
    client.reach(settings)
    schemas = None if registry is None else Registry({"url": registry})
    name = writing.plan_name(file.stem)

    def alone(proposal: "Proposal") -> str:
        return writing.WRITERS["yaml"].written(name, [proposal], brokers, registry)

    proposals = []
    for topic in topics:
        samples = sampled(settings, topic)
        proposals.append(
            until_readable(propose(topic, samples, schemas, table), samples, schemas, alone)
        )
    for line in writing.comments(proposals):
        click.echo(line, err=True)
    return writer.written(name, proposals, brokers, registry)


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of pipeline files.

    \b
    ikebana schema > pipeline.schema.json

    Editors with YAML's language server complete and check a file that begins with the line
    "# yaml-language-server: $schema=pipeline.schema.json", if the schema is beside it.
    """
    from ikebana.processor.authoring.schema import published

    click.echo(published(), nl=False)
