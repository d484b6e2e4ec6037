"""What a server answers over HTTP: the reads of `parameters.READS`, and what only a server has."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from ikebana import __version__
from ikebana.errors import IkebanaError
from ikebana.processor.base.diff_reader import MixedTimesError
from ikebana.processor.base.listening import Problem
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import lag_s
from ikebana.processor.watching.console import (
    HistorySample,
    NoPlanError,
    Past,
    PlanView,
    SampleHistory,
    no_plan,
)
from ikebana.processor.watching.guard import Grant, problem
from ikebana.serving import parameters, reads, sql, wire
from ikebana.serving.parameters import READS, V1, Nothing, Operation, answer_part, time_of
from ikebana.serving.reads import TooLargeError, WaitedError
from ikebana.serving.service import Permitted, Service
from ikebana.serving.sql import QueryLimits, QueryResult
from ikebana.serving.subscriptions import Bell, Encoded, Subscriptions
from ikebana.serving.view import (
    ArrangementView,
    UnknownCollectionError,
    UnreadableTimeError,
    ViewRow,
    common_frontier,
    common_newest,
)


class TooManyError(IkebanaError):
    """A client asks for too much at once."""


class SlowError(IkebanaError):
    """The body of a request takes too long to come."""


class NotPermittedError(IkebanaError):
    """A token may not see what it asks for."""


def refusal(error: IkebanaError) -> Response:
    """Answer why a request is refused."""
    match error:
        case UnreadableTimeError(since=since, upper=upper, is_past=is_past):
            status = 410 if is_past else 409
            return problem(status, error.message, error.hint, since, upper)
        case UnknownCollectionError() | NoPlanError():
            status = 404
        case NotPermittedError():
            status = 403
        case WaitedError() | SlowError():
            status = 408
        case TooLargeError():
            status = 413
        case TooManyError():
            status = 429
        case _:
            status = 400
    return problem(status, error.message, error.hint)


# Each may take the memory and the time of its limits.
_MOST_RUNNING = 2
# Of one caller, running or waiting.
_MOST_ASKED = 16


class CallersQueries:
    """Runs the queries of one caller, which cannot keep all others waiting.

    `running` is that of all callers, of which some run at once.
    """

    def __init__(self, limits: QueryLimits, running: asyncio.Semaphore) -> None:
        self._limits = limits
        self._running = running
        self._asked = 0

    async def run(
        self, text: str, view_of: Callable[[str], ArrangementView], as_of: int | None
    ) -> QueryResult:
        """Run a query within its limits, after those before it.

        Raises:
            TooManyError: the caller has too many in the server.
            IkebanaError: the query is refused, or exceeds a limit.
        """
        if self._asked >= _MOST_ASKED:
            raise TooManyError(
                f"there are {self._asked} queries of this reader already",
                hint="Wait until some are answered.",
            )
        self._asked += 1
        try:
            async with self._running:
                return await asyncio.to_thread(sql.run, text, view_of, as_of, self._limits)
        finally:
            self._asked -= 1


class Answer(NamedTuple):
    """The body of an answer: a value for JSON, and what an Arrow stream has instead."""

    body: Any
    rows: list[ViewRow] | None = None
    updates: list[KeyedUpdate] | None = None
    table: pa.Table | None = None


class Api:
    """Answers the requests of one caller from what it may see of a service.

    `plan` draws the plan, or raises why there is none or the caller may not see it.
    """

    def __init__(
        self,
        views: Permitted,
        bell: Bell,
        queries: CallersQueries,
        plan: Callable[[], PlanView] = no_plan,
        history: SampleHistory | None = None,
    ) -> None:
        self.views = views
        self._history = history or SampleHistory()
        self.bell = bell
        self._plan = plan
        self._queries = queries

    async def collections(self, _: str, __: Nothing) -> Answer:
        """List the collections."""
        views = [self.views.view(name) for name in self.views.names()]
        common, why = None, None
        try:
            common = common_newest(views)
        except (UnreadableTimeError, MixedTimesError) as error:
            why = error.message
        served = [self._served(view) for view in views]
        return Answer(parameters.CollectionsAnswer(common, served, why))

    async def collection(self, name: str, _: Nothing) -> Answer:
        """Describe a collection: its times, its size, how it is followed."""
        return Answer(self._served(self.views.view(name)))

    async def sql(self, _: str, asked: parameters.SqlQuery) -> Answer:
        """Run one SELECT over collections, all of them as of one time."""
        as_of = time_of(asked.as_of, "as_of")
        result = await self._queries.run(asked.query, self.views.view, as_of)
        table = result.table
        columns = [parameters.SqlColumn(field.name, str(field.type)) for field in table.schema]
        rows = await asyncio.to_thread(wire.rows_of, table)
        return Answer(parameters.SqlAnswer(result.as_of, columns, rows), table=table)

    async def wait(self, _: str, asked: parameters.Wait) -> Answer:
        """Wait until a time is closed in all these collections."""
        until = time_of(asked.time, "time")
        assert until is not None
        deadline = asyncio.get_running_loop().time() + asked.timeout
        names = asked.collection or self.views.names()
        while True:
            change = self.bell.next()
            upper = common_frontier([self.views.view(name) for name in names])
            if upper > until:
                return Answer(READS[reads.newest].answers(*reads.newest(self.views, names)))
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(change.wait(), max(0, left))
            except TimeoutError:
                raise reads.not_closed_in_time(until, asked.timeout, upper) from None

    async def history(self, _: str, __: Nothing) -> Answer:
        """Show how lag and updates have been in the last hour, a sample every five seconds."""
        past, names = self._history.past(), self.views.names()
        return Answer(Past(past.at, {n: past.series[n] for n in names if n in past.series}))

    async def plan(self, _: str, __: Nothing) -> Answer:
        """Draw the plan whose outputs are served."""
        return Answer(await asyncio.to_thread(self._plan))

    def _served(self, view: ArrangementView) -> parameters.Served:
        progress = self.views.progress(view.meta.topic)
        caught_up = progress.caught_up_s
        return parameters.Served(
            reads.info(view),
            None if caught_up is None else round(caught_up, 3),
            lag_s(view.meta.upper),
            progress.size if view.columns is None else None,
            progress.updates,
        )


Handler = Callable[[Api, str, Any], Awaitable[Answer]]


def _reading(read: Callable[..., Any]) -> tuple[Operation, Handler]:
    """Answer a read of `READS`."""
    operation = READS[read]

    async def handler(api: Api, name: str, asked: Any) -> Answer:
        arguments = asked.arguments()
        if "{name}" in operation.path:
            arguments["name"] = name
        if operation.is_short(arguments):
            result = read(api.views, **arguments)
        else:
            # In another thread, so that it does not hold up shorter ones.
            result = await asyncio.to_thread(read, api.views, **arguments)
        write = wire.writer(getattr(asked, "encoding", "json"))
        fields = {part: answer_part(each, write) for part, each in result._asdict().items()}
        rows, updates = getattr(result, "rows", None), getattr(result, "updates", None)
        if isinstance(result, reads.KeyState):
            rows = [ViewRow(result.key, result.values)]
        return Answer(operation.answers(**fields), rows, updates)

    return operation, handler


def _handling(
    handler: Handler, method: str, path: str, takes: Any, answers: Any, *, streams: bool = False
) -> tuple[Operation, Handler]:
    name, summary = getattr(handler, "__name__", ""), (handler.__doc__ or "").splitlines()[0]
    return Operation(name, summary, method, path, takes, answers, streams), handler


_ALL, _ONE = f"{V1}/collections", f"{V1}/collections/{{name}}"
# All that is answered, with what answers it.
OPERATIONS: Mapping[Operation, Handler] = dict(
    (
        _handling(Api.collections, "GET", _ALL, Nothing, parameters.CollectionsAnswer),
        _handling(Api.collection, "GET", _ONE, Nothing, parameters.Served),
        _reading(reads.get),
        _reading(reads.get_many),
        _reading(reads.scan),
        _reading(reads.count),
        _reading(reads.changes),
        _handling(Api.history, "GET", f"{V1}/history", Nothing, Past),
        _reading(reads.newest),
        _handling(Api.plan, "GET", f"{V1}/plan", Nothing, PlanView),
        _handling(
            Api.sql, "POST", f"{V1}/sql", parameters.SqlQuery, parameters.SqlAnswer, streams=True
        ),
        _handling(Api.wait, "GET", f"{V1}/wait", parameters.Wait, READS[reads.newest].answers),
    )
)


def respond(answer: Answer, request: Request) -> Response:
    """Encode an answer as JSON, or as an Arrow stream if the request accepts that."""
    if request.headers.get("accept") == wire.ARROW:
        body = answer.body
        headers = {
            f"Ikebana-{name.replace('_', '-')}": str(value)
            for name in ("as_of", "above", "upto", "page")
            if (value := getattr(body, name, None)) is not None
        }
        if answer.rows is not None:
            return Response(wire.rows_stream(answer.rows), 200, headers, wire.ARROW)
        if answer.updates is not None:
            return Response(wire.updates_stream(answer.updates), 200, headers, wire.ARROW)
        if answer.table is not None:
            return Response(wire.stream(answer.table), 200, headers, wire.ARROW)
    return Response(wire.encode(answer.body), media_type=wire.JSON)


class Caller(NamedTuple):
    """Who answers the requests of one reader."""

    views: Permitted
    api: Api
    subscriptions: Subscriptions


class Callers:
    """The readers of a service, one for each grant; it hears of all changes of the service."""

    def __init__(
        self,
        service: Service,
        plan: Callable[[], PlanView] = no_plan,
        limits: QueryLimits = QueryLimits(),  # noqa: B008 - immutable
    ) -> None:
        self.service = service
        self._bell = Bell()
        self._plan = plan
        self._limits = limits
        self._running = asyncio.Semaphore(_MOST_RUNNING)
        self._history = SampleHistory()
        # A grant lives as long as the server, and no two have the same rights by their names.
        self._callers: dict[int, Caller] = {}
        self._encoded = Encoded()
        service.listen(self._bell.ring)

    def of(self, grant: Grant) -> Caller:
        """Return who answers a reader."""
        if (caller := self._callers.get(id(grant))) is not None:
            return caller
        views = Permitted(self.service, grant)
        plan = self._plan if grant.collections is None else _hidden_plan
        caller = Caller(
            views,
            Api(
                views,
                self._bell,
                CallersQueries(self._limits, self._running),
                plan,
                self._history,
            ),
            Subscriptions(views, self._bell, self._encoded),
        )
        self._callers[id(grant)] = caller
        return caller

    @property
    def open(self) -> int:
        """How many subscriptions are open."""
        return sum(each.subscriptions.open for each in self._callers.values())

    def sample(self) -> None:
        """Take a sample of the lag and the updates of all collections."""
        self._history.take(time.time_ns() // 1_000_000, self._samples)

    def _samples(self) -> dict[str, HistorySample]:
        samples = {}
        for name in self.service.names():
            progress = self.service.progress(name)
            lag = lag_s(self.service.view(name).meta.upper)
            samples[name] = HistorySample(
                progress.caught_up_s if lag is None else lag, progress.updates
            )
        return samples

    def end(self) -> None:
        """End all subscriptions soon."""
        for each in tuple(self._callers.values()):
            each.subscriptions.end()


def _hidden_plan() -> PlanView:
    raise NotPermittedError("the plan is shown to tokens that may see all collections")


_REFUSALS = {
    "400": "A parameter is not right.",
    "401": "There is no token, or a wrong one.",
    "404": "There is no such collection.",
    "408": "A time was not closed before the deadline.",
    "409": "The time is not closed yet: `upper` is the frontier.",
    "410": "The history of the time is gone: `since` is the earliest time that is left.",
    "413": "The body is too large.",
}
_ANY_BODY = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def openapi() -> dict[str, Any]:
    """Make the OpenAPI document of `OPERATIONS` and of subscriptions."""
    types = {operation.answers for operation in OPERATIONS} | {Problem}
    bodies = {each.takes for each in OPERATIONS if each.method == "POST"}
    ordered = sorted(types | bodies, key=lambda each: each.__name__)
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components(ordered, ref_template=template)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    paths["/v1/subscribe"] = {"get": _subscribe()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ikebana serve",
            "version": __version__,
            "description": "Reads of collections as of any time that is kept.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {
        wire.JSON: {"schema": {"$ref": f"#/components/schemas/{operation.answers.__name__}"}}
    }
    if operation.streams:
        content[wire.ARROW] = {"schema": {"type": "string", "format": "binary"}}
    description: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [],
        "responses": {"200": {"description": "The answer.", "content": content}, **_refused()},
    }
    if "{name}" in operation.path:
        description["parameters"].append(
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        )
    if operation.method == "POST":
        body = {"$ref": f"#/components/schemas/{operation.takes.__name__}"}
        description["requestBody"] = {"required": True, "content": {wire.JSON: {"schema": body}}}
    else:
        description["parameters"] += _parameters(operation.takes)
    return description


def _subscribe() -> dict[str, Any]:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": "subscribe",
        "summary": "Send collections as of a time, then each closed batch, as events.",
        "parameters": _parameters(parameters.Subscribe),
        "responses": {"200": {"description": "Events.", "content": stream}, **_refused()},
    }


def _parameters(takes: type[msgspec.Struct]) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(takes)
    struct = schema["$defs"][takes.__name__] if "$ref" in schema else schema
    required = struct.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in struct["properties"].items()
    ]


def _refused() -> dict[str, Any]:
    return {
        status: {"description": reason, "content": _ANY_BODY}
        for status, reason in _REFUSALS.items()
    }
