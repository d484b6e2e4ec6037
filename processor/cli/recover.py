"""`ikebana recover`: rebuild a lost checkpoint from the topics of its pipeline."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import CheckpointError
from ikebana.processor.base.machine import private_files

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.recovering import Left
    from ikebana.processor.planning.edits import EditProblem
    from ikebana.processor.planning.plan import Plan


@click.command("recover")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--timeless",
    multiple=True,
    metavar="MACHINE",
    help="A state machine with steps that do not depend on times. May be repeated.",
)
@click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
@click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")
@private_files()
def recover_command(
    file: Path,
    *,
    only_plan: bool,
    timeless: tuple[str, ...],
    bootstrap_servers: str | None,
    checkpoint: str | None,
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
    from ikebana.processor.cli import finding

    plan, settings = finding.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    plan, place = plan.portable(), Checkpoint(settings.checkpoint)
    if place.birth() is not None:
        raise _is_there(settings.checkpoint)
    # Imported here, so that mistakes in the file are reported before Kafka's client is loaded.
    from ikebana.processor.kafka import recovering as on_brokers
    from ikebana.processor.kafka import rights

    left = on_brokers.look(plan, settings)
    if left.lease is None:
        raise _is_nothing(plan)
    problems = [*recovering.problems(plan, timeless), *recovering.problems_left(plan, left)]
    for line in _lines(plan, left, problems):
        click.echo(line)
    if problems:
        sys.exit(1)
    topics = [output.topic for output in plan.published if output.topic in left.read_back]
    rights.demand(plan, settings, max(settings.shards, len(left.markers)), topics)
    if only_plan:
        return
    birth = on_brokers.recover(plan, settings, left, place)
    click.echo(
        f"\nrecovered as {birth.id} at {settings.checkpoint}, continues with batch "
        f"{birth.first_batch}: `ikebana run {file}` builds the state again"
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
        f'topic "{plan.markers_topic}"',
        hint="Run it: it starts from nothing. If it has run before, these are other brokers, or "
        "the topic was deleted; then use a new name of the pipeline and new output topics.",
    )


def _lines(plan: "Plan", left: "Left", problems: "list[EditProblem]") -> list[str]:
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
