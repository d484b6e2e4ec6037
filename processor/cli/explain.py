"""`ikebana explain`: show what a pipeline reads, keeps and writes, before it runs."""

import os
from pathlib import Path

import click

from ikebana.errors import ConfigError

_FORMS = ("text", "mermaid", "svg", "html")


@click.command("explain")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
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
@click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
@click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")
def explain_command(
    file: Path,
    *,
    form: str,
    output: Path | None,
    full: bool,
    bootstrap_servers: str | None,
    checkpoint: str | None,
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
    from ikebana.processor.cli import finding
    from ikebana.processor.explain.explanation import explained
    from ikebana.processor.explain.page import html
    from ikebana.processor.explain.pictures import mermaid, svg
    from ikebana.processor.explain.text import brief, text

    renderings = {"text": text if full else brief, "mermaid": mermaid, "svg": svg, "html": html}
    plan, settings = finding.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    rendered = renderings[form](explained(plan, settings))
    if output is None:
        click.echo(rendered, nl=False)
        return
    try:
        output.write_text(rendered, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"could not write {output}: {error.strerror}") from error
