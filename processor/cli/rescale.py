"""`ikebana rescale`: rewrite a checkpoint for another number of shards."""

import sys

import click
from rich.console import Console
from rich.progress import Progress

from ikebana.processor.base.machine import private_files
from ikebana.processor.checkpoint.checkpoint import Checkpoint, existing
from ikebana.processor.checkpoint.rescale import rescaled


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
    from ikebana.processor.spark import state_rows

    old, birth = existing(checkpoint)
    manifests = state_rows.manifests(old, birth)
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
        reborn = rescaled(old, birth, manifests, shards, count, tasks=birth.tasks, new=new)
        new.write(reborn)
    click.echo(
        f"{to}: {placed:,} entries in {shards} shards, continues with batch {reborn.first_batch}\n"
        f"Set run.checkpoint to {to} and run.shards to {shards}. Once the pipeline has started "
        f"there, {checkpoint} is refused and can be deleted."
    )
    sys.stdout.flush()
