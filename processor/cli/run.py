"""`ikebana run`: run a pipeline over Kafka until it is stopped or has caught up.

With `--http` it serves metrics, health and the console; its sinks run beside it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ikebana.errors import ConfigError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.log_lines import note
from ikebana.processor.base.machine import private_files
from ikebana.processor.base.processes import Stopped, on_signals
from ikebana.processor.base.texts import suggestion
from ikebana.processor.cli.connection import with_options, with_pipeline
from ikebana.processor.cli.http_options import (
    AccessOptions,
    Number,
    access_options,
    address,
    listening,
    ready_within,
)
from ikebana.processor.planning.plan import LOG_CLOCKS, Plan
from ikebana.processor.spark.alone import alone

if TYPE_CHECKING:
    from ikebana.processor.authoring.deliver_section import DeliverSection
    from ikebana.processor.authoring.pipeline import ConfiguredPlan
    from ikebana.processor.base.listening import Listening
    from ikebana.processor.cli.pipeline_argument import PipelineArgument
    from ikebana.processor.watching.answering import RecordLookup
    from ikebana.processor.watching.monitor import Monitor, SinksOfRun
    from ikebana.processor.watching.reports import Watcher
    from ikebana.processor.watching.sinks import Sinks


# A batch may take run.max_batch, and failed tasks are retried.
_BATCHES_UNTIL_STUCK = 3

_SECONDS = Number(min=0, min_open=True)


# `--http`, access control, and the limits of `/live` and `/ready`.
watchable = with_options(
    click.option(
        "--http",
        metavar="HOST:PORT",
        type=address,
        envvar="IKEBANA_HTTP",
        help="Serve /metrics, /live, /ready and /console/ at this address. "
        "[env: IKEBANA_HTTP; default: off]",
    ),
    access_options(
        "Bearer tokens in a file, as `ikebana serve` takes them; without one, a run "
        "answers only whether it is live and ready. A token that may see everything opens the "
        "console and its records, any other the metrics.",
        "Answer /live, /ready and /metrics here, too, without TLS and tokens.",
        variables=True,
    ),
    ready_within("up to this lag plus the lateness and idle of the inputs"),
    click.option(
        "--stuck-after",
        metavar="SECONDS",
        type=_SECONDS,
        envvar="IKEBANA_STUCK_AFTER",
        help="/live answers no after this time without progress. "
        f"[env: IKEBANA_STUCK_AFTER; default: {_BATCHES_UNTIL_STUCK} times run.max_batch]",
    ),
    click.option(
        "--start-within",
        metavar="SECONDS",
        type=_SECONDS,
        default=3600.0,
        envvar="IKEBANA_START_WITHIN",
        help="The same before the first batch is complete, which has to fetch the state. "
        "[env: IKEBANA_START_WITHIN; default: 3600]",
    ),
)


def patience_s(plan: Plan) -> float:
    """The time for which the plan lets results wait: the greatest `lateness` plus `idle`."""
    events = [s.event_time for s in plan.inputs if s.event_time is not None]
    lateness = max((e.lateness_ms for e in events if e.clock not in LOG_CLOCKS), default=0)
    idle = max((e.idle_ms or 0 for e in events if e.clock != "transaction"), default=0)
    return (lateness + idle) / 1000


class Watching(NamedTuple):
    """The values of the options."""

    http: tuple[str, int] | None
    access: AccessOptions
    ready_within: float
    stuck_after: float | None
    start_within: float

    def listening(self) -> "Listening | None":
        """Check the options; None if there is no address.  Raises: ConfigError."""
        if self.http is not None:
            return listening(self.http, self.access)
        for name, value in self.access._asdict().items():
            if value:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} needs --http, the address that it is about"
                )
        return None


@contextmanager
def serving_metrics(
    plan: Plan,
    settings: Settings,
    options: Watching,
    where: "Listening | None",
    say: Callable[[str], None],
    sinks: "SinksOfRun",
) -> Iterator["Monitor | None"]:
    """Serve metrics and health within a `with` block, and report the address, if there is one.

    Raises: ConfigError, if it cannot listen there, or use the file of tokens or a certificate.
    """
    if where is None:
        yield None
        return
    # Imported here, since most runs do not serve them.
    from ikebana.processor.checkpoint.edit_description import last_edit
    from ikebana.processor.watching.answering import serving
    from ikebana.processor.watching.health import Health, HealthLimits
    from ikebana.processor.watching.monitor import Monitor

    stuck_after = options.stuck_after
    if stuck_after is None:
        stuck_after = _BATCHES_UNTIL_STUCK * settings.max_batch_s
    limits = HealthLimits(
        options.ready_within + patience_s(plan), stuck_after, options.start_within
    )
    health = Health(limits, time.monotonic)
    with ExitStack() as opened:
        looking, access = None, options.access.limits()
        if options.access.token_file is not None:
            looking = opened.enter_context(_looking(plan, settings))
        monitor = Monitor(plan, health, lambda: last_edit(settings.checkpoint), sinks)
        front = opened.enter_context(serving(monitor, where, access, looking))
        say(f"serving {front.url}/metrics, /live and /ready, and {front.url}/console/")
        if front.probes_port is not None:
            say(f"serving /metrics, /live and /ready on port {front.probes_port}, too")
        try:
            yield monitor
        finally:
            health.end()


@contextmanager
def _looking(plan: Plan, settings: Settings) -> Iterator["RecordLookup"]:
    """Read the records of inputs within a `with` block."""
    from ikebana.processor.authoring.proposing.look import ColumnsSeen, columns_seen
    from ikebana.processor.kafka.records import RecordReader, looked_at, newest
    from ikebana.processor.watching.answering import RecordLookup

    def columns(name: str) -> ColumnsSeen | None:
        source = next((each for each in plan.inputs if each.name == name), None)
        if source is None:
            return None
        _, seen = looked_at(source, kafka, settings.registry, newest)
        return columns_seen(source, seen)

    kafka = settings.reading_kafka
    with closing(RecordReader(kafka)) as records:
        yield RecordLookup(records.at, columns)


def _place(value: str) -> tuple[str, str]:
    """Read NAME=URL."""
    sink, equals, url = value.partition("=")
    if not (sink and equals and url.startswith(("http://", "https://"))):
        raise click.BadParameter(f'"{value}" is no NAME=URL, such as lake=http://lake:9404')
    return sink, url.rstrip("/")


with_sinks = with_options(
    click.option(
        "--deliver/--no-deliver",
        "delivers",
        default=True,
        envvar="IKEBANA_DELIVER",
        help="Run the sinks of the section `deliver` beside the pipeline, each in a process of "
        "its own, or leave them to `ikebana deliver`. [env: IKEBANA_DELIVER; default: --deliver]",
    ),
    click.option(
        "--sink-at",
        metavar="NAME=URL",
        type=_place,
        multiple=True,
        envvar="IKEBANA_SINK_AT",
        help="Where a sink that runs elsewhere answers /ready, for the console and metrics; it is "
        "not run here. May be repeated. [env: IKEBANA_SINK_AT, separated by spaces]",
    ),
)


def sinks_of(
    parts: "Mapping[str, DeliverSection]",
    pipeline: "PipelineArgument",
    places: Mapping[str, str],
    *,
    delivers: bool,
) -> "Sinks":
    """The sinks of a pipeline that are run here, and those with a known address.

    Raises: ConfigError, for the place of a sink that the file does not have.
    """
    from ikebana.processor.watching.sinks import Sinks

    file, bootstrap_servers, checkpoint = pipeline
    for name in places:
        if name not in parts:
            raise ConfigError(
                f'--sink-at: {file} has no sink "{name}"{suggestion(name, parts)}',
                hint="Name sinks of its section `deliver`.",
            )
    options = {"--bootstrap-servers": bootstrap_servers, "--checkpoint": checkpoint}
    words = [word for name, value in options.items() if value for word in (name, value)]
    shown = {name: part for name, part in parts.items() if delivers or name in places}
    return Sinks(shown, file, words, places)


@click.command("run")
@click.option("--once", is_flag=True, help="End when all records that exist now are processed.")
@with_pipeline()
@click.option(
    "--refuse-changes",
    is_flag=True,
    envvar="IKEBANA_REFUSE_CHANGES",
    help="End with status 1, before anything starts, if the plan differs from the checkpoint's. "
    "[env: IKEBANA_REFUSE_CHANGES]",
)
@click.option(
    "--wait/--no-wait",
    default=None,
    envvar="IKEBANA_WAIT",
    help="Wait for missing input topics, or end with status 1. "
    "[env: IKEBANA_WAIT; default: --wait, with --once --no-wait]",
)
@with_sinks
@watchable
@private_files()
def run_command(
    pipeline: "PipelineArgument",
    *,
    once: bool,
    refuse_changes: bool,
    wait: bool | None,
    delivers: bool,
    sink_at: tuple[tuple[str, str], ...],
    **watching: Any,
) -> None:
    """Run PIPELINE, a file or module:name, with exactly-once output.

    \b
    ikebana run orders.yaml                           until it is stopped
    ikebana run orders.yaml --once                    until it has caught up
    ikebana run orders.yaml --http 127.0.0.1:9464     with metrics and a page

    The run continues from its checkpoint.  If PIPELINE has changed, it prints a summary of
    what `ikebana plan` shows, and makes the edit.  SIGTERM or Ctrl-C stops it between two
    micro-batches; a second signal stops it at once.  After a failure that may pass, such as a
    lost worker, it restarts its query, up to run.restarts times an hour.  It waits for input
    topics that are missing, and names them.

    The sinks of the section `deliver` run beside it.  One that fails is started again.

    Exit status 0: stopped or caught up.  1: failed; the message says why and what to do.
    3: a newer instance of the pipeline has taken over.
    """
    options = Watching(**watching)
    where = options.listening()
    goes_on = True
    while goes_on:
        configured = pipeline.read_with_new_columns(note)
        if refuse_changes:
            from ikebana.processor.cli.plan import require_unchanged

            require_unchanged(*configured)
        sinks = sinks_of(configured.settings.deliver, pipeline, dict(sink_at), delivers=delivers)
        with pipeline.with_lines():
            goes_on = _run(pipeline, configured, sinks, options, where, once=once, wait=wait)


def _run(
    pipeline: "PipelineArgument",
    configured: "ConfiguredPlan",
    sinks: "Sinks",
    options: Watching,
    where: "Listening | None",
    *,
    once: bool,
    wait: bool | None,
) -> bool:
    """Run a pipeline once; return whether to run it again, with columns new in messages."""
    from ikebana.processor.cli.pipeline_argument import Adding
    from ikebana.processor.watching.reports import BatchDisplay, Watchers

    plan, settings = configured
    with (
        on_signals() as stopping,
        BatchDisplay(plan, once=once) as display,
        sinks.board() as board,
        serving_metrics(
            plan, settings, options, where, display.say, (sinks.parts, board.figures)
        ) as monitor,
        alone(plan.name),
        sinks.beside(board, display.say, once=once) as sinks_start,
    ):
        adding = Adding(plan, stopping.ask, lambda: pipeline.read_with_new_columns(display.say))
        watchers: list[Watcher] = [sinks_start, display, adding]
        if monitor is not None:
            watchers.append(monitor)
        try:
            # Importing Spark takes a second, and a mistake in the file is reported before it.
            from ikebana.processor.spark import supervised

            supervised.run(
                plan,
                settings,
                once=once,
                stopping=stopping,
                watcher=Watchers(watchers),
                on_trigger=None if monitor is None else monitor.trigger,
                wait=wait,
            )
        except Stopped:
            display.stopped_early()
        else:
            display.done(stopped=stopping.asked)
            if once:
                sinks.deliver_once(board, display.say, stopping)
        return adding.has_columns and not stopping.by_signal
