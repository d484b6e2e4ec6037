"""`ikebana new`: write a first pipeline file with comments."""

from functools import partial
from pathlib import Path

import click

from ikebana.errors import ConfigError

_DEFAULT = "localhost:9092"
# What a pipeline may also be written in.
_OTHERS = {".sql": "SQL", ".py": "Python"}


@click.command("new")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--topic", help="A topic whose messages the proposal is made from.  [default: write a sample]"
)
@click.option(
    "--brokers",
    "--bootstrap-servers",
    metavar="H:P",
    envvar="IKEBANA_BOOTSTRAP_SERVERS",
    default=_DEFAULT,
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
    "--registry", metavar="URL", help="The URL of the schema registry, for messages in Avro."
)
@click.option(
    "--table", metavar="NAME", help="The table, as database.table, if the topic has several."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new_command(
    file: Path,
    *,
    topic: str | None,
    brokers: str,
    config: Path | None,
    registry: str | None,
    table: str | None,
    force: bool,
) -> None:
    """Write FILE, a first pipeline file with comments.

    With --topic, the earliest and the newest messages of the topic are read, and FILE
    proposes their format, key and columns, by the schemas that messages have, or that are in
    the registry, else by their values; comments say what the messages did not show.
    Without --topic, FILE is a sample that runs as it is.
    """
    if file.suffix in _OTHERS:
        raise ConfigError(
            f"cannot write {file}: new writes YAML, not {_OTHERS[file.suffix]}",
            hint="Name a .yaml file.",
        )
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already", hint="--force overwrites it.")
    # Imported here, so that `--help` does not wait for Kafka's client.
    from ikebana.processor.configuring.pipeline import parse
    from ikebana.processor.proposing import writing

    if topic is None:
        text = writing.sample(brokers)
    else:
        text = _proposed(topic, brokers, config, registry, table)
    parse(text, str(file), environ={})
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"could not write {file}: {error.strerror}") from error
    click.echo(f"wrote {file}; `ikebana explain {file}` shows what it will do", err=True)


def _proposed(
    topic: str, brokers: str, config: Path | None, registry: str | None, table: str | None
) -> str:
    """Return the text of a pipeline file for a topic; say what its messages leave open."""
    from ikebana.processor.cli.connection import read_config
    from ikebana.processor.kafka import client
    from ikebana.processor.kafka.registry import Registry
    from ikebana.processor.kafka.sampling import sampled
    from ikebana.processor.proposing import writing
    from ikebana.processor.proposing.proposal import propose
    from ikebana.processor.proposing.trial import tried

    settings = {**(read_config(config) if config else {}), "bootstrap.servers": brokers}
    client.reach(settings)
    schemas = None if registry is None else Registry({"url": registry})
    samples = sampled(settings, topic)
    write = partial(writing.written, brokers=brokers, registry=registry)
    proposal = tried(propose(topic, samples, schemas, table), samples, schemas, write)
    for note in proposal.notes:
        click.echo(note, err=True)
    return write(proposal)
