"""Read what an `ikebana serve` serves, over HTTP: the same reads as of its folder."""

import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec
import pyarrow as pa

from ikebana.errors import AccessError, AwayError, ConfigError
from ikebana.processor.rows.rows import KeyedUpdate
from ikebana.serving.http.parameters import (
    ChangesAnswer,
    CollectionsAnswer,
    CountAnswer,
    GetAnswer,
    GetManyAnswer,
    NewestAnswer,
    Problem,
    ScanAnswer,
)
from ikebana.serving.http.wire import ARROW, JSON, KeyValues, based
from ikebana.serving.layout import State, Totals
from ikebana.serving.of_threads import OfThreads
from ikebana.serving.reads import (
    ChangesPage,
    CollectionInfo,
    Page,
    WaitedError,
)
from ikebana.serving.view import Bounds, Row, UnknownCollectionError, UnreadableTimeError

_PATIENCE_S = 60.0
# The server waits so long for one request; a client that waits longer asks again.
_MOST_WAIT_S = 30.0
# What a server answers, or a proxy in front of it, that may answer later.
_AWAY = (502, 503, 504)
_NOT_CLOSED, _PAST = 409, 410


def connect(
    url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None
) -> "Connection":
    """Connect to an `ikebana serve`, such as http://127.0.0.1:8080.

    `tls` says whom to trust and has our certificate, if the server asks for one; usually those
    are trusted that the system trusts.  The connection has the reads of `ikebana.open`.

    An example::

        with ikebana.connect("http://127.0.0.1:8080") as served:
            newest = served.newest("whereabouts")
            values = served.get("whereabouts", b'"N12345"', as_of=newest)

    `values` has the values of the key with their multiplicities, such as {b'"BOS"': 1}.

    Raises:
        ConfigError: the URL is none of HTTP.
    """
    return Connection(url, token, tls)


class Connection:
    """`reads.Reads` over HTTP; each thread has a connection of its own, until the thread ends.

    Every read raises:
        AwayError: the server does not answer, or cannot now; asked again later, it may.
        AccessError: the token is missing, or wrong.
    """

    def __init__(self, url: str, token: str | None, tls: ssl.SSLContext | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f'cannot connect to "{url}": it is no URL of HTTP',
                hint="`ikebana serve` says what its URL is, such as http://127.0.0.1:8080.",
            )
        self._url = url
        secure = parts.scheme == "https"
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/").removesuffix("/v1/collections") + "/v1"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connections = OfThreads[http.client.HTTPConnection]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def collections(self) -> list[CollectionInfo]:
        found = self._get(CollectionsAnswer, "/collections", {})
        return [each.collection for each in found.collections]

    def newest(self, *names: str) -> int:
        found: NewestAnswer = self._get(NewestAnswer, "/newest", {"collection": names})
        return found.newest

    def get(self, name: str, key: bytes, *, as_of: int | None = None) -> State:
        asked = {"key_base64": based(key), "as_of": as_of, "encoding": "base64"}
        found = self._get(GetAnswer, _of(name, "get"), asked)
        return {_bytes(each["value"]): each["count"] for each in found.values}

    def get_many(
        self, name: str, keys: Sequence[bytes], *, as_of: int | None = None
    ) -> list[State]:
        asked: dict[str, Any] = {"keys_base64": [*map(based, keys)], "encoding": "base64"}
        if as_of is not None:
            asked["as_of"] = str(as_of)
        body = json.dumps(asked).encode()
        answer = self._request("POST", _of(name, "get"), body)
        found = msgspec.json.decode(answer, type=GetManyAnswer)
        return [_row(each).values for each in found.rows]

    def page(
        self,
        name: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - immutable
        *,
        as_of: int | None = None,
        limit: int = 1_000,
        page: str | None = None,
    ) -> Page:
        asked = {**_bounds(bounds), "as_of": as_of, "limit": limit, "page": page}
        found = self._get(ScanAnswer, _of(name, "scan"), asked)
        return Page(found.as_of, [_row(each) for each in found.rows], found.page)

    def count(
        self,
        name: str,
        bounds: Bounds = Bounds(),  # noqa: B008 - immutable
        *,
        as_of: int | None = None,
    ) -> Totals:
        asked = {**_bounds(bounds), "as_of": as_of}
        found = self._get(CountAnswer, _of(name, "count"), asked)
        return Totals(found.keys, found.data, found.total, found.bytes)

    def changes(
        self,
        name: str,
        above: int,
        upto: int | None = None,
        *,
        limit: int = 1_000,
        page: str | None = None,
    ) -> ChangesPage:
        asked = {"above": above, "upto": upto, "limit": limit, "page": page}
        asked["encoding"] = "base64"
        found = self._get(ChangesAnswer, _of(name, "changes"), asked)
        updates = [
            KeyedUpdate(
                None if each.key is None else _bytes(each.key),
                _bytes(each.value),
                each.time,
                each.diff,
            )
            for each in found.updates
        ]
        return ChangesPage(found.above, found.upto, updates, found.page)

    def sql(self, query: str, *, as_of: int | None = None) -> pa.Table:
        asked = {"query": query} if as_of is None else {"query": query, "as_of": str(as_of)}
        body = self._request("POST", "/sql", json.dumps(asked).encode(), accept=ARROW)
        return pa.ipc.open_stream(body).read_all()

    def wait(self, time: int, *names: str, timeout: float) -> int:
        deadline = monotonic() + timeout
        while True:
            left = max(0.0, deadline - monotonic())
            asked = {"time": time, "timeout": min(left, _MOST_WAIT_S), "collection": names}
            try:
                found: NewestAnswer = self._get(NewestAnswer, "/wait", asked)
                return found.newest
            except WaitedError:
                if left <= _MOST_WAIT_S:
                    raise

    def close(self) -> None:
        self._connections.close()

    def _get(
        self,
        answers: type[Any],
        path: str,
        asked: Mapping[str, Any],
    ) -> Any:
        given = {name: value for name, value in asked.items() if value is not None}
        query = urllib.parse.urlencode(given, doseq=True)
        return msgspec.json.decode(self._request("GET", f"{path}?{query}", None), type=answers)

    def _request(self, method: str, path: str, body: bytes | None, accept: str = JSON) -> bytes:
        headers = {**self._headers, "Accept": accept}
        for is_last in (False, True):
            connection = self._connections.get(self._host, self._connection)
            try:
                connection.request(method, self._base + path, body, headers)
                answer = connection.getresponse()
                found = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                # The server closes a connection that was idle; a new one tells more.
                connection.close()
                if is_last or isinstance(error, TimeoutError):
                    raise AwayError(
                        f"{self._url} does not answer: {error or type(error).__name__}",
                        hint="Is `ikebana serve` running there?",
                    ) from error
        else:
            raise AssertionError("neither an answer nor an error")
        if answer.status != 200:
            _refuse(answer.status, found)
        return found

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=_PATIENCE_S, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE_S)


def _refuse(status: int, body: bytes) -> NoReturn:
    """Raise the error that the server had."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.MsgspecError:
        kind = AwayError if status in _AWAY else ConfigError
        raise kind(f"the server answers with status {status}") from None
    told = problem.error
    if status in (_NOT_CLOSED, _PAST):
        bounds = problem.since, problem.upper
        raise UnreadableTimeError(told, problem.hint, *bounds, is_past=status == _PAST)
    match status:
        case 401 | 403:
            raise AccessError(told, hint=problem.hint)
        case 404:
            raise UnknownCollectionError(told, hint=problem.hint)
        case 408:
            raise WaitedError(told, hint=problem.hint)
        case _ if status in _AWAY:
            raise AwayError(told, hint=problem.hint)
        case _:
            raise ConfigError(told, hint=problem.hint)


def _of(name: str, what: str) -> str:
    return f"/collections/{urllib.parse.quote(name, safe='')}/{what}"


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _row(found: KeyValues) -> Row:
    key = None if found.key is None else _bytes(found.key)
    return Row(key, {_bytes(each.value): each.count for each in found.values})


def _bounds(bounds: Bounds) -> dict[str, str]:
    told = {
        f"{name}_base64": based(value)
        for name, value in bounds._asdict().items()
        if value is not None
    }
    return {**told, "encoding": "base64"}
