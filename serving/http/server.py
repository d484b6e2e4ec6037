"""Run the web application of a service until a signal, or until the service fails."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

import uvicorn
import uvloop

from ikebana.errors import ConfigError
from ikebana.processor.console.plan_view import PlanView
from ikebana.serving.http.app import Limits, application
from ikebana.serving.http.bell import Bell
from ikebana.serving.http.operations import Api
from ikebana.serving.http.subscriptions import Subscriptions
from ikebana.serving.probes import Probes
from ikebana.serving.service import Service

_GRACE_S = 5


class Address(NamedTuple):
    """Where to listen; port 0 means any that is free."""

    host: str
    port: int


def serve(
    service: Service,
    address: Address,
    limits: Limits,
    ready_within: float,
    say: Callable[[str], None],
    plan: PlanView | None = None,
) -> None:
    """Follow and answer until SIGTERM or SIGINT; a second one ends the process at once.

    Raises:
        ConfigError: the address cannot be listened on.
        IkebanaError: a topic cannot be followed any more.
    """
    server = HttpServer(service, address, limits, ready_within, plan)

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
        ConfigError: the address cannot be listened on.
    """

    def __init__(
        self,
        service: Service,
        address: Address,
        limits: Limits,
        ready_within: float,
        plan: PlanView | None = None,
    ) -> None:
        self._service = service
        self._limits = limits
        self._ready_within = ready_within
        self._plan = plan
        self._listening = _listening(address)
        self._server: _Server | None = None
        self._subscriptions: Subscriptions | None = None

    async def run(self, started: Callable[[str], None]) -> None:
        """Answer until `stop`, or until the service fails; `started` gets the URL."""
        bell = Bell()
        self._subscriptions = subscriptions = Subscriptions(self._service, bell)
        probes = Probes(self._service, self._ready_within, lambda: subscriptions.open)
        api = Api(self._service, bell, self._plan)
        app = application(api, subscriptions, probes, self._limits)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http="httptools",
            ws="none",
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = _Server(config)
        self._service.listen(bell.ring)
        with contextlib.closing(self._listening):
            host, port = self._listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._service.start()
            ending = asyncio.create_task(self._until_failure(bell))
            started(f"http://{shown}:{port}")
            try:
                await self._server.serve([self._listening])
            finally:
                ending.cancel()

    def stop(self) -> None:
        """End soon, with the subscriptions; called in the event loop."""
        if self._subscriptions is not None:
            self._subscriptions.end()
        if self._server is not None:
            self._server.should_exit = True

    async def _until_failure(self, bell: Bell) -> None:
        while True:
            change = bell.next()
            if self._service.failure is not None:
                break
            await change.wait()
        self.stop()


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again when it has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


def _listening(address: Address) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        # From now on connections wait, so that the address may be told.
        made.listen()
    except (OSError, OverflowError) as error:
        made.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error}", hint="Give --http another address."
        ) from error
    return made
