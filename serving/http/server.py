"""Run the web application of a service until a signal, or until the service fails."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

import uvloop

from ikebana.processor.base.listening import Listening
from ikebana.processor.watching.front import Front
from ikebana.processor.watching.guard import AccessLimits
from ikebana.processor.watching.history import EVERY_MS
from ikebana.processor.watching.plan_view import PlanView, no_plan
from ikebana.serving.http.app import application, probing_alone
from ikebana.serving.http.callers import Callers
from ikebana.serving.http.operations import Bell
from ikebana.serving.permitted import Permitted
from ikebana.serving.probes import Probes
from ikebana.serving.service import Service
from ikebana.serving.sql import query


def serve(
    service: Service,
    listening: Listening,
    limits: AccessLimits,
    ready_within: float,
    say: Callable[[str], None],
    plan: Callable[[], PlanView] = no_plan,
    queries: query.Limits = query.Limits(),  # noqa: B008 - immutable
) -> None:
    """Follow and answer until SIGTERM or SIGINT; a second one ends the process at once.

    Raises:
        ConfigError: an address cannot be listened on, or a certificate cannot be used.
        IkebanaError: a topic cannot be followed any more.
    """
    server = HttpServer(service, listening, limits, ready_within, plan, queries)

    async def run() -> None:
        with _on_signals(server.stop):
            await server.run(lambda url: say(f"serving {url}/v1/collections and {url}/console/"))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        service.close()
    if service.failure is not None:
        raise service.failure


class HttpServer:
    """The server of a service; it starts the service when it listens.

    Raises:
        ConfigError: an address cannot be listened on, or a certificate cannot be used.
    """

    def __init__(
        self,
        service: Service,
        listening: Listening,
        limits: AccessLimits,
        ready_within: float,
        plan: Callable[[], PlanView] = no_plan,
        queries: query.Limits = query.Limits(),  # noqa: B008 - immutable
    ) -> None:
        self._service = service
        self._limits = limits
        self._ready_within = ready_within
        self._plan = plan
        self._queries = queries
        self._front = Front(listening)
        self._callers: Callers | None = None

    async def run(self, started: Callable[[str], None]) -> None:
        """Answer until `stop`, or until the service fails; `started` gets the URL."""
        bell = Bell()
        self._callers = callers = Callers(self._service, bell, self._plan, self._queries)

        def probes(views: Permitted) -> Probes:
            return Probes(self._service, views, self._ready_within, lambda: callers.open)

        self._service.listen(bell.ring)
        self._service.start()
        beside = [
            asyncio.create_task(self._until_failure(bell)),
            asyncio.create_task(_sampling(callers)),
        ]
        started(self._front.url)
        try:
            app = application(callers, probes, self._limits)
            await self._front.run(app, probing_alone(callers, probes))
        finally:
            for task in beside:
                task.cancel()

    def stop(self) -> None:
        """End soon, with the subscriptions; called in the event loop."""
        if self._callers is not None:
            self._callers.end()
        self._front.stop()

    async def _until_failure(self, bell: Bell) -> None:
        while True:
            change = bell.next()
            if self._service.failure is not None:
                break
            await change.wait()
        self.stop()


async def _sampling(callers: Callers) -> None:
    """Keep how lag and updates have been, for charts."""
    while True:
        callers.sample()
        await asyncio.sleep(EVERY_MS / 1000)


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    asked = False

    def stopped(number: int) -> None:
        nonlocal asked
        if asked:
            raise SystemExit(128 + number)
        asked = True
        stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stopped, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
