"""What a server answers over HTTP: the reads of `parameters.READS`, and what only a server has."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from ikebana.errors import IkebanaError
from ikebana.processor.base.moments import EPOCH_MS
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.topics.kinds_of_time import MixedTimesError
from ikebana.processor.watching.guard import problem
from ikebana.processor.watching.history import Past, SampleHistory
from ikebana.processor.watching.plan_view import NoPlanError, PlanView, no_plan
from ikebana.serving import plain, reads
from ikebana.serving.common_times import frontier, newest
from ikebana.serving.http import parameters, wire
from ikebana.serving.http.parameters import READS, V1, Nothing, Operation, answered, time_of
from ikebana.serving.permitted import Permitted
from ikebana.serving.reads import TooLargeError, WaitedError
from ikebana.serving.sql import query
from ikebana.serving.sql.query import Limits, Result
from ikebana.serving.view import CollectionView, Row, UnknownCollectionError, UnreadableTimeError


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


class Bell:
    """Rung from any thread, heard by all that wait at that moment; made in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all that wait."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def next(self) -> asyncio.Event:
        """Return an event that is set at the next ring after this call.

        Whoever checks a condition calls this before, so that no change is missed between.
        """
        return self._event

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


# Each may take the memory and the time of its limits.
_MOST_RUNNING = 2
# Of one caller, running or waiting.
_MOST_ASKED = 16


class Queries:
    """Runs the queries of all callers, some at once, each within its limits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.running = asyncio.Semaphore(_MOST_RUNNING)

    def of_caller(self) -> "CallersQueries":
        """Return the queries of one more caller."""
        return CallersQueries(self)


class CallersQueries:
    """The queries of one caller, which cannot keep all others waiting."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._asked = 0

    async def run(
        self, text: str, view_of: Callable[[str], CollectionView], as_of: int | None
    ) -> Result:
        """Run a query, after those before it.

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
            async with self._queries.running:
                return await asyncio.to_thread(
                    query.run, text, view_of, as_of, self._queries.limits
                )
        finally:
            self._asked -= 1


class Answer(NamedTuple):
    """The body of an answer: a value for JSON, and what an Arrow stream has instead."""

    body: Any
    rows: list[Row] | None = None
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
        queries: Queries,
        plan: Callable[[], PlanView] = no_plan,
        history: SampleHistory | None = None,
    ) -> None:
        self.views = views
        self._history = history or SampleHistory()
        self.bell = bell
        self._plan = plan
        self._queries = queries.of_caller()

    async def collections(self, _: str, __: Nothing) -> Answer:
        """List the collections."""
        views = [self.views.view(name) for name in self.views.names()]
        common, why = None, None
        try:
            common = newest(views)
        except (UnreadableTimeError, MixedTimesError) as error:
            why = error.message
        served = [self._served(view) for view in views]
        return Answer(parameters.CollectionsAnswer(common, served, why))

    async def collection(self, name: str, _: Nothing) -> Answer:
        """Describe a collection: its times, its size, how it is followed."""
        return Answer(self._served(self.views.view(name)))

    async def sql(self, _: str, asked: parameters.Sql) -> Answer:
        """Run one SELECT over collections, all of them as of one time."""
        as_of = time_of(asked.as_of, "as_of")
        result = await self._queries.run(asked.query, self.views.view, as_of)
        table = result.table
        columns = [parameters.SqlColumn(field.name, str(field.type)) for field in table.schema]
        rows = await asyncio.to_thread(plain.rows_of, table)
        return Answer(parameters.SqlAnswer(result.as_of, columns, rows), table=table)

    async def wait(self, _: str, asked: parameters.Wait) -> Answer:
        """Wait until a time is closed in all these collections."""
        until = time_of(asked.time, "time")
        assert until is not None
        deadline = asyncio.get_running_loop().time() + asked.timeout
        names = asked.collection or self.views.names()
        while True:
            change = self.bell.next()
            upper = frontier([self.views.view(name) for name in names])
            if upper > until:
                return Answer(parameters.NewestAnswer(*reads.newest(self.views, names)))
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(change.wait(), max(0, left))
            except TimeoutError:
                raise reads.waited(until, asked.timeout, upper) from None

    async def history(self, _: str, __: Nothing) -> Answer:
        """Show how lag and updates have been in the last hour, a sample every five seconds."""
        past, names = self._history.past(), self.views.names()
        return Answer(Past(past.at, {n: past.series[n] for n in names if n in past.series}))

    async def plan(self, _: str, __: Nothing) -> Answer:
        """Draw the plan whose outputs are served."""
        return Answer(await asyncio.to_thread(self._plan))

    def _served(self, view: CollectionView) -> parameters.Served:
        standing = self.views.standing(view.meta.topic)
        caught_up = standing.caught_up_s
        return parameters.Served(
            reads.info(view),
            None if caught_up is None else round(caught_up, 3),
            lag_of(view),
            standing.size if view.columns is None else None,
            standing.updates,
        )


def lag_of(view: CollectionView) -> float | None:
    """How many seconds lie between the newest time and now; None if times are no milliseconds."""
    if view.meta.upper not in EPOCH_MS:
        return None
    return round(max(0.0, time.time() - view.meta.upper / 1000), 3)


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
        fields = {part: answered(each, write) for part, each in result._asdict().items()}
        rows, updates = getattr(result, "rows", None), getattr(result, "updates", None)
        if isinstance(result, reads.KeyState):
            rows = [Row(result.key, result.values)]
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
            Api.sql, "POST", f"{V1}/sql", parameters.Sql, parameters.SqlAnswer, streams=True
        ),
        _handling(Api.wait, "GET", f"{V1}/wait", parameters.Wait, parameters.NewestAnswer),
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
