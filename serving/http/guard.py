"""Who may ask: tokens, how often, and no web page by a name that points here.

Without tokens, only requests to an address or to `localhost` are answered, so that no web page
can reach a server on this machine by a name that it makes point here; unless the server was told
that anyone may read.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ikebana.processor.ground.listening import names_address
from ikebana.processor.ground.rates import Rates
from ikebana.serving.access import EVERYTHING, NOTHING, Access, Grant
from ikebana.serving.http import console
from ikebana.serving.http.refusing import problem

# Probes ask without a token; what is told of collections depends on the grant all the same.
OPEN = ("/live", "/ready", "/metrics")
_GRANT = "ikebana.grant"
# Wrong tokens from one address, a second.
_GUESSES = 50.0
_MOST_SUBSCRIBERS = 1_000


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


class Guard:
    """Lets in who may ask, with what it may read, and turns everybody else away."""

    def __init__(self, app: ASGIApp, limits: Limits, rates: Callable[[], Rates] = Rates) -> None:
        self._app = app
        self._limits = limits
        self._rates = rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self._judged(scope)
            if isinstance(found, Response):
                await found(scope, receive, send)
                return
            scope[_GRANT] = found
        await self._app(scope, receive, send)

    def _judged(self, scope: Scope) -> Grant | Response:
        """Return what a request may read, or why it is turned away."""
        path: str = scope["path"]
        if console.is_of_console(path):
            return NOTHING
        headers: dict[bytes, bytes] = dict(scope["headers"])
        address = (scope.get("client") or ("",))[0]
        if self._limits.access.grants is None:
            if not self._limits.any_host and not names_address(
                headers.get(b"host", b"").decode("latin-1")
            ):
                return problem(
                    403,
                    "without a token, only requests to an address or to localhost are answered",
                    "Start `ikebana serve` with --token-file, or with --anyone.",
                )
            grant, client = EVERYTHING, address
        else:
            given = headers.get(b"authorization")
            if given is None and path in OPEN:
                return NOTHING
            token = (given or b"").decode("latin-1")
            permitted = self._limits.access.of(token.removeprefix("Bearer "))
            if permitted is None or not token.startswith("Bearer "):
                return self._unknown(address)
            grant, client = permitted, f"token {permitted.name}"
        if path in OPEN:
            return grant
        rate = self._limits.rate if grant.rate is None else grant.rate
        return _too_often(self._rates.wait(client, rate)) or grant

    def _unknown(self, address: str) -> Response:
        if (late := _too_often(self._rates.wait(f"guess {address}", _GUESSES))) is not None:
            return late
        refused = problem(401, "there is no token in the request, or a wrong one")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused


def grant_of(request: Request) -> Grant:
    """Return what the guard lets a request read."""
    found: Grant = request.scope[_GRANT]
    return found


def _too_often(wait: float) -> Response | None:
    if not wait:
        return None
    refused = problem(429, "there are too many requests", f"Ask again in {wait:.2g} s.")
    refused.headers["Retry-After"] = str(math.ceil(wait))
    return refused
