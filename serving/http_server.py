"""Run the web application of a service until a signal, or until the service fails.

Probes say whether the service is live and ready, and have its metrics for Prometheus.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.base.listening import Listening
from ikebana.processor.base.processes import on_signals
from ikebana.processor.base.texts import lag_s
from ikebana.processor.watching import front
from ikebana.processor.watching.console import EVERY_MS, PlanView, no_plan
from ikebana.processor.watching.front import Front, beside, probing
from ikebana.processor.watching.guard import (
    PROBES,
    Access,
    AccessLimits,
    Guard,
    Rules,
    grant_of,
    problem,
)
from ikebana.processor.watching.monitor import families, scraped
from ikebana.serving import parameters, sql, wire
from ikebana.serving.operations import (
    OPERATIONS,
    Callers,
    Handler,
    SlowError,
    TooManyError,
    openapi,
    refusal,
    respond,
)
from ikebana.serving.parameters import Operation
from ikebana.serving.reads import TooLargeError
from ikebana.serving.service import CopyError, Permitted, Service, copies_read

# Name, whether it is a counter, description; all with the label `collection`.
METRICS = (
    ("ikebana_served_updates", True, "Updates followed since the start."),
    ("ikebana_served_batches", True, "Closed batches followed since the start."),
    ("ikebana_served_since", False, "The earliest time that can be read."),
    ("ikebana_served_frontier", False, "The frontier: times before it can be read."),
    ("ikebana_served_keys", False, "Keys that have a value."),
    ("ikebana_served_bytes", False, "The length of all keys and values."),
    ("ikebana_served_disk_bytes", False, "Bytes on disk."),
    ("ikebana_served_caught_up_seconds", False, "Time since all of the topic was read."),
    ("ikebana_served_lag_seconds", False, "Age of the frontier, if times are milliseconds."),
)


class ServiceProbes(Collector):
    """Answers probes of one service to one reader; ready if all topics were read lately."""

    def __init__(self, callers: Callers, views: Permitted, ready_within: float) -> None:
        self._callers = callers
        self._service = callers.service
        self._views = views
        self._ready_within = ready_within

    def live(self) -> tuple[bool, str]:
        """Return whether all topics are followed, and a reason."""
        if (failure := self._service.failure) is not None:
            return False, f"ended: {str(failure).splitlines()[0]}"
        return True, "following"

    def ready(self) -> tuple[bool, bytes]:
        """Return whether all collections can be read and are fresh, and JSON on each of them.

        Only the names of collections that the reader may see are included.
        """
        live, reason = self.live()
        collections: dict[str, Any] = {}
        good = live
        seen = self._views.names()
        for name in self._service.names():
            meta, progress = self._service.view(name).meta, self._service.progress(name)
            age = progress.caught_up_s
            fresh = age is not None and age <= self._ready_within
            readable = meta.since < meta.upper
            if good and not (fresh and readable):
                good = False
                reason = f"{name if name in seen else 'a collection'} is catching up"
            if name not in seen:
                continue
            since, upper = meta.bounds
            collections[name] = {
                "since": since,
                "upper": upper,
                "caught_up_seconds": None if age is None else round(age, 1),
            }
        body = {"ready": good, "reason": reason, "collections": collections}
        return good, json.dumps(body, indent=2).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render the metrics of visible collections; return the content type and the text."""
        return scraped(self, accept)

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        """Make all samples of this moment."""
        subscribers = GaugeMetricFamily(
            "ikebana_served_subscribers", "Subscriptions that are open.", self._callers.open
        )
        values = {name: self._values(name) for name in self._views.names()}
        return [*families(METRICS, "collection", values), subscribers]

    def _values(self, name: str) -> dict[str, float | None]:
        view, progress = self._views.view(name), self._views.progress(name)
        meta = view.meta
        since, upper = meta.bounds
        # Sizes would reveal hidden columns.
        is_whole = view.columns is None
        return {
            "updates": progress.updates,
            "batches": progress.batches,
            "since": since,
            "frontier": upper,
            "keys": meta.totals.keys,
            "bytes": meta.totals.bytes if is_whole else None,
            "disk_bytes": progress.size if is_whole else None,
            "caught_up_seconds": progress.caught_up_s,
            "lag_seconds": lag_s(view.meta.upper),
        }


_RULES = Rules("Start `ikebana serve` with --token-file, or with --anyone.", (*PROBES, "/metrics"))


def application(callers: Callers, ready_within: float, limits: AccessLimits) -> ASGIApp:
    """Make the application."""
    routes = [
        Route(each.path, _endpoint(callers, each, handler, limits), methods=[each.method])
        for each, handler in OPERATIONS.items()
    ]
    routes += [
        Route("/v1/subscribe", _subscribing(callers, limits)),
        Route("/openapi.json", _document()),
        *_probing(callers, ready_within),
        *front.page_routes(),
    ]
    return _guarded(routes, limits)


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
    body = json.dumps(openapi(), indent=1)

    async def answer(_: Request) -> Response:
        return Response(body, media_type=wire.JSON)

    return answer


def _probing(callers: Callers, ready_within: float) -> list[Route]:
    return probing(
        lambda request: ServiceProbes(callers, callers.of(grant_of(request)).views, ready_within)
    )


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


def serve(
    service: Service,
    listening: Listening,
    limits: AccessLimits,
    ready_within: float,
    say: Callable[[str], None],
    plan: Callable[[], PlanView] = no_plan,
    queries: sql.QueryLimits = sql.QueryLimits(),  # noqa: B008 - immutable
) -> None:
    """Follow and answer until SIGTERM or SIGINT; a second one ends the process at once.

    Raises:
        ConfigError: an address cannot be listened on, or a certificate cannot be used.
        IkebanaError: a topic cannot be followed any more.
    """
    ended = threading.Event()
    service.listen(lambda: None if service.failure is None else ended.set())
    try:
        with on_signals() as stopping:
            stopping.finish_first(ended.set)
            with answering(
                service, listening, limits, ready_within, plan, queries, ended.set
            ) as front:
                say(f"serving {front.url}/v1/collections and {front.url}/console/")
                ended.wait()
    finally:
        service.close()
    if (failure := service.failure or front.failure) is not None:
        raise failure


@contextlib.contextmanager
def answering(
    service: Service,
    listening: Listening,
    limits: AccessLimits,
    ready_within: float,
    plan: Callable[[], PlanView] = no_plan,
    queries: sql.QueryLimits = sql.QueryLimits(),  # noqa: B008 - immutable
    ended: Callable[[], None] = lambda: None,
) -> Iterator[Front]:
    """Start a service and answer requests to it within a `with` block.

    `ended` is called when nothing answers any more.

    Raises:
        ConfigError: an address cannot be listened on, or a certificate cannot be used.
    """
    front = Front(listening)
    callers = Callers(service, plan, queries)
    app = application(callers, ready_within, limits)
    # At an address of their own, probes need no token.
    probes = _guarded(_probing(callers, ready_within), AccessLimits(Access({})))
    stopping = threading.Event()

    def sample() -> None:
        """Keep how lag and updates have been, for charts."""
        while not stopping.is_set():
            callers.sample()
            stopping.wait(EVERY_MS / 1000)

    service.start()
    threading.Thread(target=sample, name="ikebana-samples", daemon=True).start()
    with beside(front, app, probes, ended):
        try:
            yield front
        finally:
            stopping.set()
            callers.end()
