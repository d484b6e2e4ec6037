"""Who may ask a server or a run: tokens, how often, and no web page by a name that points here.

Without tokens, only requests to an address or to `localhost` are answered, so that no web page
can reach a server on this machine by a name that it makes point here; unless it was told that
anyone may read.

Probes need no token.  The files of the console have no data, and the page asks for the token that
it sends, so they are for everybody, too.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ikebana.processor.base.listening import Problem, names_address
from ikebana.processor.base.rates import Rates
from ikebana.processor.watching import site
from ikebana.processor.watching.access import EVERYTHING, NOTHING, Access, Grant

PROBES = ("/live", "/ready")
METRICS = ("/metrics", "/metrics/spark")
JSON = "application/json"
_BEARER = "Bearer "
_GRANT = "ikebana.grant"
# Wrong tokens from one address, a second.
_GUESSES = 50.0
_MOST_SUBSCRIBERS = 1_000
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Limits(NamedTuple):
    """Who may ask, and how much; `rate` is requests a second of one token, or one address.

    `any_host` answers requests to any name where there are no tokens.
    """

    access: Access = Access()
    rate: float | None = None
    any_host: bool = False
    body_bytes: int = 1 << 20
    body_seconds: float = 30.0
    subscribers: int = _MOST_SUBSCRIBERS


class Rules(NamedTuple):
    """What a token is needed for, and what to do where a name is not answered.

    `open` paths are answered without a token, as to who may see nothing.  Where there is
    `shared`, all paths but these need a token that sees everything; otherwise what a token sees
    is for each path to say.
    """

    hint: str
    open: tuple[str, ...]
    shared: tuple[str, ...] | None = None


class Guard:
    """Lets in who may ask, with what it may read, and turns everybody else away."""

    def __init__(
        self, app: ASGIApp, limits: Limits, rules: Rules, rates: Callable[[], Rates] = Rates
    ) -> None:
        self._app = app
        self._limits = limits
        self._rules = rules
        self._rates = rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            verdict = self.judged(scope)
            if isinstance(verdict, Response):
                await verdict(scope, receive, send)
                return
            scope[_GRANT] = verdict
        await self._app(scope, receive, send)

    def judged(self, scope: Scope) -> Grant | Response:
        """Return what a request may read, or why it is turned away."""
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
    """Return what the guard lets a request read."""
    grant: Grant = request.scope[_GRANT]
    return grant


def problem(
    status: int,
    error: str,
    hint: str | None = None,
    since: int | None = None,
    upper: int | None = None,
) -> Response:
    """Answer with a `Problem`, which nobody keeps."""
    body = _encode(Problem(error, hint, since, upper))
    return Response(body, status, site.UNKEPT, JSON)


def _too_often(wait: float) -> Response | None:
    if not wait:
        return None
    refusal = problem(429, "there are too many requests", f"Ask again in {wait:.2g} s.")
    refusal.headers["Retry-After"] = str(math.ceil(wait))
    return refusal
