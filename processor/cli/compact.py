"""`ikebana compact`: write snapshots of output topics, and delete the records before them."""

from collections.abc import Mapping
from pathlib import Path

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.cli.connection import BROKERS, CONFIG, outputs_told
from ikebana.processor.cli.values import Time
from ikebana.processor.kafka import reading_rights
from ikebana.processor.kafka.compacting import Compacted, Compaction


@click.command("compact")
@click.argument("what", metavar="PIPELINE|TOPIC...", nargs=-1, required=True)
@click.option(
    "--upto",
    type=Time(),
    metavar="T",
    help="The snapshot is as of the last closed batch that ends at or before T: a whole number, "
    "or a date where times are milliseconds.  [default: the last closed batch]",
)
@click.option(
    "--delete",
    is_flag=True,
    help="Delete the updates before the oldest snapshot that is kept, and their progress.",
)
@click.option(
    "--keep",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    help="How many snapshots are kept.  With 2, readers that began at the previous one can "
    "continue.",
)
@BROKERS
@CONFIG
def compact_command(
    what: tuple[str, ...],
    *,
    upto: int | None,
    delete: bool,
    keep: int,
    bootstrap_servers: str | None,
    config: Path | None,
) -> None:
    """Compact the diff outputs of PIPELINE, a file or module:name, or the topics TOPIC....

    \b
    ikebana compact orders.yaml --delete

    It writes the collection of each topic, as of its last closed batch, to the topic
    TOPIC.snapshot.  Readers then begin there, and --delete deletes the topic's older records.
    Run it now and then, while the pipeline and readers run.  It can be killed at any time: run
    it again.  The collection is in memory meanwhile.
    """
    settings, formats, _ = outputs_told(what, None, bootstrap_servers, config)
    if others := sorted(topic for topic, form in formats.items() if form != "diff"):
        if len(others) == len(formats):
            raise ConfigError(
                f"cannot compact {', '.join(others)}: only outputs in the format diff can be",
                hint="Kafka's own compaction is for outputs in the format upsert.",
            )
        click.echo(f"not compacted, because the format is not diff: {', '.join(others)}", err=True)
    diffs = {topic: form for topic, form in formats.items() if form == "diff"}
    reading_rights.reach(settings, diffs, compacts=True, deletes=delete)
    for topic, form in formats.items():
        if form == "diff":
            _compact(settings, topic, upto, keep, delete=delete)


def _compact(
    settings: Mapping[str, str], topic: str, upto: int | None, keep: int, *, delete: bool
) -> None:
    compaction = Compaction(settings, topic)
    try:
        done = compaction.compact(upto)
        if done is None:
            click.echo(f"{topic}: no time is closed yet, so there is nothing to compact")
            return
        click.echo(f"{topic}: {_line_of(done)}")
        deleted = {**(compaction.delete(keep) if delete else {}), **compaction.trim(keep)}
        for name, by in deleted.items():
            offsets = ", ".join(f"[{partition}]@{at}" for partition, at in sorted(by.items()))
            click.echo(f"{name}: deleted before {offsets}")
        if delete and topic not in deleted:
            click.echo(f"{topic}: nothing to delete before the oldest of {keep} snapshots")
    finally:
        compaction.close()


def _line_of(done: Compacted) -> str:
    record = done.record
    line = f"snapshot as of {moment(record.time)}, {counted(record.count, 'update')}"
    if done.written is None:
        return f"{line}, is there already"
    return f"{line} of {counted(done.written.read, 'update')} read, {done.written.seconds:.1f} s"
