"""Options of a run that serves metrics, health and the console over HTTP."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.cli.http_options import access_options, address, listening, ready_within
from ikebana.processor.cli.values import Number
from ikebana.processor.planning.plan import LOG_CLOCKS, Plan

if TYPE_CHECKING:
    from ikebana.processor.base.listening import Listening
    from ikebana.processor.watching.answering import RecordLookup
    from ikebana.processor.watching.monitor import Monitor, SinksOfRun

# A batch may take run.max_batch, and failed tasks are retried.
_BATCHES_UNTIL_STUCK = 3

_SECONDS = Number(min=0, min_open=True)


_OPTIONS = (
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


def watchable(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--http`, access control, and the limits of `/live` and `/ready` to a command."""
    # The last option that is added is the first in the help text.
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def patience_s(plan: Plan) -> float:
    """The time for which the plan lets results wait: the greatest `lateness` plus `idle`."""
    events = [s.event_time for s in plan.inputs if s.event_time is not None]
    lateness = max((e.lateness_ms for e in events if e.clock not in LOG_CLOCKS), default=0)
    idle = max((e.idle_ms or 0 for e in events if e.clock != "transaction"), default=0)
    return (lateness + idle) / 1000


class Watching(NamedTuple):
    """The values of the options."""

    http: tuple[str, int] | None
    token_file: Path | None
    anyone: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    probes: tuple[str, int] | None
    ready_within: float
    stuck_after: float | None
    start_within: float

    def listening(self) -> "Listening | None":
        """Check the options; None if there is no address.  Raises: ConfigError."""
        if self.http is not None:
            return listening(
                self.http,
                self.probes,
                token_file=self.token_file,
                anyone=self.anyone,
                tls_cert=self.tls_cert,
                tls_key=self.tls_key,
                tls_client_ca=self.tls_client_ca,
            )
        for name in ("token_file", "anyone", "tls_cert", "tls_key", "tls_client_ca", "probes"):
            if getattr(self, name):
                raise click.UsageError(
                    f"--{name.replace('_', '-')} needs --http, the address that it is about"
                )
        return None


@contextmanager
def watched(
    plan: Plan,
    settings: Settings,
    options: Watching,
    where: "Listening",
    say: Callable[[str], None],
    sinks: "SinksOfRun",
) -> Iterator["Monitor"]:
    """Serve metrics and health within a `with` block, and report the address.

    Raises: ConfigError, if it cannot listen there, or use the file of tokens or a certificate.
    """
    # Imported here, since most runs do not serve them.
    from ikebana.processor.checkpoint.edit_plan import last_edit
    from ikebana.processor.watching import guard
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
        looking, tokens = None, guard.Access()
        if options.token_file is not None:
            tokens = guard.read_access(options.token_file)
            looking = opened.enter_context(_looking(plan, settings))
        monitor = Monitor(plan, health, lambda: last_edit(settings.checkpoint), sinks)
        any_host = options.anyone or options.tls_client_ca is not None
        front = opened.enter_context(
            serving(monitor, where, guard.AccessLimits(tokens, any_host=any_host), looking)
        )
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
    from ikebana.processor.authoring.proposing.columns_seen import ColumnsSeen, columns_seen
    from ikebana.processor.kafka.first_messages import looked_at
    from ikebana.processor.kafka.records import Records, newest
    from ikebana.processor.watching.answering import RecordLookup

    def columns(name: str) -> ColumnsSeen | None:
        source = next((each for each in plan.inputs if each.name == name), None)
        if source is None:
            return None
        _, seen = looked_at(source, kafka, settings.registry, newest)
        return columns_seen(source, seen)

    kafka = settings.reading_kafka
    with closing(Records(kafka)) as records:
        yield RecordLookup(records.at, columns)
