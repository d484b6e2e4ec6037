"""Run the web application of a service until a signal, or until the service fails."""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator

import uvicorn
import uvloop
from starlette.types import ASGIApp

from ikebana.errors import ConfigError
from ikebana.processor.console.plan_view import PlanView
from ikebana.processor.ground.listening import Address, Listening, tls_context
from ikebana.processor.watching.history import EVERY_MS
from ikebana.serving.http.app import application, probing
from ikebana.serving.http.bell import Bell
from ikebana.serving.http.callers import Callers
from ikebana.serving.http.guard import Limits
from ikebana.serving.probes import Probes
from ikebana.serving.service import Service
from ikebana.serving.sql import query

_GRACE_S = 5
_MOST_CONNECTIONS = 4_096


def serve(
    service: Service,
    listening: Listening,
    limits: Limits,
    ready_within: float,
    say: Callable[[str], None],
    plan: PlanView | None = None,
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
        limits: Limits,
        ready_within: float,
        plan: PlanView | None = None,
        queries: query.Limits = query.Limits(),  # noqa: B008 - immutable
    ) -> None:
        self._service = service
        self._limits = limits
        self._ready_within = ready_within
        self._plan = plan
        self._queries = queries
        self._tls = None if listening.tls is None else tls_context(listening.tls)
        self._listening = _listening(listening.address)
        self._probes = None if listening.probes is None else _listening(listening.probes)
        self._servers: list[_Server] = []
        self._callers: Callers | None = None

    async def run(self, started: Callable[[str], None]) -> None:
        """Answer until `stop`, or until the service fails; `started` gets the URL."""
        bell = Bell()
        self._callers = callers = Callers(self._service, bell, self._plan, self._queries)
        probes = Probes(self._service, self._ready_within, lambda: callers.open)
        app = application(callers, probes, self._limits)
        serving = [(_Server(_config(app, self._tls)), self._listening)]
        if self._probes is not None:
            serving.append((_Server(_config(probing(callers, probes))), self._probes))
        self._servers = [server for server, _ in serving]
        self._service.listen(bell.ring)
        with contextlib.ExitStack() as closing:
            for _, each in serving:
                closing.enter_context(contextlib.closing(each))
            self._service.start()
            beside = [
                asyncio.create_task(self._until_failure(bell)),
                asyncio.create_task(_sampling(callers)),
            ]
            started(_url(self._listening, "http" if self._tls is None else "https"))
            try:
                await asyncio.gather(*(server.serve([each]) for server, each in serving))
            finally:
                for task in beside:
                    task.cancel()

    def stop(self) -> None:
        """End soon, with the subscriptions; called in the event loop."""
        if self._callers is not None:
            self._callers.end()
        for server in self._servers:
            server.should_exit = True

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


def _config(app: ASGIApp, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http="httptools",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_context_factory=None if tls is None else lambda _, __: tls,
    )


def _url(listening: socket.socket, scheme: str) -> str:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"


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
