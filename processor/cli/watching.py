"""The options of a run that lets itself be watched over HTTP."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.planning.plan import LOG_CLOCKS, Plan

if TYPE_CHECKING:
    from ikebana.processor.watching.monitor import Monitor

# A batch may take its whole time, and its tasks be tried again.
_BATCHES_UNTIL_STUCK = 3


def _address(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise click.BadParameter(f'"{value}" is no HOST:PORT')
    return host.removeprefix("[").removesuffix("]"), int(port)


_SECONDS = click.FloatRange(min=0, min_open=True)


def watchable(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--http` and the limits of `/live` and `/ready`."""
    for option in reversed(
        [
            click.option(
                "--http",
                metavar="HOST:PORT",
                type=_address,
                envvar="IKEBANA_HTTP",
                help="Serve /metrics, /live and /ready there. [env: IKEBANA_HTTP; default: off]",
            ),
            click.option(
                "--ready-within",
                metavar="SECONDS",
                type=_SECONDS,
                default=60.0,
                envvar="IKEBANA_READY_WITHIN",
                help="The greatest lag at which /ready says yes, beyond the lateness and idle of "
                "inputs. "
                "[env: IKEBANA_READY_WITHIN; default: 60]",
            ),
            click.option(
                "--stuck-after",
                metavar="SECONDS",
                type=_SECONDS,
                envvar="IKEBANA_STUCK_AFTER",
                help="Without a batch, or a look that found none to do, for so long /live says "
                f"no. [env: IKEBANA_STUCK_AFTER; default: {_BATCHES_UNTIL_STUCK} times "
                "run.max_batch]",
            ),
            click.option(
                "--start-within",
                metavar="SECONDS",
                type=_SECONDS,
                default=3600.0,
                envvar="IKEBANA_START_WITHIN",
                help="The same until the first batch has been done, which fetches all state. "
                "[env: IKEBANA_START_WITHIN; default: 3600]",
            ),
        ]
    ):
        command = option(command)
    return command


def patience_s(plan: Plan) -> float:
    """How long results are to wait for others, as the plan says: `lateness` and `idle`."""
    events = [s.event_time for s in plan.inputs if s.event_time is not None]
    lateness = max((e.lateness_ms for e in events if e.clock not in LOG_CLOCKS), default=0)
    idle = max((e.idle_ms or 0 for e in events if e.clock != "transaction"), default=0)
    return (lateness + idle) / 1000


@contextmanager
def watched(
    plan: Plan,
    settings: Settings,
    address: tuple[str, int],
    ready_within: float,
    stuck_after: float | None,
    start_within: float,
    say: Callable[[str], None],
) -> Iterator["Monitor"]:
    """Serve metrics and health for the length of a `with` block, and say where."""
    # Who does not ask for it does not wait for these.
    from ikebana.processor.watching.health import Health, Limits
    from ikebana.processor.watching.monitor import Monitor, serving

    if stuck_after is None:
        stuck_after = _BATCHES_UNTIL_STUCK * settings.max_batch_s
    limits = Limits(ready_within + patience_s(plan), stuck_after, start_within)
    health = Health(limits, time.monotonic)
    monitor = Monitor(plan, health)
    with serving(monitor, *address) as url:
        say(f"serving {url}/metrics, /live and /ready")
        try:
            yield monitor
        finally:
            health.end()
