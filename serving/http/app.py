"""The web application of a service: routes, refusals, limits, and who may ask.

Without a token, only requests to an address or to `localhost` are answered, so that no web page
can reach a server on this machine by a name that it makes point here.
"""

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.console.plan_view import NoPlanError
from ikebana.serving.http import console, openapi, parameters, wire
from ikebana.serving.http.operations import OPERATIONS, Api, Operation, respond
from ikebana.serving.http.subscriptions import Subscriptions
from ikebana.serving.probes import Probes
from ikebana.serving.reads import WaitedError
from ikebana.serving.view import UnknownCollectionError, UnreadableTimeError

_OPEN = ("/live", "/ready", "/metrics")
_MOST_SUBSCRIBERS = 1_000


class Limits(NamedTuple):
    """Who may ask, and how much: `tokens` empty means everybody who reaches the address."""

    tokens: Sequence[str] = ()
    body_bytes: int = 1 << 20
    subscribers: int = _MOST_SUBSCRIBERS


def application(api: Api, subscriptions: Subscriptions, probes: Probes, limits: Limits) -> ASGIApp:
    """Make the application."""
    routes = [
        Route(each.path, _endpoint(api, each, limits), methods=[each.method])
        for each in OPERATIONS
    ]
    routes += [
        Route("/v1/subscribe", _subscribing(subscriptions, limits)),
        Route("/openapi.json", _document()),
        *_probing(probes),
        *console.routes(),
    ]
    return _Guard(Starlette(routes=routes, exception_handlers=_NOTHING_THERE), limits)


async def _nothing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _problem(
        status,
        f"there is no {request.method} of {request.url.path}",
        "/openapi.json says what there is.",
    )


_NOTHING_THERE: dict[Any, Any] = {404: _nothing, 405: _nothing}
Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(api: Api, operation: Operation, limits: Limits) -> Endpoint:
    takes, handler = operation.takes, operation.handler
    in_body = operation.method == "POST"

    async def answer(request: Request) -> Response:
        try:
            if in_body:
                given = _decoded(await _body(request, limits.body_bytes), takes)
            else:
                given = _asked(request, takes)
            found = await handler(api, request.path_params.get("name", ""), given)
            return respond(found, request)
        except IkebanaError as error:
            return refusal(error)

    return answer


def _subscribing(subscriptions: Subscriptions, limits: Limits) -> Endpoint:
    async def subscribe(request: Request) -> Response:
        try:
            given: parameters.Subscribe = _asked(request, parameters.Subscribe)
            # A browser that connects again says so by itself.
            if (token := request.headers.get("last-event-id")) is not None:
                given.resume = token
            if subscriptions.open >= limits.subscribers:
                return _problem(503, f"there are {subscriptions.open} subscribers already")
            position = subscriptions.begin(given)
        except IkebanaError as error:
            return refusal(error)
        events = subscriptions.events(position, given.encoding)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, 200, headers, "text/event-stream")

    return subscribe


def _document() -> Endpoint:
    document = json.dumps(openapi.document(), indent=1)

    async def answer(_: Request) -> Response:
        return Response(document, media_type=wire.JSON)

    return answer


def _probing(probes: Probes) -> list[Route]:
    async def live(_: Request) -> Response:
        good, reason = probes.live()
        return PlainTextResponse(f"{reason}\n", 200 if good else 503)

    async def ready(_: Request) -> Response:
        good, told = probes.ready()
        body = json.dumps(told, indent=2) + "\n"
        return Response(body, 200 if good else 503, media_type=wire.JSON)

    async def scrape(request: Request) -> Response:
        kind, text = probes.scrape(request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    return [Route("/live", live), Route("/ready", ready), Route("/metrics", scrape)]


def refusal(error: IkebanaError) -> Response:
    """Answer why a request is refused, with the status that says whose doing it is."""
    match error:
        case UnreadableTimeError(since=since, upper=upper, is_past=is_past):
            status = 410 if is_past else 409
            return _problem(status, error.message, error.hint, since, upper)
        case UnknownCollectionError() | NoPlanError():
            return _problem(404, error.message, error.hint)
        case WaitedError():
            return _problem(408, error.message, error.hint)
        case TooLargeError():
            return _problem(413, error.message, error.hint)
        case _:
            return _problem(400, error.message, error.hint)


class TooLargeError(IkebanaError):
    """A body is larger than it may be."""


def _problem(status: int, *told: Any) -> Response:
    return Response(wire.encode(parameters.Problem(*told)), status, media_type=wire.JSON)


def _asked(request: Request, takes: type[Any]) -> Any:
    """Read the parameters of a query; those that may be repeated are lists."""
    repeated = {"collection"}
    found: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in repeated:
            found.setdefault(name, []).append(value)
        else:
            found[name] = value
    if unknown := found.keys() - set(takes.__struct_fields__):
        raise ConfigError(
            f'there is no parameter "{min(unknown)}" here',
            hint=f"There are: {', '.join(takes.__struct_fields__)}.",
        )
    return _converted(lambda: msgspec.convert(found, takes, strict=False))


def _decoded(body: bytes, takes: type[Any]) -> Any:
    return _converted(lambda: msgspec.json.decode(body, type=takes))


def _converted(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read the request: {error}") from error


async def _body(request: Request, most: int) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise TooLargeError(f"the body has more than {most:,} bytes")
    return bytes(found)


class _Guard:
    """Lets in who may ask, and turns everybody else away."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._tokens = [f"Bearer {token}".encode() for token in limits.tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refused(scope)) is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        if scope["path"] in _OPEN or console.is_of_console(scope["path"]):
            return None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._tokens:
            given = headers.get(b"authorization", b"")
            if sum(hmac.compare_digest(given, token) for token in self._tokens):
                return None
            refused = _problem(401, "there is no token in the request, or a wrong one")
            refused.headers["WWW-Authenticate"] = "Bearer"
            return refused
        if not _is_address(headers.get(b"host", b"").decode("latin-1")):
            return _problem(
                403,
                "without a token, only requests to an address or to localhost are answered",
                "Start `ikebana serve` with --token-file.",
            )
        return None


def _is_address(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name in ("localhost", ""):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
