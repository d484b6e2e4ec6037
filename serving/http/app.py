"""The web application of a service: routes, bodies and parameters."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.watching import site
from ikebana.processor.watching.access import Access
from ikebana.processor.watching.front import probing
from ikebana.processor.watching.guard import PROBES, AccessLimits, Guard, Rules, grant_of, problem
from ikebana.serving.http import openapi, parameters, wire
from ikebana.serving.http.callers import Callers
from ikebana.serving.http.operations import OPERATIONS, Handler, respond
from ikebana.serving.http.parameters import Operation
from ikebana.serving.http.refusing import SlowError, TooManyError, refusal
from ikebana.serving.permitted import Permitted
from ikebana.serving.probes import Probes
from ikebana.serving.reads import TooLargeError
from ikebana.serving.service import CopyError, copies_read

ProbesOf = Callable[[Permitted], Probes]
_RULES = Rules("Start `ikebana serve` with --token-file, or with --anyone.", (*PROBES, "/metrics"))


def application(callers: Callers, probes: ProbesOf, limits: AccessLimits) -> ASGIApp:
    """Make the application."""
    routes = [
        Route(each.path, _endpoint(callers, each, handler, limits), methods=[each.method])
        for each, handler in OPERATIONS.items()
    ]
    routes += [
        Route("/v1/subscribe", _subscribing(callers, limits)),
        Route("/openapi.json", _document()),
        *_probing(callers, probes),
        *site.routes(),
    ]
    return _guarded(routes, limits)


def probing_alone(callers: Callers, probes: ProbesOf) -> ASGIApp:
    """Make an application of the probes alone, for an address of their own."""
    return _guarded(_probing(callers, probes), AccessLimits(Access({})))


def _guarded(routes: list[Route], limits: AccessLimits) -> ASGIApp:
    app = Starlette(routes=routes, exception_handlers={404: _nothing, 405: _nothing})
    return Guard(app, limits, _RULES)


async def _nothing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return problem(
        status,
        f"there is no {request.method} of {request.url.path}",
        "/openapi.json says what there is.",
    )


Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(
    callers: Callers, operation: Operation, handler: Handler, limits: AccessLimits
) -> Endpoint:
    takes = operation.takes
    in_body = operation.method == "POST"

    async def answer(request: Request) -> Response:
        try:
            if in_body:
                asked = _decoded(await _body(request, limits), takes)
            else:
                asked = _asked(request, takes)
            api = callers.of(grant_of(request)).api
            with copies_read():
                reply = await handler(api, request.path_params.get("name", ""), asked)
            return respond(reply, request)
        except CopyError as error:
            refused = problem(503, error.message, error.hint)
            refused.headers["Retry-After"] = "1"
            return refused
        except IkebanaError as error:
            return refusal(error)

    return answer


def _subscribing(callers: Callers, limits: AccessLimits) -> Endpoint:
    async def subscribe(request: Request) -> Response:
        try:
            grant = grant_of(request)
            asked: parameters.Subscribe = _asked(request, parameters.Subscribe)
            # A browser that connects again says so by itself.
            if (token := request.headers.get("last-event-id")) is not None:
                asked.resume = token
            if callers.open >= limits.subscribers:
                return problem(503, f"there are {callers.open} subscribers already")
            subscriptions = callers.of(grant).subscriptions
            if grant.subscriptions is not None and subscriptions.open >= grant.subscriptions:
                raise TooManyError(
                    f"this token has {subscriptions.open} subscriptions already",
                    hint="End one of them.",
                )
            position = subscriptions.begin(asked)
        except IkebanaError as error:
            return refusal(error)
        events = subscriptions.events(position, asked.encoding)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, 200, headers, "text/event-stream")

    return subscribe


def _document() -> Endpoint:
    document = json.dumps(openapi.document(), indent=1)

    async def answer(_: Request) -> Response:
        return Response(document, media_type=wire.JSON)

    return answer


def _probing(callers: Callers, probes: ProbesOf) -> list[Route]:
    return probing(lambda request: probes(callers.of(grant_of(request)).views))


def _asked(request: Request, takes: type[Any]) -> Any:
    """Read the parameters of a query; those that may be repeated are lists."""
    repeated = {"collection"}
    query: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in repeated:
            query.setdefault(name, []).append(value)
        else:
            query[name] = value
    if unknown := query.keys() - set(takes.__struct_fields__):
        raise ConfigError(
            f'there is no parameter "{min(unknown)}" here',
            hint=f"There are: {', '.join(takes.__struct_fields__)}.",
        )
    return _converted(lambda: msgspec.convert(query, takes, strict=False))


def _decoded(body: bytes, takes: type[Any]) -> Any:
    return _converted(lambda: msgspec.json.decode(body, type=takes))


def _converted(convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read the request: {error}") from error


async def _body(request: Request, limits: AccessLimits) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body_bytes:
                    raise TooLargeError(f"the body has more than {limits.body_bytes:,} bytes")
    except TimeoutError:
        raise SlowError(f"the body did not come within {limits.body_seconds:g} s") from None
    return bytes(body)
