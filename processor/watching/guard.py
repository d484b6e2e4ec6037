"""Access control of a server or a run: tokens, rates, and protection against DNS rebinding.

Without tokens, only requests to an address or to `localhost` are answered, so that no web page
can reach a server on this machine by a host name that it points here; `any_host` turns this off.

Probes need no token.  The files of the console have no data, and the page itself asks for the
token that it sends, so they need none either.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ikebana.processor.base.listening import Problem, names_address
from ikebana.processor.watching import site
from ikebana.processor.watching.access import EVERYTHING, NOTHING, Access, Grant

_MOST_CLIENTS = 10_000


class RateLimit:
    """Lets each client make `rate` requests a second, and as many at once as fit into a second.

    It remembers only the last clients; a forgotten one begins with a full bucket.  It is
    thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str, rate: float | None) -> float:
        """Count a request; return the seconds until it may be made, 0 if it may now."""
        if rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            burst = max(1.0, rate)
            left, then = self._buckets.pop(client, (burst, now))
            left = min(burst, left + (now - then) * rate)
            wait = 0.0 if left >= 1 else (1 - left) / rate
            self._buckets[client] = (left if wait else left - 1, now)
            if len(self._buckets) > _MOST_CLIENTS:
                self._buckets.popitem(last=False)
        return wait


PROBES = ("/live", "/ready")
METRICS = ("/metrics", "/metrics/spark")
JSON = "application/json"
_BEARER = "Bearer "
_GRANT = "ikebana.grant"
# Wrong tokens from one address, a second.
_GUESSES = 50.0
_MOST_SUBSCRIBERS = 1_000
_encode = msgspec.json.Encoder(decimal_format="number").encode


class AccessLimits(NamedTuple):
    """Who may send requests, and how many; `rate` is requests a second of a token or an address.

    `any_host` answers requests to any host name if there are no tokens.
    """

    access: Access = Access()
    rate: float | None = None
    any_host: bool = False
    body_bytes: int = 1 << 20
    body_seconds: float = 30.0
    subscribers: int = _MOST_SUBSCRIBERS


class Rules(NamedTuple):
    """Which paths need a token; `hint` is the remedy if a host name is refused.

    `open` paths are answered without a token, as to a reader without rights.  With `shared`, all
    other paths need a token that sees everything; without it, each path checks the rights itself.
    """

    hint: str
    open: tuple[str, ...]
    shared: tuple[str, ...] | None = None


class Guard:
    """Passes allowed requests on with the grant of their client, and refuses all others."""

    def __init__(self, app: ASGIApp, limits: AccessLimits, rules: Rules) -> None:
        self._app = app
        self._limits = limits
        self._rules = rules
        self._rates = RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            verdict = self.judged(scope)
            if isinstance(verdict, Response):
                await verdict(scope, receive, send)
                return
            scope[_GRANT] = verdict
        await self._app(scope, receive, send)

    def judged(self, scope: Scope) -> Grant | Response:
        """Return the grant of a request, or the response that refuses it."""
        path: str = scope["path"]
        if site.is_of_console(path):
            return NOTHING
        headers: dict[bytes, bytes] = dict(scope["headers"])
        address = (scope.get("client") or ("",))[0]
        limits, rules = self._limits, self._rules
        if limits.access.grants is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if not limits.any_host and not names_address(host):
                return problem(
                    403,
                    "without a token, only requests to an address or to localhost are answered",
                    rules.hint,
                )
            grant, client = EVERYTHING, address
        else:
            authorization = headers.get(b"authorization")
            if authorization is None and path in rules.open:
                return NOTHING
            token = (authorization or b"").decode("latin-1")
            holder = limits.access.of(token.removeprefix(_BEARER))
            if holder is None or not token.startswith(_BEARER):
                return self._unknown(address)
            sees_all = holder.collections is None
            if not sees_all and rules.shared is not None and path not in rules.shared:
                return problem(
                    403,
                    "the token may see metrics only",
                    "The console needs a token that may see all collections.",
                )
            grant, client = holder, f"token {holder.name}"
        if path in (*PROBES, *METRICS):
            return grant
        rate = limits.rate if grant.rate is None else grant.rate
        return _too_often(self._rates.wait(client, rate)) or grant

    def _unknown(self, address: str) -> Response:
        if (late := _too_often(self._rates.wait(f"guess {address}", _GUESSES))) is not None:
            return late
        refusal = problem(401, "there is no token in the request, or a wrong one")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


def grant_of(request: Request) -> Grant:
    """Return the grant that the guard has found for a request."""
    grant: Grant = request.scope[_GRANT]
    return grant


def problem(
    status: int,
    error: str,
    hint: str | None = None,
    since: int | None = None,
    upper: int | None = None,
) -> Response:
    """Answer with a `Problem`, which no cache keeps."""
    body = _encode(Problem(error, hint, since, upper))
    return Response(body, status, site.UNKEPT, JSON)


def _too_often(wait: float) -> Response | None:
    if not wait:
        return None
    refusal = problem(429, "there are too many requests", f"Ask again in {wait:.2g} s.")
    refusal.headers["Retry-After"] = str(math.ceil(wait))
    return refusal
