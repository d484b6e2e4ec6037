"""The reads over HTTP: one row for each, from which its route and its documentation are made."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from ikebana.codecs.canonical import canonical
from ikebana.errors import ConfigError
from ikebana.processor.console.plan_view import NoPlanError, PlanView
from ikebana.processor.ground.moments import EPOCH_MS
from ikebana.processor.rows.rows import KeyedUpdate
from ikebana.processor.timing.kinds_of_time import MixedTimesError
from ikebana.processor.watching.history import History, Past
from ikebana.serving import plain, reads
from ikebana.serving.access import Permitted
from ikebana.serving.common_times import frontier, newest
from ikebana.serving.http import parameters, wire
from ikebana.serving.http.bell import Bell
from ikebana.serving.http.parameters import bounds_of, time_of
from ikebana.serving.http.queries import Queries
from ikebana.serving.http.refusing import NotPermittedError, TooLargeError
from ikebana.serving.layout import State
from ikebana.serving.reads import LocalReads
from ikebana.serving.view import (
    MOST_PAGE_BYTES,
    CollectionView,
    Row,
    UnreadableTimeError,
)

Result = TypeVar("Result")

# A scan of fewer rows is quicker than a change of threads.
_FEW = 50
_AT_ONCE = 500


class Answer(NamedTuple):
    """The body of an answer: a value for JSON, and what an Arrow stream has instead."""

    body: Any
    rows: list[Row] | None = None
    updates: list[KeyedUpdate] | None = None
    table: pa.Table | None = None


class Api:
    """Answers the requests of one caller from what it may see of a service.

    `plan` is a drawing, None if there is none, or why the caller may not see it.
    """

    def __init__(
        self,
        views: Permitted,
        bell: Bell,
        queries: Queries,
        plan: PlanView | NotPermittedError | None = None,
        history: History | None = None,
    ) -> None:
        self.views = views
        self._history = history or History()
        self.bell = bell
        self.drawn = plan
        self.reads = LocalReads(views)
        self._queries = queries.of_caller()

    async def collections(self, _: str, __: msgspec.Struct) -> Answer:
        """List the collections."""
        views = [self.views.view(name) for name in self.views.names()]
        common, why = None, None
        try:
            common = newest(views)
        except (UnreadableTimeError, MixedTimesError) as error:
            why = error.message
        served = [self._served(view) for view in views]
        return Answer(parameters.CollectionsAnswer(common, served, why))

    async def collection(self, name: str, _: msgspec.Struct) -> Answer:
        """Describe a collection: its times, its size, how it is followed."""
        return Answer(self._served(self.views.view(name)))

    async def get(self, name: str, given: parameters.Get) -> Answer:
        """Read the values of a key."""
        if given.key_base64 is not None:
            key = wire.unbased(given.key_base64, "key_base64")
        elif given.key is not None:
            key = wire.key_bytes(given.key)
        else:
            raise ConfigError("cannot read a key: give `key` or `key_base64`")
        view = self.views.view(name)
        as_of = _as_of(view, given.as_of)
        write = wire.writer(given.encoding)
        found = Row(key, view.get(key, as_of))
        row = wire.key_values(found, write)
        return Answer(parameters.GetAnswer(as_of, row.key, row.values), rows=[found])

    async def get_many(self, name: str, given: parameters.GetMany) -> Answer:
        """Read the values of several keys as of one time."""
        keys = [_canonical(key) for key in given.keys]
        keys += [wire.unbased(key, "keys_base64") for key in given.keys_base64]
        view = self.views.view(name)
        as_of = _as_of(view, given.as_of)
        found = await _apart(len(keys), lambda: _bounded(view, keys, as_of))
        rows = [Row(*row) for row in zip(keys, found, strict=True)]
        write = wire.writer(given.encoding)
        told = [wire.key_values(row, write) for row in rows]
        return Answer(parameters.GetManyAnswer(as_of, told), rows=rows)

    async def scan(self, name: str, given: parameters.Scan) -> Answer:
        """Read rows in the order of the bytes of keys, page by page at one time."""
        bounds, as_of = bounds_of(given), time_of(given.as_of, "as_of")
        found = await _apart(
            given.limit,
            lambda: self.reads.page(name, bounds, as_of=as_of, limit=given.limit, page=given.page),
        )
        write = wire.writer(given.encoding)
        told = [wire.key_values(row, write) for row in found.rows]
        return Answer(parameters.ScanAnswer(found.as_of, told, found.page), rows=found.rows)

    async def count(self, name: str, given: parameters.Within) -> Answer:
        """Count keys and data; within bounds this reads all of them."""
        view = self.views.view(name)
        as_of, bounds = _as_of(view, given.as_of), bounds_of(given)
        found = await asyncio.to_thread(view.count, bounds, as_of)
        size = found.keys, found.data, found.total, found.bytes
        return Answer(parameters.CountAnswer(as_of, *size))

    async def changes(self, name: str, given: parameters.Changes) -> Answer:
        """Read the consolidated updates between two times."""
        above, upto = time_of(given.above, "above"), time_of(given.upto, "upto")
        if above is None and given.page is None:
            raise ConfigError("cannot read changes: give `above`, the time after which they are")
        found = await _apart(
            given.limit,
            lambda: self.reads.changes(name, above or 0, upto, limit=given.limit, page=given.page),
        )
        write = wire.writer(given.encoding)
        told = [wire.change(update, write) for update in found.updates]
        return Answer(
            parameters.ChangesAnswer(found.above, found.upto, told, found.page),
            updates=found.updates,
        )

    async def sql(self, _: str, given: parameters.Sql) -> Answer:
        """Run one SELECT over collections, all of them as of one time."""
        as_of = time_of(given.as_of, "as_of")
        found = await self._queries.run(given.query, self.views.view, as_of)
        table = found.table
        columns = [parameters.SqlColumn(field.name, str(field.type)) for field in table.schema]
        rows = await asyncio.to_thread(plain.rows_of, table)
        return Answer(parameters.SqlAnswer(found.as_of, columns, rows), table=table)

    async def newest(self, _: str, given: parameters.Collections) -> Answer:
        """Return the newest time that can be read of all these collections."""
        return Answer(self._newest(given.collection))

    async def wait(self, _: str, given: parameters.Wait) -> Answer:
        """Wait until a time is closed in all these collections."""
        wanted = time_of(given.time, "time")
        assert wanted is not None
        deadline = asyncio.get_running_loop().time() + given.timeout
        names = given.collection or self.views.names()
        while True:
            change = self.bell.next()
            upper = frontier([self.views.view(name) for name in names])
            if upper > wanted:
                return Answer(self._newest(names))
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(change.wait(), max(0, left))
            except TimeoutError:
                raise reads.waited(wanted, given.timeout, upper) from None

    async def history(self, _: str, __: msgspec.Struct) -> Answer:
        """Show how lag and updates have been in the last hour, a sample every five seconds."""
        past, names = self._history.past(), self.views.names()
        return Answer(Past(past.at, {n: past.series[n] for n in names if n in past.series}))

    async def plan(self, _: str, __: msgspec.Struct) -> Answer:
        """Draw the plan whose outputs are served."""
        if self.drawn is None:
            raise NoPlanError(
                "there is no plan: topics are served by their names",
                hint="Start `ikebana serve` with the file of a pipeline.",
            )
        if isinstance(self.drawn, NotPermittedError):
            raise self.drawn
        return Answer(self.drawn)

    def _newest(self, names: list[str]) -> parameters.NewestAnswer:
        views = [self.views.view(name) for name in names or self.views.names()]
        return parameters.NewestAnswer(newest(views), max(view.meta.since for view in views))

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


class Operation(NamedTuple):
    """One read: its route, what it takes, and what it answers."""

    method: str
    path: str
    handler: Handler
    takes: type[msgspec.Struct]
    answers: type[msgspec.Struct]
    streams: bool = False
    """Whether it answers in Arrow, too."""


_ONE = "/v1/collections/{name}"
OPERATIONS = (
    Operation(
        "GET",
        "/v1/collections",
        Api.collections,
        msgspec.Struct,
        parameters.CollectionsAnswer,
    ),
    Operation("GET", _ONE, Api.collection, msgspec.Struct, parameters.Served),
    Operation("GET", _ONE + "/get", Api.get, parameters.Get, parameters.GetAnswer, streams=True),
    Operation(
        "POST",
        _ONE + "/get",
        Api.get_many,
        parameters.GetMany,
        parameters.GetManyAnswer,
        streams=True,
    ),
    Operation(
        "GET", _ONE + "/scan", Api.scan, parameters.Scan, parameters.ScanAnswer, streams=True
    ),
    Operation("GET", _ONE + "/count", Api.count, parameters.Within, parameters.CountAnswer),
    Operation(
        "GET",
        _ONE + "/changes",
        Api.changes,
        parameters.Changes,
        parameters.ChangesAnswer,
        streams=True,
    ),
    Operation("GET", "/v1/history", Api.history, msgspec.Struct, Past),
    Operation("GET", "/v1/newest", Api.newest, parameters.Collections, parameters.NewestAnswer),
    Operation("GET", "/v1/plan", Api.plan, msgspec.Struct, PlanView),
    Operation("POST", "/v1/sql", Api.sql, parameters.Sql, parameters.SqlAnswer, streams=True),
    Operation("GET", "/v1/wait", Api.wait, parameters.Wait, parameters.NewestAnswer),
)


def respond(answer: Answer, request: Request) -> Response:
    """Encode an answer as JSON, or as an Arrow stream if the request accepts that."""
    if request.headers.get("accept") == wire.ARROW:
        body = answer.body
        headers = {
            f"Ikebana-{name.replace('_', '-')}": str(found)
            for name in ("as_of", "above", "upto", "page")
            if (found := getattr(body, name, None)) is not None
        }
        if answer.rows is not None:
            return Response(wire.rows_stream(answer.rows), 200, headers, wire.ARROW)
        if answer.updates is not None:
            return Response(wire.updates_stream(answer.updates), 200, headers, wire.ARROW)
        if answer.table is not None:
            return Response(wire.stream(answer.table), 200, headers, wire.ARROW)
    return Response(wire.encode(answer.body), media_type=wire.JSON)


def _as_of(view: CollectionView, text: str | None) -> int:
    as_of = time_of(text, "as_of")
    if as_of is None:
        return view.newest()
    view.check(as_of)
    return as_of


def _canonical(key: Any) -> bytes:
    return canonical(wire.encode(key))


def _bounded(view: CollectionView, keys: list[bytes], as_of: int) -> list[State]:
    found: list[State] = []
    size = 0
    for begin in range(0, len(keys), _AT_ONCE):
        found += view.get_many(keys[begin : begin + _AT_ONCE], as_of)
        size += sum(len(value) for state in found[begin:] for value in state)
        if size > MOST_PAGE_BYTES:
            raise TooLargeError(
                f"the values of these keys have more than {MOST_PAGE_BYTES:,} bytes",
                hint="Ask for fewer keys.",
            )
    return found


async def _apart(size: int, read: Callable[[], Result]) -> Result:
    """Run a longer read in another thread, so that it does not hold up shorter ones."""
    return read() if size <= _FEW else await asyncio.to_thread(read)
