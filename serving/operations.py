"""What a server answers over HTTP: the reads of `parameters.READS`, and what only a server has."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.base.listening import Problem
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import lag_s
from ikebana.processor.topics.kinds_of_time import MixedTimesError
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
from ikebana.serving.permitted import Permitted
from ikebana.serving.reads import TooLargeError, WaitedError
from ikebana.serving.service import Service, copies_read
from ikebana.serving.sql import QueryLimits, QueryResult
from ikebana.serving.view import (
    MOST_PAGE_BYTES,
    ArrangementView,
    Bounds,
    UnknownCollectionError,
    UnreadableTimeError,
    ViewRow,
    check_kinds,
    common_frontier,
    common_newest,
)

_ROWS = 1_000
_UPDATES = 10_000
_MOST_ENCODED = 64 << 20
_MOST_CUTS = 1_000
_HEARTBEAT_S = 15.0
_HEARTBEAT = b": nothing new\n\n"


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
    """Rung from any thread, heard by all that wait at that moment in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all that wait."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def next(self) -> asyncio.Event:
        """Return an event that is set at the next ring after this call.

        Whoever checks a condition calls this before, so that no change is missed between.
        """
        self._loop = asyncio.get_running_loop()
        return self._event

    def _wake(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


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
        standing = self.views.standing(view.meta.topic)
        caught_up = standing.caught_up_s
        return parameters.Served(
            reads.info(view),
            None if caught_up is None else round(caught_up, 3),
            lag_of(view),
            standing.size if view.columns is None else None,
            standing.updates,
        )


def lag_of(view: ArrangementView) -> float | None:
    """How many seconds lie between the newest time and now; None if times are no milliseconds."""
    return lag_s(view.meta.upper, time.time_ns() // 1_000_000)


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


class Position(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a subscription: all up to `as_of` was sent, or a part of its snapshot."""

    names: list[str]
    as_of: int
    number: int
    """The index of the collection in the snapshot; the number of collections after it."""
    subject: bytes | None = None
    topics: list[str | None] | None = None
    """The ids of the topics of the collections; None in tokens of versions without ids."""

    @property
    def in_snapshot(self) -> bool:
        """Whether a part of the snapshot has not been sent yet."""
        return self.number < len(self.names)

    def token(self) -> str:
        """Encode the position as text."""
        return reads.token_of(self)


def position_of(token: str) -> Position:
    """Decode the position that an event's id has.  Raises: ConfigError."""
    try:
        position = reads.read_token(token, Position)
    except ValueError as error:
        raise _none_of_an_event() from error
    topics = position.names if position.topics is None else position.topics
    if position.number < 0 or len(topics) != len(position.names):
        raise _none_of_an_event()
    return position


def _none_of_an_event() -> ConfigError:
    return ConfigError("cannot resume: the token is none of an event")


class Subscriptions:
    """Sends events to any number of subscribers that may see the same.

    A subscription is a collection as of a time, then each closed batch, as server-sent events.

    | event | data |
    |---|---|
    | `snapshot` | rows of a collection as of a time; `last`: no more come of any collection |
    | `batch` | all updates of all collections with `lower <= time < upper` |
    | `error` | why the subscription ends, such as history that is gone since |

    The `id` of an event is a token: a subscription that resumes with it gets the events after it.
    A slow subscriber is sent nothing until it has read; then it gets the missed batches as one,
    from the history of the arrangements.  An event for several subscribers is encoded once.
    """

    def __init__(self, views: Permitted, bell: Bell, encoded: "Encoded") -> None:
        self._permitted = views
        self._bell = bell
        self._encoded = encoded
        self._ended = False
        self.open = 0

    def end(self) -> None:
        """End all subscriptions soon."""
        self._ended = True
        self._bell.ring()

    def begin(self, asked: parameters.Subscribe) -> Position:
        """Return the position at which a subscription begins, or refuse it before any event.

        Raises:
            UnreadableTimeError: the time, or that of the token, cannot be read.
            MixedTimesError: the times of the collections are of different kinds.
        """
        if asked.resume is not None:
            position = position_of(asked.resume)
            if not position.names:
                raise ConfigError("cannot resume: the token names no collection")
            views = self._views(position)
            for view in views:
                view.check(position.as_of)
            # A token of a version without topic ids continues with the present topics.
            return msgspec.structs.replace(position, topics=_topics(views))
        names = asked.collection or self._permitted.names()
        views = [self._permitted.view(name) for name in names]
        as_of = time_of(asked.as_of, "as_of")
        check_kinds(views)
        if as_of is None or not views:
            as_of = common_newest(views)
        for view in views:
            view.check(as_of)
        return Position(names, as_of, 0 if asked.snapshot else len(names), topics=_topics(views))

    async def events(
        self, position: Position, encoding: wire.ByteEncoding
    ) -> AsyncIterator[bytes]:
        """Yield events from a position on, until the server ends."""
        self.open += 1
        try:
            with copies_read():
                while position.in_snapshot and not self._ended:
                    position, event = await asyncio.to_thread(self._snapshot, position, encoding)
                    yield event
                while not self._ended:
                    change = self._bell.next()
                    views = self._views(position)
                    upto = common_frontier(views) - 1
                    if upto <= position.as_of:
                        try:
                            await asyncio.wait_for(change.wait(), _HEARTBEAT_S)
                        except TimeoutError:
                            yield _HEARTBEAT
                        continue
                    position, event = self._batch(views, position, upto, encoding)
                    yield event
        except IkebanaError as error:
            yield _event("error", None, wire.encode(Problem(error.message, error.hint)))
        finally:
            self.open -= 1

    def _views(self, position: Position) -> list[ArrangementView]:
        return [self._view(position, number) for number in range(len(position.names))]

    def _view(self, position: Position, number: int) -> ArrangementView:
        view = self._permitted.view(position.names[number])
        if position.topics is not None:
            reads.same_topic(view, position.topics[number])
        return view

    def _snapshot(self, position: Position, encoding: wire.ByteEncoding) -> tuple[Position, bytes]:
        names, as_of, number, begin, topics = msgspec.structs.astuple(position)
        view = self._view(position, number)
        view.check(as_of)
        page = view.page(Bounds(), as_of, begin, _ROWS)
        if page.then is None:
            then = Position(names, as_of, number + 1, topics=topics)
        else:
            then = Position(names, as_of, number, page.then, topics)
        write = wire.writer(encoding)
        rows = [wire.key_values(row, write) for row in page.rows]
        last = not then.in_snapshot
        event = {"collection": names[number], "as_of": as_of, "rows": rows, "last": last}
        return then, _event("snapshot", then.token(), wire.encode(event))

    def _batch(
        self,
        views: Sequence[ArrangementView],
        position: Position,
        upto: int,
        encoding: wire.ByteEncoding,
    ) -> tuple[Position, bytes]:
        above = position.as_of
        for view in views:
            view.check(above)
        topics = _topics(views)
        names = [view.meta.topic for view in views]
        seen = tuple(zip(names, topics, (view.columns for view in views), strict=True))

        def find_cut() -> int:
            return min(_cut(view, above, upto) for view in views)

        cut = self._encoded.cut((seen, above, upto), find_cut)
        key = (seen, encoding, above, cut)
        then = Position(position.names, cut, len(position.names), topics=topics)

        def encoded() -> bytes:
            write = wire.writer(encoding)
            updates = {
                view.meta.topic: [
                    wire.change(update, write)
                    for update in view.changes(above, cut, None, 2**62).updates
                ]
                for view in views
            }
            event = {"lower": above + 1, "upper": cut + 1, "updates": updates}
            return _event("batch", then.token(), wire.encode(event))

        return then, self._encoded.get(key, encoded)


class Encoded:
    """A cache of the last events for other subscribers, and of the times at which they end."""

    def __init__(self) -> None:
        self._events: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._cuts: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._size = 0

    def cut(self, key: tuple[Any, ...], find: Callable[[], int]) -> int:
        """Return the last time of an event from the cache, or find it."""
        if key not in self._cuts:
            self._cuts[key] = find()
            if len(self._cuts) > _MOST_CUTS:
                self._cuts.popitem(last=False)
        return self._cuts[key]

    def get(self, key: tuple[Any, ...], make: Callable[[], bytes]) -> bytes:
        """Return an event from the cache, or make it."""
        if (event := self._events.get(key)) is not None:
            self._events.move_to_end(key)
            return event
        event = self._events[key] = make()
        self._size += len(event)
        while self._size > _MOST_ENCODED and len(self._events) > 1:
            self._size -= len(self._events.popitem(last=False)[1])
        return event


def _topics(views: Sequence[ArrangementView]) -> list[str | None]:
    return [reads.topic_id(view.meta) for view in views]


def _cut(view: ArrangementView, above: int, upto: int) -> int:
    """Return the last time of an event that has whole times and about `_UPDATES` updates."""
    then = view.changes(above, upto, None, _UPDATES, MOST_PAGE_BYTES).then
    if then is None:
        return upto
    # A time with more updates than that is sent whole all the same.
    return then[0] - 1 if then[0] - 1 > above else then[0]


def _event(name: str, token: str | None, data: bytes) -> bytes:
    # JSON that is encoded without spaces has no line breaks, but JSON that was read may.
    lines = b"".join(b"data: %b\n" % line for line in data.splitlines())
    head = f"event: {name}\n" + ("" if token is None else f"id: {token}\n")
    return head.encode() + lines + b"\n"


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
            standing = self.service.standing(name)
            lag = lag_of(self.service.view(name))
            samples[name] = HistorySample(
                standing.caught_up_s if lag is None else lag, standing.updates
            )
        return samples

    def end(self) -> None:
        """End all subscriptions soon."""
        for each in tuple(self._callers.values()):
            each.subscriptions.end()


def _hidden_plan() -> PlanView:
    raise NotPermittedError("the plan is shown to tokens that may see all collections")
