"""The options with which a run serves metrics and health over HTTP."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.planning.plan import LOG_CLOCKS, Plan

if TYPE_CHECKING:
    from ikebana.processor.watching.console_answers import Looking
    from ikebana.processor.watching.monitor import Monitor

# A batch may take run.max_batch, and failed tasks are retried.
_BATCHES_UNTIL_STUCK = 3


def address(value: str) -> tuple[str, int]:
    """Read the value of `--http`, HOST:PORT."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise click.BadParameter(f'"{value}" is no HOST:PORT')
    return host.removeprefix("[").removesuffix("]"), int(port)


_SECONDS = click.FloatRange(min=0, min_open=True)


_OPTIONS = (
    click.option(
        "--http",
        metavar="HOST:PORT",
        type=address,
        envvar="IKEBANA_HTTP",
        help="Serve /metrics, /live, /ready and /console/ at this address. "
        "[env: IKEBANA_HTTP; default: off]",
    ),
    click.option(
        "--token-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="IKEBANA_TOKEN_FILE",
        help="Bearer tokens in a file, as `ikebana serve` takes them. Whoever sends one that may "
        "see everything can look at the records that the console lists. "
        "[env: IKEBANA_TOKEN_FILE; default: nobody]",
    ),
    click.option(
        "--ready-within",
        metavar="SECONDS",
        type=_SECONDS,
        default=60.0,
        envvar="IKEBANA_READY_WITHIN",
        help="/ready answers yes up to this lag plus the lateness and idle of the inputs. "
        "[env: IKEBANA_READY_WITHIN; default: 60]",
    ),
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
    """Add `--http` and the limits of `/live` and `/ready` to a command."""
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


@contextmanager
def watched(
    plan: Plan,
    settings: Settings,
    address: tuple[str, int],
    token_file: Path | None,
    ready_within: float,
    stuck_after: float | None,
    start_within: float,
    say: Callable[[str], None],
) -> Iterator["Monitor"]:
    """Serve metrics and health within a `with` block, and report the address.

    Raises: ConfigError, if it cannot listen there, or use the file of tokens.
    """
    # Imported here, since most runs do not serve them.
    from ikebana.processor.checkpoint.last_edit import last_edit
    from ikebana.processor.watching.health import Health, Limits
    from ikebana.processor.watching.monitor import Monitor, serving

    if stuck_after is None:
        stuck_after = _BATCHES_UNTIL_STUCK * settings.max_batch_s
    limits = Limits(ready_within + patience_s(plan), stuck_after, start_within)
    health = Health(limits, time.monotonic)
    with ExitStack() as opened:
        looking = None
        if token_file is not None:
            looking = opened.enter_context(_looking(plan, settings, token_file))
        monitor = Monitor(plan, health, looking, lambda: last_edit(settings.checkpoint))
        url = opened.enter_context(serving(monitor, *address))
        say(f"serving {url}/metrics, /live and /ready, and {url}/console/")
        try:
            yield monitor
        finally:
            health.end()


@contextmanager
def _looking(plan: Plan, settings: Settings, token_file: Path) -> Iterator["Looking"]:
    """Let, within a `with` block, the tokens of a file that may see everything look at records."""
    from ikebana.processor.kafka import sampling
    from ikebana.processor.kafka.records import Records
    from ikebana.processor.proposing.columns_seen import ColumnsSeen, columns_seen
    from ikebana.processor.watching.console_answers import Looking
    from ikebana.serving import access

    permitted = access.read(token_file)

    def may(token: str) -> bool:
        grant = permitted.of(token)
        return grant is not None and grant.collections is None

    def columns(name: str) -> ColumnsSeen | None:
        found = next((each for each in plan.inputs if each.name == name), None)
        if found is None:
            return None
        return columns_seen(found, [s for t in found.topics for s in sampling.newest(kafka, t)])

    kafka = {**settings.kafka, **settings.source_kafka}
    with closing(Records(kafka)) as records:
        yield Looking(may, records.at, columns)
