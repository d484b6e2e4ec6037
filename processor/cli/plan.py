"""What a pipeline will do, and what an edit of it will change, before it is run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import CheckpointError, ConfigError
from ikebana.processor.cli.connection import with_pipeline

if TYPE_CHECKING:
    from ikebana.processor.authoring.proposing.proposal import Declarations
    from ikebana.processor.authoring.settings import Settings
    from ikebana.processor.checkpoint.checkpoint import (
        Checkpoint,
        CheckpointMetadata,
        StateFigures,
    )
    from ikebana.processor.checkpoint.edit_description import EditDescription
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.planning.plan import Plan

# Counting reads all state files, so beyond this size it needs --count.
_COUNTED_BYTES = 256 << 20
_STYLES = {
    "plain": "",
    "heading": "bold",
    "new": "green",
    "replaced": "yellow",
    "dropped": "red",
    "stays": "dim",
    "refused": "bold red",
}
_FORMS = ("text", "mermaid", "svg", "html")


@click.command("explain")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMS),
    default="text",
    show_default=True,
    help="svg draws the plan as run; html is a page with text and pictures.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="A file; default: standard output."
)
@click.option("--full", is_flag=True, help="Show all of the plan, as written and as run.")
@with_pipeline()
def explain_command(
    pipeline: "PipelineArgument", *, form: str, output: Path | None, full: bool
) -> None:
    """Show what PIPELINE, a file or module:name, reads, keeps and writes, and what a change costs.

    \b
    ikebana explain orders.yaml
    ikebana explain orders.yaml --format html --output orders.html

    --full also prints the plan as written and as run, what is pushed into decoding and what is
    not, with the reason, and the settings.  All mistakes of the file are listed with their
    lines.  It needs neither Kafka nor Spark.
    """
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.explain.explanation import explained
    from ikebana.processor.explain.page import html
    from ikebana.processor.explain.pictures import mermaid, svg
    from ikebana.processor.explain.text import brief, text

    renderings = {"text": text if full else brief, "mermaid": mermaid, "svg": svg, "html": html}
    rendered = renderings[form](explained(*pipeline.written()))
    if output is None:
        click.echo(rendered, nl=False)
        return
    try:
        output.write_text(rendered, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"could not write {output}: {error.strerror}") from error


@click.command("plan")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option(
    "--against",
    "--checkpoint",
    "against",
    metavar="CHECKPOINT",
    help="The checkpoint to compare with; default: run.checkpoint of the file.",
)
@click.option(
    "--count/--no-count",
    default=None,
    help="Read the state files to count rows and bytes; default: if they have at most 256 MiB.",
)
@click.option(
    "--latest-schemas",
    is_flag=True,
    help="Declare the columns that the newest messages have and the file does not: it reads some.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan_command(
    file: Path, *, against: str | None, count: bool | None, latest_schemas: bool, as_json: bool
) -> None:
    """Show what an edited PIPELINE, a file or module:name, changes.

    \b
    ikebana plan orders.yaml

    It lists the inputs, operators and outputs that stay, are new, are replaced or are dropped;
    what fills new parts; which topics get a difference; and what is refused, with the remedy.
    It compares PIPELINE with its checkpoint, starts neither Kafka nor Spark, and writes
    nothing; the pipeline may be running.  Only --latest-schemas asks brokers and the registry.

    Exit status 0: nothing changes.  2: something changes.  1: a run would refuse it.
    """
    # Imported here, so that `--help` does not wait for DuckDB.
    import msgspec

    from ikebana.processor.checkpoint.edit_description import EXIT_STATUS
    from ikebana.processor.cli.pipeline_argument import PipelineArgument, newest_columns

    # No broker is asked, so a module without brokers is fine.
    brokers = None if file.exists() else os.environ.get("IKEBANA_BOOTSTRAP_SERVERS", "unused")
    pipeline = PipelineArgument(file, brokers, against)
    plan, settings = pipeline.read()
    columns: Mapping[str, Declarations] = {}
    if latest_schemas:
        if not file.exists():
            raise click.UsageError("--latest-schemas is for a pipeline file")
        columns = newest_columns(plan, settings)
        plan, settings = pipeline.read(columns)
    edit = edit_description_of(plan.portable(), settings, count=count)
    refused = (
        msgspec.structs.replace(each, line=pipeline.line_of(each.path)) for each in edit.refused
    )
    edit = msgspec.structs.replace(edit, refused=tuple(refused))
    if as_json:
        more = {"columns": columns} if latest_schemas else {}
        click.echo(msgspec.json.encode({**edit.as_json(), **more}))
    else:
        if latest_schemas:
            _print_columns(columns)
        _print(edit)
    sys.exit(EXIT_STATUS[edit.result])


def _print_columns(columns: "Mapping[str, Declarations]") -> None:
    """Print declarations of columns in the form of the pipeline file."""
    from ikebana.processor.authoring.proposing.formats import ProposedColumn
    from ikebana.processor.authoring.proposing.writing import column_in_yaml, name_in_yaml

    if not columns:
        click.echo("the newest messages have no columns that are not declared, or do not fit\n")
        return
    click.echo("columns of the newest messages that are not declared, or do not fit; with them:\n")
    click.echo("inputs:")
    for name, declared in columns.items():
        click.echo(f"  {name_in_yaml(name)}:\n    columns:")
        for column, of in declared.items():
            parts = {"type": of} if isinstance(of, str) else of
            click.echo(f"      {column_in_yaml(ProposedColumn(column, **parts))}")
    click.echo()


def edit_description_of(
    plan: "Plan", settings: "Settings", *, count: bool | None = False
) -> "EditDescription":
    """The edit that a run of this plan is; `count` is the option --count.

    Raises: CheckpointError, if the checkpoint cannot be read.
    """
    from ikebana.processor.checkpoint.checkpoint import Checkpoint
    from ikebana.processor.checkpoint.describing_edits import describe
    from ikebana.processor.checkpoint.next_step import Desired, observed_at

    checkpoint = Checkpoint(settings.checkpoint)
    observed = observed_at(checkpoint)
    figures = None if observed is None else _figures(checkpoint, observed.metadata, count=count)
    return describe(settings.checkpoint, observed, Desired(plan, settings.shards), figures)


def require_unchanged(plan: "Plan", settings: "Settings") -> None:
    """Refuse a plan that differs from the checkpoint's; a new checkpoint takes any plan.

    Raises: CheckpointError, with all changes, or if the checkpoint cannot be read.
    """
    from ikebana.processor.explain.text import edit_lines

    edit = edit_description_of(plan.portable(), settings)
    if edit.is_new or edit.result == "nothing":
        return
    text = "\n".join(line.text for line in edit_lines(edit))
    raise CheckpointError(
        f"the plan is not the checkpoint's, and changes are to be refused\n{text}",
        hint="Go on with the pipeline as it was, or, if this is meant, run it without "
        "--refuse-changes and IKEBANA_REFUSE_CHANGES.",
    )


def _figures(
    checkpoint: "Checkpoint", metadata: "CheckpointMetadata", *, count: bool | None
) -> "StateFigures":
    from rich.console import Console
    from rich.progress import Progress

    from ikebana.processor.checkpoint.checkpoint import count_state, measure_state

    layout = checkpoint.layout(metadata)
    alone = measure_state(layout, metadata.shards)
    if count is None:
        count = alone.files_bytes <= _COUNTED_BYTES
    if not count:
        return alone
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("counting the state", total=None)
        return count_state(layout, metadata.shards, lambda more: bar.update(task, advance=more))


def _print(description: "EditDescription") -> None:
    from rich.console import Console
    from rich.text import Text

    from ikebana.processor.explain.text import edit_lines

    console = Console(highlight=False)
    for line in edit_lines(description):
        console.print(Text(line.text, style=_STYLES[line.tone]), soft_wrap=True)
