"""Commands for checkpoints: list, verify and read one, rewrite it for other shards, recover it."""

import base64
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ikebana.errors import CheckpointError, ConfigError, IkebanaError, StateFileError
from ikebana.processor.base.machine import private_files
from ikebana.processor.cli.connection import with_pipeline

if TYPE_CHECKING:
    from ikebana.arrangements.manifest import Manifest
    from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata
    from ikebana.processor.checkpoint.recovering import Remains
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.planning.edits import EditProblem
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
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.checkpoint.checkpoint import Checkpoint, existing
    from ikebana.processor.spark import keyed_operator

    if relocate:
        moved = Checkpoint(checkpoint).relocate()
        click.echo(f"checkpoint {moved.id} now lies at {moved.location}")
        return
    store, metadata = existing(checkpoint)
    manifests = keyed_operator.manifests(store, metadata, batch)
    if reading is not None:
        _read(store, metadata, manifests, reading)
        return
    _list(store, metadata, manifests, batch)
    if verifying:
        _verify(store, metadata, manifests)


def _list(
    checkpoint: "Checkpoint",
    metadata: "CheckpointMetadata",
    manifests: "list[Manifest]",
    batch: int | None,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from ikebana.processor.base.texts import moment

    logged = checkpoint.layout(metadata).logged()
    click.echo(
        f"checkpoint {metadata.id} of pipeline {metadata.plan['name']}, epoch {metadata.epoch}"
    )
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
            str(len(checkpoint.layout(metadata).shard(manifest.shard).names())),
        )
    Console(highlight=False).print(table)


def _verify(
    checkpoint: "Checkpoint", metadata: "CheckpointMetadata", manifests: "list[Manifest]"
) -> None:
    from rich.console import Console
    from rich.progress import track

    from ikebana.arrangements.shard import entries, verify
    from ikebana.processor.base.texts import counted
    from ikebana.processor.checkpoint.parts import operator_of

    console = Console(stderr=True)
    count: Counter[str] = Counter()
    for manifest in track(
        manifests, "verifying", console=console, transient=True, disable=not console.is_terminal
    ):
        files = checkpoint.layout(metadata).shard(manifest.shard)
        verify(files, manifest)
        for place, _ in entries(files, manifest):
            count[operator_of(place)] += 1
    arrangements = arrangements_in(metadata)
    for operator, number in sorted(count.items()):
        of = f", {arrangements[operator]}" if operator in arrangements else ""
        click.echo(f"operator {operator}{of}: {counted(number, 'entry')}")
    click.echo(f"verified: {sum(len(manifest.runs) for manifest in manifests)} files are sound")


def arrangements_in(metadata: "CheckpointMetadata") -> dict[str, str]:
    """Descriptions of a checkpoint's arrangements, by the names of their parts.

    It is empty if the plan's Python functions cannot be imported here.
    """
    import msgspec

    from ikebana.processor.base.texts import printable
    from ikebana.processor.kernels import arrange
    from ikebana.processor.planning.checking import checked
    from ikebana.processor.planning.joins.stages import joined
    from ikebana.processor.planning.plan import Plan

    try:
        plan = checked(msgspec.convert(metadata.plan, Plan))
    except (msgspec.ValidationError, IkebanaError):
        return {}
    return {
        arrange.PART.prefix + name: printable(str(each.arrangement))
        for name, each in joined(plan).arrangements.items()
        if not each.is_own
    }


def _read(
    checkpoint: "Checkpoint",
    metadata: "CheckpointMetadata",
    manifests: "list[Manifest]",
    operator: str,
) -> None:
    from ikebana.arrangements.shard import entries
    from ikebana.processor.checkpoint.parts import operator_of

    upserts = [o["name"] for o in metadata.plan["operators"] if o["type"] == "upsert"]
    if operator not in upserts:
        raise ConfigError(
            f'cannot read operator "{operator}": the checkpoint has no upsert of that name; '
            f"it has {', '.join(upserts) or 'none'}"
        )
    try:
        for manifest in manifests:
            for place, entry in entries(
                checkpoint.layout(metadata).shard(manifest.shard), manifest
            ):
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
    from ikebana.processor.base.rows import NULL_KEY
    from ikebana.processor.kernels import upsert

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


def shown(raw: bytes) -> Any:
    """Decode JSON; return other UTF-8 text as a string, and other bytes as base64.

    >>> shown(b'{"a":1}'), shown(b"N12345"), shown(b"\\xff")
    ({'a': 1}, 'N12345', {'base64': '/w=='})
    """
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


@click.command("rescale")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--shards", required=True, type=click.IntRange(1), help="The new number of shards.")
@click.option("--to", "to", required=True, metavar="DIR", help="The folder of the new checkpoint.")
@private_files()
def rescale_command(checkpoint: str, *, shards: int, to: str) -> None:
    """Rewrite CHECKPOINT for another number of shards.

    \b
    ikebana rescale ./checkpoint --shards 8 --to ./checkpoint-8

    Stop its pipeline first.  The old checkpoint is not changed, and can still be used
    until the new one has started.
    """
    from rich.console import Console
    from rich.progress import Progress

    from ikebana.processor.checkpoint.checkpoint import Checkpoint, existing
    from ikebana.processor.checkpoint.rescale import rescaled
    from ikebana.processor.spark import keyed_operator

    old, metadata = existing(checkpoint)
    manifests = keyed_operator.manifests(old, metadata)
    total = sum(run.entries for manifest in manifests for run in manifest.runs)
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("placing entries", total=total)
        placed = 0

        def count(entries: int) -> None:
            nonlocal placed
            placed += entries
            if placed % 10_000 == 0:
                bar.update(task, completed=placed)

        new = Checkpoint(to)
        reborn = rescaled(old, metadata, manifests, shards, count, tasks=metadata.tasks, new=new)
        new.write(reborn)
    click.echo(
        f"{to}: {placed:,} entries in {shards} shards, continues with batch {reborn.first_batch}\n"
        f"Set run.checkpoint to {to} and run.shards to {shards}. Once the pipeline has started "
        f"there, {checkpoint} is refused and can be deleted."
    )
    sys.stdout.flush()


@click.command("recover")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--timeless",
    multiple=True,
    metavar="MACHINE",
    help="A state machine with steps that do not depend on times. May be repeated.",
)
@with_pipeline()
@private_files()
def recover_command(
    pipeline: "PipelineArgument", *, only_plan: bool, timeless: tuple[str, ...]
) -> None:
    """Rebuild the lost checkpoint of PIPELINE from its topics.

    \b
    ikebana recover orders.yaml --plan    # what would be done

    The new checkpoint is at run.checkpoint, which has to be empty.  The next run reads all inputs
    again; the outputs keep their topics and get the difference.  Instances of the lost checkpoint
    are refused from then on.  What cannot be rebuilt exactly is refused; nothing is written.

    Exit status 0: recovered, or with --plan: it can be.  1: it cannot be, for printed reasons.
    """
    from ikebana.processor.checkpoint import recovering
    from ikebana.processor.checkpoint.checkpoint import Checkpoint

    plan, settings = pipeline.written()
    plan, place = plan.portable(), Checkpoint(settings.checkpoint)
    if place.metadata() is not None:
        raise _is_there(settings.checkpoint)
    # Imported here, so that mistakes in the file are reported before Kafka's client is loaded.
    from ikebana.processor.kafka import rights
    from ikebana.processor.kafka import takeover as on_brokers

    left = on_brokers.read_remains(plan, settings)
    if left.lease is None:
        raise _is_nothing(plan)
    problems = [*recovering.problems(plan, timeless), *recovering.rebuild_problems(plan, left)]
    for line in _recovery_lines(plan, left, problems):
        click.echo(line)
    if problems:
        sys.exit(1)
    topics = [output.topic for output in plan.published if output.topic in left.read_back]
    rights.require_rights(plan, settings, max(settings.shards, len(left.commits)), topics)
    if only_plan:
        return
    metadata = on_brokers.recover(plan, settings, left, place)
    click.echo(
        f"\nrecovered as {metadata.id} at {settings.checkpoint}, continues with batch "
        f"{metadata.first_batch}: `ikebana run {pipeline.file}` builds the state again"
    )


def _is_there(location: str) -> CheckpointError:
    return CheckpointError(
        f'cannot recover to "{location}": it has a checkpoint, which may be used',
        hint="Run the pipeline. If that is refused, because the checkpoint is an old copy, "
        "move it away or name another folder, and recover then.",
    )


def _is_nothing(plan: "Plan") -> CheckpointError:
    return CheckpointError(
        f'pipeline "{plan.name}" has nothing to recover: no instance has left anything in '
        f'topic "{plan.commits_topic}"',
        hint="Run it: it starts from nothing. If it has run before, these are other brokers, or "
        "the topic was deleted; then use a new name of the pipeline and new output topics.",
    )


def _recovery_lines(plan: "Plan", left: "Remains", problems: "list[EditProblem]") -> list[str]:
    """Describe what is read again, the outputs, and the problems that prevent a recovery."""
    assert left.lease is not None
    lines = [f"pipeline {plan.name}, lost checkpoint {left.lease.checkpoint}", "", "inputs"]
    for source in plan.inputs:
        for topic in source.topics:
            count = sum(end - left.begins[topic][p] for p, end in left.ends[topic].items())
            policy = "compacted" if "compact" in left.policies[topic] else "whole"
            gone = any(left.begins[topic].values())
            state = "its beginning is gone" if gone else policy
            lines.append(f'  {source.name}  "{topic}" is read again, {count:,} offsets, {state}')
    lines += ["", "outputs"]
    for output in plan.published:
        stand, unclosed = left.stand(output.name), left.unclosed[output.name].count
        had = sum(end - start for start, end in left.read_back.get(output.topic, {}).values())
        text = f"closed up to {stand}, {had:,} offsets to take back"
        if unclosed:
            text += f", {unclosed:,} records of a batch that was not closed"
        if times := left.given_up(output.name):
            text += f", gives up times {times[0]} to {times[-1]}"
        lines.append(f'  {output.name}  "{output.topic}" {text}')
    lines += ["", f"the state is built again at time {left.begin}, after batch {left.batch}"]
    if any(left.given_up(output.name) for output in plan.published):
        lines.append("at times that are given up, outputs show what they had at the loss")
    if problems:
        lines += ["", "cannot be recovered"]
        for each in problems:
            lines += [f"  {each.path} {each.reason}", f"    {each.instead}."]
    return lines
