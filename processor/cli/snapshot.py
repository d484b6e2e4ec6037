"""Collections as of a time: print one, or write snapshots so that old records can be deleted."""

import base64
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ikebana.codecs.canonical import canonical
from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FACT_FORMATS, OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.base.diff_reader import EarlierUpdates, PlacedUpdate, Published
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.base.verify import batch_offence
from ikebana.processor.cli import connection
from ikebana.processor.cli.connection import BROKERS, CONFIG, connected, topics_to_read
from ikebana.processor.cli.sql import print_table
from ikebana.processor.kafka import reading_rights
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.kafka.following import published

if TYPE_CHECKING:
    from ikebana.processor.kafka.compacting import Compacted

RowCounts = dict[tuple[bytes | None, bytes], int]
WriteDatum = Callable[[bytes], object]
_BINARY = ("parquet", "arrow")


@click.command("snapshot")
@click.argument("topic")
@click.option(
    "--as-of",
    type=connection.time,
    metavar="T",
    help="The time of the snapshot; every update at or before it counts.  A whole number, or, "
    "where times are milliseconds, a date like 2024-02-29 or 2024-02-29T12:30:00Z.  [default: "
    "the greatest closed time, which is the frontier - 1]",
)
@click.option(
    "--output",
    type=click.Choice(["json", "table", "csv", "parquet", "arrow"]),
    default="json",
    show_default=True,
    help="All but json are tables: a column for each field of keys and values that are "
    "JSON objects, as in `ikebana sql`, and the column count.  arrow is an Arrow stream.",
)
@connected("diff", *SINGLE_VALUE_FORMATS, *FACT_FORMATS)
def snapshot_command(
    topic: str, *, as_of: int | None, output: str, form: str, settings: dict[str, str]
) -> None:
    """Print the collection that the updates in TOPIC add up to, as of a time.

    \b
    ikebana snapshot orders.totals --as-of 2024-02-29 --output csv

    With --output json, each line is {"key": ..., "value": ..., "count": ...}, ordered by the
    bytes of key and value.  All keys are printed in one form: as JSON if every key is JSON,
    else as strings if every key is UTF-8, else as {"base64": "..."}.  The same holds for
    values.  A record without a key has the key null.
    """
    if output in _BINARY and sys.stdout.isatty():
        raise ConfigError(
            f"cannot print {output} on a terminal",
            hint=f"Write it to a file: ikebana snapshot {topic} --output {output} > FILE",
        )
    if form not in FACT_FORMATS:
        reading = DiffTopic(settings, topic, form)
        try:
            reading.require_output()
            reading.begin(as_of)
            counts = _accumulated(reading, as_of, counted=OUTPUT_FORMATS[form].as_updates)
            last = reading.last_closed()
            types = {} if last is None else last.columns
        finally:
            reading.close()
    else:
        counts = _accumulated_facts(topic, published(settings, topic, form), as_of)
        types = {}
    if output == "json":
        _print(counts)
    else:
        _write_table(counts, output, types)


def _accumulated(reading: DiffTopic, as_of: int | None, *, counted: bool) -> RowCounts:
    last = reading.last_closed()
    if last is None:
        raise SourceError(
            f'cannot take a snapshot of "{reading.topic}": '
            f'"{reading.progress_topic}" has no progress, so no time is closed yet',
            hint="Wait until the pipeline has published its first batch.",
        )
    frontier = last.upper
    if as_of is None:
        as_of = frontier - 1
    if as_of >= frontier:
        raise SourceError(
            f'cannot take a snapshot of "{reading.topic}" as of {moment(as_of)}: '
            f"its frontier is {moment(frontier)}",
            hint=f"Wait until the frontier is beyond {as_of}, or ask for "
            f"{moment(frontier - 1)} or less.",
        )
    counts: RowCounts = {}
    before: ProgressRecord | None = None
    earliest: int | None = None
    with closing(reading.closed()) as parts:
        for part in parts:
            if isinstance(part, EarlierUpdates):
                earliest = _least(earliest, (update.time for update in part.updates))
                _add(counts, part.updates, as_of)
                continue
            if offence := batch_offence(reading.topic, before, part, counted=counted):
                raise SourceError(
                    f"cannot take a snapshot: {offence.sentence}",
                    hint=f"ikebana check {reading.topic} verifies the topic.",
                )
            earliest = _least(earliest, [part.progress.lower])
            _add(counts, part.updates, as_of)
            before = part.progress
            if before.upper > as_of:
                break
    assert earliest is not None, "a frontier without a batch"
    if as_of < earliest:
        raise SourceError(
            f'cannot take a snapshot of "{reading.topic}" as of {moment(as_of)}: it begins '
            f"at time {moment(earliest)}, and its frontier is {moment(frontier)}",
            hint="Ask for a time between the two."
            if earliest < frontier
            else "Wait until a time is closed.",
        )
    return counts


def _accumulated_facts(topic: str, times: Iterable[Published], as_of: int | None) -> RowCounts:
    counts: RowCounts = {}
    frontier = 0
    for upper, updates in times:
        frontier = upper
        _add(counts, updates, upper - 1 if as_of is None else as_of)
    if frontier == 0 or (as_of is not None and as_of >= frontier):
        at = "" if as_of is None else f" as of {moment(as_of)}"
        raise SourceError(
            f'cannot take a snapshot of "{topic}"{at}: its frontier is {moment(frontier)}',
            hint="Wait until the frontier is beyond it, or ask for an earlier time.",
        )
    return counts


def _least(so_far: int | None, times: Iterable[int]) -> int | None:
    least = min(times, default=None)
    return least if so_far is None else so_far if least is None else min(so_far, least)


def _add(counts: RowCounts, updates: Iterable[PlacedUpdate | KeyedUpdate], as_of: int) -> None:
    for update in updates:
        if update.time <= as_of:
            data = update.key, update.value
            if count := counts.get(data, 0) + update.diff:
                counts[data] = count
            else:
                counts.pop(data, None)


def _in_order(counts: RowCounts) -> list[tuple[bytes | None, bytes]]:
    return sorted(counts, key=lambda data: (data[0] or b"", data[1]))


def _write_table(counts: RowCounts, output: str, types: Mapping[str, str]) -> None:
    # Imported here, because nothing else of this command needs DuckDB.
    import pyarrow as pa
    from pyarrow import csv, parquet

    from ikebana.serving.sql import table_of
    from ikebana.serving.wire import flat_for_csv

    table = table_of(((*data, counts[data]) for data in _in_order(counts)), types)
    if output == "table":
        print_table(table)
        return
    sink = pa.PythonFile(sys.stdout.buffer, mode="w")
    match output:
        case "csv":
            csv.write_csv(flat_for_csv(table), sink)
        case "parquet":
            parquet.write_table(table, sink)
        case _:
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    sys.stdout.flush()


def _print(counts: RowCounts) -> None:
    key_written = _way({key for key, _ in counts if key is not None})
    value_written = _way({value for _, value in counts})
    for key, value in _in_order(counts):
        line = {
            "key": None if key is None else key_written(key),
            "value": value_written(value),
            "count": counts[key, value],
        }
        print(msgspec.json.encode(line).decode())
    sys.stdout.flush()


def _way(values: Iterable[bytes]) -> WriteDatum:
    """The first form (JSON, text, base64) that can write all values."""
    for way in (_json, _string):
        try:
            for data in values:
                way(data)
        except (DecodeError, UnicodeDecodeError):
            continue
        return way
    return _base64


def _json(data: bytes) -> msgspec.Raw:
    # Canonical JSON has no line breaks.
    return msgspec.Raw(canonical(data))


def _string(data: bytes) -> str:
    return data.decode()


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


@click.command("compact")
@click.argument("what", metavar="PIPELINE|TOPIC...", nargs=-1, required=True)
@click.option(
    "--upto",
    type=connection.time,
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
    settings, formats, _ = topics_to_read(what, None, bootstrap_servers, config)
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
    # Imported here, since `ikebana snapshot` needs nothing of it.
    from ikebana.processor.kafka.compacting import Compaction

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


def _line_of(done: "Compacted") -> str:
    record = done.record
    line = f"snapshot as of {moment(record.time)}, {counted(record.count, 'update')}"
    if done.written is None:
        return f"{line}, is there already"
    return f"{line} of {counted(done.written.read, 'update')} read, {done.written.seconds:.1f} s"
