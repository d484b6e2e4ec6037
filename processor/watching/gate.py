"""Who may ask a run: anybody, or those who send a token, and what each is told.

What a run tells has three levels.  Nobody needs a token to ask whether the run is live and ready,
as probes do, and is then told yes or no and nothing else.  Metrics and the reasons name inputs,
operators and outputs.  Everything is that and what the console shows: figures, the plan, and
records where the run was told to show them.

Without tokens only requests to an address or to `localhost` are answered, so that no web page
can reach a run on this machine by a name that it makes point here; unless the run was told that
anyone may read.
"""

import math
from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from ikebana.processor.ground.listening import names_address
from ikebana.processor.ground.rates import Rates

PROBES = ("/live", "/ready")
METRICS = ("/metrics", "/metrics/spark")
_BEARER = "Bearer "
# Wrong tokens from one address, a second.
_GUESSES = 50.0


class Sight(IntEnum):
    """What somebody is told; each level has what those before it have."""

    WHETHER = 0
    METRICS = 1
    EVERYTHING = 2


class Asked(NamedTuple):
    """What matters of a request: its path, two headers, and the address that it comes from."""

    path: str
    host: str
    authorization: str | None
    address: str


class Refused(NamedTuple):
    """A status, why, and headers that say more."""

    status: int
    error: str
    hint: str = ""
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def body(self) -> bytes:
        """The reason as JSON."""
        told = {"error": self.error, "hint": self.hint} if self.hint else {"error": self.error}
        return msgspec.json.encode(told)


class Gate:
    """Judges requests; thread-safe.

    `sight` is what a token lets see, None if there is no such token; without it no token is asked
    for, and then `any_host` answers requests to any name.
    """

    def __init__(
        self,
        sight: Callable[[str], Sight | None] | None = None,
        *,
        any_host: bool = False,
        rates: Callable[[], Rates] = Rates,
    ) -> None:
        self._sight = sight
        self._any_host = any_host
        self._rates = rates()

    def judged(self, asked: Asked) -> Sight | Refused:
        """Return what a request is told, which is enough for its path, or why it is refused."""
        if self._sight is None:
            if self._any_host or names_address(asked.host):
                return Sight.EVERYTHING
            return Refused(
                403,
                "without a token, only requests to an address or to localhost are answered",
                "Start `ikebana run` with --token-file, with --anyone, or ask at --probes.",
            )
        if asked.authorization is None and asked.path in PROBES:
            return Sight.WHETHER
        given = asked.authorization or ""
        sight = self._sight(given.removeprefix(_BEARER)) if given.startswith(_BEARER) else None
        if sight is None:
            return self._unknown(asked.address)
        if sight < (Sight.METRICS if asked.path in (*PROBES, *METRICS) else Sight.EVERYTHING):
            return Refused(
                403,
                "the token may see metrics only",
                "The console needs a token that may see all collections.",
            )
        return sight

    def _unknown(self, address: str) -> Refused:
        wait = self._rates.wait(address, _GUESSES)
        if wait:
            again = {"Retry-After": str(math.ceil(wait))}
            return Refused(
                429, "there are too many requests", f"Ask again in {wait:.2g} s.", again
            )
        told = {"WWW-Authenticate": "Bearer"}
        return Refused(401, "there is no token in the request, or a wrong one", "", told)
