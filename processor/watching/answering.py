"""The HTTP answers of a run: metrics, probes, the console, and the data of the console.

There are three levels.  Without a token a client only learns whether the run is live and ready,
as probes need it.  With any token it sees metrics and reasons, which name inputs, operators and
outputs.  A token that sees everything also reads below `/v1/`: figures and the plan, but no data,
except `/v1/records`, which reads a noted record, and `/v1/columns`, which names the columns of the
newest records.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ikebana.errors import IkebanaError
from ikebana.processor.base.listening import Listening
from ikebana.processor.base.rows import MessagePlace
from ikebana.processor.watching import front
from ikebana.processor.watching.front import Front, beside, probing
from ikebana.processor.watching.guard import (
    EVERYTHING,
    JSON,
    METRICS,
    NOTHING,
    PROBES,
    AccessLimits,
    Guard,
    Rules,
    grant_of,
    problem,
)
from ikebana.processor.watching.monitor import Monitor

if TYPE_CHECKING:
    # The readers of Kafka are imported only where records are looked at.
    from ikebana.processor.authoring.proposing.look import ColumnsSeen
    from ikebana.processor.kafka.records import Record

_RULES = Rules(
    "Start `ikebana run` with --token-file, with --anyone, or ask at --probes.",
    PROBES,
    (*PROBES, *METRICS),
)
# The most bytes of a key, and of a value, that are shown.
_MOST_BYTES = 64 * 1024


class RecordLookup(NamedTuple):
    """The functions that look at records, for clients with a token that sees everything.

    `read` reads the record of a place, and `columns` compares the columns of the newest records
    of an input with the declared ones; None if there is no such input.
    """

    read: "Callable[[MessagePlace], Record | None]"
    columns: "Callable[[str], ColumnsSeen | None]"


class RecordContent(msgspec.Struct):
    """The key and the value of a record in base64, perhaps cut off; `gone` if it was deleted."""

    gone: bool
    key: str | None = None
    value: str | None = None
    key_bytes: int = 0
    value_bytes: int = 0


@contextmanager
def serving(
    monitor: Monitor,
    listening: Listening,
    limits: AccessLimits = AccessLimits(),  # noqa: B008 - immutable
    looking: RecordLookup | None = None,
) -> Iterator[Front]:
    """Answer requests about a run during a `with` block.

    Raises:
        ConfigError: an address cannot be listened on, or the certificate cannot be used.
    """
    front = Front(listening)
    everything = _application(monitor, limits, looking)
    probes = Guard(_routed(_probes(monitor)), AccessLimits(any_host=True), _RULES)
    with beside(front, everything, probes):
        yield front


def _application(monitor: Monitor, limits: AccessLimits, looking: RecordLookup | None) -> ASGIApp:
    routes = [*front.page_routes(), *_probes(monitor)]
    reads: dict[str, Callable[[], object]] = {
        "/v1/plan": lambda: monitor.drawn,
        "/v1/run": monitor.figures,
        "/v1/history": monitor.past,
        "/v1/noted": lambda: monitor.noted(shows=looking is not None),
        "/v1/edit": monitor.edited,
    }
    routes += [Route(path, _reading(read)) for path, read in reads.items()]
    looks = {"/v1/records": _record, "/v1/columns": _columns}
    routes += [Route(path, _looked(monitor, looking, look)) for path, look in looks.items()]
    return Guard(_routed(routes), limits, _RULES)


def _routed(routes: list[Route]) -> Starlette:
    paths = (each.path.removesuffix("{name:path}") for each in routes if each.path != "/")
    text = f"there are {', '.join(paths)}\n"

    async def nothing(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return PlainTextResponse(text, status)

    return Starlette(routes=routes, exception_handlers={404: nothing, 405: nothing})


class _Answers(NamedTuple):
    """The answers to probes (`Probed`): in full, or only whether the run is live and ready."""

    monitor: Monitor
    is_all: bool

    def live(self) -> tuple[bool, str]:
        good, reason = self.monitor.live()
        return good, reason if self.is_all else "live" if good else "not live"

    def ready(self) -> tuple[bool, bytes]:
        good, body = self.monitor.readiness()
        return good, body if self.is_all else json.dumps({"ready": good}).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        return self.monitor.scrape(accept)


def _probes(monitor: Monitor) -> list[Route]:
    # A function that is no coroutine runs in a thread, so that a slow answer delays nobody.
    def spark(_: Request) -> Response:
        status, body = monitor.spark()
        return PlainTextResponse(body, status)

    scrape, *probes = probing(lambda request: _Answers(monitor, grant_of(request) is not NOTHING))
    return [scrape, Route("/metrics/spark", spark), *probes]


def _reading(read: Callable[[], object]) -> Callable[[Request], Response]:
    return lambda _: _json(read())


_Look = Callable[[Monitor, RecordLookup, QueryParams], Response]


def _looked(
    monitor: Monitor, looking: RecordLookup | None, look: _Look
) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        # Without tokens, the client is not known.
        if looking is None or grant_of(request) is EVERYTHING:
            hint = "Start it with --token-file to look at them."
            return problem(403, "this run shows no records", hint)
        try:
            return look(monitor, looking, request.query_params)
        except IkebanaError as error:
            return problem(502, error.message, error.hint)

    return answer


def _record(monitor: Monitor, looking: RecordLookup, query: QueryParams) -> Response:
    try:
        place = query["topic"], int(query["partition"]), int(query["offset"])
    except (KeyError, ValueError):
        place = None
    if place is None or not monitor.has_noted(place):
        return problem(404, "no record of this place is noted any more")
    record = looking.read(place)
    if record is None:
        return _json(RecordContent(gone=True))
    key, value = record.key, record.value
    return _json(
        RecordContent(
            gone=False,
            key=_base64(key),
            value=_base64(value),
            key_bytes=len(key or b""),
            value_bytes=len(value or b""),
        )
    )


def _columns(_: Monitor, looking: RecordLookup, query: QueryParams) -> Response:
    seen = looking.columns(query.get("input", ""))
    return problem(404, "there is no such input") if seen is None else _json(seen)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), 200, front.UNKEPT, JSON)


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw[:_MOST_BYTES]).decode()
