"""`ikebana explain`: what a pipeline reads, keeps and writes, before it runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import click

from ikebana.processor import pipeline, progress
from ikebana.processor.plan import Plan
from ikebana.processor.settings import Settings, redacted

_TIMES = {
    "ingest": "each micro-batch has one time, in milliseconds; its net change shows",
    "offset": "each record has its own time; every change shows",
}


@click.command("explain")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
@click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")
def explain_command(file: Path, *, bootstrap_servers: str | None, checkpoint: str | None) -> None:
    """Show what PIPELINE, a YAML file, will read, keep and write.

    Every mistake in the file is told at once.  Neither Kafka nor Spark is started.
    """
    plan, settings = pipeline.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    for line in explain(plan, settings):
        click.echo(line)


def explain(plan: Plan, settings: Settings) -> Iterator[str]:
    """The lines of the explanation."""
    yield f"pipeline {plan.name} ({plan.fingerprint()})"
    yield f"time: {plan.time}: {_TIMES[plan.time]}"
    yield ""
    edges = progress.edges(plan)
    for source in plan.inputs:
        yield f"input {source.name}"
        yield f"  topics: {', '.join(source.topics)}, from the {source.start}"
        yield f"  key: {source.key_format}, value: {source.value_format}"
        for operator in plan.operators:
            if operator.input != source.name:
                continue
            hops = len(edges[operator.name].hops)
            yield f"  └─ upsert {operator.name}: 1 arrangement (by key), {hops} hops"
            for output in plan.outputs:
                if output.source == operator.name:
                    yield (
                        f"     └─ output {output.name}: topic {output.topic} as {output.format}, "
                        f"progress in {output.progress_topic}, promises {plan.promise(output)}"
                    )
    yield f"errors: topic {plan.error_topic}, progress in {plan.error_topic}.progress"
    yield ""
    yield f"arrangements: {len(plan.operators)}"
    yield f"shards: {settings.shards}, one task and one transaction each in every micro-batch"
    yield f"markers: topic {plan.markers_topic}"
    yield f"checkpoint: {settings.checkpoint}"
    heartbeat = f"{settings.heartbeat_s:g} s" if settings.heartbeat_s else "none"
    yield (
        f"micro-batch: at most {settings.max_records_per_batch:,} records, "
        f"heartbeat {heartbeat if plan.time == 'ingest' else 'none in offset time'}"
    )
    shown = ", ".join(f"{key}={value}" for key, value in redacted(settings.kafka).items())
    yield f"kafka: {shown}"
