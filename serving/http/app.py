"""The web application of a service: routes, bodies and parameters."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ikebana.errors import ConfigError, IkebanaError
from ikebana.serving.access import Access
from ikebana.serving.http import console, openapi, parameters, wire
from ikebana.serving.http.callers import Callers
from ikebana.serving.http.guard import Guard, Limits, grant_of
from ikebana.serving.http.operations import OPERATIONS, Operation, respond
from ikebana.serving.http.refusing import SlowError, TooLargeError, TooManyError, problem, refusal
from ikebana.serving.probes import Probes
from ikebana.serving.service import CopyError, copies_read


def application(callers: Callers, probes: Probes, limits: Limits) -> ASGIApp:
    """Make the application."""
    routes = [
        Route(each.path, _endpoint(callers, each, limits), methods=[each.method])
        for each in OPERATIONS
    ]
    routes += [
        Route("/v1/subscribe", _subscribing(callers, limits)),
        Route("/openapi.json", _document()),
        *_probing(callers, probes),
        *console.routes(),
    ]
    return Guard(Starlette(routes=routes, exception_handlers=_NOTHING_THERE), limits)


def probing(callers: Callers, probes: Probes) -> ASGIApp:
    """Make an application of the probes alone, for an address of their own."""
    routes = _probing(callers, probes)
    app = Starlette(routes=routes, exception_handlers=_NOTHING_THERE)
    return Guard(app, Limits(Access({})))


async def _nothing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return problem(
        status,
        f"there is no {request.method} of {request.url.path}",
        "/openapi.json says what there is.",
    )


_NOTHING_THERE: dict[Any, Any] = {404: _nothing, 405: _nothing}
Endpoint = Callable[[Request], Awaitable[Response]]


def _endpoint(callers: Callers, operation: Operation, limits: Limits) -> Endpoint:
    takes, handler = operation.takes, operation.handler
    in_body = operation.method == "POST"

    async def answer(request: Request) -> Response:
        try:
            if in_body:
                given = _decoded(await _body(request, limits), takes)
            else:
                given = _asked(request, takes)
            api = callers.of(grant_of(request)).api
            with copies_read():
                found = await handler(api, request.path_params.get("name", ""), given)
            return respond(found, request)
        except CopyError as error:
            refused = problem(503, error.message, error.hint)
            refused.headers["Retry-After"] = "1"
            return refused
        except IkebanaError as error:
            return refusal(error)

    return answer


def _subscribing(callers: Callers, limits: Limits) -> Endpoint:
    async def subscribe(request: Request) -> Response:
        try:
            grant = grant_of(request)
            given: parameters.Subscribe = _asked(request, parameters.Subscribe)
            # A browser that connects again says so by itself.
            if (token := request.headers.get("last-event-id")) is not None:
                given.resume = token
            if callers.open >= limits.subscribers:
                return problem(503, f"there are {callers.open} subscribers already")
            subscriptions = callers.of(grant).subscriptions
            if grant.subscriptions is not None and subscriptions.open >= grant.subscriptions:
                raise TooManyError(
                    f"this token has {subscriptions.open} subscriptions already",
                    hint="End one of them.",
                )
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


def _probing(callers: Callers, probes: Probes) -> list[Route]:
    async def live(_: Request) -> Response:
        good, reason = probes.live()
        return PlainTextResponse(f"{reason}\n", 200 if good else 503)

    async def ready(request: Request) -> Response:
        good, told = probes.ready(callers.of(grant_of(request)).views)
        body = json.dumps(told, indent=2) + "\n"
        return Response(body, 200 if good else 503, media_type=wire.JSON)

    async def scrape(request: Request) -> Response:
        views = callers.of(grant_of(request)).views
        kind, text = probes.scrape(views, request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    return [Route("/live", live), Route("/ready", ready), Route("/metrics", scrape)]


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


async def _body(request: Request, limits: Limits) -> bytes:
    found = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                found += part
                if len(found) > limits.body_bytes:
                    raise TooLargeError(f"the body has more than {limits.body_bytes:,} bytes")
    except TimeoutError:
        raise SlowError(f"the body did not come within {limits.body_seconds:g} s") from None
    return bytes(found)
