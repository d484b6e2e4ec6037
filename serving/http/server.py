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
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(service, address, limits, ready_within, say, plan))
    finally:
        service.close()
    if service.failure is not None:
        raise service.failure


async def _serve(
    service: Service,
    address: Address,
    limits: Limits,
    ready_within: float,
    say: Callable[[str], None],
    plan: PlanView | None,
) -> None:
    bell = Bell()
    subscriptions = Subscriptions(service, bell)
    probes = Probes(service, ready_within, lambda: subscriptions.open)
    app = application(Api(service, bell, plan), subscriptions, probes, limits)
    config = uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http="httptools",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=1 << 16,
    )
    server = _Server(config)

    def stop() -> None:
        subscriptions.end()
        server.should_exit = True

    service.listen(bell.ring)
    with _on_signals(stop), contextlib.closing(_listening(address)) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        service.start()
        ending = asyncio.create_task(_until_failure(service, bell, stop))
        url = f"http://{shown}:{port}"
        say(f"serving {url}/v1/collections and {url}/console/")
        try:
            await server.serve([listening])
        finally:
            ending.cancel()


async def _until_failure(service: Service, bell: Bell, stop: Callable[[], None]) -> None:
    while True:
        change = bell.next()
        if service.failure is not None:
            break
        await change.wait()
    stop()


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
