"""The HTTP front of servers and of runs: sockets, TLS, the server, probes, and the console's page.

The page loads nothing from elsewhere.  Its files are part of the package; they have no data, and
so need no token.  A request names a file of a fixed list, so no name of a client becomes a path.
The policy of the page allows what this server sends and nothing else: no script, style or text of
data runs.
"""

# Decision (one HTTP front): A front of the standard library for runs judged hosts, tokens, TLS
# and refusals a second time, and differently (it forgot rates). Price: four packages, imported
# only with `--http`.

import asyncio
import contextlib
import functools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import NamedTuple, Protocol

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ikebana.errors import ConfigError
from ikebana.processor.base.listening import Address, Listening, tls_context
from ikebana.processor.explain import pictures

_GRACE_S = 5
_MOST_CONNECTIONS = 4_096
# The first request of a connection has to come within this time.
_REQUEST_S = 10.0


class Probed(Protocol):
    """The answers to probes and scrapes of one reader; they must not block."""

    def live(self) -> tuple[bool, str]:
        """Return whether the process makes progress, and a reason."""
        ...

    def ready(self) -> tuple[bool, bytes]:
        """Return whether the process is ready, and details as JSON."""
        ...

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render the metrics in an accepted format; return its content type and the text."""
        ...


def probing(of: Callable[[Request], Probed]) -> list[Route]:
    """Make the routes of probes and metrics; `of` returns the answers for a request.

    They wait for no thread, so that slow requests cannot delay them.
    """

    async def live(request: Request) -> Response:
        good, reason = of(request).live()
        return PlainTextResponse(f"{reason}\n", 200 if good else 503)

    async def ready(request: Request) -> Response:
        good, body = of(request).ready()
        return Response(body, 200 if good else 503, media_type="application/json")

    async def scrape(request: Request) -> Response:
        kind, text = of(request).scrape(request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    return [Route("/metrics", scrape), Route("/live", live), Route("/ready", ready)]


def probes_alone(of: Callable[[Request], Probed]) -> ASGIApp:
    """Make an application of probes and metrics alone, without access control."""
    return Starlette(routes=probing(of))


class Front:
    """Listens from its creation on, so that the address is known before requests are served.

    Raises:
        ConfigError: an address cannot be listened on, or a certificate cannot be used.
    """

    def __init__(self, listening: Listening) -> None:
        self._tls = None if listening.tls is None else tls_context(listening.tls)
        self._host = listening.address.host or "0.0.0.0"
        self._sockets = [_bound(listening.address, "--http")]
        if listening.probes is not None:
            try:
                self._sockets.append(_bound(listening.probes, "--probes"))
            except BaseException:
                self._sockets[0].close()
                raise
        self._servers: list[_Server] = []
        self._is_stopped = False
        self.failure: BaseException | None = None
        """The error that has ended it."""

    @property
    def url(self) -> str:
        """The URL of the first address."""
        port = self._sockets[0].getsockname()[1]
        name = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'http' if self._tls is None else 'https'}://{name}:{port}"

    @property
    def probes_port(self) -> int | None:
        """The port for probes and metrics alone; None if there is none."""
        port: int | None = None
        for each in self._sockets[1:]:
            port = each.getsockname()[1]
        return port

    async def run(self, app: ASGIApp, probes: ASGIApp) -> None:
        """Answer until `stop`; `probes` answers at the address of its own, without TLS."""
        configs = _config(app, self._tls), _config(probes)
        self._servers = [_Server(each) for each, _ in zip(configs, self._sockets, strict=False)]
        with contextlib.ExitStack() as closing:
            for each in self._sockets:
                closing.enter_context(contextlib.closing(each))
            if not self._is_stopped:
                pairs = zip(self._servers, self._sockets, strict=True)
                await asyncio.gather(*(server.serve([each]) for server, each in pairs))

    def stop(self) -> None:
        """End soon; called in any thread."""
        self._is_stopped = True
        for server in self._servers:
            server.should_exit = True


@contextlib.contextmanager
def beside(
    front: Front, app: ASGIApp, probes: ASGIApp, ended: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Answer in a thread during a `with` block; `ended` is called when the thread ends."""

    def answer() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(front.run(app, probes))
        except BaseException as error:
            front.failure = error
            raise
        finally:
            ended()

    # A client that hangs must not keep the process from ending.
    thread = threading.Thread(target=answer, name="ikebana-http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        front.stop()
        thread.join(_GRACE_S)


class _Protocol(HttpToolsProtocol):
    """Closes a connection without a request, so that such connections cannot use up the limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(_REQUEST_S, self._close_unasked)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def _close_unasked(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again when it has ended."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: ASGIApp, tls: ssl.SSLContext | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        # Mistakes of clients are not logged.
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        http=_Protocol,
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_context_factory=None if tls is None else lambda _, __: tls,
    )


def _bound(address: Address, option: str) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From now on connections wait.
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error}", hint=f"Give {option} another address."
        ) from error
    return listener


ROOT = "/console/"
_PLAN_STYLE = "plan.css"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # Only the drawing of a plan is parsed from text, as SVG.
    "require-trusted-types-for": "'script'",
    "trusted-types": "ikebana-plan",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The files change with the version of the package, and are small.
    "Cache-Control": "no-cache",
}
# Of an answer with data: no cache keeps it.
UNKEPT = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Asset(NamedTuple):
    """A file of the console."""

    content_type: str
    body: bytes


def asset(path: str) -> Asset | None:
    """Return the file of a request's path, or None if the console has no such file."""
    if not path.startswith(ROOT):
        return None
    return _assets().get(path.removeprefix(ROOT) or "index.html")


def page_routes() -> list[Route]:
    """Make the routes of the page; the root leads to it."""
    return [Route("/", _root), Route(ROOT + "{name:path}", _file)]


def is_of_console(path: str) -> bool:
    """Whether a path is the root or below that of the console."""
    return path == "/" or path.startswith(ROOT)


async def _root(_: Request) -> Response:
    return RedirectResponse(ROOT, headers=HEADERS)


async def _file(request: Request) -> Response:
    file = asset(request.url.path)
    if file is None:
        return PlainTextResponse("the console has no such file\n", 404, HEADERS)
    return Response(file.body, 200, HEADERS, file.content_type)


@functools.cache
def _assets() -> Mapping[str, Asset]:
    assets = {_PLAN_STYLE: Asset(_TYPES["css"], pictures.stylesheet().encode())}
    for file in (resources.files("ikebana.processor.watching") / "page").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            assets[file.name] = Asset(_TYPES[kind], file.read_bytes())
    return assets
