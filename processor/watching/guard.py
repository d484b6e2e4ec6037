"""Access control of a server or a run: tokens, rates, and protection against DNS rebinding.

A token says which collections and columns its reader sees, and how many requests it may make.
Only the SHA-256 of tokens is kept, and a file may have these instead of tokens.

Without tokens, only requests to an address or to `localhost` are answered, so that no web page
can reach a server on this machine by a host name that it points here; `any_host` turns this off.

Probes need no token.  The files of the console have no data, and the page itself asks for the
token that it sends, so they need none either.
"""

import hashlib
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Literal, NamedTuple

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ikebana.errors import ConfigError
from ikebana.processor.base.listening import Problem, names_address
from ikebana.processor.base.texts import hint
from ikebana.processor.watching import front

_ALL: Literal["all"] = "all"

_MOST_CLIENTS = 10_000


class Grant(NamedTuple):
    """The rights of a reader: `collections` by name with their visible columns, None for all.

    If `collections` is None, the reader sees all collections, and the plan.  `rate` is the number
    of requests a second, and `subscriptions` the number of open ones; None for the default.
    """

    name: str
    collections: Mapping[str, frozenset[str] | None] | None = None
    rate: float | None = None
    subscriptions: int | None = None

    def sees(self, name: str) -> bool:
        """Whether the reader sees a collection."""
        return self.collections is None or name in self.collections

    def columns(self, name: str) -> frozenset[str] | None:
        """Return the columns of a collection that the reader sees; None for all."""
        return None if self.collections is None else self.collections[name]


EVERYTHING = Grant("anyone")
NOTHING = Grant("nobody", {})


class Access(NamedTuple):
    """The grants by the SHA-256 of their tokens; None: everybody sees everything."""

    grants: Mapping[bytes, Grant] | None = None

    @classmethod
    def of_tokens(cls, tokens: Iterable[str]) -> "Access":
        """Let tokens read everything."""
        return cls(
            {
                _digest(token): Grant(f"token-{number}")
                for number, token in enumerate(tokens, start=1)
            }
        )

    def of(self, token: str) -> Grant | None:
        """Return the grant of a token; None if there is none."""
        return None if self.grants is None else self.grants.get(_digest(token))

    def check(self, names: Collection[str]) -> None:
        """Refuse a file that names collections which are not served.  Raises: ConfigError."""
        for grant in (self.grants or {}).values():
            for name in grant.collections or ():
                if name not in names:
                    raise ConfigError(
                        f'the token "{grant.name}" names a collection "{name}" that is not '
                        f"served{hint(name, list(names))}",
                        hint=f"There are: {', '.join(sorted(names))}.",
                    )


class _Columns(msgspec.Struct, forbid_unknown_fields=True):
    columns: list[str]


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    collections: Literal["all"] | list[str] | dict[str, Literal["all"] | _Columns]
    token: str | None = None
    token_sha256: str | None = None
    requests_per_second: float | None = None
    subscriptions: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[_Token]


def read_access(path: Path) -> Access:
    """Read a file of tokens: YAML by its suffix, else a token a line, which sees everything.

    Raises:
        ConfigError: the file cannot be read, is wrong, or has no token.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"could not read tokens {path}: {error}") from error
    if path.suffix in (".yaml", ".yml"):
        return _of_yaml(path, text)
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(
            f"cannot use tokens {path}: it has none", hint="Write one token on each line."
        )
    for words in lines:
        if len(words) > 1 or not words[0].isascii():
            raise ConfigError(
                f"cannot use tokens {path}: a line has more than a token of ASCII",
                hint="Write what a token may see into a YAML file, such as tokens.yaml.",
            )
    return Access.of_tokens(words[0] for words in lines)


def _of_yaml(path: Path, text: str) -> Access:
    try:
        file = msgspec.convert(yaml.safe_load(text), _File)
    except yaml.YAMLError as error:
        # Its message would quote the file.
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"cannot use tokens {path}: it is not YAML{place}") from None
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"cannot use tokens {path}: {error}",
            hint="The page on serving has an example of such a file.",
        ) from error
    grants: dict[bytes, Grant] = {}
    names: set[str] = set()
    for each in file.tokens:
        digest = _digest_of(path, each)
        if digest in grants or each.name in names:
            raise ConfigError(f'cannot use tokens {path}: "{each.name}" is there twice')
        names.add(each.name)
        grants[digest] = _grant(path, each)
    if not grants:
        raise ConfigError(f"cannot use tokens {path}: it has none")
    return Access(grants)


def _digest_of(path: Path, token: _Token) -> bytes:
    if (token.token is None) == (token.token_sha256 is None):
        raise ConfigError(
            f'cannot use tokens {path}: "{token.name}" needs `token` or `token_sha256`'
        )
    if token.token is not None:
        if not token.token or not token.token.isascii() or token.token.split() != [token.token]:
            raise ConfigError(
                f'cannot use tokens {path}: the token of "{token.name}" is no word of ASCII'
            )
        return _digest(token.token)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", token.token_sha256 or ""):
        raise ConfigError(
            f'cannot use tokens {path}: `token_sha256` of "{token.name}" is no SHA-256',
            hint="Make it: printf %s TOKEN | sha256sum",
        )
    return bytes.fromhex(token.token_sha256 or "")


def _grant(path: Path, token: _Token) -> Grant:
    for setting in ("requests_per_second", "subscriptions"):
        number = getattr(token, setting)
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(
                f'cannot use tokens {path}: {setting} of "{token.name}" is not more than 0, '
                "or not finite"
            )
    listed = token.collections
    collections: dict[str, frozenset[str] | None] | None
    if listed == _ALL or isinstance(listed, str):
        collections = None
    elif isinstance(listed, list):
        collections = dict.fromkeys(listed)
    else:
        collections = {
            name: frozenset(each.columns) if isinstance(each, _Columns) else None
            for name, each in listed.items()
        }
    return Grant(token.name, collections, token.requests_per_second, token.subscriptions)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


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
        if front.is_of_console(path):
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
    return Response(body, status, front.UNKEPT, JSON)


def _too_often(wait: float) -> Response | None:
    if not wait:
        return None
    refusal = problem(429, "there are too many requests", f"Ask again in {wait:.2g} s.")
    refusal.headers["Retry-After"] = str(math.ceil(wait))
    return refusal
