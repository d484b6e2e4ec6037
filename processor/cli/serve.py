"""`ikebana serve`: follow outputs into local arrangements, and answer reads of them."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ikebana.processor.base.log_lines import note
from ikebana.processor.base.machine import private_files
from ikebana.processor.cli.connection import BROKERS, CONFIG, SERVED, topics_to_read
from ikebana.processor.cli.http_options import (
    AccessOptions,
    Number,
    access_options,
    address,
    listening,
    ready_within,
)
from ikebana.processor.kafka import reading_rights

if TYPE_CHECKING:
    from collections.abc import Callable

    from ikebana.processor.planning.plan import Plan
    from ikebana.processor.watching.console import PlanView
    from ikebana.serving.arrangement import Retention


def _retention(value: str) -> "Retention":
    """Read a duration, or a number of times."""
    from ikebana.serving.arrangement import parsed_retention

    try:
        return parsed_retention(value)
    except ValueError:
        raise click.BadParameter(
            f'"{value}" is neither a duration, such as 30m, 1h or 7d, nor a number of times'
        ) from None


@click.command("serve")
@click.argument("what", metavar="PIPELINE|TOPIC...", nargs=-1, required=True)
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("served"),
    show_default=True,
    help="The folder of the arrangements.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    type=address,
    default="127.0.0.1:8080",
    show_default=True,
    envvar="IKEBANA_SERVE_HTTP",
    help="Where to answer; port 0 is any free one. [env: IKEBANA_SERVE_HTTP]",
)
@click.option(
    "--retain",
    metavar="TIME",
    type=_retention,
    help="How long history is kept: a duration where times are milliseconds, else a number of "
    "times.  [default: 1h, or 1000000]",
)
@click.option("--rebuild", is_flag=True, help="Read the topics from their beginning.")
@access_options(
    "Bearer tokens, one a line, or a YAML file of tokens and what each may see; without it, "
    "everybody who reaches the address may read.",
    "Answer /live, /ready and /metrics here, too, without TLS and tokens.",
    variables=False,
)
@click.option(
    "--rate",
    metavar="N",
    type=Number(min=0, min_open=True),
    help="Requests a second of each token, or of each address without tokens.  "
    "[default: no limit]",
)
@click.option(
    "--sql-seconds",
    metavar="N",
    type=Number(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="The longest that a SQL query may take.",
)
@click.option(
    "--sql-memory",
    metavar="MIB",
    type=click.IntRange(min=16),
    default=1024,
    show_default=True,
    help="The most memory that a SQL query may take; two run at once.",
)
@ready_within("if all of each topic was read within this time")
@click.option(
    "--format",
    "form",
    type=click.Choice(SERVED),
    help="The format of all TOPICs.  [default: diff]",
)
@BROKERS
@CONFIG
@private_files()
def serve_command(what: tuple[str, ...], **options: Any) -> None:
    """Serve the outputs of PIPELINE, a file or module:name, or the output topics TOPIC....

    \b
    ikebana serve orders.yaml                  then http://127.0.0.1:8080/console/
    ikebana serve orders.totals --retain 7d

    It follows each topic into the folder --data, and answers reads over HTTP as of any time
    that --retain keeps.  Other processes read the folder with `ikebana.open`.  Browsers find a
    console at /console/.  A restart continues where it stopped.  SIGTERM or Ctrl-C ends it.

    Exit status 0: stopped.  1: a topic cannot be followed; the message says why.
    """
    _serve(what, _Options(**options))


class _Options(NamedTuple):
    """The options of the command."""

    data: Path
    http: tuple[str, int]
    retain: "Retention | None"
    rebuild: bool
    access: AccessOptions
    rate: float | None
    sql_seconds: float
    sql_memory: int
    ready_within: float
    form: str | None
    bootstrap_servers: str | None
    config: Path | None


def _serve(what: tuple[str, ...], options: _Options) -> None:
    from ikebana.processor.kafka import following
    from ikebana.processor.watching import console
    from ikebana.serving import sql
    from ikebana.serving.arrangement import USUAL
    from ikebana.serving.http_server import serve
    from ikebana.serving.service import Service, ServiceOptions

    limits = options.access.limits(options.rate)
    where = listening(options.http, options.access)
    settings, formats, plan = topics_to_read(
        what, options.form, options.bootstrap_servers, options.config
    )
    limits.access.check(formats)
    reading_rights.reach(settings, formats)
    retention = options.retain or USUAL
    # Where a topic was compacted, the history that is kept begins at an older snapshot.
    since = following.Since(lambda topic, upper: retention.since(upper, topic), strict=False)
    service = Service(
        ServiceOptions(formats, options.data, retention, options.rebuild),
        functools.partial(following.follow, settings, since=since),
        note,
    )
    serve(
        service,
        where,
        limits,
        options.ready_within,
        note,
        console.no_plan if plan is None else _drawn(Path(what[0]), plan),
        sql.QueryLimits(seconds=options.sql_seconds, memory_bytes=options.sql_memory << 20),
    )


def _drawn(file: Path, plan: "Plan") -> "Callable[[], PlanView]":
    """Return a function that draws the plan of a file, and reads it again when it has changed."""
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.watching.console import PlanOfFile

    def read() -> "Plan":
        return PipelineArgument(file, "-", "-").written().plan

    def version() -> object:
        try:
            there = file.stat()
        except OSError:
            # A module, or a file that is being replaced.
            return None
        return there.st_mtime_ns, there.st_size

    return PlanOfFile(plan, read, version)
