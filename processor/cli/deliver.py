"""`ikebana deliver`: apply the closed batches of outputs to tables, each exactly once."""

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.errors import ConfigError
from ikebana.processor.base.log_lines import note
from ikebana.processor.base.machine import private_files
from ikebana.processor.base.processes import on_signals
from ikebana.processor.base.texts import suggestion
from ikebana.processor.cli.connection import BROKERS, CONFIG, client_settings
from ikebana.processor.cli.http_options import address, ready_within

if TYPE_CHECKING:
    from ikebana.delivering.delivery import Delivery
    from ikebana.processor.authoring.deliver_section import DeliverSection
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.planning.plan import Plan


@click.command("deliver")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("name", metavar="[SINK]", required=False)
@click.option("--once", is_flag=True, help="End when everything that is closed now is delivered.")
@click.option(
    "--http",
    metavar="HOST:PORT",
    type=address,
    envvar="IKEBANA_DELIVER_HTTP",
    help="Serve /live, /ready and /metrics, which contain no data, at this address. "
    "[env: IKEBANA_DELIVER_HTTP; default: off]",
)
@ready_within("if everything closed was delivered within this time")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="Where a run with on_new_column: add keeps the columns that it has added; wins over the "
    "file.",
)
@BROKERS
@CONFIG
@private_files()
def deliver_command(
    file: Path,
    name: str | None,
    *,
    once: bool,
    http: tuple[str, int] | None,
    ready_within: float,
    checkpoint: str | None,
    bootstrap_servers: str | None,
    config: Path | None,
) -> None:
    """Deliver closed batches into the target of SINK, a name in the section `deliver` of FILE.

    \b
    ikebana deliver orders.yaml                the only sink of the file
    ikebana deliver orders.yaml lake --once    the sink "lake", up to now

    FILE is a pipeline, or a file with the sections `deliver` and `kafka` alone.  The token of each
    batch is written in the target's own transaction, so a restart continues exactly after the last
    delivered batch.  If the target does not answer, the command tries again.  SIGTERM or Ctrl-C
    ends it.

    Exit status 0: stopped, or delivered everything with --once.  1: it cannot continue; the
    message says why.  3: a newer instance of the sink has taken over.
    """
    # Imported here, so that `--help` does not wait for DuckDB.
    from ikebana.processor.cli.pipeline_argument import PipelineArgument

    of_file, sinks, plan = read(PipelineArgument(file, bootstrap_servers, checkpoint))
    settings = client_settings(bootstrap_servers, config, of_file)
    chosen = _chosen(file, name, sinks)

    from ikebana.delivering.delivery import DeliveredTopics, Delivery, sink_plan, types_in_topic
    from ikebana.processor.kafka import following, reading_rights

    job = sink_plan(chosen, sinks[chosen], plan, types_in_topic(settings))
    reading_rights.reach(settings, job.formats)
    topics = DeliveredTopics(functools.partial(following.follow, settings), job.formats)
    delivery = Delivery(job.sink, job.tables, topics, note, wait=not once)
    with on_signals() as stopping, _answering(chosen, delivery, http, ready_within):
        stopping.finish_first(delivery.stop)
        delivery.run()
    progress = delivery.progress()
    note(f"{chosen}: delivered {progress.updates:,} updates, frontier {progress.upper}")


def read(
    file: "PipelineArgument",
) -> tuple[dict[str, str], "Mapping[str, DeliverSection]", "Plan | None"]:
    """Read the settings of the Kafka client, the sinks by name, and the plan of a pipeline.

    Raises: ConfigError, CheckpointError.
    """
    from ikebana.processor.authoring.pipeline import read_sinks
    from ikebana.processor.cli.pipeline_argument import adding_inputs

    if (alone := read_sinks(file.file, os.environ)) is not None:
        return dict(alone.kafka), alone.deliver, None
    # A file may have no checkpoint, which is only read for added columns.
    plan, settings = file._replace(checkpoint="-").written()
    if adding_inputs(plan):
        plan, settings = file.read()
    return settings.reading_kafka, settings.deliver, plan


def _chosen(file: Path, name: str | None, sinks: "Mapping[str, DeliverSection]") -> str:
    if not sinks:
        raise ConfigError(f"{file} has no sinks", hint="Describe one in its section `deliver`.")
    if name is None:
        if len(sinks) > 1:
            raise ConfigError(
                f"{file} has several sinks: {', '.join(sinks)}", hint="Name one of them behind it."
            )
        return next(iter(sinks))
    if name not in sinks:
        raise ConfigError(f'{file} has no sink "{name}"{suggestion(name, sinks)}')
    return name


@contextmanager
def _answering(
    name: str, delivery: "Delivery", http: tuple[str, int] | None, ready_within: float
) -> Iterator[None]:
    """Answer probes within a `with` block, if there is an address."""
    if http is None:
        yield
        return
    from ikebana.delivering.delivery import DeliveryProbes
    from ikebana.processor.base.listening import Address, Listening
    from ikebana.processor.watching.front import Front, beside, probes_alone

    front = Front(Listening(Address(*http)))
    probes = DeliveryProbes(name, delivery.progress, ready_within)
    app = probes_alone(lambda _: probes)
    with beside(front, app, app):
        note(f"serving {front.url}/metrics, /live and /ready", url=front.url)
        yield
