"""Answer requests about a run over HTTP or HTTPS, in threads of the driver's process."""

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from types import MappingProxyType
from typing import Any

from ikebana.errors import ConfigError
from ikebana.processor.console import site
from ikebana.processor.ground.listening import Tls, tls_context
from ikebana.processor.watching.gate import METRICS, PROBES, Asked, Gate, Refused, Sight
from ikebana.processor.watching.monitor import Monitor

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_OF_PROBES = "there are /metrics, /metrics/spark, /live, /ready\n"
_THERE_ARE = (
    "there are /console/, /metrics, /metrics/spark, /live, /ready, "
    "/v1/plan, /v1/run, /v1/history, /v1/noted, /v1/edit, /v1/records, /v1/columns\n"
)
_NOT_KEPT = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# An asker that hangs up, is too slow, or agrees on no TLS.
_ITS_DOING = (ConnectionError, TimeoutError, ssl.SSLError)
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@contextmanager
def serving(
    monitor: Monitor, host: str, port: int, tls: Tls | None = None, gate: Gate | None = None
) -> Iterator[str]:
    """Answer requests during a `with` block, which gets the URL.

    Without a gate everybody is answered who asks for an address or for `localhost`.

    Raises:
        ConfigError: the address cannot be listened on, or the certificate cannot be used.
    """
    context = None if tls is None else tls_context(tls)

    class Handler(_Handler):
        watched = monitor
        judge = (gate or Gate()).judged

    with _listening(host, port, Handler, context, "--http") as bound:
        shown = f"[{host}]" if ":" in host else host or "0.0.0.0"
        yield f"{'http' if context is None else 'https'}://{shown}:{bound}"


@contextmanager
def probed(monitor: Monitor, host: str, port: int) -> Iterator[int]:
    """Answer probes and metrics alone, without TLS and tokens; the block gets the port.

    Raises: ConfigError, if the address cannot be listened on.
    """

    class Handler(_Handler):
        watched = monitor
        judge = Gate(any_host=True).judged
        only = (*PROBES, *METRICS)

    with _listening(host, port, Handler, None, "--probes") as bound:
        yield bound


@contextmanager
def _listening(
    host: str, port: int, handler: "type[_Handler]", context: ssl.SSLContext | None, option: str
) -> Iterator[int]:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else ThreadingHTTPServer.address_family
        # A client that hangs must not keep the process from ending.
        daemon_threads = True
        block_on_close = False

        def finish_request(self, request: Any, client_address: Any) -> None:
            if context is None:
                super().finish_request(request, client_address)
                return
            # In the thread of the request, so that a slow one holds nobody up.
            request.settimeout(handler.timeout)
            with context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A probe that has disconnected needs no answer, and no traceback in the log.
            if not isinstance(sys.exception(), _ITS_DOING):
                super().handle_error(request, client_address)

    try:
        server = Server((host, port), handler)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error}", hint=f"Give {option} another address."
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="ikebana-http", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    watched: Monitor
    judge: Callable[[Asked], Sight | Refused]
    only: tuple[str, ...] = ()
    timeout = 10

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if self.only and path not in self.only:
            self._answer(404, _TEXT, _OF_PROBES.encode())
        elif path == "/":
            self._answer(307, _TEXT, b"", {"Location": site.ROOT, **site.HEADERS})
        elif (asset := site.asset(path)) is not None:
            # They have no data, and the page asks for the token that it sends.
            self._answer(200, *asset, site.HEADERS)
        else:
            self._judged(path, query)

    def _judged(self, path: str, query: str) -> None:
        headers = self.headers
        asked = Asked(
            path, headers.get("Host", ""), headers.get("Authorization"), self.client_address[0]
        )
        found = type(self).judge(asked)
        if isinstance(found, Refused):
            self._answer(found.status, _JSON, found.body, {**_NOT_KEPT, **found.headers})
        else:
            self._told(path, query, found)

    def _told(self, path: str, query: str, sight: Sight) -> None:
        match path:
            case "/metrics":
                self._answer(200, *self.watched.scrape(self.headers.get("Accept", "")))
            case "/metrics/spark":
                status, body = self.watched.spark()
                self._answer(status, _TEXT, body)
            case "/live":
                good, reason = self.watched.live()
                told = reason if sight > Sight.WHETHER else "live" if good else "not live"
                self._answer(200 if good else 503, _TEXT, f"{told}\n".encode())
            case "/ready":
                good, body = self.watched.readiness()
                if sight == Sight.WHETHER:
                    body = json.dumps({"ready": good}).encode() + b"\n"
                self._answer(200 if good else 503, _JSON, body)
            case _:
                self._of_console(path, query)

    def _of_console(self, path: str, query: str) -> None:
        given = self.headers.get("Authorization", "")
        found = self.watched.console.answer(path, query, given)
        if found is None:
            self._answer(404, _TEXT, _THERE_ARE.encode())
        else:
            self._answer(found.status, _JSON, found.body, _NOT_KEPT)

    def _answer(
        self,
        status: int,
        content_type: str,
        body: bytes,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
        """Log nothing, because probes come every few seconds."""
