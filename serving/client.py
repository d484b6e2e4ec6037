"""Read collections of an `ikebana serve` over HTTP, with the same methods as from its folder."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from ikebana.errors import AccessError, AwayError, ConfigError
from ikebana.processor.base.listening import Problem
from ikebana.processor.base.processes import OfThreads
from ikebana.serving.parameters import (
    READS,
    V1,
    CollectionsAnswer,
    SqlQuery,
    read_answer,
    request_parameters,
)
from ikebana.serving.reads import (
    CollectionInfo,
    CommonTimes,
    Reads,
    Result,
    WaitedError,
    newest,
)
from ikebana.serving.view import UnknownCollectionError, UnreadableTimeError
from ikebana.serving.wire import ARROW, JSON

_PATIENCE_S = 60.0
# The server waits so long for one request; a client that waits longer asks again.
_MOST_WAIT_S = 30.0
# Statuses of a server or proxy that may answer later.
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


class Connection(Reads):
    """`Reads` over HTTP; each thread has a connection of its own, until the thread ends.

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
        self._base = parts.path.rstrip("/").removesuffix(f"{V1}/collections")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connections = OfThreads[http.client.HTTPConnection]()

    def _read(self, read: Callable[..., Result], /, **arguments: Any) -> Result:
        operation = READS[read]
        path = operation.path
        if (name := arguments.pop("name", None)) is not None:
            path = path.replace("{name}", urllib.parse.quote(name, safe=""))
        fields = request_parameters(operation.takes, arguments)
        if operation.method == "POST":
            answer = self._request("POST", path, json.dumps(fields).encode())
        else:
            answer = self._get(path, fields)
        result: Result = read_answer(read, answer)
        return result

    def collections(self) -> list[CollectionInfo]:
        answer = msgspec.json.decode(self._get(f"{V1}/collections", {}), type=CollectionsAnswer)
        return [each.collection for each in answer.collections]

    def sql(self, query: str, *, as_of: int | None = None) -> pa.Table:
        body = json.dumps(request_parameters(SqlQuery, {"query": query, "as_of": as_of})).encode()
        body = self._request("POST", f"{V1}/sql", body, accept=ARROW)
        return pa.ipc.open_stream(body).read_all()

    def wait(self, time: int, *names: str, timeout: float) -> int:
        deadline = monotonic() + timeout
        while True:
            left = max(0.0, deadline - monotonic())
            fields = {"time": time, "timeout": min(left, _MOST_WAIT_S), "collection": names}
            try:
                closed: CommonTimes = read_answer(newest, self._get(f"{V1}/wait", fields))
                return closed.newest
            except WaitedError:
                if left <= _MOST_WAIT_S:
                    raise

    def close(self) -> None:
        self._connections.close()

    def _get(self, path: str, fields: Mapping[str, Any]) -> bytes:
        query = urllib.parse.urlencode(fields, doseq=True)
        return self._request("GET", f"{path}?{query}", None)

    def _request(self, method: str, path: str, body: bytes | None, accept: str = JSON) -> bytes:
        headers = {**self._headers, "Accept": accept}
        for is_last in (False, True):
            connection = self._connections.get(self._host, self._connection)
            try:
                connection.request(method, self._base + path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                # The server closes idle connections, so a second attempt uses a new one.
                connection.close()
                if is_last or isinstance(error, TimeoutError):
                    raise AwayError(
                        f"{self._url} does not answer: {error or type(error).__name__}",
                        hint="Is `ikebana serve` running there?",
                    ) from error
        else:
            raise AssertionError("neither an answer nor an error")
        if answer.status != 200:
            _refuse(answer.status, data)
        return data

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
        hint = "Is `ikebana serve` running there? A run answers no reads."
        raise kind(f"the server answers with status {status}", hint=hint) from None
    message = problem.error
    if status in (_NOT_CLOSED, _PAST):
        bounds = problem.since, problem.upper
        raise UnreadableTimeError(message, problem.hint, *bounds, is_past=status == _PAST)
    match status:
        case 401 | 403:
            raise AccessError(message, hint=problem.hint)
        case 404:
            raise UnknownCollectionError(message, hint=problem.hint)
        case 408:
            raise WaitedError(message, hint=problem.hint)
        case _ if status in _AWAY:
            raise AwayError(message, hint=problem.hint)
        case _:
            raise ConfigError(message, hint=problem.hint)
