"""`ikebana preflight`: check whether a pipeline could start, before it does."""

import os
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from ikebana.errors import IkebanaError
from ikebana.processor.cli.connection import with_pipeline

if TYPE_CHECKING:
    from ikebana.processor.base.notices import Check
    from ikebana.processor.cli.pipeline_argument import PipelineArgument

EXIT_FAILED = 1


@click.command("preflight")
@with_pipeline()
@click.option("--json", "as_json", is_flag=True, help="Print the checks as one JSON object.")
def preflight_command(pipeline: "PipelineArgument", *, as_json: bool) -> None:
    """Check whether PIPELINE could start now, without changing anything.

    \b
    ikebana preflight orders.yaml

    It checks the pipeline file, Java, the checkpoint, the brokers, topics and rights, the schema
    registry, and whether they belong together.  It does not disturb a running pipeline.
    It writes and removes a small file beside the checkpoint, and on brokers that check
    rights it leaves a transactional id without a transaction.

    Exit status 0: no check has failed.  1: a check has failed; its remedy is printed below
    it.  "unknown" is a check that could not be made, and no failure by itself.  "warning" is
    something that a run accepts, such as an input topic that it waits for.
    """
    results: list[Check] = []
    for check in checks(pipeline):
        results.append(check)
        if not as_json:
            _print(check)
    good = all(check.status != "failed" for check in results)
    if as_json:
        click.echo(msgspec.json.encode({"ok": good, "checks": results}))
    sys.exit(0 if good else EXIT_FAILED)


def checks(pipeline: "PipelineArgument") -> Iterator["Check"]:
    """Make the checks in order; some need the success of earlier ones."""
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.base.notices import Check, refused
    from ikebana.processor.checkpoint.checkpoint import Checkpoint

    what = f"pipeline file {pipeline.file}"
    try:
        plan, settings = pipeline.read()
        plan = plan.portable()
    except IkebanaError as error:
        yield refused(what, error)
        return
    yield Check(what, "ok", f"pipeline {plan.name}, {settings.shards} shards")
    # A mistake in the file is reported before Kafka's client is loaded.
    from ikebana.processor.kafka import preflight

    yield preflight.of_java(os.environ)
    yield from preflight.of_checkpoint(plan, settings)
    yield from preflight.of_histories(plan, settings)
    yield from preflight.of_registry(plan, settings)
    brokers = preflight.of_brokers(settings)
    yield from brokers
    if any(check.status != "ok" for check in brokers):
        yield Check("topics and rights", "unknown", "not checked: the brokers do not answer")
        return
    yield from preflight.of_topics(plan, settings)
    try:
        metadata = Checkpoint(settings.checkpoint).metadata()
    except IkebanaError:
        metadata = None
    yield from preflight.of_transactions(settings, metadata.id if metadata else None)


def _print(check: "Check") -> None:
    click.echo(f"{check.status:<8}{check.check}: {check.fact}")
    if check.remedy and check.status != "ok":
        click.echo(textwrap.indent(check.remedy, " " * 8))
