"""`ikebana state`: list, verify and read a checkpoint, offline."""

import json
import sys
from collections import Counter
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.shard import entries, verify
from ikebana.errors import ConfigError, IkebanaError, StateFileError
from ikebana.processor.base.machine import private_files
from ikebana.processor.base.rows import NULL_KEY
from ikebana.processor.base.texts import counted, moment, printable
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint, existing
from ikebana.processor.checkpoint.parts import operator_of
from ikebana.processor.cli.values import shown
from ikebana.processor.kernels import arrange, upsert
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import Plan


@click.command("state")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option(
    "--verify",
    "verifying",
    is_flag=True,
    help="Read every state file, and check it against its name and manifest.",
)
@click.option(
    "--read",
    "reading",
    metavar="OPERATOR",
    help="Print the entries of an upsert operator as JSON lines.",
)
@click.option(
    "--batch", type=int, help="The state as of this batch.  [default: the last committed one]"
)
@click.option("--relocate", is_flag=True, help="Record that the checkpoint was moved here.")
@private_files()
def state_command(
    checkpoint: str, *, verifying: bool, reading: str | None, batch: int | None, relocate: bool
) -> None:
    """List the contents of CHECKPOINT, offline.

    \b
    ikebana state ./checkpoint --verify

    The pipeline may be running or stopped.  --verify reads every state file and compares it
    with its name and its manifest; the exit status is 1 if a file is damaged.
    """
    if relocate:
        moved = Checkpoint(checkpoint).relocate()
        click.echo(f"checkpoint {moved.id} now lies at {moved.location}")
        return
    store, birth = existing(checkpoint)
    from ikebana.processor.spark import state_rows

    manifests = state_rows.manifests(store, birth, batch)
    if reading is not None:
        _read(store, birth, manifests, reading)
        return
    _list(store, birth, manifests, batch)
    if verifying:
        _verify(store, birth, manifests)


def _list(
    checkpoint: Checkpoint, birth: Birth, manifests: list[Manifest], batch: int | None
) -> None:
    logged = checkpoint.layout(birth).logged()
    click.echo(f"checkpoint {birth.id} of pipeline {birth.plan['name']}, epoch {birth.epoch}")
    click.echo(f"batches: committed up to {logged.committed}, logged up to {logged.batch}")
    if logged.offset is not None:
        click.echo(f"frontier: {moment(logged.offset.upper)}")
        for topic, by in sorted(logged.offset.positions.items()):
            ends = ", ".join(f"[{p}]@{end}" for p, end in sorted(by.items()))
            click.echo(f"read up to: {topic} {ends}")
    table = Table("shard", "version", "runs", "changes", "MiB", "files", box=None)
    for manifest in manifests:
        table.add_row(
            str(manifest.shard),
            str(manifest.version),
            str(len(manifest.runs)),
            f"{sum(run.entries for run in manifest.runs):,}",
            f"{manifest.size / 2**20:.1f}",
            str(len(checkpoint.layout(birth).shard(manifest.shard).names())),
        )
    Console(highlight=False).print(table)


def _verify(checkpoint: Checkpoint, birth: Birth, manifests: list[Manifest]) -> None:
    console = Console(stderr=True)
    count: Counter[str] = Counter()
    for manifest in track(
        manifests, "verifying", console=console, transient=True, disable=not console.is_terminal
    ):
        files = checkpoint.layout(birth).shard(manifest.shard)
        verify(files, manifest)
        for place, _ in entries(files, manifest):
            count[operator_of(place)] += 1
    arrangements = arrangements_in(birth)
    for operator, number in sorted(count.items()):
        of = f", {arrangements[operator]}" if operator in arrangements else ""
        click.echo(f"operator {operator}{of}: {counted(number, 'entry')}")
    click.echo(f"verified: {sum(len(manifest.runs) for manifest in manifests)} files are sound")


def arrangements_in(birth: Birth) -> dict[str, str]:
    """Descriptions of a checkpoint's arrangements, by the names of their parts.

    It is empty if the plan's Python functions cannot be imported here.
    """
    try:
        plan = checked(msgspec.convert(birth.plan, Plan))
    except (msgspec.ValidationError, IkebanaError):
        return {}
    return {
        arrange.PART.prefix + name: printable(str(each.arrangement))
        for name, each in joined(plan).arrangements.items()
        if not each.is_own
    }


def _read(checkpoint: Checkpoint, birth: Birth, manifests: list[Manifest], operator: str) -> None:
    upserts = [o["name"] for o in birth.plan["operators"] if o["type"] == "upsert"]
    if operator not in upserts:
        raise ConfigError(
            f'cannot read operator "{operator}": the checkpoint has no upsert of that name; '
            f"it has {', '.join(upserts) or 'none'}"
        )
    try:
        for manifest in manifests:
            for place, entry in entries(checkpoint.layout(birth).shard(manifest.shard), manifest):
                if operator_of(place) == operator:
                    inner = place[place.index(b"\0") + 1 :]
                    for line in _lines(inner, entry):
                        sys.stdout.write(json.dumps({"shard": manifest.shard, **line}) + "\n")
    except StateFileError:
        sys.stdout.flush()
        raise


def _lines(place: bytes, entry: bytes) -> list[dict[str, Any]]:
    """An entry of an upsert operator as JSON: a key's value, or upserts that wait for their time.

    Other entries, which joins need of its past, are skipped.
    """
    if place[:1] not in (b"k", b"w"):
        return []
    if place[:1] == b"w":
        return [
            {"key": shown(key), "waits_until": time}
            for time, key in upsert.waiting_in(place, entry)
        ]
    value, record = upsert.split(entry)
    key = None if place[1:] == NULL_KEY else shown(place[1:])
    text = None if value is None else shown(value)
    line: dict[str, Any] = {"key": key, "value": text}
    if record is not None:
        line["error"] = shown(record)
    return [line]
