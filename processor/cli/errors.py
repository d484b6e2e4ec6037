"""`ikebana errors`: list a pipeline's errors that have not been retracted."""

import base64
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ikebana.processor.base.diff_reader import PlacedUpdate, TopicPart
from ikebana.processor.base.texts import counted, iso, moment
from ikebana.processor.cli.connection import with_pipeline
from ikebana.processor.cli.follow import text
from ikebana.processor.cli.state import shown
from ikebana.processor.kafka import reading_rights
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.records import Record, record_at

if TYPE_CHECKING:
    from ikebana.processor.cli.pipeline_argument import PipelineArgument


class CurrentError(NamedTuple):
    """An error record that is not retracted, its count, and the time of its last addition."""

    record: dict[str, Any]
    number: int
    time: int

    @property
    def key(self) -> bytes | None:
        """The raw key of the record that failed."""
        return _raw(self.record.get("key"))

    @property
    def value(self) -> bytes | None:
        """The raw value of that record, if the error record has it."""
        return _raw(self.record.get("value"))

    @property
    def place(self) -> tuple[str, int, int] | None:
        """The topic, partition and offset of that record, if they are known."""
        topic, partition, offset = (
            self.record.get(part) for part in ("topic", "partition", "offset")
        )
        if topic is None or partition is None or offset is None:
            return None
        return topic, partition, offset


def current_errors(parts: Iterable[TopicPart]) -> list[CurrentError]:
    """Accumulate the parts of an error topic to the current errors, the newest last.

    A repeated error has the time of its last addition.
    """
    counts: dict[bytes, int] = {}
    since: dict[bytes, int] = {}
    for part in parts:
        for update in part.updates:
            _add(counts, since, update)
    errors = [
        CurrentError(msgspec.json.decode(record, type=dict[str, Any]), count, since[record])
        for record, count in counts.items()
    ]
    return sorted(errors, key=lambda error: error.time)


def _add(counts: dict[bytes, int], since: dict[bytes, int], update: PlacedUpdate) -> None:
    record = update.value
    if count := counts.get(record, 0) + update.diff:
        counts[record] = count
        if update.diff > 0 or record not in since:
            since[record] = max(update.time, since.get(record, 0))
    else:
        counts.pop(record, None)
        since.pop(record, None)


def _raw(text: Any) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@click.command("errors")
@with_pipeline(checkpoint=False)
@click.option("--records", is_flag=True, help="Fetch the records that failed from their topics.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def errors_command(pipeline: "PipelineArgument", *, records: bool, as_json: bool) -> None:
    """List the current errors of PIPELINE: error records that have not been retracted.

    \b
    ikebana errors orders.yaml --records

    For each error it prints when it began, its count, the reason, the place of the failed
    record, and its key.  Some operators do not know the place; then the key identifies the
    record.

    The exit status is 0 whether there are errors or not.
    """
    plan, settings = pipeline.written()
    reading_rights.reach(settings.kafka, {plan.error_topic: "diff"})
    reading = DiffTopic(settings.kafka, plan.error_topic)
    try:
        reading.begin()
        with closing(reading.closed()) as parts:
            errors = current_errors(parts)
        frontier = reading.frontier
    finally:
        reading.close()
    source = settings.reading_kafka
    fetched: list[Record | None] = [None] * len(errors)
    if records:
        fetched = _records(source, errors)
    if as_json:
        for error, record in zip(errors, fetched, strict=True):
            click.echo(json.dumps(_line(error, record, asked=records), ensure_ascii=False))
    elif errors:
        _print(errors, fetched, asked=records)
    if not as_json:
        closed = "nothing is published yet" if frontier is None else f"frontier {moment(frontier)}"
        click.echo(
            f"{plan.error_topic}: {counted(sum(e.number for e in errors), 'error')}, {closed}"
        )


def _records(settings: Mapping[str, str], errors: list[CurrentError]) -> list[Record | None]:
    """The key and value of each failed record; None if it has been deleted."""
    reader = RangeReader(settings)
    try:
        return [None if e.place is None else record_at(reader, e.place) for e in errors]
    finally:
        reader.close()


def _line(error: CurrentError, record: Record | None, *, asked: bool) -> dict[str, Any]:
    line: dict[str, Any] = {
        "time": error.time,
        "at": iso(error.time),
        "count": error.number,
        "reason": error.record["reason"],
        "topic": error.record["topic"],
        "partition": error.record["partition"],
        "offset": error.record["offset"],
        "key": None if error.key is None else shown(error.key),
        "value": None if error.value is None else shown(error.value),
    }
    if asked:
        line["record"] = None
        if record is not None:
            line["record"] = {
                part: None if raw is None else shown(raw)
                for part, raw in zip(("key", "value"), record, strict=True)
            }
    return line


def _print(
    errors: list[CurrentError],
    fetched: list[Record | None],
    *,
    asked: bool,
) -> None:
    table = Table(box=None, pad_edge=False)
    columns = ["since", "count", "reason", "place", "key", *(["record"] if asked else [])]
    for name in columns:
        table.add_column(name, overflow="fold")
    for error, record in zip(errors, fetched, strict=True):
        place = "" if error.place is None else "{}[{}]@{}".format(*error.place)
        cells = [
            moment(error.time),
            f"{error.number:,}",
            error.record["reason"],
            place,
            "" if error.key is None else text(error.key),
        ]
        if asked:
            # An error of rows in the state is of no one record.
            gone = "" if error.place is None else "gone"
            value = record[1] if record is not None else None
            cells.append(gone if record is None else "null" if value is None else text(value))
        table.add_row(*map(Text, cells))
    console = Console(highlight=False)
    if not console.is_terminal:
        # Lines are wrapped on a terminal only.
        console = Console(highlight=False, width=100_000)
    console.print(table)
